"""Workers of a Dask scheduler, on many machines."""

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

from gatelab.work.dask_crew import DaskCrew
from gatelab.work.dask_link import Check, Link
from gatelab.work.dask_worker import Say
from gatelab.work.executor import Answer, Common, Task

__all__ = ["DaskCrew", "DaskExecutor", "Say"]


class DaskExecutor:
    """The workers of a scheduler, those that join later as well.

    What is lost with a worker is done again by another. When all are lost it waits for new ones; when the scheduler is
    lost it looks for it at the same address. It says so once each time.
    """

    def __init__(self, link: Link):
        """Work through a connection; see :func:`gatelab.work.connection`."""
        self._link = link

    @property
    def parallel(self) -> int:
        """How many tasks are worked on at a time."""
        return max(1, sum(self._link.threads.values()))

    @property
    def per_process(self) -> int:
        """How many threads a worker has, the one with most: each worker is a process."""
        return max(self._link.threads.values(), default=1)

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
    ) -> DaskCrew:
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
        """Ask every worker something, and meanwhile those that join: one whose answer is wrong then is left out.

        Args:
            function: of a module.
            arguments: what it is given.
            refusal: what is wrong with an answer, to stand behind the worker's name; None if nothing.

        Raises:
            InputError: the answer of a worker that is there now is wrong.
        """
        check = Check(function, arguments, refusal)
        self._link.add_check(check)
        try:
            yield
        finally:
            self._link.remove_check(check)
