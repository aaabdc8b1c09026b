"""Exact learning curves of gated linear networks (gdln, Section 3), for all times at once."""

from itertools import product
from math import inf, sqrt
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gatelab.dynamics.linear_flow import CirculantFlow, DenseFlow, LinearFlow
from gatelab.dynamics.moments import GatedMoments, Gates, moments_of
from gatelab.errors import GatelabError, InputError

Times = float | Float[Tensor, "*times"]


class FlowStoppedError(GatelabError, RuntimeError):
    """A flow could not be followed to its horizon; the message says where and why it stopped."""


def check_tau(tau: float) -> None:
    """Raise InputError unless τ is a time constant."""
    if not 0 < tau < inf:
        raise InputError(f"tau = {tau}; the time constant must be positive")


def as_times(t: Times, like: Tensor) -> Float[Tensor, "*times"]:
    """Return times as a tensor of the type of ``like``; raise InputError if one is negative."""
    if not isinstance(t, int | float | Tensor):
        raise InputError(f"t is {type(t).__name__}; give a number or a tensor of times")
    times = torch.as_tensor(t, dtype=like.dtype, device=like.device)
    if times.numel() and not times.min() >= 0:  # comparisons with NaN are false, so this refuses NaN as well
        raise InputError(f"t = {float(times.min())}; the flow starts at 0: give times from 0 on")
    if bool(times.isinf().any()):
        raise InputError("t is infinite; give finite times, or take the flow's limit()")
    return times


class _Component(NamedTuple):
    """Groups of equal units that influence each other, and the flow of u = s/√r, s being the sum of a group of r."""

    groups: tuple[tuple[int, ...], ...]
    start: Float[Tensor, "groups d *outputs"]
    flow: LinearFlow


