"""Draw figures of a finished run for the documentation: ``python -m tools.run_figures RUN 0=learning 3=kernels``.

Each argument after the run's directory is the number of a figure of its report, from 0, and the name of the file in
docs/pictures; a name with an ending, such as regions.png, chooses another format, which is smaller for many shapes.
Without such arguments the figures are listed.
"""

import sys
from pathlib import Path

import matplotlib as mpl

from gatelab.figures import draw
from gatelab.lab.runs.directory import Run
from gatelab.papers import find_experiment

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"


def main(run: str, *chosen: str) -> None:
    """List the figures of a run, or draw some of them."""
    directory = Run.read(Path(run))
    experiment = find_experiment(directory.experiment)
    findings = experiment.conclude(experiment.read(directory.config), directory.results())
    if not chosen:
        for number, figure in enumerate(findings.figures):
            print(number, figure.title)  # noqa: T201
    PICTURES.mkdir(exist_ok=True)
    mpl.rcParams["svg.hashsalt"] = "gatelab"  # the same file each time
    for number, name in (pair.split("=") for pair in chosen):
        figure = findings.figures[int(number)]
        if "." in name:
            draw(figure.plot, figure.title).savefig(PICTURES / name, dpi=110)
        else:
            draw(figure.plot, figure.title).savefig(PICTURES / f"{name}.svg", metadata={"Date": None})


if __name__ == "__main__":
    main(*sys.argv[1:])
