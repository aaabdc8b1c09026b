"""Gates: seeing them, keeping them, and the functions that make them."""

from gatelab.gates.capture import capture_gates
from gatelab.gates.functions import GateFunction, HardGate, SoftGate, StraightThroughGate, gated
from gatelab.gates.pattern import GateKind, GateLayer, GatePattern

__all__ = [
    "GateFunction",
    "GateKind",
    "GateLayer",
    "GatePattern",
    "HardGate",
    "SoftGate",
    "StraightThroughGate",
    "capture_gates",
    "gated",
]
