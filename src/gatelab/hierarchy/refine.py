"""Teachers that remember more than they need: from z_α alone to all of x_α."""

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from gatelab.errors import InputError
from gatelab.hierarchy.codes import all_values, decode, encode
from gatelab.hierarchy.rules import Rule
from gatelab.hierarchy.teacher import Teacher


@dataclass(frozen=True)
class _Memory:
    """What each refined value of a region stands for: the teacher's own z, and the values at some positions."""

    positions: tuple[int, ...]
    z: Int[Tensor, " m"]
    kept: Int[Tensor, "m k"]


def refined(teacher: Teacher, keep: int) -> Teacher:
    """The teacher with z'_α = (z_α, what stands at the first ``keep`` positions of α); its targets stay as they are.

    keep = 0 is the teacher itself (on values that occur), keep = d carries all information (hierarchy, Thm. 3). The
    first positions of a region are among the first positions of its children, so that z' is again computed from below.

    Raises:
        SupportTooLargeError: a region's contents are too many to list.
    """
    if keep < 0:
        raise InputError(f"keep is {keep}; it counts positions, 0 for none")
    fields, v = teacher.fields, teacher.inputs.values
    memories, rules = {}, {}
    for leaf in fields.leaves:
        positions = fields.positions(leaf)
        kept = all_values((v,) * len(positions))
        memories[leaf] = _Memory(positions, torch.arange(len(kept)), kept)
    for region in fields.inner:
        memory, known = _remember(teacher, region, keep)
        rules[region] = _rule(teacher, region, [memories[child] for child in fields.children(region)], memory, known)
        memories[region] = memory
    old = memories[fields.top].z
    return Teacher(fields, rules, teacher.inputs, labels=teacher.labels[old], targets=teacher.targets[old])


def full_information(teacher: Teacher) -> Teacher:
    """The teacher whose every z_α tells all of x_α: P(x_α | z_α) is a delta function (hierarchy, Thm. 3)."""
    return refined(teacher, teacher.fields.n_positions)


def _remember(teacher: Teacher, region: str, keep: int) -> tuple[_Memory, Int[Tensor, " m"]]:
    """The refined values of a region, and their codes in ascending order."""
    fields, v = teacher.fields, teacher.inputs.values
    positions = fields.positions(region)
    contents = all_values((v,) * len(positions))
    x = torch.zeros(len(contents), fields.n_positions, dtype=torch.int64)
    x[:, list(positions)] = contents
    kept = positions[:keep]
    base = (teacher.sizes[region], *(v,) * len(kept))
    known = torch.unique(encode(torch.cat([teacher(x)[region].unsqueeze(1), x[:, list(kept)]], dim=1), base))
    values = decode(known, base)
    return _Memory(kept, values[:, 0], values[:, 1:]), known


def _rule(teacher: Teacher, region: str, children: list[_Memory], memory: _Memory, known: Int[Tensor, " m"]) -> Rule:
    source = {}  # position → (child, column) that remembers it
    for index, child in enumerate(children):
        source |= {position: (index, column) for column, position in enumerate(child.positions)}
    base = (teacher.sizes[region], *(teacher.inputs.values,) * len(memory.positions))

    def apply(z: Int[Tensor, "n c"]) -> Int[Tensor, " n"]:
        own = torch.stack([child.z.to(z.device)[z[:, i]] for i, child in enumerate(children)], dim=1)
        digits = [teacher.rules[region].apply(own)]
        for position in memory.positions:
            index, column = source[position]
            digits.append(children[index].kept.to(z.device)[z[:, index], column])
        return torch.searchsorted(known.to(z.device), encode(torch.stack(digits, dim=1), base))

    return Rule(apply, tuple(len(child.z) for child in children), len(known))
