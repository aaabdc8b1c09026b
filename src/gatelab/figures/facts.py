"""What a figure shows, as plain numbers; :mod:`gatelab.figures.drawing` draws it."""

from dataclasses import dataclass


class ShownInNotebooks:
    """Facts that a notebook shows as a picture, without ``%matplotlib``."""

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        from gatelab.figures.drawing import draw  # noqa: PLC0415  the engine reads these facts

        return draw(self)._repr_png_()  # pyright: ignore[reportArgumentType]  every subclass is a Picture


@dataclass(frozen=True)
class Curve:
    """One set of points.

    Args:
        label: the name in the legend; empty for none.
        x: the points' positions.
        y: the points' heights.
        error: half-heights of error bars.
        line: whether a line joins the points.
        band: lower and upper ends of a shaded band around the line.

    Example:
        >>> Curve("loss", (1.0, 2.0), (0.5, 0.25), line=True).y
        (0.5, 0.25)
    """

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    error: tuple[float, ...] | None = None
    line: bool = False
    band: tuple[tuple[float, ...], tuple[float, ...]] | None = None


@dataclass(frozen=True, repr=False)
class Plot(ShownInNotebooks):
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

    def __repr__(self) -> str:
        names = ", ".join(curve.label for curve in self.curves if curve.label) or f"{len(self.curves)} curves"
        return f"Plot({_titled(self)}{self.y_label or 'y'} over {self.x_label or 'x'}: {names})"


@dataclass(frozen=True, repr=False)
class Heatmap(ShownInNotebooks):
    """A matrix as shades, row 0 at the top.

    Heat maps of one figure, or of all frames of an animation, that name the same ``scale`` share their colours: equal
    shades are equal numbers, and one colour bar serves them all.

    Args:
        title: title above the matrix.
        values: the rows; NaN for an entry that is not known, which is drawn in grey.
        low: the value of the first shade; None takes the smallest entry of all heat maps of this scale.
        high: the value of the last shade; None takes the largest entry of all heat maps of this scale.
        x_label: label below the matrix.
        y_label: label beside the matrix.
        diverging: whether the middle of the scale is a neutral colour, for values of both signs; without ``low`` and
            ``high`` that middle is 0.
        scale: what the shades measure, the label of the colour bar; None for pictures such as photographs, which have
            their own range and no colour bar.
        x_ticks: names of the columns.
        y_ticks: names of the rows.

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
    scale: str | None = ""
    x_ticks: tuple[str, ...] = ()
    y_ticks: tuple[str, ...] = ()

    def __repr__(self) -> str:
        columns = len(self.values[0]) if self.values else 0
        scale = f", {self.scale}" if self.scale else ""
        return f"Heatmap({_titled(self)}{len(self.values)} × {columns}{scale})"


@dataclass(frozen=True)
class Polygon:
    """A polygon filled with a shade from 0 (paper) to 1 (ink)."""

    points: tuple[tuple[float, float], ...]
    shade: float


@dataclass(frozen=True, repr=False)
class Shapes(ShownInNotebooks):
    """Polygons in a plane, true to scale.

    Args:
        title: title above the axes.
        polygons: the polygons, drawn in this order.
        x_label: label of the x axis.
        y_label: label of the y axis.
        axes: whether to draw the axes.
        texts: labels in the plane, each with the position of its centre.
        diverging: whether a shade of ½ is a neutral colour, for values of both signs.

    Example:
        >>> len(Shapes("a triangle", (Polygon(((0.0, 0.0), (2.0, 0.0), (0.0, 1.0)), 1.0),)).polygons)
        1
    """

    title: str
    polygons: tuple[Polygon, ...]
    x_label: str = ""
    y_label: str = ""
    axes: bool = True
    texts: tuple[tuple[float, float, str], ...] = ()
    diverging: bool = False

    def __repr__(self) -> str:
        return f"Shapes({_titled(self)}{len(self.polygons)} polygons)"


Panel = Plot | Heatmap | Shapes


def _titled(panel: Panel) -> str:
    return f"{panel.title!r}, " if panel.title else ""


@dataclass(frozen=True, repr=False)
class Panels(ShownInNotebooks):
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

    def __repr__(self) -> str:
        return f"Panels({', '.join(map(repr, self.panels))})"


Picture = Panel | Panels
