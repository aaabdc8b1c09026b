"""halfspace, Figures 2–6, 9 and 10: the pictures of the circle experiment, as facts.

DLGN: deep linearly gated network.
"""

from collections.abc import Iterable, Sequence
from math import atan2, cos, pi, sin
from statistics import median

import torch

from gatelab.figures import Curve, Heatmap, Panels, Plot, Shapes
from gatelab.figures.facts import Polygon
from gatelab.lab.findings import Animation, FigureFacts, Frame
from gatelab.papers.common import figure, line
from gatelab.papers.halfspace.circle_runs import KINDS, LEARNERS, LEARNT, CircleRuns
from gatelab.regions.drawing import disc_panel

_BAND = "Lines are medians, bands reach from the lowest to the highest run."
_MOST_POINTS = 300  # points of a learning curve; more would only enlarge the file
_NEURONS = 4  # of each layer in Figure 6


def figures(seen: CircleRuns, moments: Sequence[int]) -> tuple[FigureFacts, ...]:
    """Return the paper's figures, in its order."""
    start, _, end = seen.shown
    discs = "Each disc is the unit disc of inputs, dark where the neuron's gate, made hard, is open; the first run."
    return (
        _data(seen),
        _losses(seen),
        _paths(seen, moments),
        _kernels(seen, "overlap", "Overlap kernels (Figure 3)", "Bright: many common paths, by hard gates."),
        _kernels(seen, "tangent", "Tangent kernels (Figure 4)", ""),
        _all_outputs(seen),
        _spectra(seen),
        FigureFacts(f"{_NEURONS} neurons of each layer at the end (Figure 6)", _few_discs(seen, end), discs),
        FigureFacts("All half-spaces of the DLGN at the start (Figure 9)", _discs(seen, start), discs),
        FigureFacts("All half-spaces of the DLGN at the end (Figure 10)", _discs(seen, end), discs),
    )


def animation(seen: CircleRuns, moments: Sequence[int]) -> Animation:
    """Return the animation of half-spaces, overlap kernel and output over training."""
    frames = []
    for epoch in moments:
        panels = (
            _first_output(seen, "dlgn", epoch, "DLGN: output"),
            _first_kernel(seen, "dlgn", epoch, "DLGN: overlap kernel"),
            _discs(seen, epoch),
            _first_output(seen, "relu", epoch, "ReLU: output"),
            _first_kernel(seen, "relu", epoch, "ReLU: overlap kernel"),
            _first_output(seen, "frozen", epoch, "frozen hard gates: output"),
        )
        frames.append(Frame(f"epoch {epoch}", Panels(panels, 3)))
    return Animation(
        "Half-spaces, overlap kernel and output while networks learn",
        "The first run. The smooth half of the circle has angles from 0 to π. Discs are the DLGN's neurons, dark where "
        "open, two rows for each layer; kernels are ordered by angle, the smooth half first.",
        tuple(frames),
    )


def _data(seen: CircleRuns) -> FigureFacts:
    """The target over the angle, and the circle coloured by the target (Figure 2, left)."""
    target = Plot("angle / π", "y", (line("", _angles(seen), seen.data.train_y),), title="the target")
    caption = "Blue is −1, red is 1. The upper half is smooth, the lower rough."
    return FigureFacts("The data (Figure 2, left)", Panels((target, coloured_circle(seen)), 2), caption)


def coloured_circle(seen: CircleRuns) -> Shapes:
    """The points of the circle as pieces of a ring, coloured by the target."""
    half = pi / len(seen.data.train_x)
    pieces = []
    for angle, y in zip(_angles(seen), seen.data.train_y.tolist(), strict=True):
        corners = [(radius, angle * pi + turn * half) for radius, turn in ((0.8, -1), (1, -1), (1, 1), (0.8, 1))]
        points = tuple((round(radius * cos(turn), 4), round(radius * sin(turn), 4)) for radius, turn in corners)
        pieces.append(Polygon(points, round((y + 1) / 2, 3)))
    return Shapes("the points, coloured by y", tuple(pieces), "x₁", "x₂", diverging=True)


def _angles(seen: CircleRuns) -> tuple[float, ...]:
    return tuple(atan2(y, x) % (2 * pi) / pi for x, y in seen.data.train_x.tolist())


def band(label: str, x: Sequence[float], runs: Iterable[Sequence[float]]) -> Curve:
    """The median over runs at each place, and a band from the lowest to the highest run."""
    values = list(zip(*runs, strict=True))
    low, middle, high = (tuple(float(f"{reduce(v):.4g}") for v in values) for reduce in (min, median, max))
    return Curve(label, tuple(map(float, x)), middle, line=True, band=(low, high))


