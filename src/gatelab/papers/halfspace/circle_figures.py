"""halfspace, Figures 2–6, 9 and 10: the pictures of the circle experiment, as facts."""

from collections.abc import Sequence
from math import atan2, pi
from statistics import median

from gatelab.figures import Heatmap, Panels, Plot, Shapes
from gatelab.lab.findings import Animation, FigureFacts, Frame
from gatelab.papers.common import figure, line
from gatelab.papers.halfspace.circle_findings import KINDS, LEARNT, CircleRuns
from gatelab.regions.drawing import disc_panel


def figures(seen: CircleRuns, moments: Sequence[int]) -> tuple[FigureFacts, ...]:
    """Return the paper's figures, in its order."""
    start, early, end = seen.shown
    times = {start: "start", early: f"epoch {early}", end: f"epoch {end}"}
    target = line("target", _angles(seen), seen.data.train_y)
    outputs = tuple(_outputs(seen, kind, epoch, time) for kind in KINDS for epoch, time in times.items())
    overlaps, tangents = (
        tuple(_heatmap(seen, kind, what, epoch, time) for kind in ("relu", "dlgn") for epoch, time in times.items())
        for what in ("overlap", "tangent")
    )
    ordered = "points are ordered by angle, the smooth half first (top left). Bright: many common paths, by hard gates."
    discs = (
        "Each disc is the unit disc of inputs, dark where the neuron's gate, made hard, is open; two rows of discs "
        "for each layer, the first layer on top."
    )
    smooth_first = "Trace-normalised, points ordered by angle, the smooth half first."
    return (
        figure("The target", "angle in units of π", "y", [target], "Smooth above, rough below."),
        _losses(seen),
        _paths(seen, moments),
        FigureFacts("Overlap kernels", Panels(overlaps, 3, ("ReLU", "DLGN")), f"Trace-normalised; {ordered}"),
        FigureFacts("Tangent kernels", Panels(tangents, 3, ("ReLU", "DLGN")), smooth_first),
        FigureFacts(
            "Outputs of the networks", Panels(outputs, 3, tuple(KINDS.values())), "Output and target over the angle."
        ),
        FigureFacts("The DLGN's half-spaces at the start", _discs(seen, start), discs),
        FigureFacts("The DLGN's half-spaces at the end", _discs(seen, end), discs),
    )


def animation(seen: CircleRuns, moments: Sequence[int]) -> Animation:
    """Return the animation of half-spaces, overlap kernel and output over training."""
    frames = []
    for epoch in moments:
        panels = (
            _outputs(seen, "dlgn", epoch, "DLGN: output"),
            _heatmap(seen, "dlgn", "overlap", epoch, "DLGN: overlap kernel"),
            _discs(seen, epoch),
            _outputs(seen, "relu", epoch, "ReLU: output"),
            _heatmap(seen, "relu", "overlap", epoch, "ReLU: overlap kernel"),
            _outputs(seen, "frozen", epoch, "frozen gates: output"),
        )
        frames.append(Frame(f"epoch {epoch}", Panels(panels, 3)))
    return Animation(
        "Half-spaces, overlap kernel and output while networks learn",
        "The smooth half of the circle has angles from 0 to π. Discs are the DLGN's neurons, dark where open, two rows "
        "for each layer; kernels are ordered by angle, the smooth half first.",
        tuple(frames),
    )


def _angles(seen: CircleRuns) -> tuple[float, ...]:
    return tuple(atan2(y, x) % (2 * pi) / pi for x, y in seen.data.train_x.tolist())


def _losses(seen: CircleRuns) -> FigureFacts:
    curves = []
    for kind, name in KINDS.items():
        middle = [median(losses) for losses in zip(*seen.losses(kind), strict=True)]
        curves.append(line(name, range(1, len(middle) + 1), middle))
    curves.append(line(f"{LEARNT:g}", (1, seen.shown[2]), (LEARNT, LEARNT)))
    caption = (
        "Medians over runs. The paper's ReLU network and DLGN are below 0.01 after about 200 epochs, frozen gates "
        "after more than 2000."
    )
    return figure("Learning curves", "epoch", "mean squared error in training", curves, caption, log_y=True)


def _paths(seen: CircleRuns, moments: Sequence[int]) -> FigureFacts:
    curves = []
    for kind in ("relu", "dlgn"):
        for half, place in (("smooth", 0), ("rough", 1)):
            counts = [seen.looks(kind, epoch)[0]["paths"][place] for epoch in moments]
            curves.append(line(f"{KINDS[kind]}, {half} half", moments, counts))
    caption = "First run only, gates hard. The paper finds more paths on the easier half, early and until the end."
    return figure("Paths as a resource", "epoch", "active paths, mean over points", curves, caption, log_y=True)


def _heatmap(seen: CircleRuns, kind: str, what: str, epoch: int, title: str) -> Heatmap:
    return Heatmap(title, tuple(map(tuple, seen.looks(kind, epoch)[0][what])))


def _outputs(seen: CircleRuns, kind: str, epoch: int, title: str) -> Plot:
    angles = _angles(seen)
    output = line("output", angles, seen.looks(kind, epoch)[0]["outputs"])
    target = line("target", angles, [round(y, 4) for y in seen.data.train_y.tolist()])
    return Plot("angle / π", "", (output, target), title=title)


def _discs(seen: CircleRuns, epoch: int) -> Shapes:
    layers = seen.looks("dlgn", epoch)[0]["half_spaces"]
    return disc_panel(layers, "half-spaces of the DLGN's neurons", per_row=8, corners=20)
