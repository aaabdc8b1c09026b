r"""Signals: the sums of gated random fields that reach a node, for one set of examples.

With the gates fixed and the value weights random, the output of a weight layer is a random field f_c(q) over channels c
and positions q. Fields of different layers are independent, and so are the channels of one field; the covariance
S(q, q') between two examples is the same for all channels of a group. Everything between two weight layers is linear
and keeps channels apart, so a signal is a sum of terms

.. math:: h_c(p) = \sum_{p_1} F(p, p_1) \sum_t a_c(p_1, t)\\, f_{c'}(q_c(p_1, t))

with multipliers a and positions q from gates and selections (different for each example and channel), and F a fixed map
of positions (the same for all of them).
"""

from dataclasses import dataclass, replace
from math import prod

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gatelab.kernels.path.axes import IDENTITY, AxisMaps, Reach

INPUT = -1  # the origin of the input, whose multiplier is its value


@dataclass(frozen=True, eq=False)
class Term:
    """One field, or a sum of fields with the same multipliers and maps, on its way to a node.

    Attributes:
        origins: the weight layers that made the fields, or INPUT.
        channels: the node's channels that hold it.
        field: the field's channel in each of them.
        multiplier: a; a first or second axis of length 1 stands for all examples or channels.
        index: q, in the same form; None if positions are the field's own, and there is one tap.
        maps: F, or None.
        reach: where the multiplier's positions lie in the field, along each axis; None if that is not regular.
        group: how many of the field's channels have one covariance.
    """

    origins: tuple[int, ...]
    channels: Int[Tensor, " k"]
    field: Int[Tensor, " k"]
    multiplier: Float[Tensor, "#n #k p taps"]
    index: Int[Tensor, "#n #k p taps"] | None = None
    maps: AxisMaps | None = None
    reach: tuple[Reach, ...] | None = None
    group: int = 1

    @property
    def is_input(self) -> bool:
        """Whether this is the input itself, whose multiplier is its value."""
        return self.origins == (INPUT,)

    @property
    def simple(self) -> bool:
        """Whether positions are the field's own, each by itself."""
        return self.index is None and self.maps is None and self.multiplier.shape[3] == 1

    def gated(self, gate: Float[Tensor, "#n #c #p"]) -> "Term":
        """Multiply pointwise by a factor for each of the node's channels and positions."""
        own = gate[:, self.channels] if gate.shape[1] > 1 else gate
        if self.maps is not None:
            owner = self.maps.owner
            if owner is None:
                return self.flushed().gated(gate)
            own = own[:, :, owner.clamp(min=0)] if own.shape[2] > 1 else own
        return replace(self, multiplier=self.multiplier * own[..., None])

    def scaled(self, factor: float) -> "Term":
        """Multiply by a number."""
        return replace(self, multiplier=self.multiplier * factor)

    def mapped(self, maps: AxisMaps) -> "Term":
        """Apply a fixed map of positions."""
        if self.is_input:  # the values are known, so apply the map at once
            return replace(self, multiplier=maps.apply(self.multiplier[..., 0])[..., None])
        return replace(self, maps=maps.after(self.maps))

    def flushed(self) -> "Term":
        """Write the fixed map as taps, so that each position of the node has multipliers of its own."""
        if self.maps is None:
            return self
        place, weight = self.maps.taps()
        outputs = len(place)
        old = self.index_or_identity()
        multiplier = self.multiplier[:, :, place] * weight.to(self.multiplier.dtype)[..., None]
        reach = None
        if self.reach is not None:
            reach = tuple(b.after(a) for a, b in zip(self.reach, self.maps.reach, strict=True))
        multiplier = multiplier.reshape(*multiplier.shape[:2], outputs, -1)
        index = old[:, :, place].reshape(*old.shape[:2], outputs, -1)
        if index.shape[:2] == (1, 1):
            multiplier, index = _one_tap_for_each_position(multiplier, index)
        return replace(self, multiplier=multiplier, index=index, maps=None, reach=reach)

    def index_or_identity(self) -> Int[Tensor, "#n #k p taps"]:
        """Return q, written out."""
        if self.index is not None:
            return self.index
        own = torch.arange(self.multiplier.shape[2], device=self.multiplier.device)
        return own.view(1, 1, -1, 1)

    def selected(self, winners: Int[Tensor, "#n #c #p"], reach: tuple[Reach, ...] | None) -> "Term":
        """Take, at each position of the node, the signal at another position that varies with example and channel.

        Args:
            winners: the positions; a first or second axis of length 1 stands for all, and -1 takes zero.
            reach: where the winners lie, along each axis; None if that is not regular.
        """
        term = self.flushed()
        own = winners[:, term.channels] if winners.shape[1] > 1 else winners
        place = own.clamp(min=0)
        multiplier = _take(term.multiplier, place) * (own >= 0)[..., None].to(term.multiplier.dtype)
        if self.is_input:
            return replace(term, multiplier=multiplier)
        index = _take(term.index_or_identity(), place)
        known = None
        if reach is not None and term.reach is not None:
            known = tuple(b.after(a) for a, b in zip(term.reach, reach, strict=True))
        return replace(term, multiplier=multiplier, index=index, reach=known)


