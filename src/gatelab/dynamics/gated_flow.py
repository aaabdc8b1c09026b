"""Exact learning curves of gated linear networks (gdln, Section 3), for all times at once."""

from math import inf, sqrt
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from gatelab.dynamics.linear_flow import CirculantFlow, DenseFlow, LinearFlow
from gatelab.dynamics.moments import GatedMoments, Gates, moments_of
from gatelab.dynamics.structure import (
    check_rows,
    check_symmetric,
    circulant_rows,
    connected,
    coupling,
    dense_blocks,
    identical_units,
)
from gatelab.errors import InputError

Times = float | Float[Tensor, "*times"]


class _Part(NamedTuple):
    """Groups of units that move together, and the flow of their sums."""

    groups: tuple[tuple[int, ...], ...]
    flow: LinearFlow


class GatedLinearFlow:
    r"""Gradient flow of :math:`\hat y = \frac{1}{K}\sum_k g_k w_k^\top x` on L = ½⟨(y − ŷ)²⟩, in closed form.

    .. math::
        \tau \dot w = \frac{1}{K}\Big[b - \frac{1}{K} A w\Big], \qquad
        w(t) = e^{-tA/(K^2\tau)}\, w(0) + K \big(I - e^{-tA/(K^2\tau)}\big) A^+ b

    This is gdln, Eqs (8)–(11), with the inner 1/K that the notes lose, for singular A and any w(0). Structure is used
    where it is found: units with equal gates move as one (rate times their number, differences kept; gdln, 3.5),
    units that never open together are solved apart (3.4), translation-invariant blocks by Fourier modes.

    Attributes:
        initial: w(0).
        groups: units with equal gates, as tuples of places.
        components: units that influence each other, as tuples of places.
        translation_invariant: whether Fourier modes are used.
        never_open: units whose gate lets nothing through; they stay where they started.

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
        """Solve the flow.

        Args:
            A: K × K blocks Σˣˣ(p, q).
            b: K blocks Σʸˣ(p)ᵀ.
            K: number of units.
            tau: τ, the time constant.
            initial: w(0); zeros if left out.
            power: ⟨y²⟩, needed for the loss alone.
            shape: of the ring or torus that d is flattened from; a ring if left out.

        Raises:
            InputError: shapes that do not fit, A not symmetric, or indefinite beyond rounding.
        """
        moments = GatedMoments(A, b, K, power or 0.0)
        check_symmetric(A)
        blocks = dense_blocks(A, K)
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
        """The flow that moments decide."""
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
        """The flow on a fixed data set under given gates."""
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
        """The flow for translation-invariant blocks, given by their first rows; no d × d matrix is made."""
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
        K = len(b)
        if not 0 < tau < inf:
            raise InputError(f"tau = {tau}; the time constant must be positive")
        if initial is not None and initial.shape != b.shape:
            raise InputError(f"w(0) is {tuple(initial.shape)}; it must be (K, d) = {tuple(b.shape)}")
        self.initial = torch.zeros_like(b) if initial is None else initial.detach().to(b)
        self.K, self.tau, self.power = K, tau, power
        self.translation_invariant = rows is not None
        self.groups = tuple(identical_units(blocks, b))
        meets = coupling(blocks)
        self.never_open = tuple(unit for unit in range(K) if not meets[unit, unit])
        firsts = torch.tensor([group[0] for group in self.groups], device=b.device)
        self._parts = []
        for component in connected(meets[firsts][:, firsts]):
            groups = tuple(self.groups[place] for place in component)
            self._parts.append(_Part(groups, self._part_flow(groups, blocks if rows is None else rows, b)))
        self.components = tuple(tuple(sorted(sum(part.groups, ()))) for part in self._parts)

    def _part_flow(self, groups: tuple[tuple[int, ...], ...], blocks: Tensor, b: Tensor) -> LinearFlow:
        """The flow of u = s/√r for sums s over groups of r equal units, which is symmetric again."""
        firsts = torch.tensor([group[0] for group in groups], device=b.device)
        roots = torch.tensor([sqrt(len(group)) for group in groups], dtype=b.dtype, device=b.device)
        scale = (roots[:, None] * roots / (self.K**2 * self.tau)).view(
            len(groups), len(groups), *[1] * (blocks.dim() - 2)
        )
        H, f = blocks[firsts][:, firsts] * scale, b[firsts] * roots[:, None] / (self.K * self.tau)
        if self.translation_invariant:
            return CirculantFlow(H, f)
        return DenseFlow(H.transpose(1, 2).reshape(f.numel(), f.numel()), f)

    def _sums(self, part: _Part) -> Float[Tensor, "groups d"]:
        return torch.stack([self.initial[list(group)].sum(dim=0) / sqrt(len(group)) for group in part.groups])

    def _spread(self, part: _Part, start: Tensor, now: Float[Tensor, "times groups d"], into: Tensor) -> None:
        """Every unit of a group moves by the same amount: the difference of two stays as it was."""
        for place, group in enumerate(part.groups):
            step = (now[:, place] - start[place]) / sqrt(len(group))
            into[:, list(group)] += step[:, None]

    def weights(self, t: Times) -> Float[Tensor, "*times k d"]:
        """w(t), for one time or for a tensor of times."""
        times = torch.as_tensor(t, dtype=self.initial.dtype, device=self.initial.device)
        flat = times.flatten()
        if flat.numel() and not flat.min() >= 0:
            raise InputError(f"t = {float(flat.min())}; the flow starts at 0")
        found = self.initial.expand(len(flat), -1, -1).clone()
        for part in self._parts:
            start = self._sums(part)
            self._spread(part, start, part.flow.at(start, flat), found)
        return found.view(*times.shape, *self.initial.shape)

    def limit(self) -> Float[Tensor, "k d"]:
        """w(∞) = K A⁺ b + the part of w(0) in the null space of A (gdln, after Eq. 11)."""
        found = self.initial.unsqueeze(0).clone()
        for part in self._parts:
            start = self._sums(part)
            self._spread(part, start, part.flow.limit(start).unsqueeze(0), found)
        return found[0]

    def loss(self, t: Times) -> Float[Tensor, "*times"]:
        """L(t) = ½⟨(y − ŷ)²⟩ along the flow."""
        if self.power is None:
            raise InputError("the loss needs ⟨y²⟩; give power= to GatedLinearFlow, or make it from moments")
        times = torch.as_tensor(t, dtype=self.initial.dtype, device=self.initial.device)
        energies = [part.flow.energy(self._sums(part), times.flatten()) for part in self._parts]
        return (self.power / 2 + self.tau * torch.stack(energies).sum(dim=0)).view(times.shape)

    def time_constants(self) -> Float[Tensor, " kd"]:
        """K²τ/λ of every mode, fastest first; infinite for what never moves."""
        rates = torch.cat([part.flow.all_rates() for part in self._parts])
        frozen = rates.new_zeros(self.initial.numel() - len(rates))  # differences within groups
        return 1 / torch.cat([rates, frozen]).sort(descending=True).values
