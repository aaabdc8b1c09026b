"""Gates that read the input directly: the feature network of a shallow deep linearly gated network (DLGN-SF)."""

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.fx import Node

from gatelab.convert.match import Parts, Role
from gatelab.errors import UnsupportedModelError
from gatelab.gates.layer import GateKind
from gatelab.models.init import glorot_
from gatelab.observe import plain_surroundings


class ShallowGates(nn.Module):
    """One affine map from the input to the pre-activations of a layer of gates.

    For a dense layer it is a dense layer. For an image of gates it is a convolution of the input, first averaged
    down to the image's size, with the kernel of the model's own layer and zero padding.

    Args:
        inputs: the shape of one example.
        units: the shape of the layer's gates.
        kernel: the kernel of the layer, if gates are an image.
        bias: whether half-spaces have an offset.
    """

    def __init__(self, inputs: Sequence[int], units: Sequence[int], kernel: Sequence[int] | None, *, bias: bool):
        super().__init__()
        self.units = tuple(units)
        if kernel is not None and len(inputs) == len(units) == len(kernel) + 1:
            convolution: Any = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[len(kernel) - 1]
            self.map: nn.Module = convolution(inputs[0], units[0], tuple(kernel), padding="same", bias=bias)
            self.pool = f"adaptive_avg_pool{len(kernel)}d" if tuple(inputs[1:]) != self.units[1:] else None
        else:
            self.map, self.pool = nn.Linear(prod(inputs), prod(units), bias=bias), None

    def forward(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n ..."]:
        """Return the pre-activations."""
        if isinstance(self.map, nn.Linear):
            return self.map(x.flatten(1)).unflatten(1, self.units)
        return self.map(x if self.pool is None else getattr(F, self.pool)(x, self.units[1:]))


def has_own_gates(parts: Parts, node: Node) -> bool:
    """Whether a node is a layer of gates with a map of its own; a max-pooling behind a gate takes the gate's."""
    role = parts.roles[node]
    return role is Role.GATE or (
        role is Role.MAX_POOL and parts.roles.get(parts.network.gating(node).q) is not Role.GATE
    )


@torch.no_grad()
def shallow_gates(parts: Parts, gate: Node, generator: torch.Generator | None) -> ShallowGates:
    """Return the map from the input to a gate's pre-activations, with Glorot weights and zero biases."""
    gating = parts.network.gating(gate)
    if gating.kind is GateKind.FACTOR:
        raise UnsupportedModelError(
            f"{parts.network.where(gate)} is a gate made of other signals, which cannot read the input directly; "
            "convert without shallow=True"
        )
    names = _layer_before(parts, gating.q)
    parameters = dict(parts.model.named_parameters())
    weight = None if names is None else parameters.get(names[0])
    kernel = None if weight is None or weight.ndim < 3 else tuple(weight.shape[2:])
    units = tuple(gating.q.meta["shape"][1:])
    inputs = tuple(parts.network.recording.examples.shape[1:])
    with plain_surroundings(torch.empty(0)):  # torch draws weights for new layers, from the caller's generator
        made = ShallowGates(inputs, units, kernel, bias=names is None or names[1] is not None)
    like = next(iter(parameters.values()), torch.zeros(()))
    made = made.to(like.device, like.dtype)
    for name, parameter in made.named_parameters():
        _ = parameter.zero_() if name.endswith("bias") else glorot_(parameter, generator)
    if gating.pool is not None:  # the choice of a maximum has no gradient
        for name, parameter in list(made.map.named_parameters()):
            delattr(made.map, name)
            made.map.register_buffer(name, parameter.detach())
    return made


def _layer_before(parts: Parts, node: Node) -> tuple[str, str | None] | None:
    """The weight and bias of the nearest weight layer before a node."""
    waiting = [node]
    while waiting:
        nearest = waiting.pop(0)
        if nearest in parts.weights:
            return parts.weights[nearest]
        waiting += [source for source in nearest.all_input_nodes if source.meta.get("data")]
    return None
