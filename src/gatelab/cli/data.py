"""``gatelab data``."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from gatelab.cli.app import app
from gatelab.cli.options import DataRoot

commands = typer.Typer(no_args_is_help=True, help="List, download and verify data sets.")
app.add_typer(commands, name="data")


@commands.command("list")
def list_(data_root: DataRoot = None) -> None:
    """List the data sets, and where each one is."""
    for line in where_data_are(data_root):
        typer.echo(line)


def where_data_are(data_root: Path | None) -> Iterator[str]:
    """Return a line for each data set, and one with the folders that were searched."""
    from gatelab.data import names
    from gatelab.data.catalogue import ENTRIES
    from gatelab.data.dataset import jpeg_archive
    from gatelab.data.folders import data_folders, find
    from gatelab.errors import DataError

    for name in names():
        entry = ENTRIES.get(name)
        try:
            where = "comes with scikit-learn" if name == "digits" else ""
            if entry is not None:
                where = str(next(iter(find(entry, data_root).values())).parent)
            yield f"{name:<14} {where or 'made from mnist'}"
        except DataError:
            archive = jpeg_archive(data_root) if name == "cifar10" else None
            yield f"{name:<14} {f'{archive} (JPEG, lossy)' if archive else 'not found'}"
    yield "\nsearched: " + ", ".join(map(str, data_folders(data_root)))


@commands.command()
def fetch(
    name: Annotated[str, typer.Argument(metavar="NAME", help="mnist, fashion-mnist, cifar10 or cifar100.")],
    data_root: Annotated[Path, typer.Option(help="The folder for the files.")] = Path("data"),
) -> None:
    """Download a data set from the first source that answers, and verify it."""
    from gatelab import data

    data.fetch(name, data_root, report=typer.echo)


@commands.command()
def verify(data_root: DataRoot = None) -> None:
    """Check the size and checksum of every file; exit with 1 if a file is damaged."""
    from gatelab.data.catalogue import ENTRIES
    from gatelab.data.folders import find, read_whole
    from gatelab.errors import DataError

    damaged = False
    for entry in ENTRIES.values():
        try:
            paths = find(entry, data_root)
        except DataError:
            typer.echo(f"{entry.title}: not found")
            continue
        for file in entry.files:
            try:
                read_whole(paths[file.name], file)
                typer.echo(f"{paths[file.name]}: whole")
            except DataError as error:
                damaged = True
                typer.echo(str(error))
    if damaged:
        raise typer.Exit(1)
