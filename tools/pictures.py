"""Draw the pictures of docs/understand. Run as ``make pictures``; each is drawn from what gatelab computes."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from torch import Tensor, nn

import gatelab as gl
from gatelab.regions import linear_regions_2d
from gatelab.regions.partition import Partition

FOLDER = Path(__file__).parents[1] / "docs" / "understand"
BLUE, ORANGE, GREY = "#0072b2", "#d55e00", "#c8c8c8"


def paths_picture() -> Figure:
    """One network, two inputs: open units, and the paths through them by their contribution."""
    torch.manual_seed(3)
    net = nn.Sequential(
        nn.Linear(3, 4, bias=False), nn.ReLU(), nn.Linear(4, 4, bias=False), nn.ReLU(), nn.Linear(4, 1, bias=False)
    )
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    for axes, x in zip(figure.subplots(1, 2), torch.tensor([[1.0, 0.4, -0.6], [-0.7, 1.0, 0.3]]), strict=True):
        draw_paths(axes, net, x)
    return figure


def draw_paths(axes: Axes, net: nn.Sequential, x: Tensor) -> None:
    """Draw a network's units in columns, and every open path from the input to the output."""
    gates = gl.capture_gates(net, x[None])
    is_open = [[True] * 3, *(gates[name][0].tolist() for name in gates.layers), [True]]
    height = [np.linspace(1, -1, len(units)) if len(units) > 1 else np.zeros(1) for units in is_open]
    paths = gl.top_paths(net, x, k=10_000)
    largest = max(abs(path.contribution) for path in paths)
    for path in reversed(paths):
        units = (*path.units, 0)
        axes.plot(
            range(len(units)),
            [height[layer][unit] for layer, unit in enumerate(units)],
            color=BLUE if path.contribution > 0 else ORANGE,
            alpha=0.15 + 0.85 * abs(path.contribution) / largest,
            linewidth=0.5 + 4 * abs(path.contribution) / largest,
            zorder=1,
        )
    for layer, units in enumerate(is_open):
        colours = ["black" if unit else "white" for unit in units]
        axes.scatter([layer] * len(units), height[layer], s=130, c=colours, edgecolors="black", zorder=2)
    total = float(net(x[None]).detach())
    numbers = ", ".join(f"{value:g}" for value in x.tolist())
    axes.set_title(f"x = ({numbers}): {len(paths)} of 48 paths open, sum {total:+.2f}", fontsize=10)
    axes.set_xticks(range(4), ["input", "layer 1", "layer 2", "output"])
    axes.set_yticks([])
    axes.spines[["top", "right", "left", "bottom"]].set_visible(False)


def kernels_picture() -> Figure:
    """Overlap, path and tangent kernel of a network on digits, at the start and after training."""
    data = gl.data.load("digits")
    order = torch.argsort(data.test_y[:120], stable=True)
    x, y = data.inputs(data.test_x[:120])[order].flatten(1), data.test_y[:120][order]
    train_x, train_y = data.inputs(data.train_x).flatten(1), data.train_y
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))
    figure = Figure(figsize=(9.5, 6), layout="constrained")
    rows = figure.subplots(2, 3)
    kernels = [_kernels(net, x)]
    _train(net, train_x, nn.functional.cross_entropy, train_y, steps=600)
    kernels.append(_kernels(net, x))
    for row, when, matrices in zip(rows, ("at the start", "after training"), kernels, strict=True):
        for axes, (name, matrix) in zip(row, matrices.items(), strict=True):
            image = axes.imshow(matrix, vmin=0, vmax=1, cmap="viridis")
            axes.set_title(f"{name}, {when}", fontsize=10)
            edges = [int((y < label).sum()) for label in range(11)]
            middles = [(a + b) / 2 for a, b in pairwise(edges)]
            axes.set_xticks(middles, range(10), fontsize=8)
            axes.set_yticks(middles, range(10), fontsize=8)
    figure.colorbar(image, ax=rows, label="cosine between two examples", shrink=0.6)
    return figure


def _kernels(net: nn.Module, x: Tensor) -> dict[str, Tensor]:
    kernels = {
        "overlap Λ": gl.overlap_kernel(gl.capture_gates(net, x)),
        "path kernel H": gl.neural_path_kernel(net, x),
        "tangent kernel K": gl.neural_tangent_kernel(net, x),
    }
    return {name: k / (k.diag()[:, None] * k.diag()).sqrt() for name, k in kernels.items()}


def regions_picture() -> Figure:
    """The exact regions of a ReLU network and of a DLGN, with the boundary of one deep unit."""
    angle = torch.linspace(0, 2 * torch.pi, 201)[:-1]
    x, y = torch.stack((angle.cos(), angle.sin()), 1), torch.sin(3 * angle)[:, None]
    torch.manual_seed(1)
    relu = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
    dlgn = gl.models.DeepLinearlyGatedNetwork([2, 8, 8, 1], gate=gl.gates.SoftGate(10.0))
    figure = Figure(figsize=(9, 4.4), layout="constrained")
    for axes, (name, net) in zip(
        figure.subplots(1, 2), {"ReLU network": relu, "deep linearly gated network": dlgn}.items(), strict=True
    ):
        _train(net, x, nn.functional.mse_loss, y, steps=800)
        partition = linear_regions_2d(net, bounds=((-1.5, 1.5), (-1.5, 1.5)))
        _draw_unit(axes, partition, layer=1, unit=_most_divided(partition))
        axes.plot(x[:, 0], x[:, 1], ".", color="black", markersize=2)
        axes.set_title(f"{name}: {len(partition)} regions", fontsize=10)
    return figure


def _most_divided(partition: Partition) -> int:
    """Return the unit of the second layer that is open for about half of the area."""
    gates = partition.gates[partition.gates.layers[1]].double()
    share = (gates * partition.areas[:, None]).sum(0) / partition.areas.sum()
    return int((share - 0.5).abs().argmin())


def _draw_unit(axes: Axes, partition: Partition, layer: int, unit: int) -> None:
    """Draw the regions; those where one unit is open are blue."""
    corners = np.split(partition.corners.numpy(), partition.starts[1:-1].tolist())
    is_open = partition.gates[partition.gates.layers[layer]][:, unit]
    colours = [BLUE if on else "white" for on in is_open.tolist()]
    axes.add_collection(PolyCollection(corners, facecolors=colours, edgecolors=GREY, linewidths=0.6, alpha=0.75))
    axes.set(xlim=(-1.5, 1.5), ylim=(-1.5, 1.5), aspect="equal", xticks=[], yticks=[])


def _train(net: nn.Module, x: Tensor, loss: Callable[..., Tensor], y: Tensor, steps: int) -> None:
    optimiser = torch.optim.Adam(net.parameters(), lr=3e-3)
    for _ in range(steps):
        optimiser.zero_grad()
        loss(net(x), y).backward()
        optimiser.step()


PICTURES = {"paths.svg": paths_picture, "kernels.png": kernels_picture, "regions.svg": regions_picture}


def draw_all() -> None:
    """Draw every picture; the same files each time."""
    mpl.rcParams["svg.hashsalt"] = "gatelab"
    torch.set_num_threads(1)
    for name, picture in PICTURES.items():
        metadata = {"Date": None} if name.endswith("svg") else None
        picture().savefig(FOLDER / name, metadata=metadata, dpi=80)


if __name__ == "__main__":
    draw_all()
