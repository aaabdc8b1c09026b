"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

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
