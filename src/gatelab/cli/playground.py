"""``gatelab playground``."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from gatelab.cli.app import app


@app.command()
def playground(
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write the page there and open nothing.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace FILE if it exists.")] = False,
) -> None:
    """Open the gates playground in a browser: a small network trains, and its exact linear regions move.

    The page is one file that needs no server and no network.
    """
    import webbrowser
    from importlib.resources import as_file, files

    page = files("gatelab") / "web" / "playground.html"
    if out is not None:
        from gatelab.work.files import writable, write_durably

        write_durably(writable(out, force=force), page.read_bytes())
        typer.echo(f"wrote {out}; open it in a browser")
        return
    with as_file(page) as path:
        if not webbrowser.open(path.resolve().as_uri()):
            typer.echo(
                "gatelab: no browser could be started; write the page with 'gatelab playground -o playground.html'",
                err=True,
            )
            raise typer.Exit(1)
        typer.echo(f"opened {path}", file=sys.stderr)
