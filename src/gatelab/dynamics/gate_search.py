"""Which gates let a linear network do best? Candidates, and searches among them (gdln, 3.3)."""

from dataclasses import dataclass
from itertools import combinations
from math import comb

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import mse_loss

from gatelab.dynamics.moments import GatedMoments, minimum_loss
from gatelab.errors import InputError
from gatelab.models import CellGates, HalfSpaceGates, MeanReadoutNetwork


@dataclass(frozen=True)
class GateChoice:
    """Gates by their indices in a pool, min ⟨(y − ŷ)²⟩ under them (gdln, Eq. 15), and how many sets were tried."""

    places: tuple[int, ...]
    loss: float
    tried: int


def exhaustive_gates(pool: GatedMoments, count: int, *, most: int = 20_000) -> GateChoice:
    """Find the best ``count`` gates of a pool by trying all sets.

    Args:
        pool: moments under all gates of the pool.
        count: how many gates to choose.
        most: the largest number of sets to try.

    Returns:
        The best set and its loss.

    Raises:
        InputError: there are more than ``most`` sets; :func:`greedy_gates` has no such limit.

    Example:
        >>> pool = GatedMoments(torch.eye(3), torch.tensor([0.1, 0.5, 0.3]), units=3, power=1.0)
        >>> exhaustive_gates(pool, 2).places
        (1, 2)
    """
    _check_count(pool, count)
    if comb(pool.units, count) > most:
        raise InputError(
            f"{count} of {pool.units} gates make {comb(pool.units, count):,} sets, more than {most:,}; "
            "use greedy_gates, or raise most="
        )
    return _best(pool, list(combinations(range(pool.units), count)))


def greedy_gates(pool: GatedMoments, count: int) -> GateChoice:
    """Choose ``count`` gates of a pool one by one, each the best addition to those before.

    Args:
        pool: moments under all gates of the pool.
        count: how many gates to choose.

    Returns:
        The gates in the order of choice, and their loss.

    Example:
        >>> pool = GatedMoments(torch.eye(3), torch.tensor([0.1, 0.5, 0.3]), units=3, power=1.0)
        >>> greedy_gates(pool, 2).tried
        5
    """
    _check_count(pool, count)
    choice = GateChoice((), pool.power, 0)
    for _ in range(count):
        sets = [(*choice.places, place) for place in range(pool.units) if place not in choice.places]
        best = _best(pool, sets)
        choice = GateChoice(best.places, best.loss, choice.tried + best.tried)
    return choice


def _best(pool: GatedMoments, sets: list[tuple[int, ...]]) -> GateChoice:
    losses = [minimum_loss(pool.choose(list(places))) for places in sets]
    best = min(range(len(sets)), key=losses.__getitem__)
    return GateChoice(sets[best], losses[best], len(sets))


def _check_count(pool: GatedMoments, count: int) -> None:
    if not isinstance(count, int) or not 1 <= count <= pool.units:
        raise InputError(f"cannot choose {count} gates from a pool of {pool.units}; ask for 1 to {pool.units}")


def random_half_spaces(
    dim: int, count: int, *, generator: torch.Generator | None = None, dtype: torch.dtype | None = None
) -> HalfSpaceGates:
    """Return half-spaces through the origin in random directions."""
    return HalfSpaceGates(torch.randn(count, dim, generator=generator, dtype=dtype))


def kmeans_cells(x: Float[Tensor, "n d"], count: int, *, seed: int = 0) -> CellGates:
    """Return exclusive gates: the cells of k-means."""
    from sklearn.cluster import KMeans  # noqa: PLC0415  takes longer to import than all of this package

    fit = KMeans(count, random_state=seed).fit(x.detach().cpu().numpy())
    return CellGates(torch.as_tensor(fit.cluster_centers_).to(x))


def learnt_half_spaces(
    x: Float[Tensor, "n d"],
    y: Float[Tensor, " n"],
    count: int,
    *,
    steps: int = 2000,
    generator: torch.Generator | None = None,
) -> HalfSpaceGates:
    """Return the half-spaces of a bias-free ReLU network with mean readout, trained by Adam on these examples."""
    network = MeanReadoutNetwork(x.shape[1], count, dtype=x.dtype, generator=generator).to(x.device)
    optimiser = torch.optim.Adam([network.weights], lr=1e-2)
    for _ in range(steps):
        rows = torch.randint(len(x), (512,), generator=generator, device=x.device)
        optimiser.zero_grad()
        mse_loss(network(x[rows])[:, 0], y[rows]).backward()
        optimiser.step()
    return network.frozen_gates()