def _losses(seen: CircleRuns) -> FigureFacts:
    curves = []
    for kind, name in KINDS.items():
        histories = seen.losses(kind)
        last = len(histories[0])
        places = sorted({round(last ** (k / _MOST_POINTS)) - 1 for k in range(_MOST_POINTS + 1)})
        curves.append(band(name, [place + 1 for place in places], [[h[p] for p in places] for h in histories]))
    curves.append(line(f"{LEARNT:g}", (1, max(map(seen.end, KINDS))), (LEARNT, LEARNT)))
    caption = (
        f"{_BAND} The paper's ReLU network and DLGN are below 0.01 after about 200 epochs, frozen gates after more "
        "than 2000."
    )
    title = "Learning curves (Figure 2, right)"
    return figure(title, "epoch", "mean squared error in training", curves, caption, log=True)


def _paths(seen: CircleRuns, moments: Sequence[int]) -> FigureFacts:
    curves = []
    for kind in LEARNERS:
        runs = [
            [above / max(below, 1e-9) for above, below in (seen.looks(kind, epoch)[run]["paths"] for epoch in moments)]
            for run in range(len(seen.results[kind]["seeds"]))
        ]
        curves.append(band(KINDS[kind], moments, runs))
    curves.append(line("as many on both", (moments[0], moments[-1]), (1, 1)))
    caption = f"{_BAND} Gates are hard. The paper finds more paths on the smooth half, early and until the end."
    label = "active paths, smooth over rough half"
    return figure("Paths as a resource", "epoch", label, curves, caption, log_y=True)


def _kernels(seen: CircleRuns, what: str, title: str, remark: str) -> FigureFacts:
    """The mean kernel over runs at the start, early and at the end; all panels have one scale."""
    start, early, end = seen.shown
    times = {start: "start", early: f"epoch {early}", end: f"epoch {end}"}
    panels = []
    for kind in LEARNERS:
        for epoch, time in times.items():
            mean = torch.stack(seen.kernels(kind, what, epoch)).mean(dim=0)
            rows = tuple(tuple(round(value, 4) for value in row) for row in mean.tolist())
            panels.append(Heatmap(time, rows, scale="trace-normalised kernel, mean over runs"))
    caption = f"Points are ordered by angle, the smooth half first (top left). {remark}".strip()
    return FigureFacts(title, Panels(tuple(panels), 3, tuple(KINDS[kind] for kind in LEARNERS)), caption)


def _all_outputs(seen: CircleRuns) -> FigureFacts:
    """Three epochs of each kind: learners from their start, frozen gates to their own end."""
    panels: list[Plot] = []
    for kind in KINDS:
        for epoch in (*seen.shown[1:], seen.end(kind)) if seen.end(kind) > seen.shown[2] else seen.shown:
            runs = [look["outputs"] for look in seen.looks(kind, epoch)]
            names = ("", "") if panels else ("output", "target")  # one legend is enough
            curves = (band(names[0], _angles(seen), runs), line(names[1], _angles(seen), seen.data.train_y))
            panels.append(Plot("angle / π", "", curves, title=f"epoch {epoch}"))
    return FigureFacts("Outputs of the networks (Figure 5)", Panels(tuple(panels), 3, tuple(KINDS.values())), _BAND)


def _spectra(seen: CircleRuns) -> FigureFacts:
    """The spectrum of the error on the smooth half at the end."""
    curves = []
    for kind, name in KINDS.items():
        runs = [look["spectrum"][1:-1] for look in seen.looks(kind, seen.end(kind))]
        curves.append(band(f"{name}, epoch {seen.end(kind)}", range(1, len(runs[0]) + 1), runs))
    caption = f"{_BAND} The target has the frequency {seen.rough} on the rough half."
    label = "energy of the error on the smooth half"
    return figure("Artefacts: the spectrum of the error", "angular frequency", label, curves, caption, log_y=True)


def _first_kernel(seen: CircleRuns, kind: str, epoch: int, title: str) -> Heatmap:
    rows = tuple(map(tuple, seen.looks(kind, epoch)[0]["overlap"]))
    return Heatmap(title, rows, scale="trace-normalised overlap")


def _first_output(seen: CircleRuns, kind: str, epoch: int, title: str) -> Plot:
    angles = _angles(seen)
    output = line("output", angles, seen.looks(kind, epoch)[0]["outputs"])
    target = line("target", angles, [round(y, 4) for y in seen.data.train_y.tolist()])
    return Plot("angle / π", "", (output, target), title=title)


def _discs(seen: CircleRuns, epoch: int) -> Shapes:
    layers = seen.looks("dlgn", epoch)[0]["half_spaces"]
    return disc_panel(layers, "half-spaces of the DLGN's neurons", per_row=8, corners=20)


def _few_discs(seen: CircleRuns, epoch: int) -> Shapes:
    """Neurons evenly spaced in each layer."""
    layers = seen.looks("dlgn", epoch)[0]["half_spaces"]
    chosen = [layer[:: max(1, len(layer) // _NEURONS)][:_NEURONS] for layer in layers]
    return disc_panel(chosen, "", corners=40)
