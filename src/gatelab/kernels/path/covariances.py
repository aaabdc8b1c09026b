"""Covariances of random fields, layer by layer: each weight layer's follows from the layers before it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gatelab.kernels.path.first_fields import FirstField, first_field
from gatelab.kernels.path.pairs import AllPairs, OffsetPairs, Pairs
from gatelab.kernels.path.planning import (
    WeightLayer,
    offsets_wanted,
    pairs_read,
    reads_most_positions,
    takes_patches,
    takes_product,
)
from gatelab.kernels.path.pooled_windows import Windows, between_windows, windows_of
from gatelab.kernels.path.selections import Gathering, gathered
from gatelab.kernels.path.signals import Signal, Term

KEPT_SUMS = 4  # sums of fields cached for the next layers


class Covariances:
    """Covariances of all fields between two blocks of examples, each (examples, examples, groups, *pairs)."""

    def __init__(
        self,
        left: list[WeightLayer],
        right: list[WeightLayer],
        forms: Mapping[int, Pairs],
        known: Mapping[int, Float[Tensor, "n m"]],
        met: "dict[tuple[int, int, int, int], _Meeting | None]",
        last: Mapping[int, list[int]],
        i: slice,
        j: slice,
    ):
        """Prepare for examples i of ``left`` and j of ``right``.

        Args:
            left: the layers with the signals of the row examples.
            right: the same for the columns.
            forms: the pairs of positions that each layer needs.
            known: kernels of the inputs of dense layers that are known already.
            met: what is known about pairs of terms; blocks of one kernel share it.
            last: for each layer, the fields that are not read after it.
            i: the rows.
            j: the columns.
        """
        self._left, self._right, self._forms, self._known = left, right, forms, known
        self._met, self._last, self._i, self._j = met, last, i, j
        self._fields: dict[int, Tensor | FirstField] = {}
        self._sums: dict[tuple[tuple[int, ...], Pairs], Tensor] = {}  # the latest sums of fields

    def run(self) -> None:
        """Compute the covariance of every field, first to last."""
        for number, form in self._forms.items():
            a, b = self._left[number], self._right[number]
            if number in self._known:
                entries = self._known[number][self._i, self._j][:, :, None, None, None]
            elif takes_patches(a, form):
                entries = self._of_patches(a, b)
            elif takes_product(a):
                entries = self._of_inputs(a.inputs, b.inputs)
            elif (first := first_field(a, b, form, self._i, self._j)) is not None:
                self._fields[number] = first
                continue
            else:
                inner = pairs_read(a, form)
                entries = self.of_signals(a.inputs, b.inputs, inner, a.groups)
                if a.geometry is None:
                    entries = inner.equal(entries).sum(dim=(2, 3), keepdim=True)[..., None]
                else:
                    entries = inner.convolved(entries, a.geometry)
            entries = entries if a.scale == 1 else entries * a.scale
            self._fields[number] = entries + a.bias if a.bias else entries
            for origin in self._last.get(number, ()):
                self._fields.pop(origin, None)

    def of_signals(self, a: Signal, b: Signal, pairs: Pairs, groups: int) -> Float[Tensor, "n m g *pairs"]:
        """Return the covariance of two signals, summed over the channels of each group."""
        total = None
        for left in a.terms:
            for right in b.terms:
                if set(left.origins) & set(right.origins):
                    part = self._of_terms(left, right, pairs, a.channels, groups)
                    total = part if total is None else total if part is None else total + part
        assert total is not None
        return total

    def _of_patches(self, a: WeightLayer, b: WeightLayer) -> Tensor:
        """The covariance of a first convolution at all pairs of positions: one product of the patches it reads."""
        patches = []
        for layer, rows in ((a, self._i), (b, self._j)):
            (term,) = layer.inputs.terms
            assert layer.geometry is not None
            image = _rows(term.multiplier, rows)[..., 0].unflatten(2, layer.inputs.size)
            for axis, reads in enumerate(taps.reads for taps in layer.geometry.taps):
                # Taps go before the channels' axis, one after the other; index -1 reads a last line of zeros.
                place = image.ndim - len(layer.inputs.size) + axis
                padded = torch.cat([image, torch.zeros_like(image.narrow(place, 0, 1))], dim=place)
                image = padded.index_select(place, torch.where(reads < 0, padded.shape[place] - 1, reads).flatten())
                image = image.unflatten(place, reads.shape).movedim(place, 1 + 1)
            flat = image.flatten(-len(layer.inputs.size))  # examples, channels, taps …, positions
            grouped = flat.unflatten(1, (layer.groups, -1))
            patches.append(grouped.flatten(2, -2))
        return AllPairs(a.size).products(*patches)

    def _of_inputs(self, a: Signal, b: Signal) -> Float[Tensor, "n m 1 1 1"]:
        """The covariance of a first dense layer: one product of all channels and positions that it reads."""
        left, right = (
            _rows(term.multiplier, rows).expand(-1, len(term.channels), -1, -1).flatten(1)
            for (term,), rows in ((a.terms, self._i), (b.terms, self._j))
        )
        return (left @ right.T)[:, :, None, None, None]

    def _of_terms(self, left: Term, right: Term, pairs: Pairs, channels: int, groups: int) -> Tensor | None:
        key = (id(left), id(right), channels, groups)  # a signal and its continuation share terms
        if key not in self._met:
            self._met[key] = _Meeting.of(left, right, channels // groups, groups)
        meeting = self._met[key]
        if meeting is None:
            return None
        sides = (_Side(left, meeting.left, self._i), _Side(right, meeting.right, self._j))
        blocks = meeting.blocks
        if left.simple and right.simple:
            products = pairs.products(*(blocks.of(side.multiplier()[..., 0]) for side in sides))
            if not left.is_input:
                products = products * self._sum_of_fields(left, right, pairs)[:, :, blocks.fields]
            return blocks.summed(products)
        form = self._form_for(left, right, pairs)
        if isinstance(form, OffsetPairs) and isinstance(pairs, OffsetPairs):
            windows = meeting.windows(left, right, form.size, pairs.size)
            if windows is not None:
                own = (
                    self._fields[left.origins[0]] if left.origins == right.origins and len(left.origins) == 1 else None
                )
                fields = own if isinstance(own, FirstField) else self._sum_of_fields(left, right, form)
                return between_windows(*windows, self._i, self._j, fields, form, pairs)
        fields = self._sum_of_fields(left, right, form)
        if isinstance(form, OffsetPairs):
            left_read, right_read = (side.flushed().gathering() for side in sides)
            return gathered(left_read, right_read, fields, form, pairs, blocks)
        return _extract(self._all_pairs(sides, fields, form, blocks), AllPairs(pairs.size), pairs)

    def _form_for(self, left: Term, right: Term, pairs: Pairs) -> Pairs:
        """The pairs of field positions that two terms read, for some pairs of node positions."""
        forms = [self._forms[origin] for origin in left.origins if origin in right.origins]
        if len(forms) == 1 or all(isinstance(form, AllPairs) for form in forms):
            return forms[0]
        wanted = None if isinstance(pairs, AllPairs) else frozenset(pairs.offsets)
        both = [offsets_wanted(term, wanted, forms[0].size) for term in (left, right)]
        assert both[0] is not None
        assert both[1] is not None
        return OffsetPairs(forms[0].size, tuple(sorted(both[0] | both[1])))

    def _sum_of_fields(self, left: Term, right: Term, form: Pairs) -> Tensor:
        """The covariances of the fields that two terms share, added up."""
        common = tuple(origin for origin in left.origins if origin in right.origins)
        if len(common) == 1:
            return self._field(common[0], form)
        known = self._sums.get((common, form))
        if known is None:
            # Skips add one field at a time, so the sum without the last field is often cached.
            known = self._sums.get((common[:-1], form))
            rest = common[-1:] if known is not None else common[1:]
            if known is None:
                known = self._field(common[0], form)
            for origin in rest:
                known = known + self._field(origin, form)
            while len(self._sums) >= KEPT_SUMS:
                self._sums.pop(next(iter(self._sums)))
            self._sums[common, form] = known
        return known

    def _field(self, origin: int, form: Pairs) -> Tensor:
        """The covariance of one field at some pairs of positions."""
        field = self._fields[origin]
        return _extract(field.entries if isinstance(field, FirstField) else field, self._forms[origin], form)

    def _all_pairs(self, sides: "tuple[_Side, _Side]", fields: Tensor, form: AllPairs, blocks: "_Blocks") -> Tensor:
        left, right = sides
        taps = [side.term.multiplier.shape[3] for side in sides]
        if all(reads_most_positions(side.term, fields.shape[3]) for side in sides):
            matrices = (side.matrix(fields.shape[3]) for side in sides)
            a, b = (blocks.of(matrix.flatten(2)).unflatten(3, matrix.shape[2:]) for matrix in matrices)
            entries = blocks.summed(_between_matrices(a, b, fields[:, :, blocks.fields]))
            taps = [1, 1]
        elif left.shared and right.shared:
            a, b = (blocks.of(side.multiplier().flatten(2)) for side in sides)
            products = AllPairs((a.shape[3],)).products(a, b)
            fine = fields[:, :, blocks.fields]
            for axis, side in enumerate(sides, start=3):
                if side.term.index is not None:
                    fine = fine.index_select(axis, side.term.index.flatten())
            entries = blocks.summed(products * fine)
        else:
            entries = gathered(left.gathering(), right.gathering(), fields, form, None, blocks)
        entries = entries.unflatten(4, (-1, taps[1])).unflatten(3, (-1, taps[0])).sum(dim=(4, 6))
        if left.term.maps is not None:
            entries = left.term.maps.apply(entries.transpose(3, 4)).transpose(3, 4)
        return entries if right.term.maps is None else right.term.maps.apply(entries)


@dataclass(frozen=True, eq=False)
class _Side:
    """A term, the channels of it that count, and the examples."""

    term: Term
    held: Int[Tensor, " k"]
    rows: slice

    @property
    def shared(self) -> bool:
        """Whether all examples and channels read the field at the same positions."""
        return self.term.index is None or self.term.index.shape[:2] == (1, 1)

    def multiplier(self) -> Float[Tensor, "#n #k p taps"]:
        """The multipliers of these examples and channels."""
        return self._of(self.term.multiplier)

    def matrix(self, positions: int) -> Float[Tensor, "#n #k p positions"]:
        """The multipliers as a matrix for each channel, from positions of the field to those of the node."""
        multiplier = self.multiplier()
        matrix = multiplier.new_zeros(*multiplier.shape[:3], positions)
        return matrix.scatter_add_(3, self.term.index_or_identity().expand_as(multiplier), multiplier)

    def flushed(self) -> "_Side":
        """The same term with its fixed map written as taps."""
        return _Side(self.term.flushed(), self.held, self.rows)

    def gathering(self) -> Gathering:
        """Multipliers and positions, written out for every channel."""
        multiplier = self.multiplier()
        index = self._of(self.term.index_or_identity())
        n = max(multiplier.shape[0], index.shape[0])
        wide = (part.expand(n, -1, -1, -1).flatten(2) for part in (multiplier, index))
        return Gathering(*wide, taps=multiplier.shape[3])

    def _of(self, part: Tensor) -> Tensor:
        part = _rows(part, self.rows)
        return part.expand(-1, len(self.held), -1, -1) if part.shape[1] == 1 else part[:, self.held]


@dataclass(frozen=True, eq=False)
class _Meeting:
    """The channels that two terms share: their places in each term, sorted into blocks."""

    left: Int[Tensor, " k"]
    right: Int[Tensor, " k"]
    blocks: "_Blocks"
    known: "dict[str, tuple[Windows, Windows] | None]" = field(default_factory=dict)

    def windows(
        self, left: Term, right: Term, field_size: tuple[int, ...], size: tuple[int, ...]
    ) -> "tuple[Windows, Windows] | None":
        """The windows of two terms after a max-pooling, if all channels are one group; None if there are none."""
        if "windows" not in self.known:
            found = None
            if self.blocks.groups == 1 and len(self.blocks.fields) == 1:
                one = windows_of(left, self.left, field_size, size)
                two = one if left is right else windows_of(right, self.right, field_size, size)
                if one is not None and two is not None and one.stride == two.stride:
                    found = one, two
            self.known["windows"] = found
        return self.known["windows"]

    @classmethod
    def of(cls, left: Term, right: Term, size: int, groups: int) -> "_Meeting | None":
        """Match two terms at a node with groups of ``size`` channels; None if they share no channel."""
        held = common_channels(left, right)
        if held is None:
            return None
        node_groups = left.channels[held[0]] // size
        field_groups = torch.zeros_like(node_groups) if left.is_input else left.field[held[0]] // left.group
        return cls(*held, _Blocks(node_groups, field_groups, groups))


class _Blocks:
    """Channels sorted by the group they go to and the group of the field they come from, in blocks of equal size."""

    def __init__(self, node_groups: Int[Tensor, " k"], field_groups: Int[Tensor, " k"], groups: int):
        self.node_groups, self.field_groups, self.groups = node_groups, field_groups, groups
        both = node_groups * (int(field_groups.max()) + 1) + field_groups
        found, self._member, counts = both.unique(return_inverse=True, return_counts=True)
        self._order = self._member.argsort(stable=True)
        self._size = int(counts.max())
        self._even = bool((counts == self._size).all())
        first = self._order[counts.cumsum(0) - counts]
        self.fields = field_groups[first]
        self._targets = node_groups[first]
        self._count = len(found)
        slot = torch.arange(len(both), device=both.device) - (counts.cumsum(0) - counts)[self._member[self._order]]
        self._slots = self._member[self._order] * self._size + slot

    def of(self, multiplier: Float[Tensor, "#n k r"]) -> Float[Tensor, "n blocks size r"]:
        """Sort channels into blocks; short blocks are filled with zeros."""
        if self._count == 1:
            return multiplier[:, None]
        if self._even:
            return multiplier[:, self._order].unflatten(1, (self._count, self._size))
        filled = multiplier.new_zeros(multiplier.shape[0], self._count * self._size, multiplier.shape[2])
        filled[:, self._slots] = multiplier[:, self._order]
        return filled.unflatten(1, (self._count, self._size))

    def summed(self, products: Float[Tensor, "n m blocks *pairs"]) -> Float[Tensor, "n m groups *pairs"]:
        """Sum blocks into the groups they go to."""
        if self._count == self.groups and bool((self._targets.diff() > 0).all()):
            return products
        if self.groups == 1:
            return products.sum(dim=2, keepdim=True)
        total = products.new_zeros(*products.shape[:2], self.groups, *products.shape[3:])
        return total.index_add_(2, self._targets, products)


def _rows(part: Tensor, rows: slice) -> Tensor:
    return part if part.shape[0] == 1 else part[rows]  # 1: the same for all examples


def _between_matrices(
    left: Float[Tensor, "n blocks size p q"],
    right: Float[Tensor, "m blocks size r q"],
    fields: Float[Tensor, "n m blocks q q"],
) -> Float[Tensor, "n m blocks p r"]:
    """Sum left · covariance · rightᵀ over the channels of each block."""
    half = left.flatten(2, 3)[:, None] @ fields
    rows = half.unflatten(3, left.shape[2:4]).transpose(3, 4).flatten(4)
    return rows @ right.transpose(3, 4).flatten(2, 3)[None]


def common_channels(left: Term, right: Term) -> tuple[Tensor, Tensor] | None:
    """The places of the node's channels that both terms hold, with the same channel of the field."""
    if torch.equal(left.channels, right.channels) and torch.equal(left.field, right.field):
        every = torch.arange(len(left.channels), device=left.channels.device)
        return every, every
    same = left.channels[:, None] == right.channels[None]
    if not left.is_input:
        same &= left.field[:, None] == right.field[None]
    one, other = same.nonzero(as_tuple=True)
    return (one, other) if len(one) else None


def _extract(entries: Tensor, held: Pairs, wanted: Pairs) -> Tensor:
    """Entries at some pairs of positions, from those at more pairs."""
    if isinstance(wanted, AllPairs):
        assert isinstance(held, AllPairs)
        return entries
    if isinstance(held, OffsetPairs):
        if held.offsets == wanted.offsets:
            return entries
        return entries[:, :, :, [held.offsets.index(offset) for offset in wanted.offsets]]
    partners = wanted.partners.to(entries.device)
    rows = torch.arange(partners.shape[1], device=entries.device)
    return entries[:, :, :, rows, partners.clamp(min=0)]
