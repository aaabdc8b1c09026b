"""Options that several commands share."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

Scheduler = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS", help="Use the workers of a running Dask scheduler, tcp://host:port.", show_default=False
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        metavar="KIND:…",
        help="Start Dask workers: local:4 or slurm:cores=8,memory=16GB. docs/cluster.md lists all options.",
        show_default=False,
    ),
]
RedoDamaged = Annotated[
    bool, typer.Option("--redo-damaged", help="Discard damaged parts of the directory and recompute them.")
]
DataRoot = Annotated[Path | None, typer.Option(help="Search this folder for data sets first.", show_default=False)]


@dataclass(frozen=True)
class RunOptions:
    """The options of every command that performs an experiment."""

    profile: Annotated[str, typer.Option(help="smoke (seconds), quick (minutes) or paper (as published).")] = "quick"
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change one setting; may be repeated.", show_default=False),
    ] = None
    out: Annotated[
        Path | None, typer.Option(help="The run's directory; runs/NAME-PROFILE if left out.", show_default=False)
    ] = None
    workers: Annotated[int, typer.Option(min=1, help="The number of processes, which share the threads.")] = 1
    scheduler: Scheduler = None
    cluster: Cluster = None
    data_root: DataRoot = None
    redo_damaged: RedoDamaged = False


def with_run_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command all options of a run; it receives them together, as its argument ``how``."""
    shared = inspect.signature(RunOptions).parameters

    @wraps(command)
    def called(**given: Any) -> None:
        command(**{name: given.pop(name) for name in list(given) if name not in shared}, how=RunOptions(**given))

    own = inspect.signature(command)
    parameters = [*own.parameters.values(), *shared.values()]
    # Typer reads the signature; all arguments reach the command by name.
    listed = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters if p.name != "how"]
    called.__signature__ = own.replace(parameters=listed)  # pyright: ignore[reportAttributeAccessIssue]
    return called
