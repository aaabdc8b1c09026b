"""Capture the gates of any model: read it once, then run the record."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gatelab.errors import UnsupportedModelError
from gatelab.gates.choice import GateChoice, is_hard
from gatelab.gates.layer import GateLayer, joined
from gatelab.gates.pattern import GatePattern
from gatelab.network.certificate import certify
from gatelab.network.network import Network, read
from gatelab.network.nodes import ancestors, value_sources
from gatelab.network.operations import Kind
from gatelab.observe import batches, examples


def capture_gates(
    model: nn.Module,
    x: Float[Tensor, "n ..."],
    batch_size: int | None = None,
    *,
    output: int | str | None = None,
) -> GatePattern:
    """Return which gates of ``model`` are open for each example, and the factors of soft gates.

    Gates that are bits: ReLU, LeakyReLU, PReLU, ReLU6, Hardtanh, ``clamp`` at 0 or between two numbers,
    ``threshold(0, 0)``, max-pooling. Gates that are numbers: SiLU, GELU, Hardswish, Mish, ELU, SELU, CELU and Softplus,
    each as q · g(q); the factor in a product of two signals if it is a sigmoid, a softmax or an activation
    (squeeze-and-excitation, GLU and its kin). :func:`gatelab.gates.gated` may be either. Gates may be modules or
    functions, in place, shared or reused. Only gates on a path to the output are returned. The name of a gate is the
    path of its module, plus a count from the second use on: ``"block.relu"``, ``"block.relu#2"``.

    Args:
        model: any module in evaluation mode, or without batch-norm and dropout.
        x: examples, on the model's device and in its dtype.
        batch_size: how many examples to run at a time; None runs all at once.
        output: the part of the output that gates must lead to, if the model returns a tuple or a dict; None means all.

    Returns:
        The gates of all layers, in order of execution.

    Raises:
        UnsupportedModelError: the model has no gates; or an operation before a gate is neither a gate nor linear
            (LayerNorm, softmax, attention over tokens, a branch that depends on the data); or examples depend on each
            other.
        InputError: x does not fit the model, or batch-norm or dropout is active.

    Example:
        >>> net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
        >>> capture_gates(net, torch.zeros(5, 2)).layers
        ('1',)
    """
    network = read(model, x, output=output)
    certify(network)
    return gates_of(network, examples(x, network.model), batch_size)


class Capture:
    """The gates of one model for several sets of examples; it is read once, and again where it is unpickled."""

    def __init__(
        self,
        model: nn.Module,
        batch_size: int | None = None,
        network: Network | None = None,
        gates: GateChoice = "network",
    ):
        """Capture from ``model``, in batches; ``network`` is its certified record, if there is one."""
        self.model, self._batch_size, self._network = model, batch_size, network
        self._hard = is_hard(gates)

    def network(self, x: Float[Tensor, "n ..."]) -> Network:
        """Return the model as it was read; the first call reads it, on x."""
        if self._network is None:
            network = read(self.model, x)
            certify(network)
            self._network = network
        return self._network

    def gates(self, x: Float[Tensor, "n ..."]) -> GatePattern:
        """Return the gates of some examples."""
        gates = gates_of(self.network(x), x, self._batch_size)
        return gates.hard() if self._hard else gates

    def __getstate__(self) -> dict[str, object]:
        """Leave the record out: it is valid only in this process."""
        return {**self.__dict__, "_network": None}


def gates_of(network: Network, x: Float[Tensor, "n ..."], batch_size: int | None = None) -> GatePattern:
    """Return the gates of a network that has been read and certified; see :func:`capture_gates`."""
    refuse_obstacles(network)
    parts = [_run(network, x[rows]) for rows in batches(x.shape[0], batch_size)]
    layers = {name: joined([part[name] for part in parts]) for name in parts[0]}
    return GatePattern(layers, x.dtype, is_chain=network.is_chain)


@torch.no_grad()
def _run(network: Network, x: Float[Tensor, "n ..."]) -> dict[str, GateLayer]:
    nodes = {name: node for node, name in network.path_gates.items()}
    found: dict[str, GateLayer] = {}

    def note(name: str, q: Tensor) -> None:
        if name in nodes:
            if q.ndim < 2 or q.shape[0] != x.shape[0]:
                raise UnsupportedModelError(
                    f"gate '{name}' has shape {tuple(q.shape)}, but there are n = {x.shape[0]} examples: gates must "
                    "keep the examples on the first axis"
                )
            shape = nodes[name].meta.get("shape", ())[1:]
            found[name] = network.gating(nodes[name]).layer(q, network.slope(nodes[name]), shape)

    network.interpreter.run(network.model, list(nodes.values()), x.detach(), note)
    return {name: found[name] for name in nodes}


def refuse_obstacles(network: Network) -> None:
    """Refuse a network without gates, or with an operation before a gate that is neither a gate nor linear."""
    for node in ancestors(network.end, sources=value_sources):
        known = node.op in ("call_module", "call_function", "call_method") and node.meta.get("data")
        if known and network.kind(node) is Kind.SELECTION and node not in network.gates:
            raise UnsupportedModelError(
                f"{network.where(node)}: the windows of its maximum differ in size, or examples have no axis of their "
                "own, so it is not a gate; use windows of one size"
            )
    if not network.path_gates:
        raise UnsupportedModelError(
            f"no gates found in {type(network.model).__name__}: there is no ReLU, SiLU or similar gate and no "
            "max-pooling on the way from input to output"
        )
    for gate, name in network.path_gates.items():
        before = ancestors(gate, sources=value_sources)
        obstacles = [node for node in network.graph.nodes if node in before and network.is_obstacle(node)]
        if obstacles:
            more = f" (and {len(obstacles) - 1} more)" if len(obstacles) > 1 else ""
            raise UnsupportedModelError(
                f"{network.where(obstacles[0])}{more} is not a gate and comes before the gate '{name}', so the "
                "network is not a sum over gated paths; gates are ReLU, SiLU and their kin, max-pooling, products with "
                "a sigmoid or softmax, and gatelab.gates.gated(value, q, gate)"
            )
