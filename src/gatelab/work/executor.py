"""The executor protocol, and crews: workers that take tasks one after the other."""

from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from itertools import islice
from queue import Empty, SimpleQueue
from typing import Any, Protocol, TypeVar, runtime_checkable

# Seconds between two checks of the workers while no answer arrives.
LOOK = 1.0
# The prefix of modules that were made from a user's file. No worker can import them by name.
USER_MODULE = "gatelab_user_"

Common = TypeVar("Common")
Task = TypeVar("Task")
Answer = TypeVar("Answer")


@runtime_checkable
class Executor(Protocol):
    """Runs one function on many tasks."""

    def run(
        self, function: Callable[[Common, Task], Answer], common: Common, tasks: Iterable[Task]
    ) -> Generator[tuple[Task, Answer]]:
        """Yield tasks with their answers, in any order. A task may run twice, but is answered once.

        Args:
            function: a function of a module, pure except for what it caches in ``common``.
            common: what all tasks need. Each worker receives it once.
            tasks: small objects, taken only as fast as the workers can use them.
        """
        ...

    @property
    def parallel(self) -> int:
        """The number of tasks that run at a time."""
        ...

    @property
    def per_process(self) -> int:
        """The largest number of tasks that run at a time in one process and share one ``common``."""
        ...


class Crew:
    """Workers on one function, for callers whose next task depends on earlier answers.

    Example:
        >>> from concurrent.futures import ThreadPoolExecutor
        >>> with ThreadPoolExecutor() as pool:
        ...     crew = Crew(lambda task: pool.submit(abs, task), limit=lambda: 2)
        ...     sorted(crew.run([-3, 1]))
        [(-3, 3), (1, 1)]
    """

    def __init__(
        self,
        start: Callable[[Any], Any],
        limit: Callable[[], int],
        result: Callable[[Any, Any], Any] = lambda future, _: future.result(),
        look: Callable[[], None] = lambda: None,
    ):
        """Make a crew from a function that starts tasks.

        Args:
            start: starts a task and returns a future of the answer.
            limit: returns the number of tasks that may be under way.
            result: returns the answer of a finished future; its second argument is the task.
            look: called at least once a second while waiting for an answer; raises an error if none can come.
        """
        self._start, self._limit, self._result, self._look = start, limit, result, look
        self._running: dict[Any, Any] = {}  # futures with their tasks
        self._done: SimpleQueue[Any] = SimpleQueue()

    @property
    def room(self) -> int:
        """The number of further tasks that the workers can use now."""
        return max(0, self._limit() - len(self._running))

    def submit(self, task: Any) -> None:
        """Start a task."""
        future = self._start(task)
        self._running[future] = task
        future.add_done_callback(self._done.put)

    def next(self) -> tuple[Any, Any]:
        """Wait for the next answer; return its task and the answer."""
        future = None
        while future is None:
            self._look()
            with suppress(Empty):
                future = self._done.get(timeout=LOOK)
        task = self._running.pop(future)
        return task, self._result(future, task)

    def run(self, tasks: Iterable[Any]) -> Generator[tuple[Any, Any]]:
        """Yield all tasks with their answers, in any order."""
        waiting = iter(tasks)
        while True:
            for task in islice(waiting, self.room):
                self.submit(task)
            if not self._running:
                return
            yield self.next()
