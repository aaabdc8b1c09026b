"""``gatelab verify``."""

import sys
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gatelab.cli.app import app

if TYPE_CHECKING:
    from gatelab.work.checksums import Condition, Part

_NOT_CHECKED = "Nothing. A change would go unnoticed."
_REDO = "Run the command that made it with --redo-damaged."
_RECOMPUTE = "Run the command that made it again."


@app.command()
def verify(
    directory: Annotated[Path, typer.Argument(metavar="DIRECTORY", help="The directory of a run, or of a kernel.")],
) -> None:
    """Check a run or a kernel on disk against its checksums; exit with 1 if a part is damaged."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from gatelab.work.checksums import Condition

    is_kernel, parts = _check(directory)
    table = Table()
    for name in ("part", "condition", "what to do"):
        table.add_column(name, overflow="fold")
    # Any later command recomputes a damaged tile; the metadata that identify the kernel are not affected.
    remedies = {Condition.WHOLE: "", Condition.UNSEALED: _NOT_CHECKED, Condition.DAMAGED: _REDO}
    for part, condition, fault in _rows(parts):
        redone = is_kernel and condition is Condition.DAMAGED and not part.startswith("zarr.json")
        remedy = _RECOMPUTE if redone else remedies[condition]
        table.add_row(escape(part), escape(f"{condition.value}: {fault}" if fault else condition.value), remedy)
    Console(width=None if sys.stdout.isatty() else 150).print(table)
    damaged = sum(part.condition is Condition.DAMAGED for part in parts)
    typer.echo(f"{directory}: {damaged or 'none'} of {len(parts)} parts damaged")
    if damaged:
        raise typer.Exit(1)


def _check(directory: Path) -> "tuple[bool, list[Part]]":
    from gatelab.errors import RunError
    from gatelab.kernels.disk.store import KERNEL_FORMAT
    from gatelab.kernels.disk.verify import check_store
    from gatelab.lab.runs.directory import RUN_FORMAT
    from gatelab.lab.runs.verify import check_run

    if (directory / RUN_FORMAT.record).exists():
        return False, check_run(directory)
    if (directory / KERNEL_FORMAT.record).exists():
        return True, check_store(directory)
    raise RunError(
        f"{directory} is neither a run nor a kernel: it has no {RUN_FORMAT.record} and no {KERNEL_FORMAT.record}; name "
        "the directory that 'gatelab run', 'study' or 'kernel' made"
    )


def _rows(parts: "list[Part]") -> "list[tuple[str, Condition, str]]":
    """Return one row for each damaged part, and one for all other parts of a group that are in one condition."""
    from gatelab.work.checksums import Condition

    rows = []
    for group, members in groupby(parts, key=lambda part: part.group):
        listed = list(members)
        for condition in (Condition.WHOLE, Condition.UNSEALED):
            names = [part.name for part in listed if part.condition is condition]
            if names:
                rows.append((f"{group}, {len(names)} in all" if any(names) else group, condition, ""))
        damaged = [part for part in listed if part.condition is Condition.DAMAGED]
        rows += [(f"{group} {part.name}".strip(), part.condition, part.fault) for part in damaged]
    return rows
