"""Rules φ_α that compute a region's variable from its children's variables (hierarchy, Section 2.2).

A rule maker sees the region and the sizes of its children, and returns the rule: ``Teacher(fields, parity)``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

import torch
from jaxtyping import Int
from torch import Tensor

from gatelab.errors import InputError, SupportTooLargeError
from gatelab.hierarchy.codes import ENUMERATION_LIMIT, decode, encode, places
from gatelab.hierarchy.fields import ReceptiveFields
from gatelab.models.init import check_counts

# (n, children) values → (n,) values.
Combine = Callable[[Int[Tensor, "n c"]], Int[Tensor, " n"]]


@dataclass(frozen=True)
class Rule:
    """One φ_α, with the number m_β of values of each child and the number m_α of values of the region."""

    apply: Combine
    children: tuple[int, ...]
    values: int


@dataclass(frozen=True)
class RuleContext:
    """What a rule maker knows: the region, how many values each of its children takes, and which occur together.

    ``seen`` holds the children's values in the data if the inputs are a data set, a row for each example; else None.
    """

    fields: ReceptiveFields
    region: str
    children: tuple[int, ...]
    seen: Int[Tensor, "n c"] | None = None


RuleMaker = Callable[[RuleContext], Rule]


def lookup(table: Int[Tensor, "*children"], values: int | None = None) -> Rule:
    """Return φ as a table with one axis for each child; ``values`` defaults to the largest entry plus one."""
    size = int(table.max()) + 1 if values is None else values
    if int(table.min()) < 0 or int(table.max()) >= size:
        raise InputError(
            f"the table has entries {int(table.min())} … {int(table.max())}; for {size} values give 0 … {size - 1}"
        )
    flat, children = table.flatten(), tuple(table.shape)
    return Rule(lambda z: flat.to(z.device)[encode(z, children)], children, size)


def from_function(apply: Combine, values: int) -> RuleMaker:
    """Make rules of your own function of the children's values, with results 0 … values−1."""
    return lambda context: Rule(apply, context.children, values)


def random_table(values: int, generator: torch.Generator | None = None) -> RuleMaker:
    """Make uniformly random tables in which every value occurs if the table is large enough."""
    check_counts(values=values)

    def make(context: RuleContext) -> Rule:
        count = prod(context.children)
        entries = torch.randint(values, (count,), generator=generator)
        chosen = torch.randperm(count, generator=generator)[: min(values, count)]
        entries[chosen] = torch.arange(len(chosen))
        return lookup(entries.view(context.children), values)

    return make


def joint(context: RuleContext) -> Rule:
    """Keep everything: one value for each combination of the children's values.

    If there are too many, only those that occur in the data have a value; all others share the last one.
    """
    count = prod(context.children)
    if count <= ENUMERATION_LIMIT:
        return Rule(lambda z: encode(z, context.children), context.children, count)
    if context.seen is None:
        raise SupportTooLargeError(
            f"region '{context.region}': its children take {count:,} values together, more than the limit of "
            f"{ENUMERATION_LIMIT:,}; use a coarser rule, smaller regions, or inputs.Empirical, which numbers only "
            "the combinations that occur"
        )
    known = torch.unique(context.seen, dim=0)
    return Rule(lambda z: places(known.to(z.device), z), context.children, len(known) + 1)


def parity(context: RuleContext) -> Rule:
    """Add the children's values modulo 2."""
    return Rule(lambda z: z.sum(dim=1) % 2, context.children, 2)


def majority(context: RuleContext) -> Rule:
    """Take the value that most children have; in a tie, the smallest."""
    values = max(context.children)

    def apply(z: Int[Tensor, "n c"]) -> Int[Tensor, " n"]:
        counts = (z.unsqueeze(2) == torch.arange(values, device=z.device)).sum(dim=1)
        # argmax may return any of several maxima; the small slope makes the smallest value win.
        return (counts * values - torch.arange(values, device=z.device)).argmax(dim=1)

    return Rule(apply, context.children, values)


def grammar(productions: Mapping[tuple[int, ...], int], values: int, otherwise: int = 0) -> RuleMaker:
    """Make rules of productions, the children's symbols → a symbol; other combinations give ``otherwise``."""

    def make(context: RuleContext) -> Rule:
        table = torch.full(context.children, otherwise, dtype=torch.int64)
        for symbols, result in productions.items():
            if len(symbols) != len(context.children) or any(
                not 0 <= s < size for s, size in zip(symbols, context.children, strict=True)
            ):
                raise InputError(
                    f"region '{context.region}': production {symbols} → {result} does not fit children that take "
                    f"{context.children} values"
                )
            table[symbols] = result
        return lookup(table, values)

    return make


def per_factor(combine: Combine) -> RuleMaker:
    """Keep binary factors apart: factor i of the region is ``combine`` of factor i of each child.

    Every child must take 2^k values, with the same k; so does the region. The first factor is the most significant bit.
    """

    def make(context: RuleContext) -> Rule:
        bits = context.children[0].bit_length() - 1
        if any(size != 2**bits for size in context.children):
            raise InputError(
                f"region '{context.region}': children take {context.children} values; factors need 2^k, all equal"
            )

        def apply(z: Int[Tensor, "n c"]) -> Int[Tensor, " n"]:
            factors = torch.stack([decode(column, (2,) * bits) for column in z.T], dim=2)  # n, factor, child
            return encode(torch.stack([combine(factors[:, i]) for i in range(bits)], dim=1), (2,) * bits)

        return Rule(apply, context.children, 2**bits)

    return make


def quantised_convolution(bits: int, generator: torch.Generator | None = None) -> RuleMaker:
    """Make one layer of a CNN whose ``bits`` channels are reduced to signs.

    Children's values enter as bits ±1; channel c of the region is on if Σ w_c · bits > 0. Regions in one layer of the
    hierarchy share w, as in a convolution.
    """
    check_counts(bits=bits)
    weights: dict[tuple[int, tuple[int, ...]], Tensor] = {}

    def make(context: RuleContext) -> Rule:
        widths = [max(1, (size - 1).bit_length()) for size in context.children]
        key = (context.fields.layer(context.region), context.children)
        if key not in weights:
            weights[key] = torch.randn(bits, sum(widths), generator=generator, dtype=torch.float64)
        weight = weights[key]

        def apply(z: Int[Tensor, "n c"]) -> Int[Tensor, " n"]:
            codes = [decode(column, (2,) * width) for column, width in zip(z.T, widths, strict=True)]
            signs = torch.cat(codes, dim=1).double() * 2 - 1
            return encode((signs @ weight.to(z.device).T > 0).long(), (2,) * bits)

        return Rule(apply, context.children, 2**bits)

    return make
