"""A function's tasks on the workers of a Dask scheduler: who has which, and what is lost with whom."""

import queue
import time
import uuid
from asyncio import CancelledError, run_coroutine_threadsafe
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

import cloudpickle
import dask.config
from distributed import Future, KilledWorker

from gatelab.errors import RunError
from gatelab.work.dask_link import Link
from gatelab.work.dask_worker import Say, do, keep
from gatelab.work.held import Held

# A worker has its next task at hand while it works on one.
_AHEAD = 2
# Answers that are on their way, or here and not yet taken; the others stay with the workers.
_FETCHES = 2
# A task is given up when more workers died that had it; it may not be its fault.
_DEATHS = 12
# Seconds between looks at who is there, and before we say that nobody is: a cluster may replace a worker at once.
_LOOK = 1.0
_EMPTY = 3.0


@dataclass
class _Order:
    """A task that was submitted and not answered."""

    task: Any
    content: bytes
    worker: str | None = None
    holders: frozenset[str] = frozenset()  # who may make what it needs
    held: Any = None  # that, as a future
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
        """See :meth:`gatelab.work.dask_executor.DaskExecutor.crew`."""
        self._link, self._alone, self._hear = link, alone, hear
        self._name = f"gatelab-{uuid.uuid4().hex}"
        self._common = Held.of(function, common)
        self._tickets = count()
        self._orders: dict[int, _Order] = {}
        self._events: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
        self._finished: list[int] = []
        self._fetching: set[int] = set()
        self._held: Future | None = None
        self._holders: frozenset[str] = frozenset()  # who may make it
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
            self._move_from_the_lost()
            self._fetch()
            try:
                ticket, outcome = self._events.get(timeout=_LOOK)
            except queue.Empty:
                self._move_to_the_idle()  # not before: what has begun would be done twice
                continue
            if ticket not in self._orders:
                continue  # of a connection that was lost since
            if outcome is None:
                self._finished.append(ticket)
                continue
            order = self._take(ticket)
            answer, error = outcome.result()
            if error is None:
                return order.task, answer
            on_the_way = order.future.status != "error" and isinstance(error, OSError | CancelledError)
            if not on_the_way and not isinstance(error, KilledWorker):
                raise error  # of the function itself, or its answer cannot be sent
            self._held = None  # it may be what was lost
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
        """Give a task to the worker that has most room; if there is none, it waits here.

        Dask alone would prefer those that have ``common`` already, and let one that joins later wait. Nor may it move a
        task: it would take workers that were not checked.
        """
        slots, ticket = self._slots(), next(self._tickets)
        load = self._load()
        order.worker = min(slots, key=lambda worker: load[worker] / slots[worker], default=None)
        order.future = None
        self._orders[ticket] = order
        if order.worker is None:
            return
        try:
            order.held = self._hold()
            order.holders = self._holders
            order.future = self._link.client.submit(
                do,
                order.held,
                order.content,
                key=f"{self._name}-{ticket}",
                pure=False,
                workers=[order.worker],
                allow_other_workers=False,
            )
            order.future.add_done_callback(lambda _: self._events.put((ticket, None)))
        except Exception:
            if not self._link.lost:  # else it is sent with the others, when there is a scheduler again
                raise

    def _hold(self) -> Future:
        """Function and ``common`` as a task: the scheduler does it again when all workers that have them are lost."""
        if self._held is not None and not self._holders.isdisjoint(self._link.threads):
            return self._held
        self._holders = frozenset(self._link.threads)
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TiB"}):
            held = self._held = self._link.client.submit(
                keep,
                self._common,
                key=f"{self._name}-common-{next(self._tickets)}",
                pure=False,
                workers=list(self._holders),
                allow_other_workers=False,
            )
        return held

    def _take(self, ticket: int) -> _Order:
        """Out of all lists; what Dask still says of it is not heard."""
        self._fetching.discard(ticket)
        if ticket in self._finished:
            self._finished.remove(ticket)
        return self._orders.pop(ticket)

    def _move_from_the_lost(self) -> None:
        """Tasks of workers that died, and those that had none, go to others.

        So do those that may wait for what all tasks need from workers that died.
        """
        there = self._link.threads
        if not there:
            return
        arrived: dict[str, bool] = {}
        for ticket, order in list(self._orders.items()):
            if order.worker is not None and order.worker not in there:
                self._again(self._take(ticket))
            elif order.worker is None:
                self._send(self._take(ticket))
            elif self._is_open(ticket) and order.holders.isdisjoint(there):
                key = order.held.key
                if key not in arrived:
                    arrived[key] = self._has_arrived(order.held)
                if not arrived[key]:
                    self._send(self._take(ticket))

    def _has_arrived(self, held: Future) -> bool:
        """Whether a worker that is there has it already, and can send it on."""
        try:
            return not self._link.threads.keys().isdisjoint(self._link.client.who_has([held]).get(held.key, ()))
        except OSError:
            return True  # the scheduler may be lost, of which others take care

    def _move_to_the_idle(self) -> None:
        """Tasks that wait behind others go to workers that have nothing to do."""
        threads, load = self._link.threads, self._load()
        idle = sum(not load[worker] for worker in threads)
        for ticket, order in reversed(list(self._orders.items())):  # the last is the least likely to have begun
            if not idle:
                return
            if order.worker in threads and self._is_open(ticket) and load[order.worker] > threads[order.worker]:
                load[order.worker] -= 1
                idle -= 1
                self._send(self._take(ticket))

    def _is_open(self, ticket: int) -> bool:
        return ticket not in self._finished and ticket not in self._fetching

    def _load(self) -> Counter[str]:
        """How many tasks each worker has still to do."""
        return Counter(order.worker for ticket, order in self._orders.items() if order.worker and self._is_open(ticket))

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
        if order.failures >= _DEATHS:
            raise RunError(
                f"workers died again and again while they worked on {_short(order.task)}; see their logs, and give "
                "them more memory, or less to do at a time"
            )
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


async def _collect(client: Any, future: Any) -> tuple[Any, BaseException | None]:
    """An answer or an error; a cancelled future must not cancel the coroutine that asks."""
    try:
        return await client.gather(future, asynchronous=True), None
    except (Exception, CancelledError) as error:
        return None, error


def _short(task: Any) -> str:
    text = repr(task)
    return text if len(text) < 200 else text[:200] + "…"
