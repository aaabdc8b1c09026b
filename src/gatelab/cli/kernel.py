"""``gatelab kernel``."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gatelab.cli.app import app
from gatelab.cli.options import Cluster, DataRoot, RedoDamaged, Scheduler

if TYPE_CHECKING:
    from torch import Tensor, nn

    from gatelab.kernels.tiles import Kernel


class KernelKind(StrEnum):
    """The kernels."""

    NPK = "npk"
    OVERLAP = "overlap"
    NTK = "ntk"
    INFINITE = "infinite"


@app.command()
def kernel(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="Your network: file.py:factory. Write '-' for --kind infinite.")
    ],
    data: Annotated[
        str,
        typer.Argument(metavar="DATA", help="The rows: a data set (mnist, mnist:test, …) or file.npy."),
    ],
    kind: Annotated[KernelKind, typer.Option(help="Path kernel, overlap of gates, tangent kernel, or infinite width.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The directory of the kernel.")] = Path("K.zarr"),
    against: Annotated[
        str | None, typer.Option(help="The columns; the same examples as the rows if left out.", show_default=False)
    ] = None,
    examples: Annotated[
        int | None, typer.Option(min=1, help="Use only the first examples of DATA.", show_default=False)
    ] = None,
    weights: Annotated[
        Path | None, typer.Option(help="A state dict for the network: .safetensors or .pt.", show_default=False)
    ] = None,
    seed: Annotated[int, typer.Option(help="The random seed for the factory.")] = 0,
    wrt: Annotated[
        list[str] | None, typer.Option(help="ntk: use only this parameter; may be repeated.", show_default=False)
    ] = None,
    outputs: Annotated[str, typer.Option(help="ntk: trace, full, or the number of one output.")] = "trace",
    depth: Annotated[int | None, typer.Option(help="infinite: number of weight layers.", show_default=False)] = None,
    raw: Annotated[bool, typer.Option("--raw", help="npk, overlap: do not divide path counts by the widths.")] = False,
    plan: Annotated[
        bool, typer.Option("--plan", help="Only print the method and the memory, disk and time it will take.")
    ] = False,
    memory: Annotated[
        str | None,
        typer.Option(help="Memory to use, such as 4GB; by default half of the machine's.", show_default=False),
    ] = None,
    scheduler: Scheduler = None,
    cluster: Cluster = None,
    data_root: DataRoot = None,
    redo_damaged: RedoDamaged = False,
) -> None:
    """Compute a kernel of any size, tile by tile, into a zarr store on disk.

    You can stop it at any time. The same command continues: it checks the finished tiles and computes the rest.
    """
    from gatelab.cli.progress import reporter, stoppable
    from gatelab.errors import InputError
    from gatelab.kernels import compute
    from gatelab.kernels.disk.memory import memory_budget
    from gatelab.work import connect
    from gatelab.work.connection import check

    check(scheduler, cluster)
    memory_budget(memory)
    if model == "-" and weights is not None:
        raise InputError("--weights has no meaning without a network; leave it out")
    network = None if model == "-" else _network(model, seed, weights)
    rows = _examples(data, data_root, network)[:examples]
    columns = None if against is None else _examples(against, data_root, network)
    for place, part in ((data, rows), (against, columns)):
        if network is not None and part is not None:
            _refuse_unless_taken(network, part, str(place))
    asked = _kernel(kind, network, wrt, outputs, depth, raw)
    if plan:
        from gatelab.kernels.disk.engine import planned

        with connect(scheduler, cluster) as executor:
            typer.echo("\n".join(planned(asked, rows, columns, store=out, memory=memory, executor=executor)))
        return
    with (
        stoppable(lambda: _finished(out)),
        reporter() as progress,
        connect(scheduler, cluster, notify=progress.note) as executor,
    ):
        resources: dict[str, Any] = {"memory": memory, "executor": executor, "progress": progress}
        made = compute(asked, rows, columns, store=out, redo_damaged=redo_damaged, **resources)
    typer.echo(repr(made))


def _finished(path: Path) -> str:
    from gatelab.kernels.disk.store import KernelStore

    if not (path / "zarr.json").exists():
        return "no tile is finished"
    store = KernelStore.open(path)
    return f"{len(store.finished)} of {store.layout.count} tiles are finished"


def _network(place: str, seed: int, weights: Path | None) -> "nn.Module":
    from gatelab.models.from_file import factory_from_file, load_weights, seeded_network

    network = seeded_network(factory_from_file(place), seed)
    if weights is not None:
        load_weights(network, weights)
    return network.eval()


def _examples(place: str, data_root: Path | None, network: "nn.Module | None") -> "Tensor":
    """Return the examples of a data set or a file, in the network's dtype."""
    import numpy as np
    import torch

    from gatelab.data import load
    from gatelab.errors import DataError, InputError

    parameter = next((p for p in network.parameters() if p.is_floating_point()), None) if network else None
    dtype = torch.float32 if parameter is None else parameter.dtype
    if place.endswith(".npy"):
        try:
            array = np.load(place)
        except (OSError, ValueError, TypeError, MemoryError) as error:
            raise DataError(f"{place} cannot be read as an array: {error}; give a .npy file of real numbers") from error
        if array.ndim == 0 or array.dtype.kind not in "fiub":
            raise DataError(
                f"{place} holds shape {array.shape} and dtype {array.dtype}; give real numbers, examples first"
            )
        return torch.from_numpy(array).to(dtype)
    name, _, part = place.partition(":")
    if part not in ("", "train", "test"):
        raise InputError(f"'{place}': there is no part '{part}'; write {name}:train or {name}:test")
    dataset = load(name, data_root)
    return dataset.inputs(dataset.test_x if part == "test" else dataset.train_x, dtype)


