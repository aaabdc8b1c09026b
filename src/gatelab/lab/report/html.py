"""Findings as one HTML file without scripts and without links to other files."""

import io
import re
from collections.abc import Mapping
from typing import Any

from jinja2 import Environment, PackageLoader
from markupsafe import Markup
from matplotlib import rc_context

from gatelab.figures import draw
from gatelab.lab.findings import FigureFacts, Findings
from gatelab.lab.verdicts import Outcome

PAGES = Environment(loader=PackageLoader("gatelab.lab.report", "templates"), autoescape=True, trim_blocks=True)


def page(findings: Findings, about: Mapping[str, Any]) -> str:
    """Return the report as HTML; all text is escaped. ``about`` has sections of plain facts for the end.

    Example:
        >>> "<title>A comparison" in page(Findings("A comparison", "Learnt gates beat random ones."), {})
        True
    """
    counts = {outcome: sum(claim.outcome is outcome for claim in findings.claims) for outcome in Outcome}
    figures = [(figure, svg(figure, f"f{number}")) for number, figure in enumerate(findings.figures)]
    return PAGES.get_template("report.html").render(
        findings=findings, figures=figures, about=about, counts=counts, Outcome=Outcome
    )


def svg(figure: FigureFacts, prefix: str) -> Markup:
    """The figure as SVG inside a page: text in the page's colour, ids unique by their prefix."""
    drawn = draw(figure.plot, size=(6.4, 3.8))
    drawn.patch.set_alpha(0.0)
    for axes in drawn.axes:
        axes.patch.set_alpha(0.0)
    buffer = io.StringIO()
    with rc_context({"svg.hashsalt": prefix}):  # the same facts make the same file
        drawn.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    content = buffer.getvalue()
    content = content[content.index("<svg") :]
    content = re.sub(r'(width|height)="[\d.]+pt"', "", content, count=2)
    content = re.sub(r'id="([^"]+)"', rf'id="{prefix}-\1"', content)
    content = re.sub(r'(xlink:href="#|url\(#)', rf"\1{prefix}-", content)
    return Markup(content)
