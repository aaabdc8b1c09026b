"""Node gates: which of K linear units an example opens (gdln, Section 3.1).

A set of gates is a module that returns one score per unit. A gate is open where its score is positive, as everywhere in
gatelab. Scores are computed in the dtype of the example. Half-space gates return the affine score itself, so gate
capture can follow it back to the input.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from gatelab.errors import InputError


class NodeGates(nn.Module, ABC):
    """K = ``count`` gates as functions of the example."""

    def __init__(self, count: int):
        super().__init__()
        if count < 1:
            raise InputError(f"{count} gates; give at least one")
        self.count = count

    @abstractmethod
    def forward(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n k"]:
        """Return the scores; a gate is open where its score is positive."""

    def opened(self, x: Float[Tensor, "n d"]) -> Bool[Tensor, "n k"]:
        """Return which gates are open."""
        with torch.no_grad():
            return self(x) > 0


class OpenGates(NodeGates):
    """Gates that are always open: the linear network."""

    def forward(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n k"]:
        """Return ones."""
        return x.new_ones(x.shape[0], self.count)


class HalfSpaceGates(NodeGates):
    """Gates that are open where nᵀx + o > 0: the gates of a frozen layer of ReLU units.

    Args:
        normals: n, one row per gate.
        offsets: o, one per gate; zeros if left out.

    Example:
        >>> gates = HalfSpaceGates(torch.eye(2), torch.tensor([0.0, -3.0]))
        >>> gates.opened(torch.tensor([[1.0, 2.0]])).tolist()
        [[True, False]]
    """

    normals: Tensor
    offsets: Tensor

    def __init__(self, normals: Float[Tensor, "k d"], offsets: Float[Tensor, " k"] | None = None):
        super().__init__(normals.shape[0])
        if offsets is not None and offsets.shape != normals.shape[:1]:
            raise InputError(f"{normals.shape[0]} normals, {offsets.shape[0]} offsets; give one for each")
        offsets = normals.new_zeros(len(normals)) if offsets is None else offsets
        if not bool(torch.isfinite(normals).all() and torch.isfinite(offsets).all()):
            raise InputError("a normal or an offset is NaN or infinite, which leaves its gate undefined; check them")
        self.register_buffer("normals", normals.detach().clone())
        self.register_buffer("offsets", offsets.detach().clone())

    def forward(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n k"]:
        """Return the signed margins nᵀx + o."""
        return nn.functional.linear(x, self.normals.to(x), self.offsets.to(x))


class FunctionGates(NodeGates):
    """Gates given as functions of x, one per unit, each (n, d) → (n,), open where true or positive."""

    def __init__(self, functions: Sequence[Callable[[Tensor], Tensor]]):
        super().__init__(len(functions))
        self.functions = tuple(functions)

    def forward(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n k"]:
        """Return the values of the functions."""
        scores = [function(x).to(x) for function in self.functions]
        for number, score in enumerate(scores):
            if score.shape != x.shape[:1]:
                raise InputError(
                    f"gate {number} gives shape {tuple(score.shape)} for {x.shape[0]} examples; it must give one "
                    "number or truth value for each"
                )
        return torch.stack(scores, dim=1)


class CellGates(NodeGates):
    """Exclusive gates: an example opens the gate of its nearest centre (Voronoi cells, k-means)."""

    centres: Tensor

    def __init__(self, centres: Float[Tensor, "k d"]):
        super().__init__(centres.shape[0])
        self.register_buffer("centres", centres.detach().clone())

    def forward(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n k"]:
        """Return one for the nearest centre, zero for the others."""
        # ‖x − c‖² without ‖x‖², which is the same for all centres.
        centres = self.centres.to(x)
        nearness = x @ centres.T - centres.square().sum(dim=1) / 2
        return nn.functional.one_hot(nearness.argmax(dim=1), self.count).to(x)


class CodeGates(NodeGates):
    """Exclusive gates that tile the input: one for each joint state of ``base``; its first gate is the highest bit."""

    def __init__(self, base: NodeGates):
        if base.count > 16:
            raise InputError(f"{base.count} gates make 2^{base.count} cells; give at most 16, or use CellGates")
        super().__init__(2**base.count)
        self.base = base

    def forward(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n k"]:
        """Return one for the cell that contains x, zero for the others."""
        powers = 2 ** torch.arange(self.base.count - 1, -1, -1, device=x.device)
        code = ((self.base(x) > 0) * powers).sum(dim=1)
        return nn.functional.one_hot(code, self.count).to(x)


class ChosenGates(NodeGates):
    """Gates taken from another set by place; a repeated place makes redundant gates (gdln, Section 3.5).

    Args:
        base: the gates to choose from.
        places: the place in ``base`` of each gate of this set.

    Example:
        >>> base = HalfSpaceGates(torch.tensor([[1.0], [-1.0]]))
        >>> ChosenGates(base, [0, 0, 1]).opened(torch.tensor([[5.0]])).tolist()
        [[True, True, False]]
    """

    places: Tensor

    def __init__(self, base: NodeGates, places: Sequence[int]):
        if not places or not all(0 <= place < base.count for place in places):
            raise InputError(f"places are {list(places)}; there are gates 0 to {base.count - 1}")
        super().__init__(len(places))
        self.base = base
        self.register_buffer("places", torch.tensor(list(places)))

    def forward(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n k"]:
        """Return the scores at the chosen places."""
        return self.base(x)[:, self.places]
