"""Runs the cells of a run, each once: in this process, in several processes, or on a cluster."""

from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any

from gatelab.errors import RunError
from gatelab.lab.runs.cells import Cell, Context, Result, Work
from gatelab.lab.runs.crews import Tell, in_pool, in_this_process, on_cluster
from gatelab.lab.runs.directory import Run
from gatelab.work.executor import Crew
from gatelab.work.files import locked
from gatelab.work.progress import Reporter

if TYPE_CHECKING:
    from gatelab.work.dask_executor import DaskExecutor


def execute(
    run: Run,
    config: Any,
    cells: list[Cell],
    work: Work,
    reporter: Reporter,
    workers: int = 1,
    cluster: "DaskExecutor | None" = None,
) -> dict[str, Result]:
    """Run all cells that are not in the journal, and return the results of all cells.

    This process alone writes the journal.

    Args:
        run: the directory that keeps results and files.
        config: the first argument of ``work``.
        cells: the parts of the run. A cell starts when all cells that it needs are finished.
        work: runs one cell. It must be deterministic. To continue after a stop, it keeps its state in
            ``context.folder``. With several workers or on a cluster it must be a function of a module.
        reporter: receives the progress.
        workers: number of processes on this machine.
        cluster: Dask workers that take the place of processes on this machine.

    Returns:
        The result of each cell by name, in the order of ``cells``.

    Raises:
        RunError: a cell needs one that does not exist, or another process is working on the run.
        InputError: a worker of the cluster does not see the directory.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> from gatelab.work.progress import Silent
        >>> def double(config, cell, context):
        ...     return {"value": config * cell.parameters["value"]}
        >>> with TemporaryDirectory() as folder:
        ...     run = Run.open(Path(folder) / "run", "doubles", {})
        ...     execute(run, 2, [Cell("a", {"value": 3})], double, Silent())
        {'a': {'value': 6}}
    """
    names = {cell.name for cell in cells}
    if len(names) != len(cells):
        raise RunError(f"two cells have the same name: {', '.join(cell.name for cell in cells)}; give each its own")
    for cell in cells:
        missing = set(cell.needs) - names
        if missing:
            raise RunError(f"cell {cell.name} needs {', '.join(sorted(missing))}, which the run does not have")
    with locked(run.path):
        results = {name: result for name, result in run.results().items() if name in names}
        reporter.note(f"{len(cells)} cells, {len(results)} already finished")
        reporter.start({cell.name: cell.weight for cell in cells}, list(results))
        waiting = [cell for cell in cells if cell.name not in results]
        if waiting:
            with _crew(run, (work, config), reporter, workers, cluster) as (crew, tell):
                _do_all(run, waiting, results, crew, tell, reporter)
        return {cell.name: results[cell.name] for cell in cells}


def _crew(
    run: Run, common: tuple[Work, Any], reporter: Reporter, workers: int, cluster: "DaskExecutor | None"
) -> AbstractContextManager[tuple[Crew, Tell]]:
    if cluster is not None:
        return on_cluster(common, reporter, cluster, run.path.resolve())
    return in_pool(common, reporter, workers) if workers > 1 else in_this_process(common, reporter)


def _do_all(
    run: Run, waiting: list[Cell], results: dict[str, Result], crew: Crew, tell: Tell, reporter: Reporter
) -> None:
    running = 0
    while waiting or running:
        ready = [cell for cell in waiting if all(name in results for name in cell.needs)]
        for cell in ready[: crew.room]:
            waiting.remove(cell)
            crew.submit((cell, _context(run, cell, results, tell)))
            running += 1
        if not running:
            raise RunError(f"cells need each other in a circle: {', '.join(cell.name for cell in waiting)}")
        (cell, _), (result, seconds) = crew.next()
        running -= 1
        run.add_result(cell.name, result, seconds)
        # Read the result back, so that later cells get exactly what a later process would read.
        results[cell.name] = run.results()[cell.name]
        reporter.finish(cell.name)


def _context(run: Run, cell: Cell, results: dict[str, Result], tell: Tell) -> Context:
    folder = run.folder(cell.name).resolve()  # another process may have another working directory
    folder.mkdir(parents=True, exist_ok=True)
    needed = {name: results[name] for name in cell.needs}
    return Context(folder, needed, {name: run.folder(name).resolve() for name in cell.needs}, partial(tell, cell.name))
