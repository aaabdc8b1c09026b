"""Draw the facts of a figure with matplotlib."""

import io
from collections.abc import Sequence
from math import ceil
from pathlib import Path
from textwrap import fill
from typing import Any

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import Polygon as Patch
from matplotlib.ticker import MaxNLocator, NullFormatter

from gatelab.errors import InputError
from gatelab.figures.facts import Heatmap, Panel, Panels, Picture, Plot, Shapes
from gatelab.figures.scales import ColourScale, colour_scales

# Both ship with matplotlib; the second has the script letters that the first lacks.
_FONT = FontProperties(family=["DejaVu Sans", "STIXGeneral"], size=9)
_MISSING = "0.82"  # grey: an entry that is not known
_MOST_TICKS = 10
# Characters that fit side by side under a plot, and the narrowest width to which a tick is wrapped.
_TICK_CHARACTERS, _LEAST_TICK_WIDTH = 72, 6
_NOTEBOOK_DPI, _SCREEN_DPI = 160, 80


class Drawing(Figure):
    """A matplotlib figure without pyplot that a notebook shows by itself.

    pyplot keeps every figure until it is closed, and ``%matplotlib`` shows only those that pyplot knows.
    """

    def __init__(self, size: tuple[float, float]):
        super().__init__(figsize=size, layout="constrained")
        FigureCanvasAgg(self)

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        """Twice as many pixels as the size on the page, for sharp screens."""
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", dpi=_NOTEBOOK_DPI)
        width, height = (round(inches * _SCREEN_DPI) for inches in self.get_size_inches())
        return buffer.getvalue(), {"width": width, "height": height}


def draw(picture: Picture, title: str = "", size: tuple[float, float] = (6.4, 4.4)) -> Drawing:
    """Draw a picture.

    Args:
        picture: the facts.
        title: title above the figure.
        size: width and height of a single plot in inches; panels take the height they need.

    Returns:
        A matplotlib figure, which notebooks show.

    Example:
        >>> from gatelab.figures import Heatmap
        >>> draw(Heatmap("Λ", ((1.0, 0.5), (0.5, 1.0)))).axes[0].get_title()
        'Λ'
    """
    single = not isinstance(picture, Panels)
    panels = Panels((picture,), columns=1) if single else picture
    columns = min(panels.columns, len(panels.panels))
    rows = ceil(len(panels.panels) / columns)
    if not single:
        size = (size[0], rows * size[0] / columns * _aspect(panels) + 0.3 * bool(title))
    figure, scales = Drawing(size), colour_scales(panels.panels)
    for place, (panel, scale) in enumerate(zip(panels.panels, scales, strict=True)):
        axes = figure.add_subplot(rows, columns, place + 1)
        _draw_panel(axes, panel, scale)
        row, column = divmod(place, columns)
        if column == 0 and row < len(panels.row_labels):
            axes.set_ylabel(panels.row_labels[row], fontproperties=_FONT)
    _add_colour_bars(figure, scales, columns)
    if title and single:
        figure.axes[0].set_title(title, fontproperties=_FONT, wrap=True)
    elif title:
        figure.suptitle(title, fontproperties=_FONT)
    return figure


def _aspect(picture: Panels) -> float:
    """Height of a panel over its width: plots are landscape, matrices and shapes square, with room for a title."""
    plots = any(isinstance(panel, Plot) for panel in picture.panels)
    titled = any(panel.title for panel in picture.panels)
    return 0.85 if plots else 1.0 + 0.12 * titled


def _draw_panel(axes: Axes, panel: Panel, scale: ColourScale | None) -> None:
    if isinstance(panel, Plot):
        _draw_plot(axes, panel)
    elif isinstance(panel, Heatmap) and scale is not None:
        # Not "nearest": an SVG would render that at 72 dots per inch.
        axes.imshow(panel.values, **_colours(scale), interpolation="none")
        axes.set_xticks(range(len(panel.x_ticks)), panel.x_ticks, fontproperties=_FONT)
        axes.set_yticks(range(len(panel.y_ticks)), panel.y_ticks, fontproperties=_FONT)
    elif isinstance(panel, Shapes):
        _draw_shapes(axes, panel)
    axes.set_xlabel(panel.x_label, fontproperties=_FONT)
    axes.set_ylabel(panel.y_label, fontproperties=_FONT)
    if panel.title:
        axes.set_title(panel.title, fontproperties=_FONT)


