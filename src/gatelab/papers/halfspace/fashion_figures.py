"""halfspace, Figures 7 and 11–16: the pictures of the modified Fashion-MNIST, as facts."""

from collections.abc import Iterator, Mapping
from math import nan

from gatelab.figures import Heatmap, Panels
from gatelab.lab.findings import FigureFacts
from gatelab.papers.common import figure
from gatelab.papers.halfspace.circle_figures import band
from gatelab.papers.halfspace.fashion_findings import FIGURE16, MOMENTS, PARTS, QUANTITIES, FashionRuns

_CLASSES = tuple(str(label) for label in range(1, 11))


def figures(seen: Mapping[str, FashionRuns], passes_per_epoch: float) -> tuple[FigureFacts, ...]:
    """Return the paper's figures, in its order."""
    return (*_curves(seen, passes_per_epoch), *_kernels(seen), _figure16(seen["relu"]), _normals(seen["dlgn"]))


def _curves(seen: Mapping[str, FashionRuns], passes_per_epoch: float) -> Iterator[FigureFacts]:
    """Figures 7, 11 and 12: three quantities on both parts, over training."""
    for what, (label, factor) in QUANTITIES.items():
        curves = []
        for one in seen.values():
            passes = [epoch * passes_per_epoch for epoch in one.epochs]
            for part, part_name in enumerate(PARTS):
                samples = [one.part(what, part, place).values for place in range(len(passes))]
                runs = [[factor * values[run] for values in samples] for run in one.runs]
                curves.append(band(f"{one.name}, {part_name}", passes, runs))
        title = f"{label[0].upper()}{label[1:]} on the simple and the complex part (Figures 7, 11, 12)"
        gates = " Paths are counted with hard gates." if what == "paths" else ""
        caption = f"Lines are medians, bands reach from the lowest to the highest run.{gates}"
        yield figure(title, "passes over the data", label, curves, caption, log_y=what != "accuracy")


def _kernels(seen: Mapping[str, FashionRuns]) -> Iterator[FigureFacts]:
    """Figures 13 to 16: class means at three moments, on one scale for each kernel."""
    for what, name, numbers in (("overlap", "Overlap kernel", "13, 14"), ("tangent", "Tangent kernel", "15, 16")):
        panels = [
            Heatmap(
                when,
                _rows(one, what, when),
                scale="class mean, trace 100",
                x_ticks=_CLASSES,
                y_ticks=_CLASSES,
            )
            for one in seen.values()
            for when in MOMENTS
        ]
        gates = "hard gates" if what == "overlap" else "the networks' own gates"
        caption = f"Means over pairs of classes and over runs, {gates}; the five simple classes come first."
        rows = tuple(one.name for one in seen.values())
        yield FigureFacts(f"{name}, class by class (Figures {numbers})", Panels(tuple(panels), 3, rows), caption)


def _rows(one: FashionRuns, what: str, when: str) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(round(value, 3) for value in row) for row in one.classes(what, when).tolist())


def _figure16(relu: FashionRuns) -> FigureFacts:
    """The printed matrices beside ours, on one scale; entries that cannot be read in the paper are NaN."""
    panels = []
    for name in ("ours", "paper"):
        for when, printed in FIGURE16.items():
            theirs = tuple(tuple(nan if value is None else value for value in row) for row in printed)
            values = _rows(relu, "tangent", when) if name == "ours" else theirs
            scale = "class mean, trace 100"
            panels.append(Heatmap(f"{name}, {when}", values, scale=scale, x_ticks=_CLASSES, y_ticks=_CLASSES))
    caption = "The ReLU network's tangent kernel. Grey: nine entries of the paper's matrices that cannot be read."
    return FigureFacts("Figure 16(a) and (b), ours and the paper's", Panels(tuple(panels), 2), caption)


def _normals(dlgn: FashionRuns) -> FigureFacts:
    layers = dlgn.looks("end")[0]["normals"]
    panels = []
    for image in (image for layer in layers for image in layer):
        largest = max(abs(value) for row in image for value in row)
        rows = tuple(map(tuple, image))
        panels.append(Heatmap("", rows, low=-largest, high=largest, diverging=True, scale=None))
    return FigureFacts(
        f"Half-space normals of the {dlgn.name}",
        Panels(tuple(panels), len(layers[0]), tuple(f"layer {number}" for number in range(1, len(layers) + 1))),
        "Each picture is the half-space normal of a neuron of the first run: brighter red pixels open its gate, "
        "brighter blue pixels close it.",
    )
