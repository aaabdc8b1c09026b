"""Summarisation functions φ_α: from the children's variables to the region's own (hierarchy, Section 2.2)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod

import torch
from jaxtyping import Int
from torch import Tensor

from gatelab.errors import InputError
from gatelab.hierarchy.codes import decode, encode
from gatelab.hierarchy.fields import ReceptiveFields

Function = Callable[[Int[Tensor, "n c"]], Int[Tensor, " n"]]


@dataclass(frozen=True)
class Rule:
    """One φ_α.

    Attributes:
        apply: (n, children) values → (n,) values of the region.
        children: m_β, the number of values of each child.
        values: m_α.
    """

    apply: Function
    children: tuple[int, ...]
    values: int


@dataclass(frozen=True)
class Place:
    """Where a rule is wanted: the region, and how many values each of its children takes."""

    fields: ReceptiveFields
    region: str
    children: tuple[int, ...]


RuleMaker = Callable[[Place], Rule]


def lookup(table: Int[Tensor, "*children"], values: int | None = None) -> Rule:
    """φ as a table with one axis for each child; ``values`` defaults to the largest entry plus one."""
    size = int(table.max()) + 1 if values is None else values
    if int(table.min()) < 0 or int(table.max()) >= size:
        raise InputError(
            f"a table with entries {int(table.min())} … {int(table.max())} cannot have {size} values 0, 1, …"
        )
    flat, children = table.flatten(), tuple(table.shape)
    return Rule(lambda z: flat.to(z.device)[encode(z, children)], children, size)


def function(apply: Function, values: int) -> RuleMaker:
    """A user's function of the children's values."""

    def make(place: Place) -> Rule:
        return Rule(apply, place.children, values)

    return make


def random_table(values: int, generator: torch.Generator | None = None) -> RuleMaker:
    """A table drawn uniformly, in which every value occurs if there is room."""

    def make(place: Place) -> Rule:
        count = prod(place.children)
        entries = torch.randint(values, (count,), generator=generator)
        chosen = torch.randperm(count, generator=generator)[: min(values, count)]
        entries[chosen] = torch.arange(len(chosen))
        return lookup(entries.view(place.children), values)

    return make


def joint(place: Place) -> Rule:
    """Everything the children say: one value for each combination of theirs."""
    return Rule(lambda z: encode(z, place.children), place.children, prod(place.children))


def parity(place: Place) -> Rule:
    """The sum of the children's values, modulo 2."""
    return Rule(lambda z: z.sum(dim=1) % 2, place.children, 2)


def majority(place: Place) -> Rule:
    """The value that most children have; of several, the smallest."""
    values = max(place.children)

    def apply(z: Int[Tensor, "n c"]) -> Int[Tensor, " n"]:
        counts = (z.unsqueeze(2) == torch.arange(values, device=z.device)).sum(dim=1)
        # argmax need not return the first of several maxima; the small slope makes the smallest value win.
        return (counts * values - torch.arange(values, device=z.device)).argmax(dim=1)

    return Rule(apply, place.children, values)


def grammar(productions: Mapping[tuple[int, ...], int], values: int, otherwise: int = 0) -> RuleMaker:
    """A rule by productions: the children's symbols → a symbol; whatever has no production is ``otherwise``."""

    def make(place: Place) -> Rule:
        table = torch.full(place.children, otherwise, dtype=torch.int64)
        for symbols, result in productions.items():
            if len(symbols) != len(place.children) or any(
                not 0 <= s < size for s, size in zip(symbols, place.children, strict=True)
            ):
                raise InputError(
                    f"region '{place.region}': production {symbols} → {result} does not fit children that take "
                    f"{place.children} values"
                )
            table[symbols] = result
        return lookup(table, values)

    return make


def per_factor(combine: Callable[[Int[Tensor, "n c"]], Int[Tensor, " n"]]) -> RuleMaker:
    """Binary factors kept apart: factor i of the region is ``combine`` of factor i of each child.

    Children must take 2^k values each, with one k; so does the region. The first factor is the most significant bit.
    """

    def make(place: Place) -> Rule:
        bits = place.children[0].bit_length() - 1
        if any(size != 2**bits for size in place.children):
            raise InputError(
                f"region '{place.region}': children take {place.children} values; factors need 2^k, all alike"
            )

        def apply(z: Int[Tensor, "n c"]) -> Int[Tensor, " n"]:
            factors = torch.stack([decode(column, (2,) * bits) for column in z.T], dim=2)  # n, factor, child
            return encode(torch.stack([combine(factors[:, i]) for i in range(bits)], dim=1), (2,) * bits)

        return Rule(apply, place.children, 2**bits)

    return make


@dataclass(frozen=True)
class QuantisedConvolution:
    """One layer of a CNN with weights shared over positions, its ``bits`` channels cut to signs.

    Children's values enter as bits ±1; channel c of the region is on if Σ w_c · bits > 0. Regions in one layer of the
    hierarchy share w, as in a convolution.
    """

    bits: int
    generator: torch.Generator | None = None
    _weights: dict[tuple[int, tuple[int, ...]], Tensor] = field(default_factory=dict, repr=False)

    def __call__(self, place: Place) -> Rule:
        """The rule of one region."""
        widths = [max(1, (size - 1).bit_length()) for size in place.children]
        key = (place.fields.layer(place.region), place.children)
        if key not in self._weights:
            self._weights[key] = torch.randn(self.bits, sum(widths), generator=self.generator, dtype=torch.float64)
        weight = self._weights[key]

        def apply(z: Int[Tensor, "n c"]) -> Int[Tensor, " n"]:
            codes = [decode(column, (2,) * width) for column, width in zip(z.T, widths, strict=True)]
            signs = torch.cat(codes, dim=1).double() * 2 - 1
            return encode((signs @ weight.to(z.device).T > 0).long(), (2,) * self.bits)

        return Rule(apply, place.children, 2**self.bits)
