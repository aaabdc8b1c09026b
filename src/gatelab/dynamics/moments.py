"""The moments that decide a gated linear network's learning: Σʸˣ(p) and Σˣˣ(p, q) under given gates (gdln, 3.2)."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gatelab.data import SinglePulse, TwoClasses
from gatelab.errors import InputError
from gatelab.models import NodeGates, OpenGates

Gates = NodeGates | Bool[Tensor, "n k"]


@dataclass(frozen=True)
class GatedMoments:
    """A = ⟨x̃x̃ᵀ⟩ and b = ⟨x̃y⟩ of the gated inputs x̃ = (g₁x, …, g_K x) (gdln, Section 3.3).

    Attributes:
        A: K × K blocks of d × d, A_pq = Σˣˣ(p, q).
        b: K blocks of d, b_p = Σʸˣ(p)ᵀ.
        units: K.
        power: ⟨y²⟩.
        A_error, b_error: standard errors of estimates; None where the moments are exact.
    """

    A: Float[Tensor, "kd kd"]
    b: Float[Tensor, " kd"]
    units: int
    power: float
    A_error: Float[Tensor, "kd kd"] | None = None
    b_error: Float[Tensor, " kd"] | None = None

    def __post_init__(self) -> None:
        if self.units < 1 or len(self.b) % self.units or self.A.shape != (len(self.b), len(self.b)):
            raise InputError(
                f"A is {tuple(self.A.shape)}, b is {tuple(self.b.shape)} for K = {self.units} units; "
                "A must be Kd × Kd and b Kd"
            )

    @property
    def dim(self) -> int:
        """The input's dimension d."""
        return len(self.b) // self.units

    def input_output(self, p: int) -> Float[Tensor, " d"]:
        """Σʸˣ(p) = ⟨g_p y xᵀ⟩ (gdln, Eq. 6)."""
        return self.b.view(self.units, self.dim)[p]

    def input_input(self, p: int, q: int) -> Float[Tensor, "d d"]:
        """Σˣˣ(p, q) = ⟨g_p g_q x xᵀ⟩ (gdln, Eq. 7)."""
        return self.A.view(self.units, self.dim, self.units, self.dim)[p, :, q]

    @cached_property
    def never_open(self) -> tuple[int, ...]:
        """Units whose gate lets nothing through; they stay where they start."""
        return tuple(unit for unit in range(self.units) if not self.input_input(unit, unit).any())

    def loss(self, weights: Float[Tensor, "*times k d"]) -> Float[Tensor, "*times"]:
        """L = ½⟨(y − ŷ)²⟩ = ½⟨y²⟩ − bᵀw/K + wᵀAw/(2K²)."""
        w = weights.flatten(-2)
        return self.power / 2 - w @ self.b / self.units + ((w @ self.A) * w).sum(dim=-1) / (2 * self.units**2)

    def choose(self, places: list[int]) -> "GatedMoments":
        """The moments of some of the units alone."""
        index = (torch.tensor(places)[:, None] * self.dim + torch.arange(self.dim)).flatten().to(self.b.device)
        return GatedMoments(self.A[index][:, index], self.b[index], len(places), self.power)


@dataclass(frozen=True)
class ClassMoments:
    """Means and second moments of the gated inputs within each class, y = 0 first.

    Attributes:
        means: ⟨x̃⟩ given y.
        seconds: ⟨x̃x̃ᵀ⟩ given y.
        units: K.
        share: of the class y = 1.
    """

    means: Float[Tensor, "2 kd"]
    seconds: Float[Tensor, "2 kd kd"]
    units: int
    share: float = 0.5

    def pooled(self) -> GatedMoments:
        """A, b and ⟨y²⟩ over both classes."""
        A = self.share * self.seconds[1] + (1 - self.share) * self.seconds[0]
        return GatedMoments(A, self.share * self.means[1], self.units, self.share)


def gated_inputs(x: Float[Tensor, "n d"], gates: Gates) -> Float[Tensor, "n kd"]:
    """x̃ = (g₁(x)x, …, g_K(x)x) (gdln, Eq. 12)."""
    opened = gates.opened(x) if isinstance(gates, NodeGates) else gates
    if opened.shape[0] != x.shape[0]:
        raise InputError(f"gates are for {opened.shape[0]} examples, x has {x.shape[0]}; give one row for each")
    return (opened.to(x)[:, :, None] * x[:, None, :]).flatten(1)


