"""Figures: the facts first, then the drawing."""

from dataclasses import dataclass
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.ticker import NullFormatter

from gatelab.errors import InputError

# Both ship with matplotlib; the second has the script letters that the first lacks.
_FONT = FontProperties(family=["DejaVu Sans", "STIXGeneral"], size=9)


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
    """The facts of a figure; nothing is drawn yet.

    ``diagonal`` adds the line y = x under this name, ``log`` makes both axes logarithmic, ``ticks`` name the places
    0, 1, 2 … of the x axis.
    """

    x_label: str
    y_label: str
    curves: tuple[Curve, ...]
    log: bool = False
    diagonal: str | None = None
    ticks: tuple[str, ...] | None = None


def draw(plot: Plot, title: str = "", size: tuple[float, float] = (6.4, 4.4)) -> Figure:
    """The plot as a figure."""
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    if plot.log:
        axes.set_xscale("log")
        axes.set_yscale("log")
        # Label the sizes that were measured, not the decades in between, where labels run into each other.
        axes.set_xticks(plot.curves[0].x, [f"{value:g}" for value in plot.curves[0].x])
        axes.xaxis.set_minor_formatter(NullFormatter())
    if plot.ticks is not None:
        axes.set_xticks(range(len(plot.ticks)), plot.ticks)
    if plot.diagonal:
        low, high = _range(plot)
        axes.plot([low, high], [low, high], color="0.6", linewidth=1, label=plot.diagonal)
    for curve in plot.curves:
        style = "-" if curve.line else "o"
        axes.errorbar(
            curve.x, curve.y, yerr=curve.error, fmt=style, markersize=4, alpha=0.8, capsize=2, label=curve.label
        )
    axes.set_xlabel(plot.x_label, fontproperties=_FONT)
    axes.set_ylabel(plot.y_label, fontproperties=_FONT)
    if title:
        axes.set_title(title, fontproperties=_FONT, wrap=True)
    axes.grid(visible=True, alpha=0.25)
    axes.legend(fontsize=8)
    return figure


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure; the ending of the path says which format."""
    formats = figure.canvas.get_supported_filetypes()
    ending = path.suffix.lstrip(".").lower()
    if ending not in formats:
        raise InputError(f"cannot draw to '{path}': the ending must be one of {', '.join(sorted(formats))}")
    if not path.parent.is_dir():
        raise InputError(f"cannot draw to '{path}': the folder {path.parent} does not exist")
    figure.savefig(path, dpi=160)


def _range(plot: Plot) -> tuple[float, float]:
    values = [v for curve in plot.curves for v in (*curve.x, *curve.y)]
    return min(values), max(values)
