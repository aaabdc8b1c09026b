"""A network as a table and as a picture."""

from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from torch.fx import Node

from gatelab.network.operations import Kind

if TYPE_CHECKING:
    from gatelab.network.network import Network

# Sizes of the picture, in pixels.
_ROW, _BOX, _LEFT, _ARC, _WIDTH = 22, 14, 140, 7.0, 900
_COLOURS = {
    Kind.WEIGHT: "#3e7cb1",
    Kind.GATE: "#d1495b",
    Kind.SELECTION: "#e08e45",
    Kind.SPATIAL: "#66a182",
    Kind.SUM: "#7d5ba6",
    Kind.CONCATENATION: "#7d5ba6",
    Kind.OBSTACLE: "#222222",
}
_OTHER = "#b8c0c8"
_STYLE = """
text { font: 12px ui-monospace, monospace; fill: #1f2933; } .dim { fill: #7b8794; }
path { fill: none; stroke: #7b8794; stroke-opacity: 0.6; }
@media (prefers-color-scheme: dark) { text { fill: #e4e7eb; } .dim { fill: #9aa5b1; } }
"""


def rows(network: "Network") -> list[tuple[str, str, str, str]]:
    """Return name, operation, kind and shape of each node that the output depends on."""
    return [
        (_name(node), "" if node.op == "placeholder" else network.operation(node), _kind(network, node), _shape(node))
        for node in network.nodes
        if node.op != "output"
    ]


def table(network: "Network") -> str:
    """Return the nodes as lines of text, one each, in columns."""
    lines = [("node", "operation", "kind", "shape"), *rows(network)]
    widths = [max(len(line[column]) for line in lines) for column in range(4)]
    padded = [[cell.ljust(width) for cell, width in zip(line, widths, strict=True)] for line in lines]
    return "\n".join("  ".join(line).rstrip() for line in padded)


def picture(network: "Network") -> str:
    """Return an SVG: one row for each node from top to bottom, arcs where a signal skips rows."""
    nodes = [node for node in network.nodes if node.op != "output"]
    place = {node: number for number, node in enumerate(nodes)}
    height = _ROW * (len(nodes) + 1)
    shapes = [
        _edge(place[source], number)
        for node, number in place.items()
        for source in node.all_input_nodes
        if source in place
    ]
    for node, number in place.items():
        y = _ROW * (number + 0.5)
        kind = network.kind(node) if node.op != "placeholder" else None
        colour = _COLOURS.get(kind, _OTHER) if kind else "#1f2933"
        label = f"{'input' if node.op == 'placeholder' else network.operation(node)}  {_shape(node)}"
        shapes += [
            f'<rect x="{_LEFT}" y="{y:.0f}" width="{_BOX}" height="{_BOX}" rx="3" fill="{colour}">'
            f"<title>{escape(_kind(network, node))}</title></rect>",
            f'<text x="{_LEFT + 24}" y="{y + 11:.0f}">{escape(_name(node))}'
            f'<tspan class="dim" dx="12">{escape(label)}</tspan></text>',
        ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" role="img">'
        f"<title>{escape(type(network.model).__name__)}</title><style>{_STYLE}</style>{''.join(shapes)}</svg>"
    )


def _edge(start: int, end: int) -> str:
    top, bottom = _ROW * (start + 0.5) + _BOX, _ROW * (end + 0.5)
    x = _LEFT + _BOX / 2
    if end - start == 1:
        return f'<path d="M{x},{top:.0f} L{x},{bottom:.0f}"/>'
    outside = _LEFT - min(_LEFT - 10, _ARC * (end - start) ** 0.8 + 10)
    curve = f"C{outside:.0f},{top:.0f} {outside:.0f},{bottom:.0f} {_LEFT},{bottom + 7:.0f}"
    return f'<path d="M{_LEFT},{top - 7:.0f} {curve}"/>'


def _name(node: Node) -> str:
    return str(node.target) if node.op in ("call_module", "get_attr", "placeholder") else node.name


def _kind(network: "Network", node: Node) -> str:
    if node.op == "placeholder":
        return "input"
    return network.kind(node).value if node.meta.get("data", True) else "fixed"


def _shape(node: Node) -> str:
    shape = node.meta.get("shape")
    if shape is None:
        return ""
    sizes = shape[1:] if node.meta.get("data") else shape
    return "×".join(map(str, sizes)) or "1"
