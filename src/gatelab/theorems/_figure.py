"""Drawing a theorem's plot."""

from pathlib import Path

from matplotlib.figure import Figure

from gatelab.figures import draw, save_figure
from gatelab.theorems._result import TheoremResult


def render(result: TheoremResult) -> Figure:
    """The figure of a result."""
    return draw(result.measurement.plot, f"{result.name}: {result.verdict.value}\n{result.statement}")


def save(result: TheoremResult, path: Path) -> None:
    """Write the figure; the ending of the path says which format."""
    save_figure(render(result), path)