class GatedLinearFlow:
    r"""Gradient flow of :math:`\hat y = \frac{1}{K}\sum_k g_k w_k^\top x` on L = ½⟨(y − ŷ)²⟩, in closed form.

    .. math::
        \tau \dot w = \frac{1}{K}\Big[b - \frac{1}{K} A w\Big], \qquad
        w(t) = e^{-tA/(K^2\tau)}\, w(0) + K \big(I - e^{-tA/(K^2\tau)}\big) A^+ b

    These are Eqs (8)–(11) of gdln with the inner 1/K that the notes lose. They hold for singular A and any w(0).
    The solver uses the structure it finds. Units with equal gates move together, at a rate times their number, and
    keep their differences (gdln, 3.5). Units that never open together are solved separately (3.4).
    Translation-invariant blocks are solved by Fourier modes. Targets with several columns share A, and each output
    has its own weights: b is (Kd, outputs), and w (K, d, outputs).

    Attributes:
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
        b: Float[Tensor, " kd *outputs"],
        K: int,
        tau: float = 1.0,
        *,
        initial: Float[Tensor, "k d *outputs"] | None = None,
        power: float | None = None,
        shape: tuple[int, ...] | None = None,
    ):
        moments = GatedMoments(A, b, K, power or 0.0)
        check_symmetric(A)
        blocks = A.view(K, moments.dim, K, moments.dim).transpose(1, 2)
        rows = circulant_rows(blocks, shape or (moments.dim,))
        self._solve(blocks, rows, b.view(K, moments.dim, *b.shape[1:]), tau, initial, power)

    @classmethod
    def from_moments(
        cls,
        moments: GatedMoments,
        tau: float = 1.0,
        *,
        initial: Float[Tensor, "k d *outputs"] | None = None,
        shape: tuple[int, ...] | None = None,
    ) -> "GatedLinearFlow":
        """Solve the flow for given moments."""
        return cls(moments.A, moments.b, moments.units, tau, initial=initial, power=moments.power, shape=shape)

    @classmethod
    def from_data(
        cls,
        x: Float[Tensor, "n d"],
        y: Float[Tensor, " n *outputs"],
        gates: Gates,
        tau: float = 1.0,
        *,
        initial: Float[Tensor, "k d *outputs"] | None = None,
    ) -> "GatedLinearFlow":
        """Solve the flow on a fixed data set under given gates: in float64, with answers in the type of x."""
        flow = cls.from_moments(moments_of(x, y, gates), tau, initial=initial)
        flow._dtype = x.dtype
        return flow

    @classmethod
    def from_rows(
        cls,
        rows: Float[Tensor, "k k *shape"],
        b: Float[Tensor, "k d *outputs"],
        tau: float = 1.0,
        *,
        initial: Float[Tensor, "k d *outputs"] | None = None,
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
        b: Float[Tensor, "k d *outputs"],
        tau: float,
        initial: Float[Tensor, "k d *outputs"] | None,
        power: float | None,
    ) -> None:
        check_tau(tau)
        if initial is not None and not bool(torch.isfinite(initial).all()):
            raise InputError("w(0) holds NaN or infinite values; give finite weights")
        if initial is not None and initial.shape != b.shape:
            names = "(K, d)" if b.ndim == 2 else "(K, d, outputs)"
            raise InputError(f"w(0) is {tuple(initial.shape)}; it must be {names} = {tuple(b.shape)}")
        self.initial = torch.zeros_like(b) if initial is None else initial.detach().to(b)
        self.K, self.tau, self.power = len(b), tau, power
        self._dtype = b.dtype
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
        f = b[firsts] * roots.view(-1, *[1] * (b.ndim - 1)) / (self.K * self.tau)
        if self.translation_invariant:
            return CirculantFlow(H, f)
        return DenseFlow(H.transpose(1, 2).reshape(f.shape[:2].numel(), -1), f)

    def _units(self, sums: list[Float[Tensor, "times _ d *outputs"]]) -> Float[Tensor, "times k d *outputs"]:
        """Return w for u of every component: all units of a group move by the same amount."""
        w = self.initial.expand(len(sums[0]), *self.initial.shape).clone()
        for component, u in zip(self._components, sums, strict=True):
            for place, group in enumerate(component.groups):
                w[:, list(group)] += (u[:, place] - component.start[place])[:, None] / sqrt(len(group))
        return w

    def weights(self, t: Times) -> Tensor:
        """Return w(t), ``(*times, K, d)`` or ``(*times, K, d, outputs)``, for one time or a tensor of times."""
        times = as_times(t, self.initial)
        sums = [component.flow.at(component.start, times.flatten()) for component in self._components]
        return self._units(sums).view(*times.shape, *self.initial.shape).to(self._dtype)

    def limit(self) -> Float[Tensor, "k d *outputs"]:
        """Return w(∞) = K A⁺ b + the part of w(0) in the null space of A (gdln, after Eq. 11)."""
        ends = self._units([component.flow.limit(component.start)[None] for component in self._components])
        return ends[0].to(self._dtype)

    def loss(self, t: Times) -> Float[Tensor, "*times"]:
        """Return L(t) = ½⟨(y − ŷ)²⟩ along the flow."""
        if self.power is None:
            raise InputError("the loss needs ⟨y²⟩; pass power= to GatedLinearFlow, or use from_moments")
        times = as_times(t, self.initial)
        energies = [component.flow.energy(component.start, times.flatten()) for component in self._components]
        return (self.power / 2 + self.tau * torch.stack(energies).sum(dim=0)).view(times.shape).to(self._dtype)

    def time_constants(self) -> Float[Tensor, " kd"]:
        """Return K²τ/λ of every mode, fastest first; modes that never move have infinity."""
        rates = torch.cat([component.flow.all_rates() for component in self._components])
        # A group of r units has one moving sum; its r − 1 differences never move.
        frozen = rates.new_zeros(self.initial.shape[:2].numel() - len(rates))
        return 1 / torch.cat([rates, frozen]).sort(descending=True).values


def _rounding(blocks: Tensor) -> float:
    """Return the largest difference that counts as rounding: reordered sums differ by some units in the last place."""
    return 100 * torch.finfo(blocks.dtype).eps * float(blocks.abs().max())


def check_symmetric(A: Float[Tensor, "kd kd"]) -> None:
    """Raise InputError unless A is symmetric up to rounding."""
    if not bool(torch.isfinite(A).all()):
        raise InputError("A holds NaN or infinite values; moments must be finite: check the examples")
    gap = float((A - A.T).abs().max())
    if not gap <= _rounding(A):
        raise InputError(f"A and its transpose differ by {gap:.3g}; second moments are symmetric: use (A + A.T) / 2")


def check_rows(rows: Float[Tensor, "k k *shape"]) -> None:
    """Raise InputError unless first rows belong to symmetric blocks: row[j] = row[−j], on all axes at once."""
    if not bool(torch.isfinite(rows).all()):
        raise InputError("the blocks' first rows hold NaN or infinite values; moments must be finite")
    axes = tuple(range(2, rows.dim()))
    mirrored = rows.flip(axes).roll([1] * len(axes), axes)
    gap = max(float((rows - mirrored).abs().max()), float((rows - rows.transpose(0, 1)).abs().max()))
    if not gap <= _rounding(rows):
        raise InputError(
            f"the blocks' first rows differ by {gap:.3g} from their mirror images or transposes; "
            "second moments are symmetric: give rows with row[j] = row[-j]"
        )


def circulant_rows(blocks: Float[Tensor, "k k d d"], shape: tuple[int, ...]) -> Float[Tensor, "k k *shape"] | None:
    """Return the first rows of the blocks if every block is translation-invariant on the ring or torus, else None."""
    K, _, dim, _ = blocks.shape
    if torch.Size(shape).numel() != dim:
        raise InputError(f"shape {shape} has {torch.Size(shape).numel()} sites, the input {dim}; give its own shape")
    tolerance = _rounding(blocks)
    rows = blocks[:, :, 0].reshape(K, K, *shape)
    axes = tuple(range(2, rows.dim()))
    # Nearly every matrix that is not invariant fails at the second site, so this loop ends early for them.
    for site, place in enumerate(product(*map(range, shape))):
        shifted = rows.roll(place, axes).flatten(2)
        if float((shifted - blocks[:, :, site]).abs().max()) > tolerance:
            return None
    return rows


def identical_units(blocks: Float[Tensor, "k k ..."], b: Float[Tensor, "k d *outputs"]) -> list[tuple[int, ...]]:
    """Group units with the same gate: A_pp = A_pq = A_qq and b_p = b_q, up to rounding."""
    tolerance, b_tolerance = _rounding(blocks), _rounding(b)
    groups: list[list[int]] = []
    for unit in range(len(b)):
        for group in groups:
            first = group[0]
            gaps = ((blocks[first, first] - blocks[pair]).abs().max() for pair in ((first, unit), (unit, unit)))
            if all(gap <= tolerance for gap in gaps) and (b[first] - b[unit]).abs().max() <= b_tolerance:
                group.append(unit)
                break
        else:
            groups.append([unit])
    return [tuple(group) for group in groups]


def connected(coupled: Bool[Tensor, "k k"]) -> list[tuple[int, ...]]:
    """Return the connected components of a symmetric relation.

    Example:
        >>> connected(torch.tensor([[1, 0, 1], [0, 1, 0], [1, 0, 1]]).bool())
        [(0, 2), (1,)]
    """
    unseen, components = set(range(len(coupled))), []
    while unseen:
        reached, front = set(), {min(unseen)}
        while front:
            reached |= front
            front = {int(j) for i in front for j in coupled[i].nonzero()} - reached
        components.append(tuple(sorted(reached)))
        unseen -= reached
    return components