def _refuse_unless_taken(network: "nn.Module", x: "Tensor", place: str) -> None:
    """Run one example: torch's own error for a wrong shape names neither the data nor a remedy."""
    import torch

    from gatelab.errors import InputError
    from gatelab.observe import examples, undisturbed

    examples(x, network)
    try:
        with undisturbed(network, x) as run, torch.no_grad():
            run(x[:1])
    except (Exception, SystemExit) as error:
        raise InputError(
            f"the network does not take the examples of {place}, of shape {tuple(x.shape[1:])}: {error}; make it "
            "flatten or reshape them first, or give an array of the right shape"
        ) from error


def _kernel(
    kind: KernelKind, network: "nn.Module | None", wrt: list[str] | None, outputs: str, depth: int | None, raw: bool
) -> "Kernel":
    from gatelab.errors import InputError
    from gatelab.kernels import InfiniteWidthKernel, OverlapKernel, PathKernel, TangentKernel

    misplaced = {
        "--wrt": wrt and kind is not KernelKind.NTK,
        "--outputs": outputs != "trace" and kind is not KernelKind.NTK,
        "--depth": depth is not None and kind is not KernelKind.INFINITE,
        "--raw": raw and kind not in (KernelKind.NPK, KernelKind.OVERLAP),
    }
    for option, given in misplaced.items():
        if given:
            raise InputError(f"{option} has no meaning for --kind {kind.value}; leave it out")
    if kind is KernelKind.INFINITE:
        if depth is None or network is not None:
            raise InputError("--kind infinite has no network: write '-' for MODEL, and give --depth")
        return InfiniteWidthKernel(depth)
    if network is None:
        raise InputError(f"--kind {kind.value} needs a network: give file.py:factory for MODEL, not '-'")
    if kind is KernelKind.NTK:
        wanted: Any = int(outputs) if outputs.isdigit() else outputs
        return TangentKernel(network, wrt, wanted)
    return (PathKernel if kind is KernelKind.NPK else OverlapKernel)(network, not raw)
