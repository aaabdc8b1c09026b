"""What a tracker measured at one step, and how it is shown."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from gatelab.figures import Curve, Panels, Plot
from gatelab.figures.facts import Panel
from gatelab.paths.hardening import HardeningGap


@dataclass(frozen=True)
class Record:
    """Gates and kernels on the probes at one step.

    Attributes:
        step: the step, as the caller counts it.
        flips: number of gates that differ from the previous record, per layer; empty in the first record.
        active: share of open gates, per layer.
        cosine: mean over pairs of different probes of H(x, x') / √(H(x, x) H(x', x')), with the path kernel H.
        complexity: ν = yᵀĤ⁻¹y, if there are labels (npk, Section 6); see :class:`gatelab.GateTracker`.
        tangent: trace and Frobenius norm of the tangent kernel with respect to all parameters ("all") and, for a gated
            network, to ``feature`` and ``value`` alone (K^F and K^V).
        hardening: the loss that hard gates would add, if some gates are soft.
        gates: number of gates, per layer: units times probes.
    """

    step: int
    flips: dict[str, int]
    active: dict[str, float]
    cosine: float | None
    complexity: float | None
    tangent: dict[str, tuple[float, float]]
    hardening: HardeningGap | None = None
    gates: dict[str, int] = field(default_factory=dict)

    @property
    def flip_rates(self) -> dict[str, float]:
        """The share of each layer's gates that differ from the previous record; empty in the first record."""
        return {name: count / self.gates[name] for name, count in self.flips.items()}

    @property
    def flip_rate(self) -> float | None:
        """The share of all gates that differ from the previous record; None in the first record."""
        return sum(self.flips.values()) / sum(self.gates.values()) if self.flips else None

    def metrics(self) -> dict[str, float]:
        """Return all measured numbers by name, such as "flip_rate/layer"."""
        named: dict[str, float | None] = {
            "flip_rate": self.flip_rate,
            **{f"flip_rate/{name}": rate for name, rate in self.flip_rates.items()},
            **{f"active/{name}": share for name, share in self.active.items()},
            "cosine": self.cosine,
            "nu": self.complexity,
            **{f"tangent_trace/{part}": trace for part, (trace, _) in self.tangent.items()},
            **{f"tangent_norm/{part}": norm for part, (_, norm) in self.tangent.items()},
            "hardening_agreement": None if self.hardening is None else self.hardening.agreement,
        }
        return {name: value for name, value in named.items() if value is not None}


_PANELS = {
    "Gates that flipped since the record before": ("share of gates", "flip_rate", "all layers"),
    "Open gates": ("share of gates", "active", ""),
    "Path kernel": ("mean cosine of two probes", "cosine", "H"),
    "Labels": ("ν = yᵀĤ⁻¹y", "nu", "ν"),
    "Tangent kernel": ("trace", "tangent_trace", ""),
}


def records_plot(records: Sequence[Record]) -> Panels:
    """Return what changed over the records: one panel for each quantity that was measured.

    Args:
        records: the records, in the order of their steps.

    Returns:
        The facts of the figure.
    """
    seen = [(float(record.step), record.metrics()) for record in records]
    panels: list[Panel] = []
    for title, (label, quantity, whole) in _PANELS.items():
        names = dict.fromkeys(name for _, found in seen for name in found if name.split("/")[0] == quantity)
        curves = []
        for name in names:
            points = [(step, found[name]) for step, found in seen if name in found]
            shown = name.partition("/")[2] or whole
            curves.append(Curve(shown, *(tuple(part) for part in zip(*points, strict=True)), line=True))
        if curves:
            panels.append(Plot("step", label, tuple(curves), title=title))
    return Panels(tuple(panels), 2)
