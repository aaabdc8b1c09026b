"""Workers of a Dask scheduler, on many machines."""

import queue
import sys
import time
import uuid
from asyncio import CancelledError, run_coroutine_threadsafe
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count, islice
from typing import Any

import cloudpickle
import dask.config
from distributed import Future, KilledWorker

from gatelab.errors import RunError
from gatelab.executors.base import USER_MODULE, Answer, Common, Task
from gatelab.executors.dask_link import Check, Link
from gatelab.executors.dask_worker import Held, Say, do, keep

# A worker has its next task at hand while it works on one.
_AHEAD = 2
# Answers that are on their way, or here and not yet taken; the others stay with the workers.
_FETCHES = 2
# Dask gives a task up when four workers died under it, perhaps without its fault; we give it up after so many of these.
_PATIENCE = 3
# Seconds between looks at who is there, and before we say that nobody is: a cluster may replace a worker at once.
_LOOK = 1.0
_EMPTY = 3.0


class DaskExecutor:
    """The workers of a scheduler, those that join later as well.

    What is lost with a worker is done again by another. When all are lost it waits for new ones; when the scheduler is
    lost it looks for it at the same address. It says so once each time.
    """

    def __init__(self, link: Link):
        """Work through a connection; see :func:`gatelab.executors.connect`."""
        self._link = link

    @property
    def parallel(self) -> int:
        """How many tasks are worked on at a time."""
        return max(1, sum(self._link.threads.values()))

    def run(
        self, function: Callable[[Common, Task], Answer], common: Common, tasks: Iterable[Task]
    ) -> Generator[tuple[Task, Answer]]:
        """Tasks with their answers as they come; an error of ``function`` is raised as it is."""
        waiting, crew = iter(tasks), self.crew(function, common)
        try:
            while True:
                for task in islice(waiting, crew.room):
                    crew.submit(task)
                if not len(crew):
                    return
                yield crew.next()
        finally:
            crew.close()

    def crew(
        self,
        function: Callable[[Any, Any], Any],
        common: Any,
        *,
        alone: bool = False,
        hear: Callable[[Any], None] | None = None,
    ) -> "DaskCrew":
        """Those who work on one function's tasks.

        Args:
            function: of a module.
            common: what all tasks need.
            alone: give a worker one task at a time, whatever its threads.
            hear: is told what tasks say; see :attr:`DaskCrew.say`.
        """
        return DaskCrew(self._link, function, common, alone, hear)

    @contextmanager
    def require(
        self, function: Callable[..., Any], arguments: tuple[Any, ...], refusal: Callable[[Any], str | None]
    ) -> Iterator[None]:
        """Ask every worker something, and meanwhile those that join.

        Args:
            function: of a module.
            arguments: what it is given.
            refusal: what is wrong with an answer, to stand behind the worker's name; None if nothing.

        Raises:
            InputError: a worker's answer is wrong.
        """
        check = Check(function, arguments, refusal)
        self._link.add_check(check)
        try:
            yield
        finally:
            self._link.remove_check(check)


@dataclass
class _Order:
    """A task that was submitted and not answered."""

    task: Any
    content: bytes
    worker: str | None = None
    future: Any = None
    failures: int = 0


