"""What a figure shows, as plain numbers; nothing here draws."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Curve:
    """One set of points.

    Args:
        label: the name in the legend; empty for none.
        x: the points' positions.
        y: the points' heights.
        error: half-heights of error bars.
        line: whether a line joins the points.

    Example:
        >>> Curve("loss", (1.0, 2.0), (0.5, 0.25), line=True).y
        (0.5, 0.25)
    """

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    error: tuple[float, ...] | None = None
    line: bool = False


@dataclass(frozen=True)
class Plot:
    """Curves over one pair of axes.

    Args:
        x_label: label of the x axis.
        y_label: label of the y axis.
        curves: the curves.
        log: whether both axes are logarithmic.
        diagonal: the name under which the line y = x is added.
        ticks: names of the positions 0, 1, 2 … on the x axis.
        log_y: whether the y axis is logarithmic.
        title: title above the axes.

    Example:
        >>> Plot("epoch", "loss", (Curve("ours", (1.0, 2.0), (0.5, 0.25)),), log_y=True).log
        False
    """

    x_label: str
    y_label: str
    curves: tuple[Curve, ...]
    log: bool = False
    diagonal: str | None = None
    ticks: tuple[str, ...] | None = None
    log_y: bool = False
    title: str = ""


@dataclass(frozen=True)
class Heatmap:
    """A matrix as shades, row 0 at the top.

    Args:
        title: title above the matrix.
        values: the rows.
        low: the value of the first shade; None takes the smallest entry.
        high: the value of the last shade; None takes the largest entry.
        x_label: label below the matrix.
        y_label: label beside the matrix.
        diverging: whether the middle of the scale is a neutral colour, for values of both signs.

    Example:
        >>> Heatmap("Λ", ((1.0, 0.5), (0.5, 1.0)), low=0.0).values[0]
        (1.0, 0.5)
    """

    title: str
    values: tuple[tuple[float, ...], ...]
    low: float | None = None
    high: float | None = None
    x_label: str = ""
    y_label: str = ""
    diverging: bool = False


@dataclass(frozen=True)
class Polygon:
    """A polygon filled with a shade from 0 (paper) to 1 (ink)."""

    points: tuple[tuple[float, float], ...]
    shade: float


@dataclass(frozen=True)
class Shapes:
    """Polygons in a plane, true to scale.

    Args:
        title: title above the axes.
        polygons: the polygons, drawn in this order.
        x_label: label of the x axis.
        y_label: label of the y axis.
        axes: whether to draw the axes.

    Example:
        >>> len(Shapes("a triangle", (Polygon(((0.0, 0.0), (2.0, 0.0), (0.0, 1.0)), 1.0),)).polygons)
        1
    """

    title: str
    polygons: tuple[Polygon, ...]
    x_label: str = ""
    y_label: str = ""
    axes: bool = True


Panel = Plot | Heatmap | Shapes


@dataclass(frozen=True)
class Panels:
    """Several drawings in rows.

    Args:
        panels: the drawings, row after row.
        columns: drawings in a row.
        row_labels: names of the rows.

    Example:
        >>> Panels((Heatmap("start", ((1.0,),)), Heatmap("end", ((2.0,),))), columns=2).columns
        2
    """

    panels: tuple[Panel, ...]
    columns: int
    row_labels: tuple[str, ...] = ()


Picture = Panel | Panels
