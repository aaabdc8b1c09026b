"""Receptive fields: regions of the input, ordered by inclusion (hierarchy, Section 2.1)."""

from collections.abc import Iterable, Mapping
from functools import cached_property

from gatelab.errors import InputError


class ReceptiveFields:
    """Regions of the positions 0 … d−1; α is a parent of β if α ⊋ β and no region lies strictly between them.

    The top region covers everything and has layer number 0; a child's layer number is its parent's plus one. Siblings
    may overlap. Regions without children are leaves; their variables are read from the input.

    Attributes:
        regions: name → positions, ascending.
        bottom_up: names, children before parents.
        top: the name of the region that covers everything.

    Args:
        regions: name → positions, in any order.

    Raises:
        InputError: the regions do not form a hierarchy.

    Example:
        >>> fields = ReceptiveFields({"a": [0], "b": [1], "c": [2], "ab": [0, 1], "bc": [1, 2], "all": [0, 1, 2]})
        >>> fields.children("all"), fields.parents("b"), fields.layer("b")
        (('ab', 'bc'), ('ab', 'bc'), 2)
    """

    def __init__(self, regions: Mapping[str, Iterable[int]]):
        self.regions = {name: tuple(sorted(set(positions))) for name, positions in regions.items()}
        self._check_regions()
        self.bottom_up = tuple(sorted(self.regions, key=lambda name: (len(self.regions[name]), self.regions[name])))
        self.top = self._find_top()
        self._parents = self._find_parents()
        self._children = {
            name: tuple(sorted((c for c in self._parents if name in self._parents[c]), key=lambda c: self.regions[c]))
            for name in self.regions
        }
        self._check_cover()
        self._layers = self._find_layers()

    @property
    def n_positions(self) -> int:
        """Number d of input positions."""
        return len(self.regions[self.top])

    @cached_property
    def leaves(self) -> tuple[str, ...]:
        """Regions without children."""
        return tuple(name for name in self.bottom_up if not self._children[name])

    @cached_property
    def inner(self) -> tuple[str, ...]:
        """Regions with children, children before parents."""
        return tuple(name for name in self.bottom_up if self._children[name])

    @cached_property
    def hidden(self) -> tuple[str, ...]:
        """Inner regions without the top."""
        return tuple(name for name in self.inner if name != self.top)

    @cached_property
    def edges(self) -> tuple[tuple[str, str], ...]:
        """All pairs (parent, child)."""
        return tuple((parent, child) for parent in self.inner for child in self._children[parent])

    @property
    def depth(self) -> int:
        """The layer number L of the lowest leaves."""
        return max(self._layers.values())

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

    def _check_regions(self) -> None:
        if not self.regions:
            raise InputError("no regions were given; a hierarchy needs at least one region")
        names: dict[tuple[int, ...], str] = {}
        for name, positions in self.regions.items():
            if not name or "." in name:
                # Parameters of the student are stored under the region's name, and "." separates modules.
                raise InputError(f"'{name}' cannot name a region; use a name without '.'")
            if not positions:
                raise InputError(f"region '{name}' is empty; give it positions or leave it out")
            if positions in names:
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
        masks = {name: sum(1 << position for position in self.regions[name]) for name in self.bottom_up}
        parents = {}
        for name in self.bottom_up:
            mask, minimal = masks[name], []
            # Candidates come in ascending size, so that one kept earlier cannot contain one that comes later.
            for other in self.bottom_up:
                larger = masks[other]
                if larger != mask and larger & mask == mask and not any(masks[m] & larger == masks[m] for m in minimal):
                    minimal.append(other)
            parents[name] = tuple(minimal)
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
                    "add or remove regions until all ways to the top are equally long"
                )
            layers[name] = next(iter(candidates.values()))
        return layers
