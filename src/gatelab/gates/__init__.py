"""Gates: seeing them, keeping them, and the functions that make them."""

from gatelab.gates.capture import capture_gates
from gatelab.gates.functions import GateFunction, HardGate, LeakyGate, SoftGate, StraightThroughGate, gated
from gatelab.gates.pattern import GateKind, GateLayer, GatePattern
from gatelab.gates.pooling import AdaptiveMaxPool, MaxPool, gated_max_pool

__all__ = [
    "AdaptiveMaxPool",
    "GateFunction",
    "GateKind",
    "GateLayer",
    "GatePattern",
    "HardGate",
    "LeakyGate",
    "MaxPool",
    "SoftGate",
    "StraightThroughGate",
    "capture_gates",
    "gated",
    "gated_max_pool",
]
