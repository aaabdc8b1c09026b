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
from gatelab.regions.polyhedron import Polyhedron
from gatelab.regions.replay import Replay
from gatelab.regions.units import Unit, path_units


def active_region(
    dlgn: nn.Module, path: Sequence[Unit] | Mapping[str, Unit] | Any, *, shape: Sequence[int] | None = None
) -> Polyhedron:
    r"""The inputs for which every gate on a path of a DLGN is open: a convex polyhedron (halfspace, Section 2.2).

    .. math:: A_\pi = \{x : \eta_{\ell, i_\ell}(x) > 0, \ \ell = 1 \ldots L-1\}

    Faces that others imply are removed. Every face is strict.

    Args:
        dlgn: see :func:`half_spaces`.
        path: the unit passed in each layer of gates, first to last: a number, or (channel, *position) in a
            convolutional layer; or a mapping from the layers' names, for a path that does not pass all of them; or one
            of :func:`gatelab.top_paths`.
        shape: of one example, see :func:`half_spaces`.

    Example:
        >>> from gatelab.models import DeepLinearlyGatedNetwork
        >>> active_region(DeepLinearlyGatedNetwork([2, 3, 3, 1]), (0, 2)).dimension
        2
    """
    layers = half_spaces(dlgn, shape)
    passed = path_units(path, list(layers), list(layers)).items()
    normals, offsets = zip(*(layers[name].faces([unit]) for name, unit in passed), strict=True)
    return Polyhedron(-torch.cat(normals), torch.cat(offsets)).irredundant()


@dataclass(frozen=True)
class ActivationRegion:
    """The inputs with one pattern of gates, and the affine map that the network is on them.

    Attributes:
        polyhedron: strict at open gates, not at closed ones; its faces are in the order of the gates. Faces that others
            imply are still there: ``polyhedron.irredundant()``.
        weight: of the affine map, on flattened inputs.
        bias: of the affine map.
        gates: the pattern; n = 1.
    """

    polyhedron: Polyhedron
    weight: Float[Tensor, "k d"]
    bias: Float[Tensor, " k"]
    gates: GatePattern

    def map(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n k"]:
        """The affine map; the network's output for x inside the region."""
        return x.to(self.weight).flatten(1) @ self.weight.T + self.bias


def activation_region(model: nn.Module, x: Float[Tensor, "..."]) -> ActivationRegion:
    """The polyhedron of x's full gate pattern and the network's affine map on it (halfspace, Section 3.1).

    For ReLU networks and DLGNs, dense, convolutional or residual. Everything is in float64.

    Args:
        model: the network; soft gates count as hard ones.
        x: one example, (d,) or (1, …).

    Raises:
        UnsupportedModelError: something is neither a gate nor affine, or pools by maximum.
    """
    replay = Replay(model)
    replay.plan.check_affine()
    x = _one(x).to(replay.device, torch.float64)
    replay.input_shape(tuple(x.shape[1:]))
    opened = replay.opened(x)
    if not opened:
        raise InputError(f"{type(model).__name__} has no gates: it is one affine map everywhere")
    factors = {name: replay.factor(name, gates) for name, gates in opened.items()}
    constants, slopes = _affine(replay, x, factors)
    gates = torch.cat([opened[name].flatten() for name in replay.gates])
    faces = len(gates)
    sign = torch.where(gates, -1.0, 1.0).double()
    polyhedron = Polyhedron(sign[:, None] * slopes[:faces], -sign * constants[:faces], gates)
    return ActivationRegion(polyhedron, slopes[faces:], constants[faces:], replay.pattern(opened))


def _one(x: Tensor) -> Tensor:
    """The example with an axis for examples."""
    rows = x.unsqueeze(0) if isinstance(x, Tensor) and x.ndim == 1 else x
    rows = examples(rows)
    if rows.shape[0] != 1:
        raise InputError(f"x has shape {tuple(x.shape)}; give one example, (d,) or (1, …)")
    return rows


def _affine(
    replay: Replay, x: Float[Tensor, "1 ..."], factors: dict[str, Tensor]
) -> tuple[Float[Tensor, " units"], Float[Tensor, "units d"]]:
    """Every q and the outputs as affine functions: their values at 0, under x's gates, and their derivatives."""
    constants = torch.cat([value.flatten() for value in replay.everything(torch.zeros_like(x), factors)])
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
        fixed = {name: factor.expand(len(numbers), *factor.shape[1:]) for name, factor in factors.items()}
        with torch.enable_grad():
            everything = torch.cat([value.flatten(1) for value in replay.everything(at, fixed)], 1)
            slopes.append(torch.autograd.grad(everything.gather(1, numbers[:, None]).sum(), at)[0].flatten(1))
    return constants, torch.cat(slopes)