def _one_tap_for_each_position(
    multiplier: Float[Tensor, "#n #k p taps"], index: Int[Tensor, "1 1 p taps"]
) -> tuple[Float[Tensor, "#n #k p fewer"], Int[Tensor, "1 1 p fewer"]]:
    """Join the taps that read the same position: gated poolings in a row would otherwise multiply their taps."""
    ordered, order = index[0, 0].sort(dim=1)
    slots = torch.nn.functional.pad((ordered.diff(dim=1) != 0).long().cumsum(dim=1), (1, 0))
    fewer = int(slots.max()) + 1
    if fewer == index.shape[3]:
        return multiplier, index
    slot = torch.empty_like(slots).scatter_(1, order, slots)
    joined = multiplier.new_zeros(*multiplier.shape[:3], fewer)
    joined.scatter_add_(3, slot.expand_as(multiplier), multiplier)
    places = ordered[:, :1].repeat(1, fewer).scatter_(1, slot, index[0, 0])
    return joined, places[None, None]


def _take(source: Tensor, place: Int[Tensor, "#n #k p"]) -> Tensor:
    n, k = max(source.shape[0], place.shape[0]), max(source.shape[1], place.shape[1])
    if place.shape[:2] == (1, 1):
        return source[:, :, place[0, 0]]
    wide = source.expand(n, k, *source.shape[2:])
    chosen = place.expand(n, k, -1)[..., None].expand(-1, -1, -1, source.shape[3])
    return wide.gather(2, chosen)


@dataclass(frozen=True, eq=False)
class Signal:
    """Everything that reaches a node. Its units are ordered by channels first, then by positions.

    Attributes:
        terms: the fields.
        channels: the number of channels.
        size: positions along each axis; empty if there are none.
    """

    terms: tuple[Term, ...]
    channels: int
    size: tuple[int, ...]

    @property
    def positions(self) -> int:
        """Number of positions."""
        return prod(self.size)

    @property
    def is_input(self) -> bool:
        """Whether no weight layer has been passed yet."""
        return all(term.is_input for term in self.terms)

    def gated(self, gate: Float[Tensor, "n ..."]) -> "Signal":
        """Multiply every unit by its gate."""
        shaped = gate.reshape(gate.shape[0], self.channels, self.positions)
        return replace(self, terms=tuple(term.gated(shaped) for term in self.terms))

    def scaled(self, factor: float) -> "Signal":
        """Multiply by a number."""
        return replace(self, terms=tuple(term.scaled(factor) for term in self.terms))

    def mapped(self, maps: AxisMaps) -> "Signal":
        """Apply a fixed map of positions."""
        return replace(self, terms=tuple(term.mapped(maps) for term in self.terms), size=maps.size)

    def selected(
        self, winners: Int[Tensor, "#n #c #p"], size: tuple[int, ...], reach: tuple[Reach, ...] | None
    ) -> "Signal":
        """Take one position for each new one; see :meth:`Term.selected`."""
        return replace(self, terms=tuple(term.selected(winners, reach) for term in self.terms), size=size)

    def plus(self, other: "Signal") -> "Signal":
        """Return the sum, in as few terms as possible."""
        terms, waiting = list(self.terms), list(other.terms)
        while waiting:
            new = waiting.pop()
            for place, old in enumerate(terms):
                if old.is_input and new.is_input:
                    terms[place] = _sum_of_inputs(old, new, self.channels)
                    break
                both = _one_term(old, new)
                if both is not None:
                    terms[place] = both
                    break
                parts = _split(new, old)
                if parts is not None:
                    waiting += parts
                    break
            else:
                terms.append(new)
        return replace(self, terms=tuple(terms))

    def with_channels(self, sources: Int[Tensor, " c"]) -> "Signal":
        """Choose channels: new channel c is the old channel ``sources[c]``, or zero if that is -1."""
        terms = []
        for term in self.terms:
            position = sources.new_full((self.channels + 1,), -1)
            position[term.channels] = torch.arange(len(term.channels), device=sources.device)
            held = position[sources]
            new = (held >= 0).nonzero().flatten()
            if len(new):
                terms.append(_choose(term, held[new], new))
        return replace(self, terms=tuple(terms), channels=len(sources))

    def beside(self, other: "Signal") -> "Signal":
        """Return the concatenation of two signals along channels."""
        moved = tuple(replace(term, channels=term.channels + self.channels) for term in other.terms)
        return replace(self, terms=self.terms + moved, channels=self.channels + other.channels)


