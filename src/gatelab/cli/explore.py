"""``gatelab explore``."""

import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from gatelab.cli.app import app
from gatelab.cli.options import DataRoot


@app.command()
def explore(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="Your network, file.py:factory, or the directory of a study.")
    ],
    data: Annotated[
        str | None,
        typer.Option(help="As for 'gatelab study': a name, a file, a folder or file.py:function.", show_default=False),
    ] = None,
    weights: Annotated[
        Path | None, typer.Option(help="The network's weights: .safetensors or .pt.", show_default=False)
    ] = None,
    test_data: Annotated[str | None, typer.Option(help="The test part, if DATA has none.", show_default=False)] = None,
    label: Annotated[
        str | None, typer.Option(help="The label column of a table, or the .npy file of labels.", show_default=False)
    ] = None,
    part: Annotated[
        str | None, typer.Option(metavar="train|test", help="The part to show.", show_default="test")
    ] = None,
    examples: Annotated[int, typer.Option(min=2, help="Number of examples.")] = 60,
    show: Annotated[
        list[int] | None, typer.Option(help="Show this example, by its number; may be repeated.", show_default=False)
    ] = None,
    paths: Annotated[int, typer.Option(min=0, help="Strongest paths of each example.")] = 8,
    planes: Annotated[int, typer.Option(min=0, help="Planes through three examples, chosen by gatelab.")] = 3,
    triple: Annotated[
        list[str] | None,
        typer.Option(metavar="I,J,K", help="A plane through these examples; may be repeated.", show_default=False),
    ] = None,
    most_mb: Annotated[float, typer.Option(help="The most megabytes of the page; what does not fit is left out.")] = 20,
    run: Annotated[int, typer.Option(min=0, help="Of a study: which of its networks.")] = 0,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The page.")] = Path("explorer.html"),
    force: Annotated[bool, typer.Option("--force", help="Replace FILE if it exists.")] = False,
    data_root: DataRoot = None,
) -> None:
    """Write one page about your network: gates, shared paths, kernels, strongest paths on the image, exact regions.

    The page needs no server and no network. Example: gatelab explore net.py:Net --weights w.safetensors --data mnist
    """
    from gatelab.cli.progress import reporter
    from gatelab.lab.explore import explore as write

    given: dict[str, Any] = {"label": label, "data_root": None if data_root is None else str(data_root)}
    with reporter() as progress, warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", "from .* on, signs lie within the rounding error", RuntimeWarning
        )  # the page says so
        page = write(
            model,
            data,
            out,
            test=test_data,
            weights=weights,
            part=part,
            examples=examples,
            shown=show or (),
            paths=paths,
            planes=planes,
            triples=[_triple(text) for text in triple or ()],
            most_mb=most_mb,
            run=run,
            force=force,
            progress=progress,
            **{key: value for key, value in given.items() if value is not None},
        )
    for gap in page.contents.omissions:
        typer.echo(f"left out: {gap.part}: {gap.reason}", err=True)
    typer.echo(f"wrote {page.path}, {page.size / 1e6:.2f} MB; open it in a browser")


def _triple(text: str) -> tuple[int, ...]:
    from gatelab.errors import InputError

    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"--triple {text}: give three numbers of examples, such as --triple 3,14,15") from None
