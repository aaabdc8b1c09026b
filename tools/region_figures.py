"""Draw the pictures of docs/regions.md, and Figure 1 of halfspace. Run as ``python -m tools.region_figures``."""

from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.figure import Figure
from torch import nn

import gatelab as gl
from gatelab.figures import Panels, draw
from gatelab.gates import HardGate
from gatelab.models import DeepLinearlyGatedNetwork
from gatelab.papers.halfspace.figure1 import figure1, line_panel, square_panel
from gatelab.regions import linear_regions_2d, path_components
from gatelab.regions.components import component_counts
from gatelab.regions.partition import Partition

FOLDER = Path(__file__).parents[1] / "docs"
SQUARE = ((-3.0, 3.0), (-3.0, 3.0))
LAYERS = ("#1b6ca8", "#d1495b", "#8a9a5b")


def network(*hidden: int, seed: int, outputs: int = 1) -> nn.Sequential:
    """A ReLU network with biases, drawn from a seed."""
    generator = torch.Generator().manual_seed(seed)
    model = gl.models.mlp([2, *hidden, outputs], bias=True, generator=generator, dtype=torch.float64)
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.bias, std=0.5, generator=generator)
    return model


def polygons(partition: Partition) -> list[np.ndarray]:
    """The corners of each region."""
    return np.split(partition.corners.numpy(), partition.starts[1:-1].tolist())


def draw_edges(axes: Axes, partition: Partition) -> None:
    """Draw the edges between regions, in the colour of the layer whose gate changes there."""
    graph = partition.graph
    for level in range(len(graph.layers)):
        own = graph.layer == level
        ends = graph.vertices[graph.ends[own]].numpy()
        axes.add_collection(
            LineCollection(list(ends), colors=LAYERS[level], linewidths=0.8, label=f"layer {level + 1}")
        )
    axes.set(xlim=SQUARE[0], ylim=SQUARE[1], aspect="equal", xticks=[], yticks=[])


def graph_figure(path: Path) -> None:
    """The edges by layer with the decision boundary, and the same regions coloured by their number of neighbours."""
    partition = linear_regions_2d(network(8, 8, seed=5), None, SQUARE)
    level = float(partition.evaluate(partition.centres).median())
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    draw_edges(left, partition)
    pieces = partition.level_set(level).pieces.numpy()
    left.add_collection(LineCollection(list(pieces), colors="black", linewidths=2, label="level set of the output"))
    left.legend(loc="upper center", bbox_to_anchor=(0.5, -0.02), ncols=3, frameon=False, fontsize=8)
    left.set_title(f"{len(partition)} regions, {int(partition.graph.inner.sum())} edges between them", fontsize=10)
    cells = PolyCollection(polygons(partition), cmap="viridis", edgecolors="white", linewidths=0.4)
    cells.set_array(partition.graph.degrees.numpy())
    right.add_collection(cells)
    right.set(xlim=SQUARE[0], ylim=SQUARE[1], aspect="equal", xticks=[], yticks=[])
    right.set_title("number of neighbours", fontsize=10)
    figure.colorbar(cells, ax=right, shrink=0.8)
    save(figure, path)


def path_figure(path: Path) -> None:
    """Where one path is active: in a ReLU network in several components, in a DLGN in one convex polygon."""
    gated = DeepLinearlyGatedNetwork(
        [2, 8, 8, 8, 1], gate=HardGate(), generator=torch.Generator().manual_seed(2)
    ).double()
    for layer in gated.feature:
        nn.init.normal_(layer.get_parameter("bias"), std=0.5, generator=torch.Generator().manual_seed(3))
    models = {"ReLU network": network(8, 8, 8, seed=8), "deep linearly gated network": gated}
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    for axes, (title, model) in zip(figure.subplots(1, 2), models.items(), strict=True):
        partition = linear_regions_2d(model, None, SQUARE)
        paths = torch.cartesian_prod(*[torch.arange(8)] * 3).tolist()
        counts = component_counts(partition, paths)
        most = [
            path_components(partition, path) for path, count in zip(paths, counts, strict=True) if count == counts.max()
        ]
        chosen = max(most, key=lambda one: float(one.areas.min()))  # all of whose components can be seen
        shades = [("#eeeeee", *LAYERS)[min(label + 1, 3)] for label in chosen.labels.tolist()]
        axes.add_collection(
            PolyCollection(polygons(partition), facecolors=shades, edgecolors="#bbbbbb", linewidths=0.4)
        )
        axes.set(xlim=SQUARE[0], ylim=SQUARE[1], aspect="equal", xticks=[], yticks=[])
        several = int((counts > 1).sum())
        text = f"{title}\na path active in {chosen.polygons} regions, {chosen.count} component{'s'[: chosen.count > 1]}"
        axes.set_title(f"{text}\n{several} of {int((counts > 0).sum())} active paths have several", fontsize=9)
    save(figure, path)


def save(figure: Figure, path: Path) -> None:
    """Write the same file each time."""
    mpl.rcParams["svg.hashsalt"] = "gatelab"
    figure.savefig(path, metadata={"Date": None})


def figure1_picture(path: Path) -> None:
    """Figure 1 of halfspace, with our weights."""
    facts = figure1()
    panels = line_panel(facts), *(square_panel(facts, epsilon) for epsilon in facts.regions)
    save(draw(Panels(panels, 3), "Where ReLU paths are active (Figure 1)", (10.5, 3.6)), path)


if __name__ == "__main__":
    graph_figure(FOLDER / "regions-graph.svg")
    path_figure(FOLDER / "regions-path.svg")
    figure1_picture(FOLDER / "pictures" / "halfspace-figure1.svg")