def _choose(term: Term, held: Int[Tensor, " k"], channels: Int[Tensor, " k"]) -> Term:
    index = term.index
    return replace(
        term,
        channels=channels,
        field=term.field[held],
        multiplier=term.multiplier if term.multiplier.shape[1] == 1 else term.multiplier[:, held],
        index=index if index is None or index.shape[1] == 1 else index[:, held],
    )


def _sum_of_inputs(one: Term, other: Term, channels: int) -> Term:
    every = torch.arange(channels, device=one.channels.device)
    values = []
    for term in (one, other):
        value = term.multiplier.new_zeros(term.multiplier.shape[0], channels, *term.multiplier.shape[2:])
        value[:, term.channels] = term.multiplier
        values.append(value)
    return Term((INPUT,), every, every, values[0] + values[1], reach=one.reach)


def _one_term(one: Term, other: Term) -> Term | None:
    """Merge two simple terms: with the same fields, add multipliers; with the same multipliers, add fields."""
    if not (one.simple and other.simple and torch.equal(one.channels, other.channels)):
        return None
    if one.group != other.group or not torch.equal(one.field, other.field):
        return None
    if one.origins == other.origins:
        return replace(one, multiplier=one.multiplier + other.multiplier)
    apart = not set(one.origins) & set(other.origins)
    if apart and not one.is_input and not other.is_input and _equal(one.multiplier, other.multiplier):
        return replace(one, origins=one.origins + other.origins)
    return None


def _split(new: Term, old: Term) -> list[Term] | None:
    """Split a term that nothing has gated, so that one part has the channels of another such term.

    Where a skip brings fewer channels than the layer beside it has (PyramidNet), the sum of L fields then stays L terms
    with L channels in all, instead of L terms with up to all channels each.
    """
    ungated = all(term.simple and term.multiplier.shape[:2] == (1, 1) for term in (new, old))
    if not ungated or new.is_input or old.is_input or not _equal(new.multiplier, old.multiplier):
        return None
    inside = torch.isin(new.channels, old.channels)
    if new.group != old.group or not 0 < int(inside.sum()) == len(old.channels) < len(new.channels):
        return None
    held = inside.nonzero().flatten(), (~inside).nonzero().flatten()
    parts = [_choose(new, places, new.channels[places]) for places in held]
    return parts if _one_term(old, parts[0]) is not None else None


def _equal(one: Tensor, other: Tensor) -> bool:
    return one is other or torch.equal(one, other)


def input_signal(x: Float[Tensor, "n ..."]) -> Signal:
    """Return the input as a signal: the second axis holds channels, the others positions."""
    size = tuple(x.shape[2:])
    every = torch.arange(x.shape[1], device=x.device)
    value = x.reshape(x.shape[0], x.shape[1], -1, 1)
    return Signal((Term((INPUT,), every, every, value, reach=(IDENTITY,) * len(size)),), x.shape[1], size)


def field_signal(origin: int, channels: int, size: tuple[int, ...], like: Tensor, groups: int = 1) -> Signal:
    """Return a field as it leaves its weight layer."""
    every = torch.arange(channels, device=like.device)
    one = like.new_ones(1, 1, prod(size), 1)
    term = Term((origin,), every, every, one, reach=(IDENTITY,) * len(size), group=channels // groups)
    return Signal((term,), channels, size)
