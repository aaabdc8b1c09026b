"""``gatelab study``."""

from pathlib import Path
from typing import Annotated, Any

import typer

from gatelab.cli.app import app
from gatelab.cli.options import RunOptions, with_run_options
from gatelab.cli.running import directory_of, perform, root_of, settings_of


@app.command()
@with_run_options
def study(
    model: Annotated[
        str | None,
        typer.Argument(metavar="FILE.PY:FACTORY", help="Your network; an MLP if left out.", show_default=False),
    ] = None,
    data: Annotated[
        str,
        typer.Option(
            help="A name (digits, mnist, fashion-mnist, cifar10, …), a .npz, .npy, .csv or .parquet file, a folder "
            "with a folder of images for each class, or file.py:function."
        ),
    ] = "digits",
    test_data: Annotated[
        str | None, typer.Option(help="The test part, if DATA has none; else a fifth is held out.", show_default=False)
    ] = None,
    label: Annotated[
        str | None, typer.Option(help="The label column of a table, or the .npy file of labels.", show_default=False)
    ] = None,
    weights: Annotated[
        Path | None,
        typer.Option(
            help="The network's weights, .safetensors or .pt: it is studied as it is, not trained.", show_default=False
        ),
    ] = None,
    kernels: Annotated[
        str | None, typer.Option(metavar="off|sketch|exact", help="How to look at kernels.", show_default="by time")
    ] = None,
    layers: Annotated[bool, typer.Option("--layers", help="Also ask which layers' gates hold it.")] = False,
    gates_from: Annotated[
        list[str] | None,
        typer.Option(
            metavar="seed|shuffled|data", help="Also try gates learnt elsewhere; may be repeated.", show_default=False
        ),
    ] = None,
    other_data: Annotated[str | None, typer.Option(help="The data for --gates-from data.", show_default=False)] = None,
    refit: Annotated[
        int, typer.Option(min=0, help="Also fit values in closed form, to this many training examples.")
    ] = 0,
    amounts: Annotated[
        list[float] | None,
        typer.Option(help="Also train values on this share of the data; may be repeated.", show_default=False),
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Only tell what would be trained, and how long it takes.")
    ] = False,
    *,
    how: RunOptions,
) -> None:
    """Measure how much of what a network knows is in its gates.

    Takes your network as it is, with --weights, or trains it. Fixes its gates, trains fresh values on them, on random
    gates and on decoupled gates, and writes report.html. The same as gatelab.study(...) in Python.
    """
    from gatelab.cli.progress import reporter
    from gatelab.errors import InputError
    from gatelab.lab.study.entry import absolute, prepared
    from gatelab.papers import find_experiment

    given: dict[str, Any] = {
        "model": model,
        "test_data": test_data,
        "label": label,
        "weights": None if weights is None else str(weights),
        "kernels": kernels,
        "layers": layers or None,
        "gates_from": gates_from,
        "other_data": other_data,
        "refit": refit or None,
        "amounts": amounts,
    }
    values = settings_of(how.settings or [])
    chosen = {key: value for key, value in given.items() if value is not None}
    for key in values.keys() & {"data", *chosen}:
        raise InputError(f"--set {key}: it has an option of its own; give --{key.replace('_', '-')} alone")
    experiment = find_experiment("study")
    config = experiment.configure(how.profile, absolute({**values, "data": data, **chosen}) | root_of(how.data_root))
    if plan:
        with reporter() as progress:
            prepared(config, None, None, progress)  # pyright: ignore[reportArgumentType]  # its type is StudyConfig
        return
    name = f"study-{'mlp' if model is None else Path(model.rpartition(':')[0]).stem}-{Path(data).stem}"
    extra = {key: Path(value).stem if key == "weights" else value for key, value in chosen.items() if key != "model"}
    directory = how.out or directory_of(name, how.profile, values | extra)
    perform(experiment, config, directory, how, prepare=prepared)
