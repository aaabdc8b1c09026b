"""The best gates among all functions of x (gdln, 3.3): a local search, and a proof for small data.

For given weights the best gates are known: every x opens the set of units whose sum comes closest to its target. For
given gates the best weights are least squares. Alternating the two never raises the loss (:func:`alternate_gates`).
Branch and bound over the gates of all examples finds the optimum, or bounds the distance to it
(:func:`certify_gates`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from heapq import heappop, heappush
from itertools import combinations, count

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gatelab.dynamics.moments import gated_inputs
from gatelab.errors import InputError

_MOST_UNITS = 10


class Overlap(Enum):
    """Which units may be open together."""

    TILING = "exactly one unit is open"
    EXCLUSIVE = "at most one unit is open"
    ANY = "any units may be open"

    def patterns(self, units: int) -> Bool[Tensor, "p k"]:
        """Return the allowed sets of open units, one in each row."""
        if self is Overlap.ANY and units > _MOST_UNITS:
            raise InputError(f"{units} units have 2^{units} sets; give at most {_MOST_UNITS}, or exclusive gates")
        sizes = {Overlap.TILING: [1], Overlap.EXCLUSIVE: [0, 1], Overlap.ANY: range(units + 1)}[self]
        sets = [chosen for size in sizes for chosen in combinations(range(units), size)]
        found = torch.zeros(len(sets), units, dtype=torch.bool)
        for row, chosen in enumerate(sets):
            found[row, list(chosen)] = True
        return found


@dataclass(frozen=True)
class OptimalGates:
    """Gates and weights of ŷ = Σ_k g_k w_kᵀx, and ⟨(target − ŷ)²⟩ under them.

    ``bound`` is a proved lower bound of the loss over all gates of the kind; 0 if nothing was proved.
    """

    gates: Bool[Tensor, "n k"]
    weights: Float[Tensor, "k d"]
    loss: float
    bound: float = 0.0

    @property
    def gap(self) -> float:
        """By how much the best gates may still lower the loss."""
        return self.loss - self.bound


def choose_gates(
    x: Float[Tensor, "n d"], target: Float[Tensor, " n"], weights: Float[Tensor, "k d"], overlap: Overlap
) -> Bool[Tensor, "n k"]:
    """Open for every x the allowed units whose sum w_kᵀx comes closest to the target."""
    patterns = overlap.patterns(len(weights))
    sums = (x @ weights.T) @ patterns.to(x).T
    return patterns[(sums - target[:, None]).abs().argmin(dim=1)]


def fit_weights(
    x: Float[Tensor, "n d"], target: Float[Tensor, " n"], gates: Bool[Tensor, "n k"], share: Float[Tensor, " n"]
) -> Float[Tensor, "k d"]:
    """Return the least-squares weights of ŷ = Σ g_k w_kᵀx with the least norm."""
    features = gated_inputs(x, gates)
    A = features.T @ (features * share[:, None])
    return (torch.linalg.pinv(A, rtol=1e-12, hermitian=True) @ (features.T @ (target * share))).view(gates.shape[1], -1)


def alternate_gates(
    x: Float[Tensor, "n d"],
    target: Float[Tensor, " n"],
    units: int,
    overlap: Overlap = Overlap.ANY,
    *,
    starts: Sequence[Bool[Tensor, "n k"]] = (),
    restarts: int = 10,
    rounds: int = 200,
    generator: torch.Generator | None = None,
) -> OptimalGates:
    """Search for the best gates by alternating assignment and least squares, from random and given starts.

    Args:
        x: examples, equally likely.
        target: what a gate may know of y: y itself if x determines it, else the probability of y = 1 given x.
        units: K.
        overlap: which units may be open together.
        starts: gates to start from, besides random ones.
        restarts: number of random starts.
        rounds: the largest number of alternations from one start.
        generator: source of the random starts.

    Returns:
        The best gates found; no bound is proved.

    Example:
        >>> x = torch.tensor([[1.0], [2.0], [-1.0], [3.0]], dtype=torch.float64)
        >>> target = torch.tensor([1.0, 1.0, 1.0, 0.0], dtype=torch.float64)
        >>> round(alternate_gates(x, target, 3, Overlap.EXCLUSIVE, generator=torch.Generator().manual_seed(3)).loss, 6)
        0.0
    """
    _check(x, target, units)
    patterns = overlap.patterns(units)
    share = torch.full_like(target, 1 / len(x))
    random = (patterns[torch.randint(len(patterns), (len(x),), generator=generator)] for _ in range(restarts))
    best: OptimalGates | None = None
    for gates in (*starts, *random):
        for _ in range(rounds):
            weights = fit_weights(x, target, gates, share)
            better = choose_gates(x, target, weights, overlap)
            if bool((better == gates).all()):
                break
            gates = better  # noqa: PLW2901  the start of the next round
        weights = fit_weights(x, target, gates, share)
        loss = float((target - predict(x, gates, weights)).square().mean())
        if best is None or loss < best.loss:
            best = OptimalGates(gates, weights, loss)
    if best is None:
        raise InputError("there is no start; give starts=, or restarts of at least 1")
    return best


def predict(x: Float[Tensor, "n d"], gates: Bool[Tensor, "n k"], weights: Float[Tensor, "k d"]) -> Float[Tensor, " n"]:
    """Return ŷ = Σ g_k w_kᵀx."""
    return (gates.to(x) * (x @ weights.T)).sum(dim=1)


def certify_gates(
    x: Float[Tensor, "n d"],
    target: Float[Tensor, " n"],
    units: int,
    overlap: Overlap = Overlap.ANY,
    *,
    most: int = 20_000,
    known: OptimalGates | None = None,
) -> OptimalGates:
    """Find the best gates by branch and bound, with a proved lower bound of the loss.

    A node fixes the open units of some examples. Its bound is the least-squares loss on these alone, since the others
    add nothing negative. The node with the least bound is opened next, so this bound holds for all gates. Units are
    interchangeable: an example may open a new unit only if the units before it are in use.

    Args:
        x: examples, equally likely.
        target: their targets; examples whose target is 0 are closed unless the gates must tile.
        units: K.
        overlap: which units may be open together.
        most: the largest number of nodes to open.
        known: gates to beat; by default those of :func:`alternate_gates`.

    Returns:
        The best gates known, with the bound; the two agree if the search was finished.

    Example:
        >>> x = torch.tensor([[1.0], [2.0], [3.0]], dtype=torch.float64)
        >>> found = certify_gates(x, torch.ones(3, dtype=torch.float64), 1)
        >>> round(found.loss, 6), round(found.gap, 6)
        (0.142857, 0.0)
    """
    _check(x, target, units)
    best = known or alternate_gates(x, target, units, overlap, generator=torch.Generator().manual_seed(0))
    needed = (target != 0) | (overlap is Overlap.TILING)
    search = _Search(x[needed].numpy(), target[needed].numpy(), overlap.patterns(units).numpy(), len(x))
    gates, bound = search.run(best.loss, most)
    if gates is not None:
        full = torch.zeros(len(x), units, dtype=torch.bool)
        full[needed] = torch.from_numpy(gates)
        weights = fit_weights(x, target, full, torch.full_like(target, 1 / len(x)))
        best = OptimalGates(full, weights, float((target - predict(x, full, weights)).square().mean()))
    return OptimalGates(best.gates, best.weights, best.loss, min(bound, best.loss))


class _Search:
    """Best-first branch and bound over the gates of examples, one after the other."""

    def __init__(self, x: np.ndarray, target: np.ndarray, patterns: np.ndarray, total: int):
        # Neighbouring pulses are alike, so a shuffled order of examples raises bounds earlier.
        order = np.argsort(np.random.default_rng(0).random(len(x)))
        self.back = np.argsort(order)
        self.x, self.target, self.patterns, self.total = x[order], target[order], patterns, total

    def run(self, incumbent: float, most: int) -> tuple[np.ndarray | None, float]:
        """Return better gates, if there are any, and a lower bound."""
        heap: list[tuple[float, int, int, tuple[int, ...]]] = [(0.0, 0, 0, ())]
        ticket, found = count(1), None
        for _ in range(most):
            if not heap:
                return found, incumbent
            bound, depth, _, chosen = heappop(heap)
            if bound >= incumbent * (1 - 1e-9):
                return found, incumbent
            used = self.patterns[list(chosen)].any(axis=0).sum() if chosen else 0
            for place, pattern in enumerate(self.patterns):
                new = np.nonzero(pattern[used:])[0]
                if len(new) and new[-1] != len(new) - 1:
                    continue  # the same up to the order of units
                loss = self._loss((*chosen, place))
                if loss >= incumbent * (1 - 1e-9):
                    continue
                if len(chosen) + 1 == len(self.x):
                    incumbent, found = loss, self.patterns[[*chosen, place]][self.back]
                else:
                    heappush(heap, (loss, depth - 1, next(ticket), (*chosen, place)))
        return found, min([incumbent, *(node[0] for node in heap)])

    def _loss(self, chosen: tuple[int, ...]) -> float:
        """Return the least sum of squares over the examples whose gates are fixed, as a share of all examples."""
        rows, gates = self.x[: len(chosen)], self.patterns[list(chosen)]
        features = (gates[:, :, None] * rows[:, None, :]).reshape(len(rows), -1)
        weights = np.linalg.lstsq(features, self.target[: len(rows)], rcond=1e-10)[0]
        return float(((features @ weights - self.target[: len(rows)]) ** 2).sum() / self.total)


def _check(x: Tensor, target: Tensor, units: int) -> None:
    if x.ndim != 2 or target.shape != x.shape[:1] or not len(x):
        raise InputError(f"x has shape {tuple(x.shape)}, target {tuple(target.shape)}; give (n, d) and (n,)")
    if not isinstance(units, int) or units < 1:
        raise InputError(f"{units!r} units; give a whole number, at least 1")
