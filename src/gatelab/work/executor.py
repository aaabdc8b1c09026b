"""What every place of work promises."""

from collections.abc import Callable, Generator, Iterable
from typing import Any, Protocol, TypeVar, runtime_checkable

# How modules are called that were made from a user's file, and are on no worker's path.
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
        """Tasks with their answers as they come, in any order; a task may be tried twice, but is answered once.

        Args:
            function: of a module, pure but for what it caches in ``common``.
            common: what all tasks need, sent to each worker once.
            tasks: small; only as many are taken at a time as the workers can use.
        """
        ...

    @property
    def parallel(self) -> int:
        """How many tasks are worked on at a time."""
        ...

    @property
    def per_process(self) -> int:
        """How many of them at most in one process, which holds ``common`` once and shares its memory among them."""
        ...


@runtime_checkable
class Crew(Protocol):
    """Those who work on one function's tasks, for callers whose next task depends on earlier answers."""

    @property
    def room(self) -> int:
        """How many more tasks they can use now."""
        ...

    def submit(self, task: Any) -> None:
        """Take a task."""
        ...

    def next(self) -> tuple[Any, Any]:
        """Some task that was submitted, and its answer; waits for it."""
        ...
