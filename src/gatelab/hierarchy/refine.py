"""Teachers that remember more than the label needs: from z_α alone to all of x_α."""

from dataclasses import dataclass
from numbers import Integral

import torch
from jaxtyping import Int
from torch import Tensor

from gatelab.errors import InputError
from gatelab.hierarchy.codes import all_values, decode, encode
from gatelab.hierarchy.inputs import Empirical
from gatelab.hierarchy.rules import Rule, joint
from gatelab.hierarchy.teacher import Teacher


@dataclass(frozen=True)
class _Memory:
    """Refined values of a region: for each, the teacher's z and the values at some positions."""

    positions: tuple[int, ...]
    z: Int[Tensor, " m"]
    kept: Int[Tensor, "m k"]


def refined(teacher: Teacher, keep: int) -> Teacher:
    """Return a teacher whose z'_α is z_α together with the first ``keep`` positions of α; labels stay the same.

    Args:
        teacher: the teacher to refine.
        keep: number of positions. 0 gives the teacher itself, restricted to values that occur; d keeps all information.

    Returns:
        The refined teacher.

    Raises:
        SupportTooLargeError: a region has too many contents to list.

    Example:
        >>> from gatelab.hierarchy import rules, string_fields
        >>> refined(Teacher(string_fields(4, [2]), rules.parity), 1).sizes["h1_0"]
        4
    """
    # A region's first positions are among its children's first positions, so z' can be computed from below, as z is.
    if not isinstance(keep, Integral) or keep < 0:
        raise InputError(f"keep is {keep}; give a number of positions, 0 for none")
    fields, v = teacher.fields, teacher.inputs.values
    if fields.top not in teacher.rules:
        raise InputError(
            "z_ω is the label of a data set, which no rule computes from the regions below; use full_information, or "
            "give the teacher a rule for the top"
        )
    memories, rules = {}, {}
    for leaf in fields.leaves:
        positions = fields.positions(leaf)
        kept = all_values((v,) * len(positions))
        memories[leaf] = _Memory(positions, torch.arange(len(kept)), kept)
    for region in fields.inner:
        positions = fields.positions(region)[:keep]
        base = (teacher.sizes[region], *(v,) * len(positions))
        known = _occurring(teacher, region, positions, base)
        children = [memories[child] for child in fields.children(region)]
        rules[region] = _rule(teacher.rules[region], children, positions, known, base)
        digits = decode(known, base)
        memories[region] = _Memory(positions, digits[:, 0], digits[:, 1:])
    old = memories[fields.top].z
    return Teacher(fields, rules, teacher.inputs, labels=teacher.labels[old], targets=teacher.targets[old])


def full_information(teacher: Teacher) -> Teacher:
    """Return a teacher whose every z_α determines x_α: P(x_α | z_α) is a delta function (hierarchy, Thm. 3).

    For a data set, only contents that occur have a value, so regions may be as large as its images.
    """
    if not isinstance(teacher.inputs, Empirical):
        return refined(teacher, teacher.fields.n_positions)
    # The new inputs have no labels, so the top gets a rule: the joint of its children, like every other region.
    plain = Empirical(teacher.inputs.support()[0], teacher.inputs.values)
    numbered = Teacher(teacher.fields, joint, plain)
    x, _ = plain.support()
    new, old = numbered(x)[teacher.fields.top], teacher(x)[teacher.fields.top]
    source = torch.zeros(numbered.sizes[teacher.fields.top], dtype=torch.int64).index_copy_(0, new, old)
    labels, targets = teacher.labels[source], teacher.targets[source]
    return Teacher(teacher.fields, numbered.rules, teacher.inputs, labels=labels, targets=targets)


def _occurring(teacher: Teacher, region: str, kept: tuple[int, ...], base: tuple[int, ...]) -> Int[Tensor, " m"]:
    """Return the codes of (z, kept positions) that occur for some content of the region, ascending."""
    positions = list(teacher.fields.positions(region))
    contents = all_values((teacher.inputs.values,) * len(positions))
    x = torch.zeros(len(contents), teacher.fields.n_positions, dtype=torch.int64)
    x[:, positions] = contents
    return torch.unique(encode(torch.cat([teacher(x)[region].unsqueeze(1), x[:, list(kept)]], dim=1), base))


def _rule(
    own: Rule, children: list[_Memory], kept: tuple[int, ...], known: Int[Tensor, " m"], base: tuple[int, ...]
) -> Rule:
    """Compute (z, kept) from the children's memories: z by the teacher's own rule, kept by copying."""
    source = {}  # position → (child, column) that remembers it
    for index, child in enumerate(children):
        source |= {position: (index, column) for column, position in enumerate(child.positions)}

    def apply(z: Int[Tensor, "n c"]) -> Int[Tensor, " n"]:
        old = torch.stack([child.z.to(z.device)[z[:, i]] for i, child in enumerate(children)], dim=1)
        digits = [own.apply(old)]
        for position in kept:
            index, column = source[position]
            digits.append(children[index].kept.to(z.device)[z[:, index], column])
        return torch.searchsorted(known.to(z.device), encode(torch.stack(digits, dim=1), base))

    return Rule(apply, tuple(len(child.z) for child in children), len(known))
