"""The ``gatelab`` command. Commands import what they need when they run: ``--help`` must not wait for torch."""

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
    """Run the command line; what gatelab refuses ends in one line on stderr and exit code 2."""
    try:
        app()
    except Exception as error:
        from gatelab.errors import GatelabError

        if not isinstance(error, GatelabError):
            raise
        typer.echo(f"gatelab: {error}", err=True)
        raise SystemExit(2) from None


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"gatelab {__version__}")
        raise typer.Exit


@app.callback()
def root(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """A laboratory for the gates and paths inside ReLU networks."""
