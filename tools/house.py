"""Draw the house from its source: packages, sizes, imports. ``make house`` writes docs/house.svg."""

import ast
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "gatelab"
DRAWING = ROOT / "docs" / "house.svg"

# Sizes in pixels. A box is as wide as its package is large, down to what its name needs.
WIDTH, FLOOR, BOX, MARGIN, GAP = 1100, 104, 60, 20, 18
LINES_PER_PIXEL, LETTER = 9.5, 7.4
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1f2933; }
.size { font-size: 11px; fill: #616e7c; }
.room { fill: #f5f7fa; stroke: #7b8794; }
.part { fill: #cbd2d9; stroke: #f5f7fa; }
.import { fill: none; stroke: #3e7cb1; stroke-opacity: 0.55; stroke-width: 1.4; }
@media (prefers-color-scheme: dark) {
  text { fill: #e4e7eb; } .size { fill: #9aa5b1; }
  .room { fill: #1f2933; stroke: #7b8794; } .part { fill: #52606d; stroke: #1f2933; } .import { stroke: #84c5f4; }
}
"""


@dataclass(frozen=True)
class Room:
    """A package or a single module at the top of the tree.

    Attributes:
        name: below ``gatelab``.
        parts: lines of each sub-package; what lies in the package itself is under "".
        uses: the rooms it imports.
    """

    name: str
    parts: dict[str, int]
    uses: frozenset[str]

    @property
    def lines(self) -> int:
        """All lines of its Python files."""
        return sum(self.parts.values())


def imported_rooms(path: Path) -> set[str]:
    """Return the rooms that a file imports, those for type checkers included."""
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module == "gatelab":
            names = [f"gatelab.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        else:
            continue
        rooms |= {name.split(".")[1] for name in names if name.startswith("gatelab.")}
    return rooms - {"__version__"}


def read_rooms() -> dict[str, Room]:
    """Read all rooms from the source; ``__init__`` and ``__main__`` of the top are doors, not rooms."""
    parts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    uses: dict[str, set[str]] = defaultdict(set)
    for path in sorted(SOURCE.rglob("*.py")):
        place = path.relative_to(SOURCE).with_suffix("").parts
        if place[0] in ("__init__", "__main__"):
            continue
        parts[place[0]][place[1] if len(place) > 2 else ""] += path.read_text(encoding="utf-8").count("\n")
        uses[place[0]] |= imported_rooms(path) - {place[0]}
    return {name: Room(name, dict(parts[name]), frozenset(uses[name])) for name in parts}


def floors(rooms: dict[str, Room]) -> dict[str, int]:
    """Return each room's floor: one above the highest room it imports.

    Raises:
        ValueError: rooms import each other in a circle.
    """
    pending: list[str] = []

    @cache
    def floor(name: str) -> int:
        if name in pending:
            raise ValueError(f"a circle of imports: {' → '.join([*pending, name])}")
        pending.append(name)
        height = 1 + max(map(floor, sorted(rooms[name].uses)), default=-1)
        pending.pop()
        return height

    return {name: floor(name) for name in rooms}


def needed_imports(rooms: dict[str, Room]) -> list[tuple[str, str]]:
    """Return the imports that no chain of other imports implies; drawing all of them would hide the order."""

    @cache
    def reach(name: str) -> frozenset[str]:
        return rooms[name].uses.union(*(reach(other) for other in rooms[name].uses))

    return [
        (name, other)
        for name, room in sorted(rooms.items())
        for other in sorted(room.uses)
        if not any(other in reach(third) for third in room.uses)
    ]


def _boxes(rooms: dict[str, Room]) -> dict[str, tuple[float, float, float]]:
    """Place every room: left edge, top edge, width."""
    heights = floors(rooms)
    top = max(heights.values())
    places = {}
    for level in range(top + 1):
        row = sorted((name for name in rooms if heights[name] == level), key=lambda name: (-rooms[name].lines, name))
        row = row[1::2] + row[::2][::-1]  # the largest in the middle
        widths = [max(rooms[name].lines / LINES_PER_PIXEL, len(name) * LETTER + 70) for name in row]
        left = (WIDTH - sum(widths) - GAP * (len(row) - 1)) / 2
        for name, width in zip(row, widths, strict=True):
            places[name] = left, MARGIN + (top - level) * FLOOR, width
            left += width + GAP
    return places


def draw(rooms: dict[str, Room]) -> str:
    """Return the drawing as SVG."""
    boxes = _boxes(rooms)
    height = max(top for _, top, _ in boxes.values()) + BOX + MARGIN
    edge = min(0, *(left - MARGIN for left, _, _ in boxes.values()))  # a wide floor reaches beyond both sides alike
    shapes = []
    for name, other in needed_imports(rooms):
        x0, y0, w0 = boxes[name]
        x1, y1, w1 = boxes[other]
        start, end, middle = x0 + w0 / 2, x1 + w1 / 2, (y0 + BOX + y1) / 2
        curve = f"M{start:.0f},{y0 + BOX} C{start:.0f},{middle:.0f} {end:.0f},{middle:.0f} {end:.0f},{y1}"
        shapes.append(f'<path class="import" d="{curve}"><title>{name} imports {other}</title></path>')
    for name, (left, top, width) in sorted(boxes.items()):
        shapes += _room(rooms[name], left, top, width)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{edge:.0f} 0 {WIDTH - 2 * edge:.0f} {height}" role="img">\n'
        f"<title>The packages of gatelab, their sizes in lines, and their imports, which all point down</title>\n"
        f"<style>{STYLE}</style>\n" + "\n".join(shapes) + "\n</svg>\n"
    )


def _room(room: Room, left: float, top: float, width: float) -> list[str]:
    label = f'<text x="{left + 10:.0f}" y="{top + 22}">{escape(room.name)}</text>'
    size = f'<text class="size" x="{left + width - 8:.0f}" y="{top + 22}" text-anchor="end">{room.lines:,}</text>'
    uses = " ".join(sorted(room.uses))
    shapes = [
        f'<rect class="room" data-room="{room.name}" data-lines="{room.lines}" data-uses="{uses}"'
        f' x="{left:.0f}" y="{top}" width="{width:.0f}" height="{BOX}" rx="5"/>',
        label,
        size,
    ]
    inner, edge = width - 12, left + 6
    for part, lines in sorted(room.parts.items()):
        wide = inner * lines / room.lines
        if len(room.parts) > 1:
            title = part or "the package itself"
            shapes.append(
                f'<rect class="part" x="{edge:.1f}" y="{top + 32}" width="{wide:.1f}" height="22">'
                f"<title>{title}: {lines:,} lines</title></rect>"
            )
            if part and len(part) * 6.2 < wide:
                shapes.append(f'<text class="size" x="{edge + 4:.1f}" y="{top + 47}">{escape(part)}</text>')
        edge += wide
    return shapes


if __name__ == "__main__":
    DRAWING.write_text(draw(read_rooms()), encoding="utf-8")
    print(f"{DRAWING.relative_to(ROOT)} drawn")  # noqa: T201
