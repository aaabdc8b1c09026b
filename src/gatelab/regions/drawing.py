"""Pictures of regions and half-spaces: the facts first, then the drawing."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import acos, atan2, ceil, cos, hypot, sin

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import PolyCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from torch import Tensor, nn

from gatelab.errors import InputError
from gatelab.figures import Shapes
from gatelab.figures.drawing import Drawing
from gatelab.figures.facts import Polygon
from gatelab.regions.halfspace import half_spaces
from gatelab.regions.partition import Partition

HalfSpace = Sequence[float]  # (a, b, c): the half-plane a s + b t + c > 0
Points = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class RegionPicture:
    """A rectangle cut into polygons, each with a number.

    Attributes:
        title: title of the panel.
        label: what the numbers are.
        bounds: the rectangle.
        polygons: the polygons' corners.
        values: the polygons' numbers.
    """

    title: str
    label: str
    bounds: tuple[tuple[float, float], ...]
    polygons: tuple[np.ndarray, ...]
    values: tuple[float, ...]


def region_picture(
    partition: Partition, values: Float[Tensor, " regions"] | Sequence[float], label: str, title: str = ""
) -> RegionPicture:
    """Return the facts of a picture of a partition, coloured by a number for each region.

    Args:
        partition: the regions.
        values: a number for each region.
        label: what the numbers are; pictures with one label share a scale of colours.
        title: title of the panel.

    Returns:
        The facts, for :func:`draw_regions`.

    Example:
        >>> from gatelab.regions import linear_regions_2d
        >>> partition = linear_regions_2d(nn.Sequential(nn.Linear(2, 1, bias=False), nn.ReLU()))
        >>> len(region_picture(partition, partition.areas, "area").polygons)
        2
    """
    numbers = tuple(float(value) for value in values)
    if len(numbers) != len(partition):
        raise InputError(f"there are {len(partition)} regions and {len(numbers)} values; give one for each")
    corners = np.split(partition.corners.cpu().numpy(), partition.starts[1:-1].tolist())
    return RegionPicture(title, label, partition.bounds, tuple(corners), numbers)


def draw_regions(
    pictures: RegionPicture | Sequence[RegionPicture], columns: int = 3, colours: str = "viridis"
) -> Figure:
    """Draw one panel for each picture.

    Args:
        pictures: the facts, from :func:`region_picture`.
        columns: the largest number of panels side by side.
        colours: a colour map of matplotlib.

    Returns:
        The figure.

    Example:
        >>> square = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
        >>> figure = draw_regions(RegionPicture("a square", "area", ((0, 1), (0, 1)), (square,), (1.0,)))
        >>> figure.axes[0].get_title()
        'a square'
    """
    panels = [pictures] if isinstance(pictures, RegionPicture) else list(pictures)
    if not panels:
        raise InputError("there is nothing to draw; give at least one picture")
    columns = min(columns, len(panels))
    rows = ceil(len(panels) / columns)
    figure = Drawing((3.6 * columns + 0.6, 3.2 * rows))
    values = {panel.label: [v for p in panels if p.label == panel.label for v in p.values] for panel in panels}
    scales = {label: Normalize(min(numbers), max(numbers)) for label, numbers in values.items()}
    axes_of: dict[str, list[Axes]] = {}
    for place, picture in enumerate(panels):
        axes = figure.add_subplot(rows, columns, place + 1, aspect="equal")
        cells = PolyCollection(list(picture.polygons), cmap=colours, norm=scales[picture.label], linewidths=0.3)
        cells.set_array(np.array(picture.values))
        cells.set_edgecolor("white" if len(picture.polygons) < 2000 else "face")  # many white edges hide the colours
        axes.add_collection(cells)
        axes.set(xlim=picture.bounds[0], ylim=picture.bounds[1], title=picture.title)
        axes_of.setdefault(picture.label, []).append(axes)
    for label, axes in axes_of.items():
        figure.colorbar(ScalarMappable(scales[label], colours), ax=axes, label=label, shrink=0.85)
    return figure


def half_space_discs(dlgn: nn.Module, radius: float = 1.0) -> list[list[HalfSpace]]:
    """Return every gate of a DLGN with two inputs as a half-plane (halfspace, Figures 6, 9 and 10), layer by layer.

    The coordinates are scaled so that the disc of this radius around the origin becomes the unit disc.
    """
    if not radius > 0:
        raise InputError(f"radius is {radius}; it must be positive")
    rows = []
    for layer in half_spaces(dlgn).values():
        normals = layer.normals()
        if normals.shape[1:] != (2,):
            raise InputError(
                f"a disc shows half-spaces of two inputs, the network takes {tuple(normals.shape[1:])}; show the "
                "normals as images, half_spaces(dlgn)[layer].normals()"
            )
        pairs = zip(normals.tolist(), layer.offsets.tolist(), strict=True)
        rows.append([(radius * a, radius * b, c) for (a, b), c in pairs])
    return rows


def disc_panel(
    layers: Sequence[Sequence[HalfSpace]], title: str = "", per_row: int | None = None, corners: int = 40
) -> Shapes:
    """Show every half-plane as a unit disc whose open part is dark, layer below layer, each with its number.

    Args:
        layers: the half-planes of each layer, as from :func:`half_space_discs`.
        title: title of the panel.
        per_row: discs in a row, a layer with more takes several rows; None puts a whole layer in one row.
        corners: corners of the polygons that stand for circles.
    """
    polygons, texts, row = [], [], 0
    circle = open_part((0.0, 0.0, 1.0), corners)[:-1]
    for number, discs in enumerate(layers, start=1):
        columns = per_row or len(discs)
        texts.append((-2.6, -2.3 * (row + (ceil(len(discs) / columns) - 1) / 2), f"layer {number}"))
        for place, disc in enumerate(discs):
            x, y = 2.3 * (place % columns), -2.3 * (row + place // columns)
            for points, shade in ((circle, 0.0), (open_part(disc, corners), 1.0)):
                if points:
                    polygons.append(Polygon(tuple((round(x + a, 3), round(y + b, 3)) for a, b in points), shade))
        row += ceil(len(discs) / columns)
    return Shapes(title, tuple(polygons), axes=False, texts=tuple(texts))


def open_part(half_space: HalfSpace, corners: int = 60) -> Points:
    """Return the part of the unit disc inside a half-plane: an arc, closed by its chord. Empty if nothing is open."""
    a, b, offset = half_space
    length = hypot(a, b)
    # Where the boundary cuts the normal's direction: at −1 the whole disc is open, at 1 nothing is.
    reach = max(-1.0, min(1.0, -offset / length)) if length else -1.0 if offset > 0 else 1.0
    half = acos(reach)
    if half == 0:
        return ()
    angles = (atan2(b, a) + half * (2 * k / corners - 1) for k in range(corners + 1))
    return tuple((cos(angle), sin(angle)) for angle in angles)
