"""Pictures of regions and half-spaces: the facts first, then the drawing."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import acos, ceil, cos, hypot, pi, sin, sqrt

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.collections import PolyCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from torch import Tensor, nn

from gatelab.errors import InputError
from gatelab.figures import Polygon, Shapes
from gatelab.regions.halfspace import half_spaces
from gatelab.regions.partition import Partition


@dataclass(frozen=True)
class RegionPicture:
    """A rectangle cut into polygons, each with a number.

    Attributes:
        title: of the panel.
        label: what the numbers are.
        bounds: the rectangle.
        polygons: their corners.
        values: their numbers.
    """

    title: str
    label: str
    bounds: tuple[tuple[float, float], ...]
    polygons: tuple[np.ndarray, ...]
    values: tuple[float, ...]


def region_picture(
    partition: Partition, values: Float[Tensor, " regions"] | Sequence[float], label: str, title: str = ""
) -> RegionPicture:
    """The facts of a picture of a partition, coloured by a number for each region."""
    numbers = tuple(float(value) for value in values)
    if len(numbers) != len(partition):
        raise InputError(f"there are {len(partition)} regions and {len(numbers)} values; give one for each")
    corners = np.split(partition.corners.cpu().numpy(), partition.starts[1:-1].tolist())
    return RegionPicture(title, label, partition.bounds, tuple(corners), numbers)


def draw_regions(
    pictures: RegionPicture | Sequence[RegionPicture], columns: int = 3, colours: str = "viridis"
) -> Figure:
    """One panel for each picture; pictures of one label share a scale of colours."""
    panels = [pictures] if isinstance(pictures, RegionPicture) else list(pictures)
    if not panels:
        raise InputError("there is nothing to draw; give at least one picture")
    columns = min(columns, len(panels))
    rows = ceil(len(panels) / columns)
    figure = Figure(figsize=(3.6 * columns + 0.6, 3.2 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    scales = {label: _scale([p for p in panels if p.label == label]) for label in {p.label for p in panels}}
    axes_of: dict[str, list[Axes]] = {}
    for place, picture in enumerate(panels):
        axes = figure.add_subplot(rows, columns, place + 1, aspect="equal")
        cells = PolyCollection(list(picture.polygons), cmap=colours, norm=scales[picture.label], linewidths=0.3)
        cells.set_array(np.array(picture.values))
        cells.set_edgecolor("white" if len(picture.polygons) < 2000 else "face")
        axes.add_collection(cells)
        axes.set(xlim=picture.bounds[0], ylim=picture.bounds[1], title=picture.title)
        axes_of.setdefault(picture.label, []).append(axes)
    for label, axes in axes_of.items():
        figure.colorbar(ScalarMappable(scales[label], colours), ax=axes, label=label, shrink=0.85)
    return figure


def _scale(pictures: list[RegionPicture]) -> Normalize:
    values = [value for picture in pictures for value in picture.values]
    return Normalize(min(values), max(values))


@dataclass(frozen=True)
class Disc:
    """A half-space of the plane, ⟨normal, x⟩ + offset > 0, seen in a disc around the origin.

    Attributes:
        unit: the gate's number in its layer.
        normal: of the half-space, not normalised.
        offset: of the half-space.
        radius: of the disc.
    """

    unit: int
    normal: tuple[float, float]
    offset: float
    radius: float = 1.0

    @property
    def reach(self) -> float:
        """Where the boundary cuts the normal's direction, in radii: −1 if all of the disc is open, 1 if nothing is."""
        length = hypot(*self.normal)
        if length == 0:
            return -1.0 if self.offset > 0 else 1.0
        return max(-1.0, min(1.0, -self.offset / length / self.radius))

    @property
    def share(self) -> float:
        """The share of the disc's area that is open."""
        c = self.reach
        return (acos(c) - c * sqrt(1 - c * c)) / pi

    @property
    def angle(self) -> float:
        """The normal's direction, in radians."""
        return float(np.arctan2(self.normal[1], self.normal[0]))

    def outline(self, points: int = 60) -> np.ndarray:
        """The open part: an arc, closed by its chord; no points if nothing is open."""
        half = acos(self.reach)
        if half == 0:
            return np.empty((0, 2))
        around = [self.angle + half * (2 * k / points - 1) for k in range(points + 1)]
        return self.radius * np.array([(cos(a), sin(a)) for a in around])


@dataclass(frozen=True)
class DiscTable:
    """The half-spaces of a network of two inputs, a row of discs for each layer of gates."""

    title: str
    layers: tuple[str, ...]
    discs: tuple[tuple[Disc, ...], ...]


def half_space_discs(dlgn: nn.Module, radius: float = 1.0, units: int | None = None, title: str = "") -> DiscTable:
    """The facts of a picture of every gate of a DLGN as a half-space (halfspace, Figures 6, 9 and 10).

    Args:
        dlgn: a DLGN of two inputs.
        radius: of the disc in which they are seen.
        units: only the first so many of each layer.
        title: of the picture.
    """
    if not radius > 0:
        raise InputError(f"radius is {radius}; it must be positive")
    layers = half_spaces(dlgn)
    rows = []
    for layer in layers.values():
        normals = layer.normals()
        if normals.shape[1:] != (2,):
            raise InputError(
                f"a disc shows half-spaces of two inputs, the network takes {tuple(normals.shape[1:])}; its normals "
                "can be shown as images, half_spaces(dlgn)[layer].normals()"
            )
        pairs = zip(normals.tolist(), layer.offsets.tolist(), strict=True)
        rows.append(tuple(Disc(unit, (a, b), offset, radius) for unit, ((a, b), offset) in enumerate(pairs))[:units])
    return DiscTable(title, tuple(layers), tuple(rows))


def disc_panel(table: DiscTable, per_row: int | None = None, corners: int = 40) -> Shapes:
    """Every half-space as a disc whose open part is dark, layer below layer.

    Args:
        table: the half-spaces.
        per_row: discs in a row; a layer that has more takes several rows. None: all of a layer.
        corners: of the polygons that stand for circles.
    """
    polygons, row = [], 0
    around = [(cos(2 * pi * k / corners), sin(2 * pi * k / corners)) for k in range(corners)]
    for discs in table.discs:
        columns = per_row or len(discs)
        for place, disc in enumerate(discs):
            x, y = 2.3 * (place % columns), -2.3 * (row + place // columns)
            polygons.append(Polygon(tuple((round(x + a, 3), round(y + b, 3)) for a, b in around), 0.0))
            opened = (disc.outline(corners) / disc.radius).tolist()
            if opened:
                polygons.append(Polygon(tuple((round(x + a, 3), round(y + b, 3)) for a, b in opened), 1.0))
        row += ceil(len(discs) / columns)
    return Shapes(table.title, tuple(polygons), axes=False)
