"""What gatelab can do with a network and, where it cannot, which node prevents it."""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from torch.fx import Node

from gatelab.network.gating import is_piecewise_linear
from gatelab.network.nodes import ancestors, value_sources
from gatelab.network.operations import Kind

if TYPE_CHECKING:
    from gatelab.network.network import Network


def abilities(network: "Network") -> dict[str, str]:
    """Return, for each part of gatelab, "yes" or the node that prevents it."""
    found = {}
    for name, obstacles in _ABILITIES.items():
        nodes = list(obstacles(network))
        found[name] = "yes" if not nodes else f"no: {network.where(nodes[0])}{_more(nodes)}"
    return found


def _more(nodes: list[Node]) -> str:
    return f" (and {len(nodes) - 1} more)" if len(nodes) > 1 else ""


def _before_gates(network: "Network") -> Iterator[Node]:
    """Nodes on the way to a gate that are neither gates nor linear."""
    before = ancestors(*network.path_gates, sources=value_sources) if network.path_gates else set[Node]()
    for node in network.nodes:
        if node in before and network.is_obstacle(node):
            yield node


def _before_twins(network: "Network") -> Iterator[Node]:
    yield from _before_gates(network)
    for node in network.gates:
        if network.gating(node).decoupled:
            yield node
    yield from _tied(network)


def _before_path_kernel(network: "Network") -> Iterator[Node]:
    yield from _before_listed_paths(network)
    yield from _tied(network)


def _before_listed_paths(network: "Network") -> Iterator[Node]:
    return (node for node in network.value_nodes if network.is_obstacle(node))


def _before_regions(network: "Network") -> Iterator[Node]:
    yield from _obstacles(network)
    for node in network.gates:
        if not is_piecewise_linear(network.gating(node)):
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


def _tied(network: "Network") -> Iterator[Node]:
    """Weight layers that a path may pass twice: modules that are called again."""
    met: set[object] = set()
    for node in network.value_nodes:
        if node.op == "call_module" and network.kind(node) is Kind.WEIGHT:
            weight = getattr(network.modules[str(node.target)], "weight", None)
            if id(weight) in met:
                yield node
            met.add(id(weight))
