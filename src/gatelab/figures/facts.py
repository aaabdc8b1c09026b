"""What a figure shows, as plain numbers; nothing is drawn here."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Curve:
    """One set of points of a figure; ``error`` gives the half-height of error bars, ``line`` joins the points."""

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    error: tuple[float, ...] | None = None
    line: bool = False


@dataclass(frozen=True)
class Plot:
    """Curves over one pair of axes.

    ``diagonal`` adds the line y = x under this name, ``log`` makes both axes logarithmic, ``log_y`` the upright one,
    ``ticks`` name the places 0, 1, 2 … of the x axis, ``title`` stands above the axes.
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
    """A matrix as shades between ``low`` and ``high``, row 0 at the top; its own least and largest value if None.

    With ``diverging`` the middle of the scale is a neutral colour, for values of both signs.
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
    """Polygons in a plane, true to scale; without ``axes`` only the shapes are seen, as in a small disc."""

    title: str
    polygons: tuple[Polygon, ...]
    x_label: str = ""
    y_label: str = ""
    axes: bool = True


Panel = Plot | Heatmap | Shapes


@dataclass(frozen=True)
class Panels:
    """Several drawings side by side, so many in a row; ``row_labels`` name the rows."""

    panels: tuple[Panel, ...]
    columns: int
    row_labels: tuple[str, ...] = ()


Picture = Panel | Panels
