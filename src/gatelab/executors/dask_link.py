"""The connection to a Dask scheduler: lost and found again, with workers that were checked."""

import pydoc
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from distributed import Client

from gatelab import __version__
from gatelab.errors import InputError, RunError

# Seconds after which a scheduler or worker that accepted a question counts as silent.
_SILENCE = 60.0


@dataclass(frozen=True)
class Check:
    """A question that every worker must answer rightly before it gets work.

    Attributes:
        function: what a worker runs; of a module that it has.
        arguments: what it is given.
        refusal: what is wrong with an answer, to stand behind the worker's name; None if nothing.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    refusal: Callable[[Any], str | None]


def _version_refusal(answer: Any) -> str | None:
    if answer == __version__:
        return None
    remedy = f"install gatelab {__version__} where it runs"
    if isinstance(answer, str):
        return f"has gatelab {answer}, and here is {__version__}; {remedy}"
    why = f" ({answer})" if isinstance(answer, Exception) else ""
    return f"cannot import gatelab{why}; {remedy}"


# pydoc's: a worker without gatelab could not even read a question of ours. It answers None then.
SAME_VERSION = Check(pydoc.locate, ("gatelab.__version__",), _version_refusal)


class Link:
    """A client of one scheduler, and the workers it may use.

    Attributes:
        address: of the scheduler.
        client: Dask's; another one after a loss.
        threads: of each worker that passed all checks, by address.
    """

    def __init__(self, address: str, timeout: float, patience: float, notify: Callable[[str], None]):
        """Connect.

        Args:
            address: tcp://host:port.
            timeout: seconds for the first connection.
            patience: seconds to look for a scheduler that was lost.
            notify: told in a line what a person should know.

        Raises:
            InputError: nobody answers there, or without gatelab.
        """
        self.address, self.notify = address, notify
        self.threads: dict[str, int] = {}
        self._patience, self._checks, self._looked = patience, [SAME_VERSION], 0.0
        self.client = self._connect(timeout)
        refusal = _version_refusal(self.client.run_on_scheduler(pydoc.locate, *SAME_VERSION.arguments))
        if refusal:
            self.close()
            raise InputError(f"the scheduler at {address} {refusal}")

    def _connect(self, timeout: float) -> Any:  # Dask's types do not tell which of its methods wait
        try:
            return Client(self.address, timeout=timeout, set_as_default=False)
        except OSError as error:
            raise InputError(
                f"no Dask scheduler answers at {self.address} within {timeout:g} s; start one with 'dask scheduler', "
                "or correct the address"
            ) from error
        except ValueError as error:
            raise InputError(
                f"'{self.address}' is not a scheduler's address ({error}); write tcp://host:port"
            ) from error

    @property
    def lost(self) -> bool:
        """Whether the scheduler is gone."""
        return self.client.status != "running"

    def add_check(self, check: Check) -> None:
        """Ask one thing more of every worker, now and when one joins.

        Raises:
            InputError: a worker's answer is not right; names the worker.
        """
        self._checks.append(check)
        try:
            self._apply(check, list(self.threads))
        except BaseException:
            self._checks.remove(check)
            raise

    def remove_check(self, check: Check) -> None:
        """Ask it no longer."""
        self._checks.remove(check)

    def look(self, every: float = 0.0) -> None:
        """See which workers there are and check those that are new; not if the last look was ``every`` seconds ago."""
        if time.monotonic() - self._looked < every:
            return
        try:
            found = self.client.nthreads(callback_timeout=_SILENCE)
            new = [worker for worker in found if worker not in self.threads]
            for check in self._checks:
                new = self._apply(check, new)
        except OSError:  # a TimeoutError is one
            if not self.lost:  # it is there, but silent: a new connection will tell
                self.close()
            return
        self.threads = {worker: count for worker, count in found.items() if worker in self.threads or worker in new}
        self._looked = time.monotonic()

    def wait_for_workers(self, timeout: float | None) -> None:
        """Return when there is one.

        Raises:
            InputError: there is none after ``timeout`` seconds.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            self.look()
            if self.threads:
                return
            if self.lost:
                raise InputError(f"the scheduler at {self.address} went away; start it again")
            if deadline is not None and time.monotonic() > deadline:
                raise InputError(
                    f"the scheduler at {self.address} has no workers, and none came within {timeout:g} s; start some "
                    f"with 'dask worker {self.address} --nthreads 1'"
                )
            time.sleep(0.1)

    def renew(self) -> None:
        """Connect again after a loss.

        Raises:
            RunError: nobody answered for as long as our patience is.
        """
        self.notify(f"the scheduler at {self.address} is lost; looking for it for {self._patience:g} s")
        self.close()
        self.threads, self._looked = {}, 0.0
        deadline = time.monotonic() + self._patience
        while True:
            try:
                self.client = self._connect(max(1.0, min(5.0, deadline - time.monotonic())))
            except InputError:
                if time.monotonic() > deadline:
                    raise RunError(
                        f"the scheduler at {self.address} was lost, and nobody answered there for {self._patience:g} "
                        "s; start it and its workers, and run the same command again"
                    ) from None
                time.sleep(0.2)
            else:
                return

    def close(self) -> None:
        """Leave the scheduler."""
        with suppress(OSError, TimeoutError):
            self.client.close(timeout=2)

    def _apply(self, check: Check, workers: list[str]) -> list[str]:
        """Workers that pass; those that went away in the meantime do not."""
        if not workers:
            return []
        try:
            answers = self.client.run(
                check.function, *check.arguments, workers=workers, on_error="return", callback_timeout=_SILENCE
            )
        except TimeoutError:
            raise InputError(
                f"a worker of {', '.join(workers)} does not answer for {_SILENCE:g} s; end those that hang"
            ) from None
        there = {worker: answer for worker, answer in answers.items() if not isinstance(answer, OSError)}
        for worker, answer in there.items():
            refusal = check.refusal(answer)
            if refusal:
                raise InputError(f"worker {self._name(worker)} {refusal}")
        return list(there)

    def _name(self, worker: str) -> str:
        about = self.client.scheduler_info(n_workers=-1)["workers"].get(worker, {})
        name = str(about.get("id", worker))
        return worker if name == worker else f"{name} ({worker})"
