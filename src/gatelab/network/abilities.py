"""What gatelab can do with a network and, where it cannot, which node stands in the way."""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from torch.fx import Node

from gatelab.gates.pattern import GateKind
from gatelab.network.nodes import ancestors
from gatelab.network.operations import CONVOLUTIONS, Kind

if TYPE_CHECKING:
    from gatelab.network.network import Network

_CHAIN = frozenset({Kind.WEIGHT, Kind.GATE, Kind.DROPOUT, Kind.PASSING, Kind.REARRANGEMENT, Kind.START})


def abilities(network: "Network") -> dict[str, str]:
    """Return, for each part of gatelab, "yes" or what stands in its way."""
    found = {}
    for name, obstacles in _ABILITIES.items():
        nodes = list(obstacles(network))
        found[name] = "yes" if not nodes else f"no: {network.where(nodes[0])}{_more(nodes)}"
    return found


def _more(nodes: list[Node]) -> str:
    return f" (and {len(nodes) - 1} more)" if len(nodes) > 1 else ""


def _before_gates(network: "Network") -> Iterator[Node]:
    """Nodes that are neither gates nor linear and that a gate depends on."""
    deciding = ancestors(*network.gates) - set(network.gates)
    for node in network.nodes:
        if node in deciding and network.is_obstacle(node):
            yield node


def _before_twins(network: "Network") -> Iterator[Node]:
    yield from _before_gates(network)
    for node in network.gates:
        if _is_bounded(network, node) or network.gating(node).q is not network.gating(node).value:
            yield node
    yield from _tied(network)


def _before_path_kernel(network: "Network") -> Iterator[Node]:
    for node in network.value_nodes:
        if network.is_obstacle(node):
            yield node
    yield from _tied(network)


def _before_listed_paths(network: "Network") -> Iterator[Node]:
    yield from _obstacles(network)
    for node in network.value_nodes:
        bounded = node in network.gates and _is_bounded(network, node)
        if node.op != "placeholder" and (network.kind(node) not in _CHAIN or bounded or _is_convolution(network, node)):
            yield node


def _before_regions(network: "Network") -> Iterator[Node]:
    yield from _obstacles(network)
    for node in network.gates:
        if network.kind(node) is Kind.SELECTION or _is_bounded(network, node):
            yield node


def _obstacles(network: "Network") -> Iterator[Node]:
    return (node for node in network.nodes if node.op != "output" and network.is_obstacle(node))


def _nothing(network: "Network") -> Iterator[Node]:
    del network
    return iter(())


_ABILITIES: Mapping[str, Callable[["Network"], Iterator[Node]]] = {
    "gates (capture_gates)": _before_gates,
    "twins (to_dgn, to_dlgn, to_dln)": _before_twins,
    "path kernel (neural_path_kernel)": _before_path_kernel,
    "listed paths (neural_path_features)": _before_listed_paths,
    "regions (gatelab.regions)": _before_regions,
    "tangent kernel (neural_tangent_kernel)": _nothing,
}


def _is_bounded(network: "Network", node: Node) -> bool:
    return network.gating(node).kind is GateKind.BOUNDED


def _tied(network: "Network") -> Iterator[Node]:
    """Weight layers that a path may pass twice: modules that are called again."""
    met: set[object] = set()
    for node in network.value_nodes:
        if node.op == "call_module" and network.kind(node) is Kind.WEIGHT:
            weight = getattr(network.modules[str(node.target)], "weight", None)
            if id(weight) in met:
                yield node
            met.add(id(weight))


def _is_convolution(network: "Network", node: Node) -> bool:
    return network.operation(node) in CONVOLUTIONS
