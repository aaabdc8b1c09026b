"""``gatelab data``."""

from pathlib import Path
from typing import Annotated

import typer

from gatelab.cli.app import app

commands = typer.Typer(no_args_is_help=True, help="Data sets: what is here, fetch, verify.")
app.add_typer(commands, name="data")

Root = Annotated[
    Path | None, typer.Option("--data-root", help="Look here first; the files lie as in torchvision's folders.")
]


@commands.command("list")
def list_(data_root: Root = None) -> None:
    """List the data sets and where each was found."""
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
            typer.echo(f"{name:<14} {where or 'made from mnist'}")
        except DataError:
            archive = jpeg_archive(data_root) if name == "cifar10" else None
            typer.echo(f"{name:<14} {f'{archive} (JPEG, lossy)' if archive else 'not here'}")
    typer.echo("\nsearched: " + ", ".join(map(str, data_folders(data_root))))


@commands.command()
def fetch(
    name: Annotated[str, typer.Argument(help="mnist, fashion-mnist, cifar10 or cifar100.")],
    data_root: Annotated[Path, typer.Option("--data-root", help="Put the files here.")] = Path("data"),
) -> None:
    """Fetch a data set from the first source that answers, verify it, and put it into a folder."""
    from gatelab import data

    data.fetch(name, data_root, report=typer.echo)


@commands.command()
def verify(data_root: Root = None) -> None:
    """Check size and checksum of every file that is here. Exits with 1 if one is broken."""
    from gatelab.data.catalogue import ENTRIES
    from gatelab.data.folders import find, read_whole
    from gatelab.errors import DataError

    broken = False
    for entry in ENTRIES.values():
        try:
            paths = find(entry, data_root)
        except DataError:
            typer.echo(f"{entry.title}: not here")
            continue
        for file in entry.files:
            try:
                read_whole(paths[file.name], file)
                typer.echo(f"{paths[file.name]}: whole")
            except DataError as error:
                broken = True
                typer.echo(str(error))
    if broken:
        raise typer.Exit(1)
