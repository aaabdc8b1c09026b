"""The crews that do a run's cells: this process, a pool of processes, or the workers of a Dask scheduler."""

import multiprocessing
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from gatelab.errors import InputError
from gatelab.lab.runs.cells import Cell, Context, Result, Work
from gatelab.work.executor import Crew
from gatelab.work.files import locked, write_durably
from gatelab.work.progress import Reporter
from gatelab.work.signals import kept_from_children

if TYPE_CHECKING:
    from gatelab.work.dask_executor import DaskExecutor

Common = tuple[Work, Any]  # what does a cell, and the run's configuration
Task = tuple[Cell, Context]
Tell = Callable[[str, float, str], None]  # a cell reports its name, its finished fraction, and a text

_process = threading.Lock()


def do_cell(common: Common, task: Task) -> tuple[Result, float]:
    """Run a cell; return its result and the seconds it took.

    A cell has its own process, since it may use torch's global random state. It also locks its folder: a worker that
    ran this cell before may be lost to its scheduler and yet still write files.
    """
    (work, config), (cell, context) = common, task

    def waiting() -> None:
        context.tell(0.0, "waiting for another process that still uses its folder")

    with _process, locked(context.folder, waiting):
        start = time.perf_counter()
        return work(config, cell, context), time.perf_counter() - start


@contextmanager
def in_this_process(common: Common, reporter: Reporter) -> Iterator[tuple[Crew, Tell]]:
    """Run one cell after the other."""

    def start(task: Task) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(do_cell(common, task))
        return future

    yield Crew(start, limit=lambda: 1), reporter.update


@contextmanager
def in_pool(common: Common, reporter: Reporter, workers: int) -> Iterator[tuple[Crew, Tell]]:
    """Use several processes, each with a share of torch's threads. They end with this process."""
    processes = multiprocessing.get_context("spawn")
    threads = max(1, torch.get_num_threads() // workers)
    with kept_from_children():
        messages = processes.SimpleQueue()
    listener = threading.Thread(target=_listen, args=(messages, reporter), daemon=True)
    listener.start()
    pool = ProcessPoolExecutor(workers, processes, _prepare, (messages, threads))

    def start(task: Task) -> Future[Any]:
        with kept_from_children():  # the pool starts a process when it has a task
            return pool.submit(do_cell, common, task)

    try:
        yield Crew(start, lambda: workers), _tell_parent
    except BaseException:
        for process in list((pool._processes or {}).values()):
            process.kill()  # safe: a cell writes its files durably
        # Do not join the listener: a worker that died inside a message may hold the queue's lock for ever.
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


def _prepare(messages: Any, threads: int) -> None:
    global _messages  # noqa: PLW0603  a worker process keeps state only in globals
    _messages = messages
    torch.set_num_threads(threads)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this process when its parent is gone, for whatever reason: nobody is left to record a result."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _tell_parent(cell: str, fraction: float, text: str) -> None:
    _messages.put((cell, fraction, text))


@contextmanager
def on_cluster(
    common: Common, reporter: Reporter, executor: "DaskExecutor", folder: Path
) -> Iterator[tuple[Crew, Tell]]:
    """Use workers that see the run's directory.

    Raises:
        InputError: a worker does not see it; the message names the worker and the directory.
    """
    probe, token = folder / "probe", uuid.uuid4().hex
    write_durably(probe, token.encode())
    try:
        executor.require(_blindness, probe, token)
        with executor.crew(_do_cell_on_worker, (common, probe, token), hear=reporter.update) as (crew, say):
            yield crew, say
    finally:
        probe.unlink(missing_ok=True)


def _do_cell_on_worker(common: tuple[Common, Path, str], task: Task) -> tuple[Result, float]:
    """Run a cell on a worker, which may have joined after the others were checked."""
    from gatelab.work.dask_worker import this_worker  # noqa: PLC0415  an optional extra

    own, probe, token = common
    blindness = _blindness(probe, token)
    if blindness:
        raise InputError(f"worker {this_worker()} {blindness}")
    return do_cell(own, task)


def _blindness(probe: Path, token: str) -> str | None:
    """Return what is wrong on a worker that cannot read the client's file or write beside it; None if nothing is."""
    for _ in range(20):  # a network file system may take a moment to show a new file
        if probe.is_file() and probe.read_text() == token:
            if os.access(probe.parent, os.W_OK):
                return None
            break
        time.sleep(0.1)
    return (
        f"does not see the files in {probe.parent}, where cells write; put the run on a file system that all "
        "workers share, with --out"
    )
