"""Products of two signals: which of them is the gate, and its range."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

from torch import nn
from torch.fx import Node

from gatelab.gates.functions import FactorGate
from gatelab.network.calls import Call, call_of
from gatelab.network.operations import DIFFERENCES, PRODUCTS, QUOTIENTS, SHAPED_LIKE, SQUASHING, Kind

# Operations that a gate may pass before it multiplies a signal.
_TRANSPARENT = frozenset({Kind.REARRANGEMENT, Kind.SPATIAL, Kind.SUM, Kind.SCALE, Kind.PASSING, Kind.DROPOUT})
_ENDS = {"sigmoid": (0.0, 1.0), "softmax": (0.0, 1.0), "hardsigmoid": (0.0, 1.0), "tanh": (-1.0, 1.0)}


class Rank(IntEnum):
    """How gate-like a signal is. In a product, the signal of the higher rank gates the other."""

    VALUE = 0
    ACTIVATION = 1  # relu(a) * b, SwiGLU
    BOUNDED = 2  # tanh, ReLU6, clamp
    SQUEEZED = 3  # sigmoid, softmax, hardsigmoid, and bounded signals that were scaled on purpose


@dataclass(frozen=True)
class Factor:
    """A signal regarded as a gate.

    Attributes:
        rank: how gate-like it is.
        ends: its limits as its argument goes to −∞ and +∞, the lower first; None if unknown.
    """

    rank: Rank
    ends: tuple[float, float] | None = None

    @property
    def gate(self) -> FactorGate:
        """The gate function of the signal; open in the upper half of its range."""
        if self.rank < Rank.BOUNDED:
            return FactorGate(0.0)
        if self.ends is None:
            return FactorGate()
        return FactorGate(sum(self.ends) / 2, *self.ends)


_VALUE = Factor(Rank.VALUE)


def factor_of(node: Node, modules: Mapping[str, nn.Module]) -> Factor:
    """Return how gate-like a signal is, looking through constants, rearrangements, sums and products of gates."""
    if node.op not in ("call_module", "call_function", "call_method"):
        return _VALUE
    call = call_of(node, modules)
    if call.operation in SQUASHING or call.kind is Kind.GATE:
        return _squashed(call)
    sources = [source for source in node.all_input_nodes if source.meta.get("data")]
    if call.operation in SHAPED_LIKE:  # the other signal only gives its shape
        return factor_of(sources[0], modules)
    factors = [factor_of(source, modules) for source in sources] if call.kind in _TRANSPARENT else []
    if len(factors) == 2 and (call.operation in PRODUCTS or call.kind is Kind.SUM):
        return _joined(call, *factors)
    return _passed(call, *factors) if len(factors) == 1 else _VALUE


def bounds_of(call: Call) -> tuple[float, float] | None:
    """Return the bounds of an operation that is constant outside of them, such as ReLU6."""
    if call.operation == "relu6":
        return 0.0, 6.0
    if call.operation == "hardtanh":
        return float(call["min_val"]), float(call["max_val"])
    if call.operation not in ("clamp", "clip"):
        return None
    low, high = call["min"], call["max"]
    return (float(low), float(high)) if isinstance(low, int | float) and isinstance(high, int | float) else None


def _squashed(call: Call) -> Factor:
    ends = _ENDS.get(call.operation) or bounds_of(call)
    if ends is None:
        return Factor(Rank.ACTIVATION)
    return Factor(Rank.SQUEEZED if ends == (0.0, 1.0) and call.kind is not Kind.GATE else Rank.BOUNDED, ends)


def _passed(call: Call, factor: Factor) -> Factor:
    """Return a gate after an operation with constants."""
    if factor.rank < Rank.BOUNDED:
        return factor
    if call.kind is Kind.SCALE:
        factor = replace(factor, rank=Rank.SQUEEZED)
    if factor.ends is None or call.kind not in (Kind.SCALE, Kind.SUM):
        return replace(factor, ends=None) if call.operation == "sum" else factor
    low, high = (_moved(call, end) for end in factor.ends)
    return replace(factor, ends=None if low is None or high is None else (min(low, high), max(low, high)))


def _moved(call: Call, end: float) -> float | None:
    """Return where an end goes; None if that depends on a tensor."""
    if call.operation in ("neg", "negative"):
        return -end
    a, b = (end if isinstance(part, Node) else part for part in (call["input"], call["other"]))
    if not all(isinstance(part, int | float) for part in (a, b)):
        return None
    return _combined(call, a, b)


def _combined(call: Call, a: Any, b: Any) -> float | None:
    if call.operation in PRODUCTS:
        return a * b
    if call.operation in QUOTIENTS:
        return a / b if b and isinstance(call["input"], Node) else None
    if call["alpha"] != 1:
        return None
    return a - b if call.operation in DIFFERENCES else a + b


def _joined(call: Call, one: Factor, other: Factor) -> Factor:
    """The product or sum of two gates is a gate."""
    rank = min(one.rank, other.rank)
    if rank < Rank.BOUNDED:
        return _VALUE
    if one.ends is None or other.ends is None:
        return Factor(rank)
    ends = [_combined(call, a, b) for a in one.ends for b in other.ends]
    known = [end for end in ends if end is not None]
    return Factor(rank, (min(known), max(known)) if len(known) == len(ends) else None)
