"""Regions of input space: where a path is active, where all gates are constant."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from gatelab.errors import InputError
from gatelab.gates import GatePattern
from gatelab.observe import batches, examples
from gatelab.printing import Brief
from gatelab.regions.halfspace import BLOCK_ENTRIES, MOST_ENTRIES, half_spaces
from gatelab.regions.plan import RegionPlan
from gatelab.regions.polyhedron import Polyhedron
from gatelab.regions.replay import Replay
from gatelab.regions.states import States
from gatelab.regions.units import Unit, path_units


def active_region(
    dlgn: nn.Module,
    path: Sequence[Unit] | Mapping[str, Unit] | Any,
    *,
    shape: Sequence[int] | None = None,
    plan: RegionPlan | None = None,
) -> Polyhedron:
    r"""Return the inputs for which every gate on a path of a DLGN is open: a convex polyhedron.

    .. math:: A_\pi = \{x : \eta_{\ell, i_\ell}(x) > 0, \ \ell = 1 \ldots L-1\}      (halfspace, Section 2.2)

    Args:
        dlgn: the network, as in :func:`half_spaces`.
        path: the unit passed in each layer of gates, first to last: a number, or ``(channel, *position)`` in a
            convolutional layer; or a mapping from the layers' names, for a path that does not pass all of them; or one
            of :func:`gatelab.top_paths`.
        shape: the shape of one example, as in :func:`half_spaces`.
        plan: the plan of a network of the same structure; saves the trace.

    Returns:
        The polyhedron without the faces that others imply. Every face is strict.

    Example:
        >>> from gatelab.models import DeepLinearlyGatedNetwork
        >>> active_region(DeepLinearlyGatedNetwork([2, 3, 3, 1]), (0, 2)).dimension
        2
    """
    layers = half_spaces(dlgn, shape, plan=plan)
    passed = path_units(path, list(layers), list(layers)).items()
    normals, offsets = zip(*(layers[name].faces([unit]) for name, unit in passed), strict=True)
    return Polyhedron(-torch.cat(normals), torch.cat(offsets)).irredundant()


@dataclass(frozen=True, repr=False)
class ActivationRegion(Brief):
    """The inputs with one pattern of gates, and the network's affine map on them.

    Attributes:
        polyhedron: strict at open gates, not at closed ones; its faces are in the order of the gates. It still has the
            faces that others imply: ``polyhedron.irredundant()`` removes them. A gate with two bounds has a face for
            each bound that limits it; a window of a max-pooling has one for each input that did not win.
        weight: weight of the affine map, on flattened inputs.
        bias: bias of the affine map.
        gates: the pattern; n = 1.
        units: the layer and the unit of each face.
        beyond: the state of that unit behind the face, see :mod:`gatelab.regions.states`.
        states: the states of all gates; n = 1.
    """

    polyhedron: Polyhedron
    weight: Float[Tensor, "k d"]
    bias: Float[Tensor, " k"]
    gates: GatePattern
    units: tuple[tuple[str, int], ...] = field(repr=False)
    beyond: Int[Tensor, " faces"] = field(repr=False)
    states: States = field(repr=False)

    def map(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n k"]:
        """Apply the affine map; inside the region this is the network's output."""
        return x.to(self.weight).flatten(1) @ self.weight.T + self.bias


@torch.inference_mode(False)  # derivatives are needed, whatever the caller's mode
def activation_region(model: nn.Module, x: Float[Tensor, "..."]) -> ActivationRegion:
    """Return the polyhedron of x's gate pattern and the network's affine map on it (halfspace, Section 3.1).

    For ReLU networks and DLGNs, dense, convolutional or residual, and with gates of two bounds or max-pooling. All
    computation is in float64.

    Args:
        model: the network; soft gates count as hard ones.
        x: one example, (d,) or (1, …).

    Returns:
        The region, in the space of flattened inputs.

    Raises:
        UnsupportedModelError: an operation is neither a gate nor affine.

    Example:
        >>> net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
        >>> region = activation_region(net, torch.ones(3))
        >>> region.polyhedron.faces, tuple(region.weight.shape)
        (4, (2, 3))
    """
    replay = Replay(model, shape=_one(x).shape[1:])
    replay.plan.check_affine()
    x = _one(x).to(replay.device, torch.float64, copy=True)
    replay.input_shape(x.shape[1:])
    return region_of(replay, x, replay.states(x), type(model).__name__)


@torch.inference_mode(False)
def region_of(
    replay: Replay, x: Float[Tensor, "1 ..."], states: States, model: str = "the network"
) -> ActivationRegion:
    """Return the region with these states of all gates; x is any input, it only tells shapes."""
    if not states:
        raise InputError(f"{model} has no gates: it is one affine map everywhere")
    constants, slopes = _affine(replay, x, states)
    parts, labels, start = [], [], 0
    for name, state in states.items():
        stop = start + prod(replay.plan.q(name).meta["shape"][1:])
        parts.append(replay.gate(name).faces(constants[start:stop], slopes[start:stop], state))
        labels += [(name, unit) for unit in parts[-1].units.tolist()]
        start = stop
    polyhedron = Polyhedron(
        -torch.cat([part.slopes for part in parts]),
        torch.cat([part.constants for part in parts]),
        torch.cat([part.strict for part in parts]),
    )
    beyond = torch.cat([part.beyond for part in parts])
    output = slice(start, None)
    return ActivationRegion(
        polyhedron, slopes[output], constants[output], replay.pattern(states), tuple(labels), beyond, states
    )


def _one(x: Tensor) -> Tensor:
    """The example with an axis for examples."""
    rows = examples(x.unsqueeze(0) if isinstance(x, Tensor) and x.ndim == 1 else x)
    if rows.shape[0] != 1:
        raise InputError(f"x has shape {tuple(x.shape)}; give one example, (d,) or (1, …)")
    return rows


def _affine(
    replay: Replay, x: Float[Tensor, "1 ..."], states: States
) -> tuple[Float[Tensor, " units"], Float[Tensor, "units d"]]:
    """Every q and the outputs as affine functions under these gates: their values at 0 and their derivatives."""
    constants = torch.cat([value.flatten() for value in replay.everything(torch.zeros_like(x), states)])
    units, size = len(constants), x.numel()
    if units * size > MOST_ENTRIES:
        raise InputError(
            f"the region has {units:,} faces in {size:,} dimensions, which do not fit memory; use linear_regions_2d on "
            "a plane"
        )
    slopes = []
    for rows in batches(units, max(1, BLOCK_ENTRIES // (units + size))):
        numbers = torch.arange(units, device=x.device)[rows]
        at = x.repeat(len(numbers), *[1] * (x.ndim - 1)).requires_grad_()
        same = {name: state.expand(len(numbers), *state.shape[1:]) for name, state in states.items()}
        with torch.enable_grad():
            everything = torch.cat([value.flatten(1) for value in replay.everything(at, same)], 1)
            slopes.append(torch.autograd.grad(everything.gather(1, numbers[:, None]).sum(), at)[0].flatten(1))
    return constants, torch.cat(slopes)
