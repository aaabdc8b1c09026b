"""The figures of a report: inside the page, and as files beside it."""

import io
import re
from collections.abc import Iterator

from markupsafe import Markup
from matplotlib import rc_context

from gatelab.figures import draw
from gatelab.figures.drawing import Drawing
from gatelab.lab.findings import FigureFacts

SIZE = (6.4, 3.8)
_DOTS_PER_INCH = 200
# Text and axes are drawn in a colour that nothing else has; it is then replaced by the page's text colour: black on
# white paper, white on a dark screen.
_INK = "#010203"
_INKED = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color", "patch.edgecolor")


def svg(figure: FigureFacts, prefix: str) -> Markup:
    """Return the figure as SVG for a page: text in the page's colour, ids made unique by a prefix."""
    with rc_context({**dict.fromkeys(_INKED, _INK), "legend.framealpha": 0.0}):
        drawn = draw(figure.plot, size=SIZE)
        drawn.patch.set_alpha(0.0)
        for axes in drawn.axes:
            axes.patch.set_alpha(0.0)
        content = _svg(drawn, prefix)
    content = content[content.index("<svg") :]
    content = re.sub(r'(width|height)="[\d.]+pt"', "", content, count=2)
    content = re.sub(r'id="([^"]+)"', rf'id="{prefix}-\1"', content)
    content = re.sub(r'(xlink:href="#|url\(#)', rf"\1{prefix}-", content)
    return Markup(content.replace(_INK, "currentColor"))


def files_of(figure: FigureFacts, name: str) -> Iterator[tuple[str, bytes]]:
    """Yield the figure as an SVG and a PNG file, black on white: their names and contents."""
    drawn = draw(figure.plot, size=SIZE)
    yield f"{name}.svg", _svg(drawn, name).encode()
    buffer = io.BytesIO()
    drawn.savefig(buffer, format="png", dpi=_DOTS_PER_INCH, metadata={"Software": None})
    yield f"{name}.png", buffer.getvalue()


def _svg(drawn: Drawing, salt: str) -> str:
    buffer = io.StringIO()
    with rc_context({"svg.hashsalt": salt}):  # the same facts make the same file
        drawn.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return buffer.getvalue()
