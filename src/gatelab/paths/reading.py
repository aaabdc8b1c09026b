"""One example in a network: the shapes, values and gates that the rules of paths need."""

from math import prod
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.fx import Node

from gatelab.errors import UnsupportedModelError
from gatelab.gates.choice import GateChoice, is_hard
from gatelab.network.capture import gates_of
from gatelab.network.certificate import certify
from gatelab.network.evaluation import run_node
from gatelab.network.network import Network, read
from gatelab.network.operations import Kind

COPIES = 2  # with one example, ``squeeze()`` would remove the batch axis


class PathReading:
    """What the rules need to know about one example.

    The network runs on two copies of the example; the second shows whether examples stay independent.

    Attributes:
        x: the copies.
        network: the model as it was read.
        pattern: its gates; None if it has none.
        numbers: node → the number of its layer.
        values: what each node returns for the copies.
        all_open: whether to let every path pass, whatever the gates are for this example.
    """

    def __init__(
        self, model: nn.Module, x: Float[Tensor, "1 ..."], gates: GateChoice = "network", *, all_open: bool = False
    ):
        """Read the model, and run it on the example."""
        self.all_open = all_open
        self.x = torch.cat([x] * COPIES)
        self.network = read(model, self.x)
        refuse_unless_paths_pass(self.network)  # before capture, whose message is less specific
        certify(self.network)
        self.pattern = gates_of(self.network, self.x) if self.network.path_gates else None
        if is_hard(gates) and self.pattern is not None:
            self.pattern = self.pattern.hard()
        self.numbers: dict[Node, int] = {}
        self.values: dict[Node, Any] = {}
        self._run()

    def refuse(self, node: Node, why: str) -> UnsupportedModelError:
        """Return an error about a node."""
        return UnsupportedModelError(f"{self.network.where(node)}: {why}")

    def shape(self, node: Node) -> tuple[int, ...]:
        """Return the shape of what a node returns for one example; axis 0 has the example's rows, mostly one."""
        rows, *rest = node.meta["shape"] or (1,)
        if rows % COPIES:
            raise self.refuse(node, "its examples are not on the first axis; keep them there")
        return (rows // COPIES, *rest)

    def units(self, node: Node) -> int:
        """Return the number of units of a node."""
        return prod(self.shape(node))

    def is_data(self, value: Any) -> bool:
        """Whether an argument depends on the input."""
        return isinstance(value, Node) and bool(value.meta.get("data"))

    def first(self, result: Tensor) -> Tensor:
        """Return the part of a result that belongs to the first example, flat."""
        return result.flatten()[: result.numel() // COPIES]

    def value(self, argument: Any) -> Any:
        """Return the value of an argument that does not depend on the data."""
        return self.values[argument] if isinstance(argument, Node) else argument

    def spread(self, value: Any, node: Node) -> Float[Tensor, " units"]:
        """Return a constant for each unit of a node, as arithmetic with tensors does."""
        constant = torch.as_tensor(value, dtype=torch.float64, device=self.x.device)
        return self.first(constant.broadcast_to(node.meta["shape"])).cpu()

    def broadcast(self, source: Node, node: Node) -> Int[Tensor, "units 1"]:
        """Return the unit of a source that each unit of a node reads, as arithmetic with tensors does."""
        numbers = torch.arange(prod(source.meta["shape"])).view(source.meta["shape"])
        try:
            index = self.first(numbers.broadcast_to(node.meta["shape"]))[:, None]
        except RuntimeError:
            raise self.refuse(node, f"it joins shapes {source.meta['shape']} and {node.meta['shape']}") from None
        if bool((index >= self.units(source)).any()):
            raise self.refuse(node, "it mixes examples; keep them on the first axis")
        return index

    def run(self, node: Node, signals: dict[Node, Tensor]) -> Any:
        """Run one node on chosen signals; all else it uses does not depend on the data."""

        def value(source: Node) -> Any:
            if source in signals:
                return signals[source]
            if self.is_data(source) and "shape" not in source.meta:
                return self.run(source, signals)
            return self.values[source]

        return run_node(node, self.network.model, value)

    def _run(self) -> None:
        """Run the network node by node: the rules ask for winners, bounds and constants."""
        for node in self.network.graph.nodes:
            if node.op == "placeholder":
                self.values[node] = self.x
            elif node.op != "output":
                self.values[node] = run_node(node, self.network.model, self.values.__getitem__)


def refuse_unless_paths_pass(network: Network) -> None:
    """Raise an error that names every node before the output that is neither linear nor a gate."""
    nodes = [node for node in network.value_nodes if node.op != "placeholder"]
    without_rule = (Kind.OBSTACLE, Kind.HEAD, Kind.LINEAR, Kind.PRODUCT)
    unknown = [network.where(node) for node in nodes if network.kind(node) in without_rule]
    if unknown:
        raise UnsupportedModelError(
            f"paths do not pass {'; '.join(unknown[:8])}. The output is a sum over paths only if all operations before "
            "a final softmax or sigmoid are linear or gates: replace these, or pass a part of the model"
        )
