"""Running the cells of a run: in this process or in several, never one twice."""

import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch

from gatelab.errors import RunError
from gatelab.runs.directory import Run
from gatelab.runs.journal import Result


@dataclass(frozen=True)
class Cell:
    """One piece of a run: what to do, and what must be finished before.

    Attributes:
        name: unique in the run.
        parameters: what tells it from the others, as plain data.
        needs: names of cells whose results or files it reads.
        weight: how long it takes, relative to the others.
    """

    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    weight: float = 1.0


@dataclass(frozen=True)
class Context:
    """What a cell may use while it works.

    Attributes:
        folder: for its files: a checkpoint, and what others read.
        results: of the cells that it needs.
        folders: of the cells that it needs.
        tell: say how far it is, between 0 and 1, and in words.
    """

    folder: Path
    results: Mapping[str, Result]
    folders: Mapping[str, Path]
    tell: Callable[[float, str], None]


Work = Callable[[Any, Cell, Context], Result]


@runtime_checkable
class Reporter(Protocol):
    """Told what happens; draws a bar, or writes lines."""

    def start(self, cells: Iterable[Cell], done: Iterable[str]) -> None:
        """The run begins or goes on."""
        ...

    def tell(self, cell: str, fraction: float, text: str) -> None:
        """A cell is so far."""
        ...

    def finish(self, cell: str) -> None:
        """A cell is done."""
        ...


def execute(
    run: Run, config: Any, cells: list[Cell], work: Work, reporter: Reporter, workers: int = 1
) -> dict[str, Result]:
    """Run all cells that the journal does not hold; returns the results of all.

    ``work`` must be deterministic, and keep its state in ``context.folder`` if it wants to be taken up again. With
    several workers it runs in other processes, and must be a function of a module.

    Raises:
        RunError: a cell needs one that does not exist, or the directory is in use.
    """
    names = {cell.name for cell in cells}
    if len(names) != len(cells):
        raise RunError(f"two cells have one name among {', '.join(cell.name for cell in cells)}")
    for cell in cells:
        missing = set(cell.needs) - names
        if missing:
            raise RunError(f"cell {cell.name} needs {', '.join(sorted(missing))}, which the run does not have")
    with run.locked():
        results = {name: result for name, result in run.journal.results().items() if name in names}
        reporter.start(cells, list(results))
        waiting = [cell for cell in cells if cell.name not in results]
        if workers == 1:
            _run_here(run, config, waiting, results, work, reporter)
        else:
            _run_in_pool(run, config, waiting, results, work, reporter, workers)
        return {cell.name: results[cell.name] for cell in cells}


def _context(run: Run, cell: Cell, results: Mapping[str, Result], tell: Callable[[float, str], None]) -> Context:
    folder = run.folder(cell.name)
    folder.mkdir(parents=True, exist_ok=True)
    needed = {name: results[name] for name in cell.needs}
    return Context(folder, needed, {name: run.folder(name) for name in cell.needs}, tell)


def _run_here(
    run: Run, config: Any, waiting: list[Cell], results: dict[str, Result], work: Work, reporter: Reporter
) -> None:
    while waiting:
        cell = next(cell for cell in waiting if all(name in results for name in cell.needs))
        waiting.remove(cell)
        start = time.perf_counter()
        context = _context(
            run, cell, results, lambda fraction, text, name=cell.name: reporter.tell(name, fraction, text)
        )
        result = work(config, cell, context)
        run.journal.append(cell.name, result, time.perf_counter() - start)
        results[cell.name] = run.journal.results()[cell.name]  # as a later process would read it
        reporter.finish(cell.name)


def _run_in_pool(
    run: Run, config: Any, waiting: list[Cell], results: dict[str, Result], work: Work, reporter: Reporter, workers: int
) -> None:
    processes = multiprocessing.get_context("spawn")
    threads = max(1, torch.get_num_threads() // workers)
    messages = processes.SimpleQueue()
    listener = threading.Thread(target=_listen, args=(messages, reporter), daemon=True)
    listener.start()
    pool = ProcessPoolExecutor(workers, processes, _prepare, (messages, threads, os.getpid()))
    running: dict[Future[tuple[Result, float]], Cell] = {}
    try:
        while waiting or running:
            for cell in [cell for cell in waiting if all(name in results for name in cell.needs)]:
                waiting.remove(cell)
                running[pool.submit(_work_there, work, config, cell, _context(run, cell, results, _say(cell.name)))] = (
                    cell
                )
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                cell, (result, seconds) = running.pop(future), future.result()
                run.journal.append(cell.name, result, seconds)
                results[cell.name] = run.journal.results()[cell.name]
                reporter.finish(cell.name)
    except BaseException:
        for process in list((pool._processes or {}).values()):
            process.terminate()
        # The listener is left to itself: a worker that ended inside a message may hold the queue's lock for ever.
        pool.shutdown(wait=True, cancel_futures=True)
        raise
    pool.shutdown()
    messages.put(None)
    listener.join()


def _listen(messages: Any, reporter: Reporter) -> None:
    while (message := messages.get()) is not None:
        reporter.tell(*message)


# In a worker process: where to send messages.
_messages: Any = None


def _prepare(messages: Any, threads: int, parent: int) -> None:
    global _messages  # noqa: PLW0603  a worker process has nothing but its globals
    _messages = messages
    torch.set_num_threads(threads)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    """Nobody is left who could note a result once the parent is gone, however it went."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


@dataclass(frozen=True)
class _say:  # noqa: N801  stands where a function does, but can be sent to another process
    cell: str

    def __call__(self, fraction: float, text: str) -> None:
        _messages.put((self.cell, fraction, text))


def _work_there(work: Work, config: Any, cell: Cell, context: Context) -> tuple[Result, float]:
    start = time.perf_counter()
    return work(config, cell, context), time.perf_counter() - start
