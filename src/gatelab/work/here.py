"""Threads of this process, each with one thread of its own for linear algebra."""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from threading import Lock

import torch

from gatelab.work.executor import Answer, Common, Crew, Task


class Here:
    """Several tasks at a time, as many as torch has threads.

    Every task has one thread for its linear algebra: its answer does not depend on how many run beside it, and is the
    same as from a worker elsewhere.

    Example:
        >>> sorted(Here(2).run(pow, 2, [3, 1]))
        [(1, 2), (3, 8)]
    """

    def __init__(self, threads: int | None = None):
        """Use ``threads`` threads; None takes as many as torch has now."""
        self._threads = threads or torch.get_num_threads()

    @property
    def parallel(self) -> int:
        """How many tasks are worked on at a time."""
        return self._threads

    @property
    def per_process(self) -> int:
        """All of them: there is one process."""
        return self._threads

    def run(
        self, function: Callable[[Common, Task], Answer], common: Common, tasks: Iterable[Task]
    ) -> Generator[tuple[Task, Answer]]:
        """Yield tasks with their answers as they come."""
        with one_thread_each(), ThreadPoolExecutor(self._threads) as pool:
            # One more than threads: none is idle while the caller takes an answer.
            crew = Crew(lambda task: pool.submit(function, common, task), self._threads + 1)
            try:
                yield from crew.run(tasks)
            finally:
                pool.shutdown(wait=True, cancel_futures=True)


def in_order(function: Callable[[Task], Answer], items: Iterable[Task], threads: int) -> Generator[tuple[Task, Answer]]:
    """Items with the function's answers, in the order of the items, ``threads`` of them worked on at a time.

    Items are asked for in the caller's thread, one more than threads at most before the first answer is taken.

    Example:
        >>> list(in_order(abs, [-3, 1], 2))
        [(-3, 3), (1, 1)]
    """
    running: deque[tuple[Task, Future[Answer]]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        try:
            for item in items:
                running.append((item, pool.submit(function, item)))
                while running and (len(running) > threads or running[0][1].done()):
                    first, answer = running.popleft()
                    yield first, answer.result()
            while running:
                first, answer = running.popleft()
                yield first, answer.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


_inside, _before, _guard = 0, 0, Lock()


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Let torch's operations use one thread each; put it back when the last of those who asked is through."""
    global _inside, _before  # noqa: PLW0603  torch's setting is global, too
    with _guard:
        if _inside == 0:
            _before = torch.get_num_threads()
        _inside += 1
        torch.set_num_threads(1)
    try:
        yield
    finally:
        with _guard:
            _inside -= 1
            if _inside == 0:
                torch.set_num_threads(_before)


# Multiplications of one batch's forward pass from which on several threads may pay. On two idle cores, dense networks
# gained nothing from a second thread up to 1e7 (2.2 ms a step against 1.8 ms). Beside other work the second thread
# cost a factor of 5 to 20 at every size, since each of a step's many small products waits for both threads: the demo
# took 9 minutes instead of 22 seconds. Above the limit a step takes about 5 ms and more.
_SEVERAL_THREADS_PAY = 2**25


def threads_for(multiplications: int) -> AbstractContextManager[None]:
    """Let torch use one thread for steps of a small computation, and all of its threads for a large one.

    The choice depends on the computation alone, never on the machine or its load. Small computations therefore have
    the same order of sums on every machine; large ones have what they had without this function.

    Args:
        multiplications: of one step, say of a network's forward pass on one batch.

    Returns:
        A context manager.

    Example:
        >>> with threads_for(multiplications=1000):
        ...     torch.get_num_threads()
        1
    """
    return one_thread_each() if multiplications < _SEVERAL_THREADS_PAY else nullcontext()
