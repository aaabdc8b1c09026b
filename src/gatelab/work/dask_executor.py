"""Work on the workers of a Dask scheduler.

Dask itself places tasks, moves them to idle workers and runs them again when a worker dies. This module adds checked
workers, time-outs, and errors that say what to do.
"""

import asyncio
import concurrent.futures
import pydoc
import sys
import threading
import time
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import cloudpickle
from distributed import Client, KilledWorker, WorkerPlugin

from gatelab import __version__
from gatelab.errors import InputError, RunError
from gatelab.work.dask_worker import Say, do_task
from gatelab.work.executor import LOOK, USER_MODULE, Answer, Common, Crew, Task

# Seconds without an answer after which a scheduler or worker counts as silent.
_SILENCE = 60.0
# Seconds within which the data shared by all tasks must reach all workers.
_BROADCAST = 600.0


class DaskExecutor:
    """The workers of a scheduler, including those that join later.

    When a worker dies, Dask runs its tasks again elsewhere. When the scheduler dies, the work ends with a RunError:
    run directories and kernel stores keep what is finished, and the same command continues from there.
    """

    def __init__(self, address: str, timeout: float, notify: Callable[[str], None]):
        """Connect to a scheduler; ``notify`` receives lines for the user.

        Raises:
            InputError: no scheduler answers there, or it has another version of gatelab, or none.
        """
        self.address, self._notify = address, notify
        self._threads: dict[str, int] = {}
        self._looked, self._warned = 0.0, False
        self._client = _client(address, timeout)
        try:
            version = self._client.run_on_scheduler(pydoc.locate, "gatelab.__version__", callback_timeout=timeout)
        except OSError as error:  # includes TimeoutError
            self.close()
            raise InputError(
                f"the scheduler at {address} accepted the connection, but then did not answer within {timeout:g} s; "
                "check its log, and restart it"
            ) from error
        if version != __version__:
            self.close()
            raise InputError(f"the scheduler at {address} {_version_refusal(version)}")

    def wait_for_workers(self, timeout: float | None) -> None:
        """Wait for the first worker, then check the workers.

        Raises:
            InputError: there is no worker after ``timeout`` seconds, or a worker cannot be used.
        """
        try:
            self._client.wait_for_workers(1, timeout)
        except TimeoutError as error:
            raise InputError(
                f"the scheduler at {self.address} has no workers, and none came within {timeout:g} s; start some with "
                f"'dask worker {self.address} --nthreads 1'"
            ) from error
        # A worker without gatelab could not unpickle our functions. pydoc.locate runs there, and returns None.
        self.require(pydoc.locate, "gatelab.__version__", refusal=_version_refusal)

    def require(
        self, function: Callable[..., Any], *arguments: Any, refusal: Callable[[Any], str | None] = lambda text: text
    ) -> None:
        """Call a function on all workers; raise an InputError that names the first worker whose answer is wrong.

        ``refusal`` returns what is wrong with an answer, as a predicate ("cannot import …"), or None if nothing is.
        """

        async def ask() -> list[tuple[str, Any]]:
            """Return each worker's name with its answer, or with the error that it raised."""
            workers = (await self._client.scheduler.identity(n_workers=-1))["workers"]
            asked = [self._client.run(function, *arguments, workers=[one], on_error="return") for one in workers]
            bounded = (asyncio.wait_for(question, _SILENCE) for question in asked)
            answers = await asyncio.gather(*bounded, return_exceptions=True)
            return [
                (f"{about['id']} ({worker})", answer.get(worker) if isinstance(answer, dict) else answer)
                for (worker, about), answer in zip(workers.items(), answers, strict=True)
            ]

        for worker, answer in self._client.sync(ask):
            if isinstance(answer, TimeoutError):
                wrong = f"has not answered for {_SILENCE:g} s; stop it if it hangs"
            elif isinstance(answer, OSError):
                continue  # it died in the meantime
            else:
                wrong = refusal(answer)
            if wrong:
                raise InputError(f"worker {worker} {wrong}")

    @property
    def parallel(self) -> int:
        """The number of tasks that run at a time."""
        self.look(every=LOOK)
        return max(1, sum(self._threads.values()))

    @property
    def per_process(self) -> int:
        """The number of threads of the largest worker. Each worker is one process."""
        self.look(every=LOOK)
        return max(self._threads.values(), default=1)

    def run(
        self, function: Callable[[Common, Task], Answer], common: Common, tasks: Iterable[Task]
    ) -> Generator[tuple[Task, Answer]]:
        """Yield tasks with their answers as they come. An error of ``function`` is raised unchanged."""
        # Two for each thread: the next task is already there when a worker finishes one.
        with self.crew(function, common, per_thread=2) as (crew, _):
            yield from crew.run(tasks)

    @contextmanager
    def crew(
        self,
        function: Callable[[Any, Any], Any],
        common: Any,
        *,
        per_thread: int = 1,
        hear: Callable[..., None] = lambda *_: None,
    ) -> Iterator[tuple[Crew, Say]]:
        """Yield a crew for one function, with ``per_thread`` tasks per thread, and the :class:`Say` for its tasks."""
        name = f"gatelab/{self._client.id}/{uuid.uuid4().hex}"
        # ``common`` travels as a plugin, which Dask gives to each worker once, also to one that joins later. As
        # scattered data or a task's argument it would leave new workers idle, since Dask prefers workers that have
        # it already, and Dask's memory manager would drop it and send it again. Scattered data is lost with its
        # workers. Tests: test_a_worker_that_is_killed_and_one_that_joins,
        # test_answers_are_those_of_one_process_bit_for_bit and test_all_workers_die_and_a_new_one_comes.
        plugin: Any = WorkerPlugin()
        plugin.content = _pickled((function, common))

        def start(task: Any) -> Any:
            # Dask estimates a task's duration from tasks whose key has the same prefix.
            key = f"{function.__name__}-{uuid.uuid4().hex}"
            try:
                return self._client.submit(do_task, name, cloudpickle.dumps(task), __version__, key=key)
            except Exception:
                self.look()  # raises an error if the scheduler was lost
                raise

        self._client.subscribe_topic(name, lambda event: hear(*event[1]))
        self._bounded(_SILENCE, self._client.run_on_scheduler, _tidying())
        self._bounded(_BROADCAST, self._client.register_plugin, plugin, name)
        try:
            # Dask never stops waiting for a scheduler that hangs: test_a_scheduler_that_dies_or_hangs_during_the_work.
            look = partial(self.look, every=LOOK)
            yield Crew(start, lambda: per_thread * self.parallel, self._result, look), Say(name)
        finally:
            # Only once: the scheduler forgets a plugin before its workers do, and a worker that dies has nothing to
            # forget. A lost scheduler is reported by the code that waits for an answer.
            with suppress(OSError):
                self._once(_SILENCE, self._client.unregister_worker_plugin, name)
                self._client.unsubscribe_topic(name)

    def _once(self, seconds: float, method: Callable[..., Any], *arguments: Any) -> None:
        """Call a method of Dask's client that lacks a time-out of its own."""

        async def call() -> None:
            await method(*arguments)

        self._client.sync(call, callback_timeout=seconds)

    def _bounded(self, seconds: float, method: Callable[..., Any], *arguments: Any) -> None:
        """Call a method of Dask's client that lacks a time-out; repeat the call if a worker dies during it."""
        while True:
            try:
                return self._once(seconds, method, *arguments)
            except TimeoutError as error:
                raise self._lost() from error
            except OSError:
                self.look()

    def look(self, every: float = 0.0) -> None:
        """Update the list of workers, unless the last update was less than ``every`` seconds ago.

        Raises:
            RunError: the scheduler is lost or silent.
        """
        if time.monotonic() - self._looked < every:
            return
        try:
            self._threads = self._client.nthreads(callback_timeout=_SILENCE)
        except Exception as error:  # Dask raises several kinds
            raise self._lost() from error
        self._looked = time.monotonic()
        if not self._threads and not self._warned:
            self._notify(f"the scheduler at {self.address} has lost all its workers; waiting for new ones")
        self._warned = not self._threads

    def _result(self, future: Any, task: Any) -> Any:
        """Fetch an answer from its worker."""
        while True:
            try:
                return future.result(timeout=_SILENCE)
            except (asyncio.CancelledError, concurrent.futures.CancelledError) as error:
                raise self._lost() from error
            except KilledWorker as error:
                raise RunError(
                    f"workers died repeatedly while working on {repr(task)[:200]}; check their logs, and give "
                    "them more memory, or less to do at a time"
                ) from error
            except Exception as error:
                if future.status == "error" or not isinstance(error, OSError):
                    raise  # the function failed, or its answer cannot be pickled
                if not isinstance(error, TimeoutError):
                    raise self._lost() from error
                self.look()  # the answer takes long to transfer, or is being recomputed

    def _lost(self) -> RunError:
        return RunError(
            f"the scheduler at {self.address} was lost; finished work is kept. Start the scheduler and its workers, "
            "and run the same command again"
        )

    def close(self) -> None:
        """Disconnect from the scheduler."""
        with suppress(OSError):
            self._client.close(timeout=2)