class DaskCrew:
    """The workers of a scheduler at one function."""

    def __init__(
        self,
        link: Link,
        function: Callable[[Any, Any], Any],
        common: Any,
        alone: bool,
        hear: Callable[[Any], None] | None,
    ):
        """See :meth:`DaskExecutor.crew`."""
        self._link, self._alone, self._hear = link, alone, hear
        self._name = f"gatelab-{uuid.uuid4().hex}"
        self._content = _pickled((function, common))
        self._tickets = count()
        self._orders: dict[int, _Order] = {}
        self._events: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
        self._finished: list[int] = []
        self._fetching: set[int] = set()
        self._held: Future | None = None
        self._seen: float | None = time.monotonic()  # when there was a worker; None if it was said that there is none
        self._listen()

    def __len__(self) -> int:
        """Tasks that were submitted and not answered."""
        return len(self._orders)

    @property
    def say(self) -> Say:
        """What a task may call to be heard by ``hear``."""
        return Say(self._name)

    @property
    def room(self) -> int:
        """How many more tasks the workers can use now."""
        return max(0, sum(self._slots().values()) - len(self._orders), 1 - len(self._orders))

    def submit(self, task: Any) -> None:
        """Take a task."""
        self._send(_Order(task, cloudpickle.dumps(task)))

    def next(self) -> tuple[Any, Any]:
        """A task with its answer.

        Raises:
            RunError: the scheduler is lost for good, or workers die of a task.
        """
        while True:
            if self._link.lost:
                self._renew()
            self._link.look(every=_LOOK)
            self._say_if_empty()
            self._fetch()
            try:
                ticket, outcome = self._events.get(timeout=_LOOK)
            except queue.Empty:
                continue
            if ticket not in self._orders:
                continue  # of a connection that was lost since
            if outcome is None:
                self._finished.append(ticket)
                continue
            order = self._orders.pop(ticket)
            self._fetching.discard(ticket)
            answer, error = outcome.result()
            if error is None:
                return order.task, answer
            on_the_way = order.future.status != "error" and isinstance(error, OSError | CancelledError)
            if not on_the_way and not isinstance(error, KilledWorker):
                raise error  # of the function itself, or its answer cannot be sent
            self._again(order)

    def close(self) -> None:
        """Let what was not answered go."""
        self._orders.clear()
        self._held = None
        if self._hear and not self._link.lost:
            self._link.client.unsubscribe_topic(self._name)

    def _slots(self) -> dict[str, int]:
        """How many tasks each worker may have."""
        return {worker: 1 if self._alone else _AHEAD * threads for worker, threads in self._link.threads.items()}

    def _send(self, order: _Order) -> None:
        """Give a task to the worker that has most room.

        Dask alone would prefer those that have ``common`` already, and let one that joins later wait. It may still move
        a task, if the worker dies or another is idle.
        """
        slots, ticket = self._slots(), next(self._tickets)
        load = Counter(other.worker for other in self._orders.values())
        order.worker = min(slots, key=lambda worker: load[worker] / slots[worker], default=None)
        self._orders[ticket] = order
        try:
            if self._held is None:
                self._held = self._hold()
            order.future = self._link.client.submit(
                do,
                self._held,
                order.content,
                key=f"{self._name}-{ticket}",
                pure=False,
                workers=None if order.worker is None else [order.worker],
                allow_other_workers=order.worker is not None,
            )
            order.future.add_done_callback(lambda _: self._events.put((ticket, None)))
        except Exception:
            if not self._link.lost:  # else it is sent with the others, when there is a scheduler again
                raise

    def _hold(self) -> Future:
        """Function and ``common`` as a task: the scheduler does it again when all workers that have them are lost."""
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TiB"}):
            held = Held(self._content)
            return self._link.client.submit(keep, held, key=f"{self._name}-common-{next(self._tickets)}", pure=False)

    def _fetch(self) -> None:
        """Let some answers come; an answer stays with its worker until it is its turn."""
        while self._finished and len(self._fetching) < _FETCHES:
            ticket = self._finished.pop(0)
            self._fetching.add(ticket)
            client = self._link.client
            arriving = run_coroutine_threadsafe(_collect(client, self._orders[ticket].future), client.loop.asyncio_loop)
            arriving.add_done_callback(lambda outcome, ticket=ticket: self._events.put((ticket, outcome)))

    def _again(self, order: _Order) -> None:
        order.failures += not self._link.lost
        if order.failures > _PATIENCE:
            raise RunError(
                f"workers died again and again while they worked on {_short(order.task)}; see their logs, and give "
                "them more memory, or less to do at a time"
            )
        self._held = None  # it may be what was lost
        self._send(order)

    def _renew(self) -> None:
        """Everything that is not answered goes to the scheduler that stands where the old one stood."""
        self._link.renew()
        orders = list(self._orders.values())
        self._orders, self._finished, self._fetching, self._held = {}, [], set(), None
        self._link.look()
        self._listen()
        for order in orders:
            self._send(order)

    def _listen(self) -> None:
        hear = self._hear
        if hear:
            self._link.client.subscribe_topic(self._name, lambda event: hear(event[1]))

    def _say_if_empty(self) -> None:
        if self._link.threads:
            self._seen = time.monotonic()
        elif self._seen is not None and time.monotonic() - self._seen > _EMPTY:
            self._seen = None
            self._link.notify(
                f"the scheduler at {self._link.address} has no workers any more; {len(self._orders)} tasks wait for "
                "new ones"
            )


def _pickled(things: Any) -> bytes:
    """With the code of a user's own file, which no worker could import."""
    for name, module in list(sys.modules.items()):
        if name.startswith(USER_MODULE):
            cloudpickle.register_pickle_by_value(module)
    return cloudpickle.dumps(things)


async def _collect(client: Any, future: Any) -> tuple[Any, BaseException | None]:
    """An answer or an error; a cancelled future must not cancel the coroutine that asks."""
    try:
        return await client.gather(future, asynchronous=True), None
    except (Exception, CancelledError) as error:
        return None, error


def _short(task: Any) -> str:
    text = repr(task)
    return text if len(text) < 200 else text[:200] + "…"
