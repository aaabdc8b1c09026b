"""Regions of input space: where a path is active, where all gates are constant."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gatelab.errors import InputError
from gatelab.gates import GatePattern
from gatelab.observe import batches, examples
from gatelab.regions.halfspace import BLOCK_ENTRIES, MOST_ENTRIES, half_spaces
from gatelab.regions.plan import RegionPlan
from gatelab.regions.polyhedron import Polyhedron
from gatelab.regions.replay import Opened, Replay
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


@dataclass(frozen=True)
class ActivationRegion:
    """The inputs with one pattern of gates, and the network's affine map on them.

    Attributes:
        polyhedron: strict at open gates, not at closed ones; its faces are in the order of the gates. It still has the
            faces that others imply: ``polyhedron.irredundant()`` removes them.
        weight: weight of the affine map, on flattened inputs.
        bias: bias of the affine map.
        gates: the pattern; n = 1.
    """

    polyhedron: Polyhedron
    weight: Float[Tensor, "k d"]
    bias: Float[Tensor, " k"]
    gates: GatePattern

    def map(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n k"]:
        """Apply the affine map; inside the region this is the network's output."""
        return x.to(self.weight).flatten(1) @ self.weight.T + self.bias


@torch.inference_mode(False)  # derivatives are needed, whatever the caller's mode
def activation_region(model: nn.Module, x: Float[Tensor, "..."]) -> ActivationRegion:
    """Return the polyhedron of x's gate pattern and the network's affine map on it (halfspace, Section 3.1).

    For ReLU networks and DLGNs, dense, convolutional or residual. All computation is in float64.

    Args:
        model: the network; soft gates count as hard ones.
        x: one example, (d,) or (1, …).

    Returns:
        The region, in the space of flattened inputs.

    Raises:
        UnsupportedModelError: an operation is neither a gate nor affine, or is a max-pooling.

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
    opened = replay.opened(x)
    if not opened:
        raise InputError(f"{type(model).__name__} has no gates: it is one affine map everywhere")
    constants, slopes = _affine(replay, x, opened)
    gates = torch.cat([gates.flatten() for gates in opened.values()])
    faces, sign = len(gates), torch.where(gates, -1.0, 1.0).double()
    polyhedron = Polyhedron(sign[:, None] * slopes[:faces], -sign * constants[:faces], gates)
    return ActivationRegion(polyhedron, slopes[faces:], constants[faces:], replay.pattern(opened))


def _one(x: Tensor) -> Tensor:
    """The example with an axis for examples."""
    rows = examples(x.unsqueeze(0) if isinstance(x, Tensor) and x.ndim == 1 else x)
    if rows.shape[0] != 1:
        raise InputError(f"x has shape {tuple(x.shape)}; give one example, (d,) or (1, …)")
    return rows


def _affine(
    replay: Replay, x: Float[Tensor, "1 ..."], opened: Opened
) -> tuple[Float[Tensor, " units"], Float[Tensor, "units d"]]:
    """Every q and the outputs as affine functions under these gates: their values at 0 and their derivatives."""
    constants = torch.cat([value.flatten() for value in replay.everything(torch.zeros_like(x), opened)])
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
        same = {name: gates.expand(len(numbers), *gates.shape[1:]) for name, gates in opened.items()}
        with torch.enable_grad():
            everything = torch.cat([value.flatten(1) for value in replay.everything(at, same)], 1)
            slopes.append(torch.autograd.grad(everything.gather(1, numbers[:, None]).sum(), at)[0].flatten(1))
    return constants, torch.cat(slopes)
