"""Those who do cells: this process, a pool of processes, the workers of a Dask scheduler."""

import multiprocessing
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch

from gatelab.lab.runs.cells import Cell, Context, Result, Work
from gatelab.work import Crew
from gatelab.work.files import locked
from gatelab.work.progress import Reporter

if TYPE_CHECKING:
    from gatelab.work.dask_executor import DaskCrew, DaskExecutor, Say

Common = tuple[Work, Any]  # what does a cell, and the run's configuration
Task = tuple[Cell, Context]
Answer = tuple[Result, float]  # and the seconds it took
Tell = Callable[[str, float, str], None]


class CellCrew(Crew, Protocol):
    """A crew whose tasks are cells.

    Attributes:
        tell: what a cell calls to say how far it is, wherever it is.
    """

    tell: Tell


_process = threading.Lock()


def do_cell(common: Common, task: Task) -> Answer:
    """Do a cell, as the only one in this process and the only one in its folder.

    Cells may use torch's global random state, so that two threads of one worker must not do one each. And the worker
    that did this cell before may be lost to its scheduler but still write files.
    """
    (work, config), (cell, context) = common, task

    def waiting() -> None:
        context.tell(0.0, "waits for another process that is still in its folder")

    with _process, locked(context.folder, waiting):
        start = time.perf_counter()
        return work(config, cell, context), time.perf_counter() - start


class Alone:
    """This process, one cell after the other."""

    def __init__(self, common: Common, reporter: Reporter):
        """Tell the reporter directly."""
        self._common, self._task = common, None
        self.tell = reporter.update

    @property
    def room(self) -> int:
        """One at a time."""
        return 1 if self._task is None else 0

    def submit(self, task: Task) -> None:
        """Take a cell."""
        self._task = task

    def next(self) -> tuple[Task, Answer]:
        """Do it."""
        task, self._task = self._task, None
        assert task is not None
        return task, do_cell(self._common, task)


class Pool:
    """Processes of this machine, which end with this one."""

    def __init__(self, common: Common, workers: int, pool: ProcessPoolExecutor):
        """Use a pool; see :func:`in_pool`."""
        self._common, self._workers, self._pool = common, workers, pool
        self._running: dict[Future[Answer], Task] = {}
        self.tell = _tell_parent

    @property
    def room(self) -> int:
        """As many as there are processes."""
        return self._workers - len(self._running)

    def submit(self, task: Task) -> None:
        """Take a cell."""
        self._running[self._pool.submit(do_cell, self._common, task)] = task

    def next(self) -> tuple[Task, Answer]:
        """Wait for one."""
        done, _ = wait(self._running, return_when=FIRST_COMPLETED)
        future = done.pop()
        return self._running.pop(future), future.result()


@contextmanager
def in_pool(common: Common, reporter: Reporter, workers: int) -> Iterator[Pool]:
    """Several processes, each with its part of torch's threads."""
    processes = multiprocessing.get_context("spawn")
    threads = max(1, torch.get_num_threads() // workers)
    messages = processes.SimpleQueue()
    listener = threading.Thread(target=_listen, args=(messages, reporter), daemon=True)
    listener.start()
    pool = ProcessPoolExecutor(workers, processes, _prepare, (messages, threads, os.getpid()))
    try:
        yield Pool(common, workers, pool)
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
        reporter.update(*message)


# In a process of the pool: where to send messages.
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


def _tell_parent(cell: str, fraction: float, text: str) -> None:
    _messages.put((cell, fraction, text))


class OnCluster:
    """Workers of a Dask scheduler, one cell at a time each."""

    def __init__(self, crew: "DaskCrew"):
        """Use a crew; see :func:`on_cluster`."""
        self._crew = crew
        self.tell: Tell = partial(_tell_client, crew.say)

    @property
    def room(self) -> int:
        """As many as there are workers."""
        return self._crew.room

    def submit(self, task: Task) -> None:
        """Take a cell."""
        self._crew.submit(task)

    def next(self) -> tuple[Task, Answer]:
        """Wait for one."""
        return self._crew.next()


@contextmanager
def on_cluster(common: Common, reporter: Reporter, executor: "DaskExecutor", folder: Path) -> Iterator[OnCluster]:
    """Workers that see the run's directory.

    Raises:
        InputError: one does not; names the worker and the directory.
    """
    probe, token = folder / "probe", uuid.uuid4().hex
    probe.write_text(token)
    refusal = (
        f"does not see the files in {folder}, where cells keep theirs; put the run on a file system that all workers "
        "share, with --out"
    )
    try:
        with executor.require(_sees, (probe, token), lambda seen: None if seen is True else refusal):
            crew = executor.crew(do_cell, common, alone=True, hear=lambda message: reporter.update(*message))
            try:
                yield OnCluster(crew)
            finally:
                crew.close()
    finally:
        probe.unlink(missing_ok=True)


def _sees(probe: Path, token: str) -> bool:
    """On a worker: is this the client's file, and may we write beside it?"""
    for _ in range(20):  # a network file system may take a moment to show a new file
        if probe.is_file() and probe.read_text() == token:
            return os.access(probe.parent, os.W_OK)
        time.sleep(0.1)
    return False


def _tell_client(say: "Say", cell: str, fraction: float, text: str) -> None:
    say((cell, fraction, text))