def moments_of(x: Float[Tensor, "n d"], y: Float[Tensor, " n"], gates: Gates) -> GatedMoments:
    """The moments of a fixed data set, as if it were the population."""
    if len(x) != len(y) or not len(x):
        raise InputError(f"{len(x)} examples, {len(y)} labels; give at least one, and as many of each")
    features = gated_inputs(x, gates)
    power = y.square().mean().item()
    return GatedMoments(features.T @ features / len(x), features.T @ y / len(x), features.shape[1] // x.shape[1], power)


def class_moments_of(x: Float[Tensor, "n d"], y: Float[Tensor, " n"], gates: Gates) -> ClassMoments:
    """The moments of a fixed data set by class.

    Raises:
        InputError: labels other than 0 and 1, or only one of them.
    """
    if not ((y == 0) | (y == 1)).all() or y.min() == y.max():
        raise InputError(
            "classes are told by y = 0 and y = 1, and both must be there; use moments_of for other targets"
        )
    features = [
        gated_inputs(x[y == label], gates if isinstance(gates, NodeGates) else gates[y == label]) for label in (0, 1)
    ]
    return ClassMoments(
        torch.stack([part.mean(dim=0) for part in features]),
        torch.stack([part.T @ part / len(part) for part in features]),
        features[0].shape[1] // x.shape[1],
        y.mean().item(),
    )


def exact_class_moments(source: TwoClasses, gates: NodeGates) -> ClassMoments:
    """The population's moments, in float64: by the finite support of single pulses, or in closed form without gates.

    Raises:
        InputError: neither is at hand; :func:`estimate_moments` estimates.
    """
    if isinstance(source, SinglePulse):
        parts = [gated_inputs(source.support(label), gates) for label in (0, 1)]
        means = torch.stack([part.mean(dim=0) for part in parts])
        return ClassMoments(means, torch.stack([part.T @ part / len(part) for part in parts]), gates.count)
    if isinstance(gates, OpenGates):
        ones = torch.ones(gates.count, gates.count, dtype=torch.float64)
        means = [torch.full((gates.count * source.dim,), source.mean(label), dtype=torch.float64) for label in (0, 1)]
        seconds = [torch.kron(ones, source.second_moment(label)) for label in (0, 1)]
        return ClassMoments(torch.stack(means), torch.stack(seconds), gates.count)
    raise InputError(
        f"{type(source).__name__} under {type(gates).__name__} has no exact moments here; "
        "estimate_moments gives them with error bars"
    )


def exact_moments(source: TwoClasses, gates: NodeGates) -> GatedMoments:
    """The population's A and b, where they are known exactly; see :func:`exact_class_moments`."""
    return exact_class_moments(source, gates).pooled()


def estimate_moments(
    source: TwoClasses,
    gates: NodeGates,
    count: int,
    *,
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
    batch: int = 8192,
) -> GatedMoments:
    """Monte-Carlo moments of a source, with standard errors; any size, a batch at a time."""
    if count < 2 or count % 2:
        raise InputError(f"{count} draws cannot be half of each class; ask for an even number, 2 or more")
    half = count // 2
    zero, one = (_averages(source, gates, label, half, generator, dtype, batch) for label in (0, 1))
    # Each class is half of the mixture, and its averages are over its own draws.
    spread = torch.stack([c.fourth - c.second.square() for c in (zero, one)]).clamp(min=0).sum(dim=0)
    A_error = (spread / (4 * half)).sqrt()
    b_error = ((one.square - one.mean.square()).clamp(min=0) / (4 * half)).sqrt()
    return GatedMoments((zero.second + one.second) / 2, one.mean / 2, gates.count, 0.5, A_error, b_error)


class _Averages(NamedTuple):
    """⟨x̃_i x̃_j⟩, ⟨x̃_i² x̃_j²⟩, ⟨x̃_i⟩ and ⟨x̃_i²⟩ over the draws of one class."""

    second: Tensor
    fourth: Tensor
    mean: Tensor
    square: Tensor


def _averages(
    source: TwoClasses,
    gates: NodeGates,
    label: int,
    count: int,
    generator: torch.Generator | None,
    dtype: torch.dtype | None,
    batch: int,
) -> _Averages:
    totals: list[Tensor] = []
    for start in range(0, count, batch):
        x = source.of_class(label, min(batch, count - start), generator=generator, dtype=dtype)
        features = gated_inputs(x, gates)
        squares = features.square()
        terms = [features.T @ features, squares.T @ squares, features.sum(dim=0), squares.sum(dim=0)]
        totals = [total.add_(term) for total, term in zip(totals, terms, strict=True)] if totals else terms
    return _Averages(*(total / count for total in totals))
