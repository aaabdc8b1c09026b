"""Pictures of the circle experiment, as facts."""

from collections.abc import Sequence
from math import atan2, pi
from statistics import median

from gatelab.figures import Curve, Heatmap, Panels, Plot, Shapes
from gatelab.lab.findings import Animation, FigureFacts, Frame
from gatelab.papers.halfspace.circle_findings import KINDS, LEARNT, Seen
from gatelab.regions.drawing import disc_panel


def figures(seen: Seen, moments: Sequence[int]) -> tuple[FigureFacts, ...]:
    """The paper's figures, in its order."""
    start, early, end = seen.shown
    times = ("start", f"epoch {early}", f"epoch {end}")
    return (
        _target(seen),
        _losses(seen),
        _paths(seen, moments),
        FigureFacts(
            "Overlap kernels",
            _kernels(seen, "overlap", times),
            "Trace-normalised; points are ordered by angle, the smooth half first (top left). Bright: many common "
            "paths.",
        ),
        FigureFacts(
            "Tangent kernels",
            _kernels(seen, "tangent", times),
            "Trace-normalised, points ordered by angle, the smooth half first.",
        ),
        FigureFacts(
            "What the networks say",
            Panels(
                tuple(
                    _outputs(seen, kind, epoch, time)
                    for kind in KINDS
                    for epoch, time in zip(seen.shown, times, strict=True)
                ),
                3,
                tuple(KINDS.values()),
            ),
            "Output and target over the angle.",
        ),
        *(
            FigureFacts(
                f"The DLGN's half-spaces {when}",
                _disc_grid(seen, epoch),
                "Each disc is the unit disc of inputs, dark where the neuron's gate is open; two rows of discs for "
                "each layer, the first layer on top.",
            )
            for epoch, when in ((start, "at the start"), (end, "at the end"))
        ),
    )


def animation(seen: Seen, moments: Sequence[int]) -> Animation:
    """Half-spaces, overlap kernel and output over training."""
    frames = tuple(
        Frame(
            f"epoch {epoch}",
            Panels(
                (
                    _outputs(seen, "dlgn", epoch, "DLGN: output"),
                    _heatmap(seen, "dlgn", "overlap", epoch, "DLGN: overlap kernel"),
                    _disc_grid(seen, epoch),
                    _outputs(seen, "relu", epoch, "ReLU: output"),
                    _heatmap(seen, "relu", "overlap", epoch, "ReLU: overlap kernel"),
                    _outputs(seen, "frozen", epoch, "frozen gates: output"),
                ),
                3,
            ),
        )
        for epoch in moments
    )
    return Animation(
        "Half-spaces, overlap kernel and output while networks learn",
        "The smooth half of the circle has angles from 0 to π. Discs are the DLGN's neurons, dark where open, two rows "
        "for each layer; kernels are ordered by angle, the smooth half first.",
        frames,
    )


def _angles(seen: Seen) -> tuple[float, ...]:
    return tuple(atan2(y, x) % (2 * pi) / pi for x, y in seen.data.train_x.tolist())


def _target(seen: Seen) -> FigureFacts:
    curve = Curve("target", _angles(seen), tuple(seen.data.train_y.tolist()), line=True)
    return FigureFacts("The target", Plot("angle in units of π", "y", (curve,)), "Smooth above, rough below.")


def _losses(seen: Seen) -> FigureFacts:
    curves = []
    for kind, name in KINDS.items():
        middle = tuple(median(losses) for losses in zip(*seen.losses(kind), strict=True))
        curves.append(Curve(name, tuple(map(float, range(1, len(middle) + 1))), middle, line=True))
    ends = (1.0, float(seen.shown[2]))
    curves.append(Curve(f"{LEARNT:g}", ends, (LEARNT, LEARNT), line=True))
    return FigureFacts(
        "Learning curves",
        Plot("epoch", "mean squared error in training", tuple(curves), log_y=True),
        "Medians over runs. The paper's ReLU network and DLGN are below 0.01 after about 200 epochs, frozen gates "
        "after more than 2000.",
    )


def _paths(seen: Seen, moments: Sequence[int]) -> FigureFacts:
    curves = []
    for kind in ("relu", "dlgn"):
        for half, place in (("smooth", 0), ("rough", 1)):
            counts = tuple(float(seen.looks(kind, epoch)[0]["paths"][place]) for epoch in moments)
            curves.append(Curve(f"{KINDS[kind]}, {half} half", tuple(map(float, moments)), counts, line=True))
    return FigureFacts(
        "Paths as a resource",
        Plot("epoch", "active paths, mean over points", tuple(curves), log_y=True),
        "Of the first run. The paper finds more paths on the easier half, early and until the end.",
    )


def _kernels(seen: Seen, what: str, times: Sequence[str]) -> Panels:
    panels = tuple(
        _heatmap(seen, kind, what, epoch, time)
        for kind in ("relu", "dlgn")
        for epoch, time in zip(seen.shown, times, strict=True)
    )
    return Panels(panels, 3, ("ReLU", "DLGN"))


def _heatmap(seen: Seen, kind: str, what: str, epoch: int, title: str) -> Heatmap:
    return Heatmap(title, tuple(map(tuple, seen.looks(kind, epoch)[0][what])))


def _outputs(seen: Seen, kind: str, epoch: int, title: str) -> Plot:
    angles = _angles(seen)
    said = Curve("output", angles, tuple(seen.looks(kind, epoch)[0]["outputs"]), line=True)
    target = Curve("target", angles, tuple(round(y, 4) for y in seen.data.train_y.tolist()), line=True)
    return Plot("angle / π", "", (said, target), title=title)


def _disc_grid(seen: Seen, epoch: int) -> Shapes:
    layers = seen.looks("dlgn", epoch)[0]["half_spaces"]
    return disc_panel(layers, "half-spaces of the DLGN's neurons", per_row=8, corners=20)
