"""Gates: capture them, store them as bits, and apply gate functions."""

from gatelab.gates.functions import HardGate, LeakyGate, SoftGate, StraightThroughGate, gated
from gatelab.gates.pattern import GatePattern

__all__ = [
    "GatePattern",
    "HardGate",
    "LeakyGate",
    "SoftGate",
    "StraightThroughGate",
    "gated",
]
