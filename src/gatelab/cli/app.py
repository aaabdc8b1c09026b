"""The ``gatelab`` command. Each command imports what it needs when it runs, so that ``--help`` needs no torch."""

from typing import Annotated

import typer

from gatelab import __version__

app = typer.Typer(
    name="gatelab",
    help="A laboratory for the gates and paths inside ReLU networks.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run the command line; an error of gatelab becomes one line on standard error and exit code 2."""
    try:
        app()
    except Exception as error:
        from gatelab.errors import GatelabError

        if not isinstance(error, GatelabError):
            raise
        typer.echo(f"gatelab: {error}", err=True)
        raise SystemExit(2) from None


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"gatelab {__version__}")
        raise typer.Exit


@app.callback()
def root(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """A laboratory for the gates and paths inside ReLU networks."""
