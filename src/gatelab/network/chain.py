"""Fully connected networks as a chain of weights and gates."""

from dataclasses import dataclass
from itertools import pairwise

from jaxtyping import Float
from torch import Tensor, nn
from torch.fx import Node

from gatelab.errors import UnsupportedModelError
from gatelab.network.network import Network, read
from gatelab.network.nodes import dense_parameters, parameter, value_sources
from gatelab.network.operations import Kind

# Of the rearrangements, those that keep the order of an example's units.
_KEEPING_ORDER = frozenset("flatten view reshape squeeze unsqueeze".split())


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


def dense_chain(model: nn.Module, x: Tensor | None = None, *, gates: bool = True) -> DenseChain:
    """Read a fully connected ReLU or gated network as a chain, however its forward is written.

    Args:
        model: the network.
        x: examples on which to read the network; made up if None.
        gates: whether a gate must stand between weight layers; a deep linear network has none.

    Returns:
        The weight layers on the path of the values; the feature network of a deep gated network is left out.

    Raises:
        UnsupportedModelError: an operation between input and output is neither a dense layer nor a gate.

    Example:
        >>> dense_chain(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))).widths
        (2, 3, 1)
    """
    return chain_of(read(model, x), gates=gates)


def chain_of(network: Network, *, gates: bool = True) -> DenseChain:
    """Return a network that has been read as a chain; see :func:`dense_chain`."""
    layers: list[DenseLayer] = []
    gate: str | None = None
    nodes = value_chain(network)
    constant_input = bool(nodes) and network.kind(nodes[0]) is Kind.START
    for node in reversed(nodes[constant_input:]):
        parameters = dense_parameters(node, network.modules)
        if node in network.gates and network.kind(node) is not Kind.SELECTION:
            _refuse_gate(network, node, follows_layer=bool(layers) and gate is None)
            gate = network.gates[node]
        elif parameters is not None:
            if layers and gate is None and gates:
                raise UnsupportedModelError(
                    f"{network.where(node)}: two weight layers with no gate between them; multiply them into one, "
                    "or add a gate"
                )
            layers.append(_layer(network.model, network.where(node), *parameters, gate))
            gate = None
        elif network.operation(node) == "linear":
            raise UnsupportedModelError(
                f"{network.where(node)}: its weight is computed (a parametrization, pruning, a buffer), so its "
                "paths cannot be listed; make it a parameter, e.g. torch.nn.utils.parametrize.remove_parametrizations"
            )
        elif not _passes(network, node):
            fold = "; fold it into its layer: torch.nn.utils.fusion.fuse_linear_bn_eval"
            raise UnsupportedModelError(
                f"{network.where(node)} has no place in a fully connected chain: paths can be listed only for networks "
                f"of nn.Linear layers and gates{fold if network.kind(node) is Kind.NORMALISATION else ''}"
            )
    if not layers or gate is not None:
        raise UnsupportedModelError(f"{type(network.model).__name__} does not start with a weight layer (nn.Linear)")
    for before, after in pairwise(reversed(layers)):
        if before.weight.shape[0] != after.weight.shape[1]:
            raise UnsupportedModelError(
                f"'{after.weight_name}' takes {after.weight.shape[1]} units, but '{before.weight_name}' returns "
                f"{before.weight.shape[0]}: a layer is shared over positions; flatten the examples first"
            )
    return DenseChain(tuple(reversed(layers)), constant_input)


def value_chain(network: Network) -> list[Node]:
    """Return the nodes that values pass from the input to the output, in order, excluding both ends.

    Raises:
        UnsupportedModelError: values branch and join again (a sum, a concatenation), or the model has several outputs.
    """
    chain: list[Node] = []
    node = network.answer
    while node.op != "placeholder":
        chain.append(node)
        sources = [source for source in value_sources(node) if source.meta.get("data")]
        if len(sources) != 1:
            raise UnsupportedModelError(
                f"{network.where(node)} joins several signals; it has no place in a fully connected chain, and no "
                "path-kernel rule"
            )
        (node,) = sources
    return chain[::-1]


def _refuse_gate(network: Network, node: Node, *, follows_layer: bool) -> None:
    if network.gating(node).is_constant_somewhere:
        raise UnsupportedModelError(
            f"{network.where(node)} adds a constant; paths that start there cannot be listed; use ReLU"
        )
    if not follows_layer:
        raise UnsupportedModelError(
            f"{network.where(node)}: a gate must stand between two weight layers; add an nn.Linear after it"
        )


def _layer(model: nn.Module, where: str, weight: str, bias: str | None, gate: str | None) -> DenseLayer:
    # A tied parameter has several names; named_parameters() lists the first.
    names = {id(own): name for name, own in model.named_parameters()}
    own_weight = parameter(model, weight, where)
    own_bias = None if bias is None else parameter(model, bias, where)
    bias_name = None if own_bias is None else names[id(own_bias)]
    return DenseLayer(own_weight, own_bias, gate, names[id(own_weight)], bias_name)


def _passes(network: Network, node: Node) -> bool:
    return network.kind(node) in (Kind.DROPOUT, Kind.PASSING) or network.operation(node) in _KEEPING_ORDER
