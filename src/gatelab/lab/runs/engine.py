"""Running the cells of a run: in this process, in several or on many machines, never one twice."""

from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from gatelab.errors import RunError
from gatelab.lab.runs.cells import Cell, Context, Work
from gatelab.lab.runs.crews import Alone, CellCrew, in_pool, on_cluster
from gatelab.lab.runs.directory import Run
from gatelab.lab.runs.journal import Result
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
    """Run all cells that the journal does not hold; returns the results of all.

    ``work`` must be deterministic, and keep its state in ``context.folder`` if it wants to be taken up again. With
    several workers or on a cluster it runs in other processes, and must be a function of a module. This process alone
    writes the journal.

    Raises:
        RunError: a cell needs one that does not exist, or the directory is in use.
        InputError: a worker of the cluster does not see the directory.
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
        reporter.note(f"{len(cells)} cells, {len(results)} finished before")
        reporter.start({cell.name: cell.weight for cell in cells}, list(results))
        waiting = [cell for cell in cells if cell.name not in results]
        if waiting:
            with _crew(run, (work, config), reporter, workers, cluster) as crew:
                _do_all(run, waiting, results, crew, reporter)
        return {cell.name: results[cell.name] for cell in cells}


def _crew(
    run: Run, common: tuple[Work, Any], reporter: Reporter, workers: int, cluster: "DaskExecutor | None"
) -> AbstractContextManager[CellCrew]:
    if cluster is not None:
        return on_cluster(common, reporter, cluster, run.path.resolve())
    return in_pool(common, reporter, workers) if workers > 1 else nullcontext(Alone(common, reporter))


def _do_all(run: Run, waiting: list[Cell], results: dict[str, Result], crew: CellCrew, reporter: Reporter) -> None:
    running = 0
    while waiting or running:
        ready = [cell for cell in waiting if all(name in results for name in cell.needs)]
        for cell in ready[: crew.room]:
            waiting.remove(cell)
            crew.submit((cell, _context(run, cell, results, crew)))
            running += 1
        if not running:
            raise RunError(f"cells need each other in a circle: {', '.join(cell.name for cell in waiting)}")
        (cell, _), (result, seconds) = crew.next()
        running -= 1
        run.journal.append(cell.name, result, seconds)
        results[cell.name] = run.journal.results()[cell.name]  # as a later process would read it
        reporter.finish(cell.name)


def _context(run: Run, cell: Cell, results: dict[str, Result], crew: CellCrew) -> Context:
    folder = run.folder(cell.name).resolve()  # another process may stand elsewhere
    folder.mkdir(parents=True, exist_ok=True)
    needed = {name: results[name] for name in cell.needs}
    return Context(
        folder, needed, {name: run.folder(name).resolve() for name in cell.needs}, partial(crew.tell, cell.name)
    )
