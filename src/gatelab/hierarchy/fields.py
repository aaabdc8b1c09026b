"""Receptive fields: regions of the input, ordered by inclusion (hierarchy, Section 2.1), or as a network joins them."""

from collections.abc import Iterable, Mapping
from numbers import Integral

from gatelab.errors import InputError


class ReceptiveFields:
    """Regions of the positions 0 … d−1; α is a parent of β if α ⊋ β and no region lies strictly between them.

    The top region covers everything and has layer number 0; a child's layer number is its parent's plus one. Siblings
    may overlap. Regions without children are leaves; their variables are read from the input.

    Inclusion does not describe a network with padding: the smaller window at the border lies inside its neighbour, yet
    does not feed it. ``children`` then gives the regions that a region is computed from. Regions may be equal, a child
    need only lie inside its parent, and a region's layer number is the length of its longest path from the top.

    Attributes:
        regions: name → positions, ascending.
        bottom_up: names, children before parents.
        top: the name of the region that covers everything.
        n_positions: d.
        leaves: regions without children.
        inner: regions with children, children before parents.
        hidden: inner regions without the top.
        edges: all pairs (parent, child).
        depth: the layer number L of the lowest leaves.

    Args:
        regions: name → positions, in any order.
        children: region → the regions it is computed from; by default, inclusion decides.

    Example:
        >>> fields = ReceptiveFields({"a": [0], "b": [1], "c": [2], "ab": [0, 1], "bc": [1, 2], "all": [0, 1, 2]})
        >>> fields.children("all"), fields.parents("b"), fields.layer("b")
        (('ab', 'bc'), ('ab', 'bc'), 2)
    """

    def __init__(self, regions: Mapping[str, Iterable[int]], children: Mapping[str, Iterable[str]] | None = None):
        self.regions = {name: tuple(sorted(set(positions))) for name, positions in regions.items()}
        self._check_regions(equal=children is not None)
        self.bottom_up = tuple(sorted(self.regions, key=lambda name: (len(self.regions[name]), self.regions[name])))
        if children is None:
            self.top = self._find_top()
            self._parents = self._find_parents()
            self._children = {
                name: tuple(
                    sorted((c for c in self._parents if name in self._parents[c]), key=self.regions.__getitem__)
                )
                for name in self.regions
            }
            self._check_cover()
            self._layers = self._find_layers()
        else:
            self._children = {name: tuple(children.get(name, ())) for name in self.regions}
            self._parents = self._given_parents()
            self.bottom_up, self._layers = self._ordered()
            self.top = self._find_top()
        self.n_positions = len(self.regions[self.top])
        self.leaves = tuple(name for name in self.bottom_up if not self._children[name])
        self.inner = tuple(name for name in self.bottom_up if self._children[name])
        self.hidden = tuple(name for name in self.inner if name != self.top)
        self.edges = tuple((parent, child) for parent in self.inner for child in self._children[parent])
        self.depth = max(self._layers.values())

    def positions(self, name: str) -> tuple[int, ...]:
        """Return the input positions of a region."""
        return self.regions[self._known(name)]

    def parents(self, name: str) -> tuple[str, ...]:
        """Return the smallest regions that contain this one."""
        return self._parents[self._known(name)]

    def children(self, name: str) -> tuple[str, ...]:
        """Return the largest regions inside this one, ordered by position."""
        return self._children[self._known(name)]

    def layer(self, name: str) -> int:
        """Return the layer number: 0 at the top."""
        return self._layers[self._known(name)]

    def __repr__(self) -> str:
        return (
            f"ReceptiveFields({len(self.regions)} regions, {len(self.leaves)} leaves, "
            f"depth {self.depth}, {self.n_positions} positions)"
        )

    def _known(self, name: str) -> str:
        if name not in self.regions:
            raise InputError(f"there is no region '{name}'; the regions are {', '.join(self.bottom_up)}")
        return name

    def _check_regions(self, *, equal: bool) -> None:
        if not self.regions:
            raise InputError("no regions were given; a hierarchy needs at least one region")
        names: dict[tuple[int, ...], str] = {}
        for name, positions in self.regions.items():
            if not name or "." in name:
                # Parameters of the student are stored under the region's name, and "." separates modules.
                raise InputError(f"'{name}' cannot name a region; use a name without '.'")
            if not positions:
                raise InputError(f"region '{name}' is empty; give it positions or leave it out")
            if not all(isinstance(position, Integral) for position in positions):
                raise InputError(f"region '{name}': positions are {list(positions)}; give whole numbers 0 … d−1")
            if positions in names and not equal:
                raise InputError(
                    f"regions '{names[positions]}' and '{name}' cover the same positions {list(positions)}; "
                    "merge them into one region, whose nodes share one receptive field"
                )
            names[positions] = name

    def _find_top(self) -> str:
        top = self.bottom_up[-1]
        everything = set().union(*self.regions.values())
        missing = everything - set(self.regions[top])
        if missing:
            raise InputError(
                f"no region covers everything: the largest, '{top}', leaves out positions {sorted(missing)}; "
                "add a top region that covers all positions"
            )
        if everything != set(range(len(everything))):
            absent = sorted(set(range(max(everything) + 1)) - everything)
            raise InputError(f"positions {absent} are in no region; number the positions 0 … d−1 without gaps")
        return top

    def _find_parents(self) -> dict[str, tuple[str, ...]]:
        sets = {name: frozenset(self.regions[name]) for name in self.bottom_up}
        parents = {}
        for name in self.bottom_up:
            larger = [other for other in self.bottom_up if sets[name] < sets[other]]
            parents[name] = tuple(other for other in larger if not any(sets[m] < sets[other] for m in larger))
        return parents

    def _check_cover(self) -> None:
        for name, children in self._children.items():
            covered = {position for child in children for position in self.regions[child]}
            uncovered = sorted(set(self.regions[name]) - covered)
            if children and uncovered:
                raise InputError(
                    f"region '{name}': positions {uncovered} are in none of its children {', '.join(children)}, so "
                    "no child can pass them on; add regions for them"
                )

    def _find_layers(self) -> dict[str, int]:
        layers = {self.top: 0}
        for name in reversed(self.bottom_up[:-1]):
            candidates = {parent: layers[parent] + 1 for parent in self._parents[name]}
            if len(set(candidates.values())) > 1:
                listed = ", ".join(f"{layer} below '{parent}'" for parent, layer in candidates.items())
                raise InputError(
                    f"region '{name}' would stand in several layers ({listed}), so it has no layer number; "
                    "add or remove regions until all paths to the top are equally long"
                )
            layers[name] = next(iter(candidates.values()))
        return layers

    def _given_parents(self) -> dict[str, tuple[str, ...]]:
        """Return the parents of each region, and check that given children are regions inside their parents."""
        sets = {name: frozenset(positions) for name, positions in self.regions.items()}
        parents: dict[str, list[str]] = {name: [] for name in self.regions}
        for parent, children in self._children.items():
            for child in children:
                if child not in sets or not sets[child] <= sets[parent] or child == parent:
                    raise InputError(
                        f"region '{parent}' names the child '{child}', which is not a region inside it; the positions "
                        "of a region are the union of its children's"
                    )
                parents[child].append(parent)
        return {name: tuple(found) for name, found in parents.items()}

    def _ordered(self) -> tuple[tuple[str, ...], dict[str, int]]:
        """Return the regions with children before parents, and each one's longest path from the top."""
        heights: dict[str, int] = {}
        waiting = {name: len(children) for name, children in self._children.items()}
        ready = [name for name in self.bottom_up if not waiting[name]]
        for name in ready:
            heights[name] = 1 + max((heights[child] for child in self._children[name]), default=-1)
            for parent in self._parents[name]:
                waiting[parent] -= 1
                if not waiting[parent]:
                    ready.append(parent)
        if len(ready) < len(self.regions):
            circle = sorted(set(self.regions) - set(ready))
            raise InputError(f"regions {', '.join(circle)} are computed from each other; children must come first")
        places = {name: place for place, name in enumerate(self.regions)}
        order = tuple(sorted(ready, key=lambda name: (heights[name], places[name])))
        layers: dict[str, int] = {}
        for name in reversed(order):  # a region that nothing reads gets the largest layer number its height allows
            unread = heights[order[-1]] - heights[name]
            layers[name] = max((layers[parent] + 1 for parent in self._parents[name]), default=unread)
        return order, layers
