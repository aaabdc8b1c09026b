"""The connection to a Dask scheduler: lost and found again, with workers that were checked."""

import pydoc
import threading
import time
from asyncio import run_coroutine_threadsafe, sleep, wait_for
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from distributed import Client

from gatelab import __version__
from gatelab.errors import InputError, RunError

# Seconds after which a scheduler or worker that accepted a question counts as silent.
_SILENCE = 60.0
# Seconds that Dask may take beyond a time-out that it was given.
_GRACE = 2.0


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
        self._found: dict[str, int] = {}  # threads of all workers, when we last looked
        self._asked: dict[str, Future[_Verdict]] = {}
        self._refused: dict[str, Check] = {}  # and what they failed
        self.client = self._connect(timeout)
        try:
            self._check_scheduler(timeout)
        except BaseException:
            self.close()
            raise

    def _check_scheduler(self, timeout: float) -> None:
        try:
            answer = self.client.run_on_scheduler(
                SAME_VERSION.function, *SAME_VERSION.arguments, callback_timeout=timeout
            )
        except OSError as error:  # a TimeoutError is one
            raise InputError(
                f"the scheduler at {self.address} took the connection, but then did not answer within {timeout:g} s; "
                "see its log, and start it again"
            ) from error
        refusal = SAME_VERSION.refusal(answer)
        if refusal:
            raise InputError(f"the scheduler at {self.address} {refusal}")

    def _connect(self, timeout: float) -> Any:  # Dask's types do not tell which of its methods wait
        try:
            return _client(self.address, timeout)
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
        before = self.threads
        self._checks.append(check)
        self._asked = {worker: self._ask(worker, [check]) for worker in before}  # others are asked all at the next look
        self.threads = {}
        try:
            self._wait_for_answers()
        except BaseException:
            self.threads = before
            self.remove_check(check)
            raise

    def remove_check(self, check: Check) -> None:
        """Ask it no longer."""
        self._checks.remove(check)
        self._refused = {worker: failed for worker, failed in self._refused.items() if failed is not check}

    def look(self, every: float = 0.0) -> None:
        """See which workers there are; not if the last look was ``every`` seconds ago.

        Those that are new are asked while the work goes on, and belong to :attr:`threads` after a later look if they
        fit. One that does not is left out, which is said once.
        """
        if time.monotonic() - self._looked >= every:
            self._find()
        for refusal in self._take_answers():
            self.notify(f"{refusal}; it is left out")

    def wait_for_workers(self, timeout: float | None) -> None:
        """Return when there is one.

        Raises:
            InputError: there is none after ``timeout`` seconds, or one does not fit.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            self._find()
            self._wait_for_answers()
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
        self.threads, self._asked, self._looked = {}, {}, 0.0
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

    def _find(self) -> None:
        """See who is there, and begin to ask those that are new."""
        try:
            found = self._found = self.client.nthreads(callback_timeout=_SILENCE)
        except OSError:  # a TimeoutError is one
            if not self.lost:  # it is there, but silent: a new connection will tell
                self.close()
            return
        self._looked = time.monotonic()
        self.threads = {worker: count for worker, count in found.items() if worker in self.threads}
        self._asked = {worker: answer for worker, answer in self._asked.items() if worker in found}
        self._refused = {worker: check for worker, check in self._refused.items() if worker in found}
        for worker in found.keys() - self.threads.keys() - self._asked.keys() - self._refused.keys():
            self._asked[worker] = self._ask(worker, list(self._checks))

    def _ask(self, worker: str, checks: list[Check]) -> "Future[_Verdict]":
        return run_coroutine_threadsafe(_judge(self.client, worker, checks), self.client.loop.asyncio_loop)

    def _wait_for_answers(self) -> None:
        """Until all that were asked have answered, or were silent for too long."""
        wait(self._asked.values(), timeout=_SILENCE * (1 + len(self._checks)))
        for refusal in self._take_answers():
            raise InputError(refusal)

    def _take_answers(self) -> list[str]:
        """Use the workers that have answered rightly; says what is wrong with others."""
        refusals = []
        for worker, answer in list(self._asked.items()):
            if not answer.done():
                continue
            del self._asked[worker]
            if isinstance(answer.exception(), OSError):
                continue  # the scheduler went away in the meantime
            verdict = answer.result()
            if verdict.failed is not None:
                self._refused[worker] = verdict.failed
                refusals.append(f"worker {self._name(worker)} {verdict.refusal}")
            elif verdict.there:
                self.threads[worker] = self._found[worker]
        return refusals

    def _name(self, worker: str) -> str:
        about = self.client.scheduler_info(n_workers=-1)["workers"].get(worker, {})
        name = str(about.get("id", worker))
        return worker if name == worker else f"{name} ({worker})"


def _client(address: str, timeout: float) -> Any:
    """A client, or TimeoutError: Dask itself waits for ever for somebody who takes the connection and says nothing."""
    made: Future[Any] = Future()

    def make() -> None:
        try:
            made.set_result(Client(address, timeout=timeout, set_as_default=False))
        except BaseException as error:
            made.set_exception(error)

    threading.Thread(target=make, name="connect", daemon=True).start()
    try:
        return made.result(timeout + _GRACE)
    except TimeoutError:
        made.add_done_callback(lambda late: late.exception() or late.result().close())
        raise


@dataclass(frozen=True)
class _Verdict:
    """Of a worker: whether it is still there, and what is wrong with it, if anything."""

    there: bool = True
    failed: Check | None = None
    refusal: str = ""


async def _judge(client: Any, worker: str, checks: list[Check]) -> _Verdict:
    for check in checks:
        question = client.run(check.function, *check.arguments, workers=[worker], on_error="return", asynchronous=True)
        try:
            answer = (await wait_for(question, _SILENCE))[worker]
        except TimeoutError:
            return _Verdict(failed=check, refusal=f"does not answer for {_SILENCE:g} s; end it if it hangs")
        if isinstance(answer, OSError):
            await sleep(1.0)  # the scheduler may not know yet that a worker died
            if worker not in await client.nthreads(asynchronous=True):
                return _Verdict(there=False)
            return _Verdict(failed=check, refusal=f"cannot be reached ({answer}); see its log, and the network")
        refusal = check.refusal(answer)
        if refusal:
            return _Verdict(failed=check, refusal=refusal)
    return _Verdict()
