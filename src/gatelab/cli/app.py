"""The ``gatelab`` command. Each command imports what it needs when it runs, so that ``--help`` needs no torch."""

import errno
import io
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated, TextIO

import typer

from gatelab import __version__
from gatelab.cli.stopping import stopping

app = typer.Typer(
    name="gatelab",
    help="A laboratory for the gates and paths inside ReLU networks.",
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run the command line.

    The exit code is 2, with one line on standard error, if gatelab refuses something, and 128 + n after signal n.
    """
    _prepare_streams()
    with stopping() as received:
        try:
            code = _run()
        except KeyboardInterrupt:
            code = 130
    try:
        sys.stderr.flush()
    except OSError:
        _silence(sys.stderr)
    raise SystemExit(128 + received[0] if received else code)


def _prepare_streams() -> None:
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the parent process
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115  until the process ends
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            # A terminal without Greek letters shows escapes, which JSON reads as the same letters.
            stream.reconfigure(errors="backslashreplace")


def _run() -> int:
    """Run the command, flush its output, and return the exit code."""
    from gatelab.errors import GatelabError

    code = 0
    try:
        try:
            app()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        sys.stdout.flush()
    except GatelabError as error:
        _complain(f"{error} (more: gatelab explain {type(error).__name__})")
        return 2
    except OSError as error:
        return _failed(error)
    return code


def _failed(error: OSError) -> int:
    """Report a system error; one without a file name comes from standard output."""
    if error.filename is not None:
        _complain(f"{error.filename}: {error.strerror}; correct the path, or its permissions")
        return 2
    _silence(sys.stdout)
    if error.errno != errno.EPIPE:  # as with 'gatelab experiments | head -1'
        _complain(f"standard output could not be written: {error.strerror or error}; written files are complete")
    return 1


def _silence(stream: TextIO) -> None:
    """Discard what a stream could not write: at exit Python would try again and print a traceback."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _complain(text: str) -> None:
    with suppress(OSError):
        typer.echo(f"gatelab: {text}", err=True)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"gatelab {__version__}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """A laboratory for the gates and paths inside ReLU networks."""
    if context.invoked_subcommand is None:
        from gatelab.cli.guidance import NEXT

        typer.echo(NEXT)
