"""Work in threads of this process, and the number of threads that torch uses."""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from threading import Lock

import torch

from gatelab.work.executor import Answer, Common, Crew, Task


class Here:
    """An executor on threads of this process.

    Every task has one thread for its linear algebra. Its answer does not depend on how many tasks run beside it, and is
    the same as from a worker on another machine.

    Example:
        >>> sorted(Here(2).run(pow, 2, [3, 1]))
        [(1, 2), (3, 8)]
    """

    def __init__(self, threads: int | None = None):
        """Use ``threads`` threads; None means as many as torch uses now."""
        self._threads = threads or torch.get_num_threads()

    @property
    def parallel(self) -> int:
        """The number of tasks that run at a time."""
        return self._threads

    @property
    def per_process(self) -> int:
        """The same number: there is one process."""
        return self._threads

    def run(
        self, function: Callable[[Common, Task], Answer], common: Common, tasks: Iterable[Task]
    ) -> Generator[tuple[Task, Answer]]:
        """Yield tasks with their answers as they come.

        Args:
            function: called with ``common`` and a task, in several threads at a time.
            common: what all tasks need.
            tasks: taken one by one, when a thread has room for the next.
        """
        with one_thread_each(), ThreadPoolExecutor(self._threads) as pool:
            # One task more than threads: no thread is idle while the caller handles an answer.
            crew = Crew(lambda task: pool.submit(function, common, task), limit=lambda: self._threads + 1)
            try:
                yield from crew.run(tasks)
            finally:
                pool.shutdown(wait=True, cancel_futures=True)


def in_order(function: Callable[[Task], Answer], items: Iterable[Task], threads: int) -> Generator[tuple[Task, Answer]]:
    """Yield items with the function's answers, in the order of the items.

    A pool of threads calls the function. The caller's thread takes the items, so the next ones are read while others
    are being worked on: at most ``threads`` + 1 before the first answer is yielded.

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
    """Limit each of torch's operations to one thread until the last caller has left.

    Torch keeps this number per Python thread, and new threads inherit the number that was set last. Counting the
    callers makes sure that every thread started in the meantime gets one.
    """
    global _inside, _before  # noqa: PLW0603  torch's setting is global
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


# From this many multiplications in a batch's forward pass, several threads may pay. Measured on two cores: up to 1e7,
# even the fastest of many steps of a dense network was slower with a second thread (2.2 ms against 1.8 ms). On a
# busy machine the mean step was 3 to 20 times slower at every size, since a product waits for its slowest thread: the
# demo took 9 minutes instead of 22 seconds. At this limit a step takes about 5 ms.
_SEVERAL_THREADS_PAY = 2**25


def threads_for(multiplications: int) -> AbstractContextManager[None]:
    """Let torch use one thread for steps of a small computation, and all of its threads for a large one.

    The choice depends only on the multiplications of a step, never on the machine or its load. Small computations
    therefore sum in the same order on every machine; for large ones this function changes nothing.

    Example:
        >>> with threads_for(multiplications=1000):
        ...     torch.get_num_threads()
        1
    """
    return one_thread_each() if multiplications < _SEVERAL_THREADS_PAY else nullcontext()
