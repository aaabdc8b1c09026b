"""Fully connected networks as a chain of weights and gates."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from jaxtyping import Float
from torch import Tensor, nn
from torch.fx import Node

from gatelab.errors import UnsupportedModelError
from gatelab.gates.events import POOLING_MODULES
from gatelab.network.network import Network, read
from gatelab.network.nodes import dense_parameters, describe, is_bounded, node_operation, parameter
from gatelab.network.tracing import value_chain

_PASSING_MODULES = (nn.Identity, nn.Flatten, nn.Dropout, nn.AlphaDropout)
_PASSING_OPERATIONS = frozenset("flatten view reshape dropout contiguous clone squeeze unsqueeze".split())


@dataclass(frozen=True)
class DenseLayer:
    """One weight layer of a chain.

    Attributes:
        weight: (fan out, fan in).
        bias: (fan out,), or None.
        gate: the name, in a GatePattern, of the gate after the layer; None for the last layer.
        weight_name: the name of the weight among the model's parameters.
        bias_name: the name of the bias, or None.
    """

    weight: Float[Tensor, "out in"]
    bias: Float[Tensor, " out"] | None
    gate: str | None
    weight_name: str
    bias_name: str | None


@dataclass(frozen=True)
class DenseChain:
    """A network x → W₁ → gate → W₂ → … → W_d, d = number of layers.

    Attributes:
        layers: the weight layers, first to last.
        constant_input: whether values start at ones instead of x; then x acts through the gates alone.
    """

    layers: tuple[DenseLayer, ...]
    constant_input: bool = False

    @property
    def widths(self) -> tuple[int, ...]:
        """Input dimension, hidden widths, number of outputs."""
        return (self.layers[0].weight.shape[1], *(layer.weight.shape[0] for layer in self.layers))

    @property
    def gates(self) -> tuple[str, ...]:
        """Names of the gates between the weight layers."""
        return tuple(layer.gate for layer in self.layers if layer.gate is not None)


def dense_chain(model: nn.Module, *, gates: bool = True) -> DenseChain:
    """Read a fully connected ReLU or gated network as a chain, however its forward is written.

    Args:
        model: the network.
        gates: whether a gate must stand between weight layers; a deep linear network has none.

    Returns:
        The weight layers on the path of the values; the feature network of a deep gated network is left out.

    Raises:
        UnsupportedModelError: an operation between input and output is neither a dense layer nor a gate.

    Example:
        >>> dense_chain(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))).widths
        (2, 3, 1)
    """
    return chain_of(read(model), gates=gates)


def chain_of(network: Network, *, gates: bool = True) -> DenseChain:
    """Return a network that has been read as a chain; see :func:`dense_chain`."""
    model, graph, modules, names = network.model, network.graph, network.modules, network.gates
    layers: list[DenseLayer] = []
    gate: str | None = None
    nodes = value_chain(graph, modules)
    constant_input = bool(nodes) and node_operation(nodes[0]) == "ones_like"
    for node in reversed(nodes[constant_input:]):
        parameters = dense_parameters(node, modules)
        if node in names and is_bounded(node, modules):
            raise UnsupportedModelError(
                f"{describe(node, modules)} is constant outside its bounds; paths that start there cannot be listed; "
                "use ReLU"
            )
        if node in names and not _is_pooling(node, modules):
            if gate is not None or not layers:
                raise UnsupportedModelError(
                    f"{describe(node, modules)}: a gate must stand between two weight layers; add an nn.Linear after it"
                )
            gate = names[node]
        elif parameters is not None:
            if layers and gate is None and gates:
                raise UnsupportedModelError(
                    f"{describe(node, modules)}: two weight layers with no gate between them; multiply them into one, "
                    "or add a gate"
                )
            layers.append(_layer(model, describe(node, modules), *parameters, gate))
            gate = None
        elif not _passes(node, modules):
            raise UnsupportedModelError(
                f"{describe(node, modules)} has no place in a fully connected chain: paths can be listed only for "
                f"networks of nn.Linear layers and gates{_remedy(node, modules)}"
            )
    if not layers or gate is not None:
        raise UnsupportedModelError(f"{type(model).__name__} does not start with a weight layer (nn.Linear)")
    for before, after in pairwise(reversed(layers)):
        if before.weight.shape[0] != after.weight.shape[1]:
            raise UnsupportedModelError(
                f"'{after.weight_name}' takes {after.weight.shape[1]} units, but '{before.weight_name}' returns "
                f"{before.weight.shape[0]}: a layer is shared over positions; flatten the examples first"
            )
    return DenseChain(tuple(reversed(layers)), constant_input)


def _layer(model: nn.Module, where: str, weight: str, bias: str | None, gate: str | None) -> DenseLayer:
    # A tied parameter has several names; named_parameters() lists the first.
    names = {id(own): name for name, own in model.named_parameters()}
    own_weight = parameter(model, weight, where)
    own_bias = None if bias is None else parameter(model, bias, where)
    bias_name = None if own_bias is None else names[id(own_bias)]
    return DenseLayer(own_weight, own_bias, gate, names[id(own_weight)], bias_name)


def _passes(node: Node, modules: Mapping[str, nn.Module]) -> bool:
    if node.op == "call_module":
        return isinstance(modules[str(node.target)], _PASSING_MODULES)
    return node_operation(node) in _PASSING_OPERATIONS


def _is_pooling(node: Node, modules: Mapping[str, nn.Module]) -> bool:
    if node.op == "call_module":
        return isinstance(modules[str(node.target)], POOLING_MODULES)
    return "max_pool" in (node_operation(node) or "")


def _remedy(node: Node, modules: Mapping[str, nn.Module]) -> str:
    is_norm = node.op == "call_module" and isinstance(modules[str(node.target)], nn.BatchNorm1d)
    return "; fold it into its layer: torch.nn.utils.fusion.fuse_linear_bn_eval" if is_norm else ""
