"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

Scheduler = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="Work on a Dask scheduler's workers: tcp://host:port.", show_default=False),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        metavar="KIND:…",
        help="Start Dask workers: local:4, or slurm:cores=8,memory=16GB,jobs=4,queue=…,walltime=….",
        show_default=False,
    ),
]
DataRoot = Annotated[Path | None, typer.Option("--data-root", help="Look for data here first.", show_default=False)]
