"""Pre-activations in exact arithmetic, for the few whose sign float64 cannot tell.

A float64 number is an integer times a power of two, and so is every pre-activation, a sum of products of weights.
Between two gates a network is an affine map with a matrix of float64 numbers. Products of such matrices are taken in
Python's integers. A matrix is what float64 makes of the operations between the gates: the weight itself for a
dense layer or a convolution; the rounded product with a batch-norm's scale, if there is one.
"""

import operator
from dataclasses import dataclass
from functools import cached_property, reduce
from math import ldexp, prod

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.fx import Node

from gatelab.network.unfolding import affine_map
from gatelab.regions.replay import Replay
from gatelab.regions.states import BoundedStates, HalfSpaceStates, States

MOST_ENTRIES = 2**22  # of a matrix between two layers of gates


@dataclass(frozen=True)
class Dyadic:
    """Exact numbers: integers · 2^exponent."""

    integers: np.ndarray
    exponent: int

    @classmethod
    def of(cls, values: np.ndarray) -> "Dyadic":
        """Return float64 numbers as they are.

        Example:
            >>> Dyadic.of(np.array([0.75, -2.0])).integers.tolist()
            [3, -8]
        """
        mantissas, exponents = np.frexp(np.asarray(values, dtype=np.float64))
        integers = np.ldexp(mantissas, 53).astype(np.int64)
        smallest = int(exponents[integers != 0].min(initial=0))
        shifts = np.where(integers != 0, exponents - smallest, 0).astype(object)
        whole = integers.astype(object) << shifts
        zeros = reduce(operator.or_, whole.ravel().tolist(), 0)
        common = (zeros & -zeros).bit_length() - 1 if zeros else 0
        return cls(whole >> common, smallest - 53 + common)

    def __add__(self, other: "Dyadic") -> "Dyadic":
        low = min(self.exponent, other.exponent)
        return Dyadic((self.integers << (self.exponent - low)) + (other.integers << (other.exponent - low)), low)

    def __sub__(self, other: "Dyadic") -> "Dyadic":
        return self + Dyadic(-other.integers, other.exponent)

    def __matmul__(self, other: "Dyadic") -> "Dyadic":
        return Dyadic(self.integers.dot(other.integers), self.exponent + other.exponent)

    def __mul__(self, other: "Dyadic") -> "Dyadic":
        return Dyadic(self.integers * other.integers, self.exponent + other.exponent)

    def rounded(self) -> np.ndarray:
        """Return the nearest float64 numbers, to within one unit in the last place."""
        flat = [_rounded(int(number), self.exponent) for number in self.integers.ravel()]
        return np.array(flat, dtype=np.float64).reshape(self.integers.shape)


def _rounded(number: int, exponent: int) -> float:
    surplus = max(0, number.bit_length() - 60)
    return ldexp(number >> surplus, surplus + exponent)


class TooLargeError(Exception):
    """A matrix between two layers of gates has too many entries, or an operation returns several tensors."""


class ExactNetwork:
    """A replay's pre-activations on a simplex, as exact numbers."""

    def __init__(self, replay: Replay, simplex: Float[Tensor, "corners ..."]):
        self._replay, self._plan = replay, replay.plan
        self._simplex, self._shape = simplex, simplex.shape[1:]
        self._maps: dict[Node, tuple[Dyadic, dict[Node, Dyadic]]] = {}
        self._gates = dict(self._plan.network.gates)

    @cached_property
    def _input(self) -> Dyadic:
        corners = Dyadic.of(self._simplex.flatten(1).T.cpu().numpy())  # (inputs, corners)
        first = corners.integers[:, :1]
        return Dyadic(np.c_[first, corners.integers[:, 1:] - first], corners.exponent)

    def lines(self, name: str, states: States) -> Float[Tensor, "units corners"]:
        """Return a gate's q as a constant and differences, rounded once, under the gates of one region.

        Raises:
            TooLargeError: a matrix is too large.
        """
        return torch.as_tensor(self._of(self._plan.q(name), states, {}).rounded())

    def _of(self, node: Node, states: States, found: dict[Node, Dyadic]) -> Dyadic:
        """The affine functions (units, corners) that a node holds."""
        if node not in found:
            if node.op == "placeholder":
                found[node] = self._input
            elif node in self._gates:
                found[node] = self._gated(node, states, found)
            else:
                constant, matrices = self._map(node)
                terms = [matrix @ self._of(source, states, found) for source, matrix in matrices.items()]
                offset = np.zeros((len(constant.integers), self._input.integers.shape[1]), object)
                offset[:, 0] = constant.integers
                found[node] = reduce(Dyadic.__add__, terms, Dyadic(offset, constant.exponent))
        return found[node]

    def _gated(self, node: Node, states: States, found: dict[Node, Dyadic]) -> Dyadic:
        name = self._gates[node]
        gate, value = self._replay.gate(name), self._of(self._plan.gating(name).value, states, found)
        state = states[name][:1]
        if isinstance(gate, HalfSpaceStates):
            factor = gate.action(state)(torch.ones(state.shape, dtype=torch.float64)).flatten().cpu().numpy()
            return value * Dyadic.of(factor[:, None])
        if isinstance(gate, BoundedStates):
            flat = state.flatten().cpu().numpy()
            constant = np.where(flat < 0, gate.low, np.where(flat > 0, gate.high, 0.0))
            offset = Dyadic.of(np.c_[constant, np.zeros((len(flat), value.integers.shape[1] - 1))])
            return value * Dyadic.of((flat == 0)[:, None].astype(float)) + offset
        shape = self._plan.gating(name).value.meta["shape"][1:]
        numbers = torch.arange(value.integers.shape[0]).double().view(1, *shape)
        passed = gate.action(state.cpu())(numbers)
        return Dyadic(value.integers[passed.flatten().long().numpy()], value.exponent)

    def _map(self, node: Node) -> tuple[Dyadic, dict[Node, Dyadic]]:
        """A node as an affine function of the gates and of the input before it: its constant, and a matrix for each."""
        if node not in self._maps:
            interpreter = self._plan.interpreter
            before = interpreter.nodes_between(node, set(self._gates))
            read = {source for n in before for source in n.all_input_nodes}
            sources = [n for n in read if n in self._gates or n.op == "placeholder"]
            if any("shape" not in source.meta for source in sources):
                raise TooLargeError
            units = prod(node.meta["shape"][1:])
            shapes = {s: tuple(self._shape) if s.op == "placeholder" else tuple(s.meta["shape"][1:]) for s in sources}
            if units * sum(map(prod, shapes.values())) > MOST_ENTRIES:
                raise TooLargeError
            constant, matrices = affine_map(self._plan.network, self._replay.model, node, shapes, tuple(self._shape))
            exact = {source: Dyadic.of(matrix.cpu().numpy()) for source, matrix in matrices.items()}
            self._maps[node] = Dyadic.of(constant.cpu().numpy()), exact
        return self._maps[node]