def _colours(scale: ColourScale) -> dict[str, Any]:
    shades = colormaps["RdBu_r" if scale.diverging else "viridis"].with_extremes(bad=_MISSING)
    return {"cmap": shades, "norm": Normalize(scale.low, scale.high)}


def _add_colour_bars(figure: Figure, scales: Sequence[ColourScale | None], columns: int) -> None:
    """Add a bar for each labelled scale: one for all panels if it is the only scale, else one in each of its rows."""
    panels = list(figure.axes)
    labelled = [scale for scale in dict.fromkeys(scales) if scale is not None and scale.label is not None]
    for scale in labelled:
        rightmost = {place // columns: axes for place, axes in enumerate(panels) if scales[place] is scale}
        if len(labelled) == 1 and len(panels) > 1:
            bars = [figure.colorbar(ScalarMappable(**_colours(scale)), ax=panels, shrink=0.85, aspect=25)]
        else:  # as high as the matrix beside it
            places = [axes.inset_axes((1.04, 0.0, 0.05, 1.0)) for axes in rightmost.values()]
            bars = [figure.colorbar(ScalarMappable(**_colours(scale)), cax=place) for place in places]
        for bar in bars:
            bar.set_label(str(scale.label), fontproperties=_FONT)
            bar.ax.tick_params(labelsize=8)


def _draw_shapes(axes: Axes, shapes: Shapes) -> None:
    shades = colormaps["RdBu_r" if shapes.diverging else "Blues"]
    for polygon in shapes.polygons:
        colour = shades(polygon.shade if shapes.diverging else 0.08 + 0.72 * polygon.shade)
        edge = colour if shapes.diverging else "0.5"  # polygon edges in grey would hide the colours
        axes.add_patch(Patch(polygon.points, facecolor=colour, edgecolor=edge, lw=0.4))
    for x, y, words in shapes.texts:
        axes.text(x, y, words, ha="center", va="center", fontproperties=_FONT)
    axes.autoscale_view()
    axes.set_aspect("equal")
    if not shapes.axes:
        axes.set_axis_off()


def _draw_plot(axes: Axes, plot: Plot) -> None:
    if plot.log:
        axes.set_xscale("log")
        if len(plot.curves[0].x) <= _MOST_TICKS:
            # Label the measured sizes; labels of the decades between them would overlap.
            axes.set_xticks(plot.curves[0].x, [f"{value:g}" for value in plot.curves[0].x])
            axes.xaxis.set_minor_formatter(NullFormatter())
    elif not plot.ticks and all(float(value).is_integer() for curve in plot.curves for value in curve.x):
        axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True))  # epochs are whole numbers
    if plot.log or plot.log_y:
        axes.set_yscale("log")
    if plot.ticks:
        room = max(_LEAST_TICK_WIDTH, _TICK_CHARACTERS // len(plot.ticks))
        axes.set_xticks(range(len(plot.ticks)), [fill(tick, room, break_long_words=False) for tick in plot.ticks])
        axes.set_xlim(-0.5, len(plot.ticks) - 0.5)
    if plot.diagonal:
        values = [value for curve in plot.curves for value in (*curve.x, *curve.y)]
        ends = [min(values), max(values)]
        axes.plot(ends, ends, color="0.6", linewidth=1, label=plot.diagonal)
    for curve in plot.curves:
        style = "-" if curve.line else "o"
        drawn = axes.errorbar(
            curve.x, curve.y, yerr=curve.error, fmt=style, markersize=4, alpha=0.8, capsize=2, label=curve.label or None
        )
        if curve.band is not None:
            axes.fill_between(curve.x, *curve.band, color=drawn[0].get_color(), alpha=0.18, linewidth=0)
    axes.tick_params(which="both", labelsize=8.5)
    axes.grid(visible=True, alpha=0.25)
    if any(curve.label for curve in plot.curves):
        axes.legend(fontsize=8)


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure to a file.

    Args:
        figure: the figure.
        path: the file; its suffix chooses the format.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     save_figure(Figure(), Path(folder, "figure.png"))
    """
    formats = figure.canvas.get_supported_filetypes()
    ending = path.suffix.lstrip(".").lower()
    if ending not in formats:
        raise InputError(f"cannot write '{path}': its suffix must be one of {', '.join(sorted(formats))}")
    if not path.parent.is_dir():
        raise InputError(f"cannot write '{path}': create the folder {path.parent} first")
    figure.savefig(path, dpi=160)
