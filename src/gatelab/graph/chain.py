"""Fully connected networks as a chain of weights and gates."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor, nn

from gatelab.errors import UnsupportedModelError
from gatelab.graph.trace import describe, gate_names, node_operation, trace, value_nodes
from gatelab.observe import observable

PASSING_MODULES = (nn.Identity, nn.Flatten, nn.Dropout, nn.AlphaDropout)
PASSING_OPERATIONS = frozenset({"flatten", "view", "reshape", "dropout", "contiguous", "clone", "squeeze", "unsqueeze"})


@dataclass(frozen=True)
class DenseLayer:
    """One weight layer of a chain.

    Attributes:
        weight: (fan out, fan in).
        bias: (fan out,), or None.
        gate: the name, in a GatePattern, of the gate behind the layer; None for the last layer.
        weight_name: the weight's name among the model's parameters.
        bias_name: the bias's name, or None.
    """

    weight: Float[Tensor, "out in"]
    bias: Float[Tensor, " out"] | None
    gate: str | None
    weight_name: str
    bias_name: str | None


@dataclass(frozen=True)
class DenseChain:
    """A network x → W₁ → gate → W₂ → … → W_d, d = number of layers."""

    layers: tuple[DenseLayer, ...]

    @property
    def widths(self) -> tuple[int, ...]:
        """Input dimension, hidden widths, number of outputs."""
        return (self.layers[0].weight.shape[1], *(layer.weight.shape[0] for layer in self.layers))

    @property
    def gates(self) -> tuple[str, ...]:
        """Names of the gates between the weight layers."""
        return tuple(layer.gate for layer in self.layers if layer.gate is not None)


def dense_chain(model: nn.Module) -> DenseChain:
    """Read a fully connected ReLU or gated network as a chain, whatever way it was written.

    Raises:
        UnsupportedModelError: something on the way from input to output is neither a dense layer nor a gate.
    """
    model = observable(model)
    graph = trace(model)
    modules = dict(model.named_modules())
    parameter_names = {id(parameter): name for name, parameter in model.named_parameters(remove_duplicate=True)}
    names = gate_names(graph, modules)
    layers: list[DenseLayer] = []
    gate: str | None = None
    for node in reversed(value_nodes(graph)):
        linear = modules[str(node.target)] if node.op == "call_module" else None
        if node in names:
            if gate is not None or not layers:
                raise UnsupportedModelError(
                    f"{describe(node, modules)}: a gate must stand between two weight layers; "
                    "add an nn.Linear behind it"
                )
            gate = names[node]
        elif isinstance(linear, nn.Linear):
            bias_name = parameter_names[id(linear.bias)] if linear.bias is not None else None
            layers.append(DenseLayer(linear.weight, linear.bias, gate, parameter_names[id(linear.weight)], bias_name))
            if len(layers) > 1 and gate is None:
                raise UnsupportedModelError(
                    f"{describe(node, modules)}: two weight layers with no gate between them; multiply them into one, "
                    "or put a gate between"
                )
            gate = None
        elif not (isinstance(linear, PASSING_MODULES) or node_operation(node) in PASSING_OPERATIONS):
            remedy = "; fold it into its layer: torch.nn.utils.fusion.fuse_linear_bn_eval"
            raise UnsupportedModelError(
                f"{describe(node, modules)} has no place in a fully connected chain of nn.Linear layers and gates, "
                f"the networks whose paths can be listed{remedy if isinstance(linear, nn.BatchNorm1d) else ''}"
            )
    if not layers or gate is not None:
        raise UnsupportedModelError(f"{type(model).__name__} does not start with a weight layer (nn.Linear)")
    return DenseChain(tuple(reversed(layers)))
