"""Exact learning curves of gated linear networks (gdln, Section 3), for all times at once."""

from math import inf, sqrt
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from gatelab.dynamics.linear_flow import CirculantFlow, DenseFlow, LinearFlow
from gatelab.dynamics.moments import GatedMoments, Gates, moments_of
from gatelab.dynamics.structure import check_rows, check_symmetric, circulant_rows, connected, identical_units
from gatelab.errors import InputError

Times = float | Float[Tensor, "*times"]


def as_times(t: Times, like: Tensor) -> Float[Tensor, "*times"]:
    """Return times as a tensor of the type of ``like``; raise InputError if one is negative."""
    times = torch.as_tensor(t, dtype=like.dtype, device=like.device)
    if times.numel() and not times.min() >= 0:
        raise InputError(f"t = {float(times.min())}; the flow starts at 0: give times from 0 on")
    return times


class _Component(NamedTuple):
    """Groups of equal units that influence each other, and the flow of u = s/√r, s being the sum of a group of r."""

    groups: tuple[tuple[int, ...], ...]
    start: Float[Tensor, "groups d"]
    flow: LinearFlow


class GatedLinearFlow:
    r"""Gradient flow of :math:`\hat y = \frac{1}{K}\sum_k g_k w_k^\top x` on L = ½⟨(y − ŷ)²⟩, in closed form.

    .. math::
        \tau \dot w = \frac{1}{K}\Big[b - \frac{1}{K} A w\Big], \qquad
        w(t) = e^{-tA/(K^2\tau)}\, w(0) + K \big(I - e^{-tA/(K^2\tau)}\big) A^+ b

    These are Eqs (8)–(11) of gdln with the inner 1/K that the notes lose. They hold for singular A and any w(0).
    The solver uses the structure it finds. Units with equal gates move together, at a rate times their number, and
    keep their differences (gdln, 3.5). Units that never open together are solved separately (3.4).
    Translation-invariant blocks are solved by Fourier modes.

    Attributes:
        initial: w(0).
        groups: units with equal gates.
        components: units that influence each other.
        translation_invariant: whether Fourier modes are used.
        never_open: units whose gate never opens; they stay where they started.

    Args:
        A: K × K blocks Σˣˣ(p, q).
        b: K blocks Σʸˣ(p)ᵀ.
        K: number of units.
        tau: τ, the time constant.
        initial: w(0); zeros by default.
        power: ⟨y²⟩; only the loss needs it.
        shape: shape of the ring or torus before flattening to d; by default a ring.

    Raises:
        InputError: the shapes do not fit, A is not symmetric, or A is indefinite beyond rounding.

    Example:
        >>> flow = GatedLinearFlow(torch.diag(torch.tensor([2.0, 1.0])), torch.tensor([1.0, 0.0]), K=1)
        >>> flow.limit().tolist()
        [[0.5, 0.0]]
        >>> flow.weights(torch.tensor([0.0, 100.0])).shape
        torch.Size([2, 1, 2])
    """

    def __init__(
        self,
        A: Float[Tensor, "kd kd"],
        b: Float[Tensor, " kd"],
        K: int,
        tau: float = 1.0,
        *,
        initial: Float[Tensor, "k d"] | None = None,
        power: float | None = None,
        shape: tuple[int, ...] | None = None,
    ):
        moments = GatedMoments(A, b, K, power or 0.0)
        check_symmetric(A)
        blocks = A.view(K, moments.dim, K, moments.dim).transpose(1, 2)
        rows = circulant_rows(blocks, shape or (moments.dim,))
        self._solve(blocks, rows, b.view(K, -1), tau, initial, power)

    @classmethod
    def from_moments(
        cls,
        moments: GatedMoments,
        tau: float = 1.0,
        *,
        initial: Float[Tensor, "k d"] | None = None,
        shape: tuple[int, ...] | None = None,
    ) -> "GatedLinearFlow":
        """Solve the flow for given moments."""
        return cls(moments.A, moments.b, moments.units, tau, initial=initial, power=moments.power, shape=shape)

    @classmethod
    def from_data(
        cls,
        x: Float[Tensor, "n d"],
        y: Float[Tensor, " n"],
        gates: Gates,
        tau: float = 1.0,
        *,
        initial: Float[Tensor, "k d"] | None = None,
    ) -> "GatedLinearFlow":
        """Solve the flow on a fixed data set under given gates."""
        return cls.from_moments(moments_of(x, y, gates), tau, initial=initial)

    @classmethod
    def from_rows(
        cls,
        rows: Float[Tensor, "k k *shape"],
        b: Float[Tensor, "k d"],
        tau: float = 1.0,
        *,
        initial: Float[Tensor, "k d"] | None = None,
        power: float | None = None,
    ) -> "GatedLinearFlow":
        """Solve the flow for translation-invariant blocks, given by their first rows, without any d × d matrix."""
        if rows.shape[:2] != (len(b), len(b)) or rows[0, 0].numel() != b.shape[1]:
            raise InputError(f"rows are {tuple(rows.shape)}, b is {tuple(b.shape)}; give (K, K, *shape) and (K, sites)")
        check_rows(rows)
        flow = cls.__new__(cls)
        flow._solve(rows, rows, b, tau, initial, power)
        return flow

    def _solve(
        self,
        blocks: Float[Tensor, "k k ..."],
        rows: Float[Tensor, "k k *shape"] | None,
        b: Float[Tensor, "k d"],
        tau: float,
        initial: Float[Tensor, "k d"] | None,
        power: float | None,
    ) -> None:
        if not 0 < tau < inf:
            raise InputError(f"tau = {tau}; the time constant must be positive")
        if initial is not None and initial.shape != b.shape:
            raise InputError(f"w(0) is {tuple(initial.shape)}; it must be (K, d) = {tuple(b.shape)}")
        self.initial = torch.zeros_like(b) if initial is None else initial.detach().to(b)
        self.K, self.tau, self.power = len(b), tau, power
        self.translation_invariant = rows is not None
        self.groups = tuple(identical_units(blocks, b))
        # Gates that exclude each other leave blocks of exact zeros.
        coupled = blocks.flatten(2).any(dim=2)
        self.never_open = tuple(unit for unit in range(self.K) if not coupled[unit, unit])
        firsts = torch.tensor([group[0] for group in self.groups], device=b.device)
        self._components = []
        for places in connected(coupled[firsts][:, firsts]):
            groups = tuple(self.groups[place] for place in places)
            start = torch.stack([self.initial[list(group)].sum(dim=0) / sqrt(len(group)) for group in groups])
            flow = self._flow_of(groups, blocks if rows is None else rows, b)
            self._components.append(_Component(groups, start, flow))
        self.components = tuple(tuple(sorted(sum(component.groups, ()))) for component in self._components)

    def _flow_of(self, groups: tuple[tuple[int, ...], ...], blocks: Tensor, b: Tensor) -> LinearFlow:
        """Return the flow of u = s/√r; the root keeps H symmetric."""
        firsts = torch.tensor([group[0] for group in groups], device=b.device)
        roots = torch.tensor([sqrt(len(group)) for group in groups], dtype=b.dtype, device=b.device)
        scale = roots[:, None] * roots / (self.K**2 * self.tau)
        H = blocks[firsts][:, firsts] * scale.view(*scale.shape, *[1] * (blocks.dim() - 2))
        f = b[firsts] * roots[:, None] / (self.K * self.tau)
        if self.translation_invariant:
            return CirculantFlow(H, f)
        return DenseFlow(H.transpose(1, 2).reshape(f.numel(), f.numel()), f)

    def _units(self, sums: list[Float[Tensor, "times _ d"]]) -> Float[Tensor, "times k d"]:
        """Return w for u of every component: all units of a group move by the same amount."""
        w = self.initial.expand(len(sums[0]), -1, -1).clone()
        for component, u in zip(self._components, sums, strict=True):
            for place, group in enumerate(component.groups):
                w[:, list(group)] += (u[:, place] - component.start[place])[:, None] / sqrt(len(group))
        return w

    def weights(self, t: Times) -> Float[Tensor, "*times k d"]:
        """Return w(t) for one time or a tensor of times."""
        times = as_times(t, self.initial)
        sums = [component.flow.at(component.start, times.flatten()) for component in self._components]
        return self._units(sums).view(*times.shape, *self.initial.shape)

    def limit(self) -> Float[Tensor, "k d"]:
        """Return w(∞) = K A⁺ b + the part of w(0) in the null space of A (gdln, after Eq. 11)."""
        return self._units([component.flow.limit(component.start)[None] for component in self._components])[0]

    def loss(self, t: Times) -> Float[Tensor, "*times"]:
        """Return L(t) = ½⟨(y − ŷ)²⟩ along the flow."""
        if self.power is None:
            raise InputError("the loss needs ⟨y²⟩; pass power= to GatedLinearFlow, or use from_moments")
        times = as_times(t, self.initial)
        energies = [component.flow.energy(component.start, times.flatten()) for component in self._components]
        return (self.power / 2 + self.tau * torch.stack(energies).sum(dim=0)).view(times.shape)

    def time_constants(self) -> Float[Tensor, " kd"]:
        """Return K²τ/λ of every mode, fastest first; modes that never move have infinity."""
        rates = torch.cat([component.flow.all_rates() for component in self._components])
        # A group of r units has one moving sum; its r − 1 differences never move.
        frozen = rates.new_zeros(self.initial.numel() - len(rates))
        return 1 / torch.cat([rates, frozen]).sort(descending=True).values
