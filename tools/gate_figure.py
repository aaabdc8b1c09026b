"""Draw what gates are, hard and soft: docs/gates.svg. Run as ``python -m tools.gate_figure``."""

from pathlib import Path

import matplotlib as mpl
import torch
from matplotlib.figure import Figure

from gatelab.gates import HardGate, SoftGate
from gatelab.gates.activations import ActivationGate
from gatelab.gates.functions import BoundedGate, GateFunction

DRAWING = Path(__file__).parents[1] / "docs" / "gates.svg"
GATES: dict[str, GateFunction] = {
    "ReLU: 1 where q > 0": HardGate(),
    "ReLU6: 1 where 0 < q < 6": BoundedGate(0.0, 6.0),
    "σ(8q), a DGN while it learns": SoftGate(8.0),
    "SiLU: σ(q)": ActivationGate("silu"),
    "GELU: Φ(q)": ActivationGate("gelu"),
    "Hardswish": ActivationGate("hardswish"),
    "ELU": ActivationGate("elu", 1.0),
}


def draw(path: Path = DRAWING) -> None:
    """Draw the gate g(q) of each activation, and the activation g(q) q + c."""
    mpl.rcParams["svg.hashsalt"] = "gatelab"  # the same file each time
    q = torch.linspace(-4, 8, 481, dtype=torch.float64)
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    gates, outputs = figure.subplots(1, 2)
    for name, gate in GATES.items():
        offset = getattr(gate, "offset", torch.zeros_like)(q)
        hard = isinstance(gate, HardGate | BoundedGate)
        style = {"linewidth": 2.2 if hard else 1.4, "linestyle": "-" if hard else "--"}
        gates.plot(q, gate(q), label=name, **style)
        outputs.plot(q, gate(q) * q + offset, **style)
    gates.set(xlabel="q, what the gate sees", ylabel="g(q), what it multiplies by", title="Gates")
    outputs.set(xlabel="q", ylabel="g(q) · q + constant", title="The activations they make of q", ylim=(-1.5, 8))
    figure.legend(loc="outside right center", frameon=False, title="solid: bits, dashed: numbers")
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    draw()
