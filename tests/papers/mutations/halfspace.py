"""Ways to break the code that the theorems of halfspace name."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from gatelab.models import mlp
from gatelab.papers.halfspace import figure1
from gatelab.papers.halfspace import theorems as halfspace
from gatelab.paths.experts import MixtureOfExperts
from gatelab.regions import active_region, half_spaces, region_counts
from gatelab.regions.halfspace import HalfSpaceLayer
from gatelab.regions.partition import Partition
from tests.papers.mutations.changes import Mutation, Patch, edited, replaced, scaled, together


def _shifted_figure(right: Any) -> Any:
    def wrong() -> nn.Module:
        model = right()
        model[2].bias.data += 0.1
        return model

    return wrong


def _same_side(right: Any) -> Patch:
    return replaced(figure1, "jumping_network", lambda epsilon: right(abs(epsilon)))


def _reversed_path(right: Any) -> Any:
    return lambda model, path, **options: right(model, path[::-1], **options)


def _all_open(right: Any) -> Any:
    return lambda *args, **options: torch.ones_like(right(*args, **options))


def _flipped(right: Any) -> Any:
    return lambda self, units=None: right(self, units).flip(0)


def _along_reversed(right: Any) -> Any:
    return lambda self, path: right(self, path[::-1])


def _moved_spaces(right: Any) -> Any:
    return lambda model: {name: replace(layer, offsets=layer.offsets + 0.05) for name, layer in right(model).items()}


def _one_too_many(right: Any) -> Any:
    def wrong(*args: Any, **options: Any) -> Any:
        counts = right(*args, **options)
        return replace(counts, patterns=counts.patterns + 1)

    return wrong


def biased_mlp(widths: Sequence[int], generator: torch.Generator) -> nn.Module:
    """A ReLU network in place of a DLGN."""
    model = mlp(widths, bias=True, dtype=torch.float64, generator=generator)
    for layer in (model[0], model[2]):
        nn.init.normal_(layer.bias, generator=generator)
    return model


BOTH = ("halfspace-1", "halfspace-2")
REGIONS = ("halfspace-3.1-regions",)
FACES = "Polyhedron(-torch.cat(normals), torch.cat(offsets))"


HALFSPACE = (
    Mutation(
        "mixture of experts 0.01 % too large", ("halfspace-1", "halfspace-2"), scaled(halfspace, "_mixture", 1.0001)
    ),
    Mutation(
        "`MixtureOfExperts`: every path is open",
        ("halfspace-1", "halfspace-2"),
        replaced(MixtureOfExperts, "gating", _all_open(MixtureOfExperts.gating)),
    ),
    Mutation(
        "`MixtureOfExperts`: experts 0.01 % too large",
        ("halfspace-1", "halfspace-2"),
        scaled(MixtureOfExperts, "expert", 1.0001),
    ),
    Mutation(
        "normals of half-spaces are those of the reversed units",
        ("halfspace-2", "halfspace-2.2"),
        replaced(HalfSpaceLayer, "normals", _flipped(HalfSpaceLayer.normals)),
    ),
    Mutation(
        "`Partition.along` the reversed path",
        ("halfspace-3.1-regions",),
        replaced(Partition, "along", _along_reversed(Partition.along)),
    ),
    Mutation(
        "half-spaces are moved by 0.05",
        ("halfspace-2", "halfspace-2.2"),
        replaced(halfspace, "half_spaces", _moved_spaces(halfspace.half_spaces)),
    ),
    Mutation(
        "`region_counts` has one region too many",
        ("halfspace-3.1-regions",),
        replaced(halfspace, "region_counts", _one_too_many(halfspace.region_counts)),
    ),
    Mutation(
        "a ReLU network in place of the DLGN",
        ("halfspace-2.2",),
        together(
            replaced(halfspace, "_dlgn_gates", halfspace._relu_gates),
            replaced(halfspace, "_dlgn", biased_mlp),
        ),
    ),
    Mutation(
        "Figure 1(a): green opens at 0.4",
        ("halfspace-fig1a",),
        replaced(figure1, "disconnected_network", _shifted_figure(figure1.disconnected_network)),
    ),
    Mutation("Figure 1(b): brown is given |x₂| for every ε", ("halfspace-fig1b",), _same_side(figure1.jumping_network)),
    Mutation(
        "`active_region` of the reversed path",
        ("halfspace-3.1-regions",),
        replaced(halfspace, "active_region", _reversed_path(halfspace.active_region)),
    ),
    Mutation(
        "`MixtureOfExperts`: the call returns the mean over paths",
        BOTH,
        edited(MixtureOfExperts.__call__, ("return torch", "return 1 / self.count * torch")),
    ),
    Mutation(
        "`MixtureOfExperts.gating` of one path: the reversed path",
        BOTH,
        edited(MixtureOfExperts.gating, ("[start:], units, strict", "[start:], units[::-1], strict")),
    ),
    Mutation(
        "`MixtureOfExperts.expert` of one path starts at its last unit",
        BOTH,
        edited(MixtureOfExperts.expert, ("first[:, units[0]]", "first[:, units[-1]]")),
    ),
    Mutation(
        "offsets of half-spaces are negated",
        ("halfspace-2", "halfspace-2.2"),
        edited(half_spaces, ("offset.to(replay.dtype)", "-offset.to(replay.dtype)")),
    ),
    Mutation(
        "half-spaces have no offsets",
        ("halfspace-2", "halfspace-2.2"),
        edited(half_spaces, ("offset.to(replay.dtype)", "0 * offset.to(replay.dtype)")),
    ),
    Mutation(
        "`active_region` reflected at the origin",
        REGIONS,
        edited(active_region, (FACES, FACES.replace("-torch", "torch"))),
    ),
    Mutation(
        "`active_region` reflected at an axis",
        REGIONS,
        edited(active_region, (FACES, FACES.replace("(normals)", "(normals) * torch.tensor([1, -1])"))),
    ),
    Mutation(
        "`active_region` keeps the faces that others imply", REGIONS, edited(active_region, (".irredundant()", ""))
    ),
    Mutation(
        "`region_counts`: ten times the bound for patterns",
        REGIONS,
        edited(region_counts, ("most = sum(", "most = 10 * sum(")),
    ),
    Mutation(
        "`region_counts`: paths of one layer too many",
        REGIONS,
        edited(region_counts, ("RegionCounts(paths,", "RegionCounts(paths * units[0],")),
    ),
)
