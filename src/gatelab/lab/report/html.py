"""Findings as one HTML file without scripts and without links to other files."""

from collections.abc import Mapping
from typing import Any

from jinja2 import Environment, PackageLoader

from gatelab.figures import Plot
from gatelab.lab.findings import Findings
from gatelab.lab.report.drawings import svg
from gatelab.lab.verdicts import Outcome

PAGES = Environment(loader=PackageLoader("gatelab.lab.report", "templates"), autoescape=True, trim_blocks=True)
PAGES.filters["unbroken"] = lambda text: text.replace(" %", "\u00a0%")  # no line ends between a number and its unit


def page(findings: Findings, about: Mapping[str, Any], files: str = "") -> str:
    """Return the report as HTML; all text is escaped.

    Args:
        findings: what was found.
        about: sections of plain facts for the end of the page.
        files: a description of where the figures are as files.

    Returns:
        The page, which needs no other file.

    Example:
        >>> "<title>A comparison" in page(Findings("A comparison", "Learnt gates beat random ones."), {})
        True
    """
    counts = {outcome: sum(claim.outcome is outcome for claim in findings.claims) for outcome in Outcome}
    # One pair of axes can be read on a phone as it is; several panels stay wide there, and scroll.
    figures = [
        (figure, svg(figure, f"f{number}"), isinstance(figure.plot, Plot))
        for number, figure in enumerate(findings.figures)
    ]
    return PAGES.get_template("report.html").render(
        findings=findings, figures=figures, about=about, counts=counts, Outcome=Outcome, files=files
    )
