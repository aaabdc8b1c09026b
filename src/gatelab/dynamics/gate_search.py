"""Which gates let a linear network do best? Candidates, and searches among them (gdln, 3.3)."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from math import comb, cos, pi, sin

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import mse_loss

from gatelab.dynamics.least_loss import explained
from gatelab.dynamics.moments import GatedMoments
from gatelab.errors import InputError
from gatelab.models import CellGates, HalfSpaceGates, MeanReadoutNetwork
from gatelab.models.node_gates import CodeGates


@dataclass(frozen=True)
class GateChoice:
    """Gates out of a pool, and the least mean squared error that they allow.

    Attributes:
        places: of the gates in the pool.
        loss: min ⟨(y − ŷ)²⟩ (gdln, Eq. 15).
        tried: how many sets were compared.
    """

    places: tuple[int, ...]
    loss: float
    tried: int


def exhaustive_gates(pool: GatedMoments, count: int, *, most: int = 20_000) -> GateChoice:
    """The best ``count`` gates of a pool, all sets tried.

    Raises:
        InputError: more than ``most`` sets; :func:`greedy_gates` has no such limit.
    """
    _check_count(pool, count)
    if comb(pool.units, count) > most:
        raise InputError(
            f"{count} of {pool.units} gates are {comb(pool.units, count):,} sets, more than {most:,}; "
            "use greedy_gates, or allow more"
        )
    sets = list(combinations(range(pool.units), count))
    losses = [_loss(pool, places) for places in sets]
    best = min(range(len(sets)), key=losses.__getitem__)
    return GateChoice(sets[best], losses[best], len(sets))


def greedy_gates(pool: GatedMoments, count: int) -> GateChoice:
    """``count`` gates of a pool, each the best beside those chosen before."""
    _check_count(pool, count)
    places: tuple[int, ...] = ()
    loss, tried = pool.power, 0
    for _ in range(count):
        left = [place for place in range(pool.units) if place not in places]
        losses = [_loss(pool, (*places, place)) for place in left]
        tried += len(left)
        best = min(range(len(left)), key=losses.__getitem__)
        places, loss = (*places, left[best]), losses[best]
    return GateChoice(places, loss, tried)


def rank_gates(sets: Mapping[str, GatedMoments]) -> list[tuple[str, float]]:
    """Whole sets of gates by name, the one with the least loss first."""
    return sorted(((name, m.power - explained(m.A, m.b)) for name, m in sets.items()), key=lambda pair: pair[1])


def _loss(pool: GatedMoments, places: tuple[int, ...]) -> float:
    chosen = pool.choose(list(places))
    return chosen.power - explained(chosen.A, chosen.b)


def _check_count(pool: GatedMoments, count: int) -> None:
    if not 1 <= count <= pool.units:
        raise InputError(f"{count} gates out of a pool of {pool.units}; ask for 1 to {pool.units}")


def angle_half_spaces(plane: Float[Tensor, "2 d"], count: int) -> HalfSpaceGates:
    """Half-spaces through the origin whose normals stand at equal angles in a plane."""
    angles = [2 * pi * place / count for place in range(count)]
    turns = torch.tensor([[cos(angle), sin(angle)] for angle in angles], dtype=plane.dtype, device=plane.device)
    return HalfSpaceGates(turns @ plane)


def random_half_spaces(
    dim: int, count: int, *, generator: torch.Generator | None = None, dtype: torch.dtype | None = None
) -> HalfSpaceGates:
    """Half-spaces through the origin in random directions."""
    return HalfSpaceGates(torch.randn(count, dim, generator=generator, dtype=dtype))


def random_tiling(
    dim: int, planes: int, *, generator: torch.Generator | None = None, dtype: torch.dtype | None = None
) -> CodeGates:
    """Exclusive gates: the 2^planes cells between random planes through the origin."""
    return CodeGates(random_half_spaces(dim, planes, generator=generator, dtype=dtype))


def kmeans_cells(x: Float[Tensor, "n d"], count: int, *, seed: int = 0) -> CellGates:
    """Exclusive gates: the cells of k-means."""
    from sklearn.cluster import KMeans  # noqa: PLC0415  slow to import, and needed here only

    found = KMeans(count, random_state=seed).fit(x.detach().cpu().numpy())
    return CellGates(torch.as_tensor(found.cluster_centers_).to(x))


def learnt_half_spaces(
    x: Float[Tensor, "n d"],
    y: Float[Tensor, " n"],
    count: int,
    *,
    steps: int = 2000,
    rate: float = 1e-2,
    batch: int = 512,
    generator: torch.Generator | None = None,
) -> HalfSpaceGates:
    """The half-spaces of a bias-free ReLU network with mean readout, trained by Adam on these examples."""
    network = MeanReadoutNetwork(x.shape[1], count, dtype=x.dtype, generator=generator).to(x.device)
    optimiser = torch.optim.Adam([network.weights], lr=rate)
    for _ in range(steps):
        rows = torch.randint(len(x), (batch,), generator=generator, device=x.device)
        optimiser.zero_grad()
        mse_loss(network(x[rows])[:, 0], y[rows]).backward()
        optimiser.step()
    return network.frozen_gates()