def _client(address: str, timeout: float) -> Any:  # Dask's types do not say which of its methods block
    """Connect in another thread, since Dask waits without limit for a server that accepts and then stays silent.

    Shown by test_somebody_accepts_the_connection_and_says_nothing.
    """
    made: concurrent.futures.Future[Any] = concurrent.futures.Future()

    def make() -> None:
        try:
            made.set_result(Client(address, timeout=timeout, set_as_default=False))
        except BaseException as error:
            made.set_exception(error)

    threading.Thread(target=make, name="connect", daemon=True).start()
    try:
        return made.result(timeout + 2)  # Dask may take a little longer than its own time-out
    except OSError as error:  # includes TimeoutError
        made.add_done_callback(lambda late: late.exception() or late.result().close())
        raise InputError(
            f"no Dask scheduler answers at {address} within {timeout:g} s; start one with 'dask scheduler', or correct "
            "the address"
        ) from error
    except ValueError as error:
        raise InputError(f"'{address}' is not a scheduler's address ({error}); write tcp://host:port") from error


def _tidying() -> Callable[[Any], Any]:
    """Return a function that removes killed clients' plugins; it is local, so the scheduler imports nothing."""

    async def tidy(dask_scheduler: Any) -> None:
        for name in list(dask_scheduler.worker_plugins):
            if name.startswith("gatelab/") and name.split("/")[1] not in dask_scheduler.clients:
                await dask_scheduler.unregister_worker_plugin(None, name)

    return tidy


def _pickled(content: Any) -> bytes:
    """Pickle with the code of a user's own file, which no worker could import."""
    for name, module in list(sys.modules.items()):
        if name.startswith(USER_MODULE):
            cloudpickle.register_pickle_by_value(module)
    return cloudpickle.dumps(content)


def _version_refusal(answer: Any) -> str | None:
    if answer == __version__:
        return None
    remedy = f"install gatelab {__version__} where it runs"
    if isinstance(answer, str):
        return f"has gatelab {answer}, but this client has {__version__}; {remedy}"
    why = f" ({answer})" if isinstance(answer, Exception) else ""
    return f"cannot import gatelab{why}; {remedy}"
