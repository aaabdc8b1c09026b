"""The neural path kernel H: the inner product of path features, without features.

The kernel follows the model's graph from input to output. Each kind of node has a rule that says what becomes of the
paths, given what came in; a node without a rule is refused by name.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.fx import Node

from gatelab.errors import InputError, PathCountOverflowError, UnsupportedModelError
from gatelab.gates import GatePattern, capture_gates
from gatelab.graph import dense_parameters, describe, gate_names, node_operation, parameter, trace, value_chain
from gatelab.kernels.overlap import overlap_kernel
from gatelab.kernels.tiles import fill
from gatelab.observe import examples, observable


def neural_path_kernel(
    model: nn.Module,
    x: Float[Tensor, "n ..."],
    y: Float[Tensor, "m ..."] | None = None,
    *,
    normalise: bool = True,
    batch_size: int | None = None,
) -> Float[Tensor, "n m"]:
    r"""The neural path kernel of a fully connected network (npk, Lemma 2.1).

    .. math:: H(s, s') = \langle \phi_s, \phi_{s'} \rangle = \Sigma(s, s') \cdot \Lambda(s, s')

    Equivalently :math:`E_v[\hat y_v(s)\, \hat y_v(s')]` over independent value weights of mean zero, the gates held
    fixed. Their variance is 1 / fan in in every layer but the first with ``normalise``, 1 without (raw path counts, in
    float64). Biases shape the gates; paths that start at a bias are not counted. Batch-norm and dropout in evaluation
    mode belong to the values: paths pass them, and their own scales count as one.

    Args:
        model: a network of dense layers and gates, written in any style.
        x: examples.
        y: other examples, for a rectangular kernel; None means x.
        normalise: see above.
        batch_size: examples per forward pass when the gates are captured.

    Raises:
        UnsupportedModelError: the model holds something for which there is no rule, named with its place.
    """
    model = observable(model)
    paths = _follow(model)
    x = examples(x, model)
    other = None if y is None else examples(y, model, name="y")
    if other is not None and other.shape[1:] != x.shape[1:]:
        raise InputError(f"x has examples of shape {tuple(x.shape[1:])}, y of shape {tuple(other.shape[1:])}")
    gates = capture_gates(model, x, batch_size).select(paths.gates)
    _refuse_shared(paths, gates, x[0].numel())
    other_gates = None if other is None else capture_gates(model, other, batch_size).select(paths.gates)
    kernel = overlap_kernel(gates, other_gates, normalise=normalise)
    if not normalise:
        kernel *= paths.ungated_units

    rows = _values_at_input(x, paths).to(kernel.dtype)
    columns = rows if other is None else _values_at_input(other, paths).to(kernel.dtype)

    def tile(i: slice, j: slice) -> None:
        kernel[i, j] *= rows[i] @ columns[j].T

    fill(kernel, tile, symmetric=other is None)
    if not normalise and not bool(torch.isfinite(kernel).all()):
        raise PathCountOverflowError("the raw path kernel is larger than float64 holds; use normalise=True")
    return kernel


def _values_at_input(x: Tensor, paths: "DensePaths") -> Float[Tensor, "n d"]:
    return torch.ones_like(x.flatten(1)) if paths.constant_input else x.flatten(1)


@dataclass(frozen=True)
class DensePaths:
    """Paths from the input to one node of a fully connected graph.

    Attributes:
        stages: what lies between the weight layers passed: the name of a gate, or None where there is none.
        fan_ins: how many units each weight layer passed takes in.
        fan_outs: how many it gives.
        pending: a gate passed since the last weight layer.
        constant_input: whether values start at ones instead of the input.
    """

    stages: tuple[str | None, ...] = ()
    fan_ins: tuple[int, ...] = ()
    fan_outs: tuple[int, ...] = ()
    pending: str | None = None
    constant_input: bool = False

    @property
    def gates(self) -> tuple[str, ...]:
        """The gates passed, each followed by a weight layer."""
        return tuple(stage for stage in self.stages if stage is not None)

    @property
    def ungated_units(self) -> int:
        """Number of ways through the layers that no gate guards, where every unit is open."""
        return prod(fan_in for fan_in, stage in zip(self.fan_ins[1:], self.stages, strict=True) if stage is None)


@dataclass(frozen=True)
class _Place:
    """A node, what it is called, and what it holds."""

    node: Node
    description: str
    gate: str | None
    module: nn.Module | None
    weight: Tensor | None


Rule = Callable[[DensePaths, _Place], DensePaths]


def _weights(paths: DensePaths, place: _Place) -> DensePaths:
    """A weight layer: paths that met in different units have independent values, so that units sum."""
    stages = (*paths.stages, paths.pending) if paths.fan_ins else ()
    if place.weight is None:
        raise UnsupportedModelError(f"{place.description} does not take its weight from the model's parameters")
    fan_out, fan_in = place.weight.shape
    fans = {"fan_ins": (*paths.fan_ins, fan_in), "fan_outs": (*paths.fan_outs, fan_out)}
    return replace(paths, stages=stages, pending=None, **fans)


def _gate(paths: DensePaths, place: _Place) -> DensePaths:
    if paths.pending is not None or not paths.fan_ins:
        raise UnsupportedModelError(
            f"{place.description}: a gate with no weight layer between it and the gate or the input before it has no "
            "rule; put an nn.Linear between them"
        )
    return replace(paths, pending=place.gate)


def _pass(paths: DensePaths, place: _Place) -> DensePaths:
    """Reshaping one example, and what belongs to the values (batch-norm, dropout in evaluation mode)."""
    del place
    return paths


def _ones(paths: DensePaths, place: _Place) -> DensePaths:
    if paths.fan_ins:
        raise UnsupportedModelError(f"{place.description}: values that start in the middle of the network have no rule")
    return replace(paths, constant_input=True)


MODULE_RULES: dict[type[nn.Module], Rule] = {
    nn.Linear: _weights,
    nn.ReLU: _gate,
    nn.LeakyReLU: _gate,
    nn.Threshold: _gate,
    nn.Flatten: _pass,
    nn.Identity: _pass,
    nn.Dropout: _pass,
    nn.AlphaDropout: _pass,
    nn.BatchNorm1d: _pass,
}
OPERATION_RULES: dict[str, Rule] = {
    "linear": _weights,
    "ones_like": _ones,
    **dict.fromkeys(("relu", "leaky_relu", "clamp", "clip", "clamp_min", "threshold", "gated"), _gate),
    **dict.fromkeys(("flatten", "view", "reshape", "dropout", "contiguous", "clone"), _pass),
}


def _follow(model: nn.Module) -> DensePaths:
    """Apply the rules along the graph and return the paths that reach the output."""
    graph = trace(model)
    modules = dict(model.named_modules())
    names = gate_names(graph, modules)
    met: dict[int, str] = {}
    paths = DensePaths()
    for node in value_chain(graph, modules):
        parameters = dense_parameters(node, modules)
        where = describe(node, modules)
        weight = None if parameters is None else parameter(model, parameters[0], where)
        module = modules[str(node.target)] if node.op == "call_module" else None
        place = _Place(node, where, names.get(node), module, weight)
        _refuse_tied(place, met)
        paths = _rule(place)(paths, place)
    if paths.pending is not None or not paths.gates:
        raise UnsupportedModelError(
            f"{type(model).__name__} has no gate that is followed by a weight layer, or ends with a gate; "
            "its path kernel has no rule"
        )
    return paths


def _rule(place: _Place) -> Rule:
    if place.module is not None:
        rule = next((rule for kind, rule in MODULE_RULES.items() if isinstance(place.module, kind)), None)
    else:
        rule = OPERATION_RULES.get(node_operation(place.node) or "")
    if rule is None or (rule is _gate and place.gate is None):
        raise UnsupportedModelError(
            f"{place.description} has no path-kernel rule. Rules exist for "
            f"{', '.join(sorted(kind.__name__ for kind in MODULE_RULES))} and their functional forms"
        )
    return rule


def _refuse_tied(place: _Place, met: dict[int, str]) -> None:
    """A weight met twice on a path makes its value a square; E over values is then another formula."""
    if place.weight is None:
        return
    if id(place.weight) in met:
        raise UnsupportedModelError(
            f"{place.description} uses the same weight as {met[id(place.weight)]}: paths that pass a weight twice have "
            "no path-kernel rule; give each layer its own weight"
        )
    met[id(place.weight)] = place.description


def _refuse_shared(paths: DensePaths, gates: GatePattern, inputs: int) -> None:
    """A dense layer that takes in fewer units than there are is applied at several positions, as a convolution is."""
    between = zip(paths.fan_outs[:-1], paths.stages, strict=True)
    available = [inputs, *(given if name is None else gates.layer(name).units for given, name in between)]
    for layer, (fan_in, units) in enumerate(zip(paths.fan_ins, available, strict=True)):
        if fan_in != units:
            raise UnsupportedModelError(
                f"weight layer {layer + 1} takes {fan_in} units where each example has {units}: it is shared over "
                "positions, for which there is no path-kernel rule; flatten the examples first"
            )
