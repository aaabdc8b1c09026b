"""Node gates: which of K linear units an example opens (gdln, Section 3.1).

Every set of gates is a module that gives one score per unit; a gate is open where its score is positive, the one
convention of gatelab. Gates decide in the dtype of the example. Those that are half-spaces give the affine score
itself, so that gate capture sees through them.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from gatelab.errors import InputError


class NodeGates(nn.Module, ABC):
    """K gates as functions of the example.

    Attributes:
        count: K.
    """

    def __init__(self, count: int):
        super().__init__()
        if count < 1:
            raise InputError(f"{count} gates; give at least one")
        self.count = count

    @abstractmethod
    def forward(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n k"]:
        """The scores; a gate is open where its score is positive."""

    def opened(self, x: Float[Tensor, "n d"]) -> Bool[Tensor, "n k"]:
        """Which gates are open."""
        with torch.no_grad():
            return self(x) > 0


class OpenGates(NodeGates):
    """Gates that are always open: the linear network."""

    def forward(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n k"]:
        """Ones."""
        return x.new_ones(x.shape[0], self.count)


class HalfSpaceGates(NodeGates):
    """Gates open where nᵀx + o > 0: the gates of a frozen layer of ReLU units."""

    normals: Tensor
    offsets: Tensor

    def __init__(self, normals: Float[Tensor, "k d"], offsets: Float[Tensor, " k"] | None = None):
        """Freeze copies of the normals, and of the offsets (0 if left out)."""
        super().__init__(normals.shape[0])
        if offsets is not None and offsets.shape != normals.shape[:1]:
            raise InputError(f"{normals.shape[0]} normals, {offsets.shape[0]} offsets; give one for each")
        self.register_buffer("normals", normals.detach().clone())
        self.register_buffer(
            "offsets", normals.new_zeros(len(normals)) if offsets is None else offsets.detach().clone()
        )

    def forward(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n k"]:
        """The signed margins nᵀx + o."""
        return nn.functional.linear(x, self.normals.to(x), self.offsets.to(x))


class FunctionGates(NodeGates):
    """Gates given as functions of x, one per unit, each (n, d) → (n,), open where true or positive."""

    def __init__(self, functions: Sequence[Callable[[Tensor], Tensor]]):
        """Keep the functions."""
        super().__init__(len(functions))
        self.functions = tuple(functions)

    def forward(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n k"]:
        """What the functions say."""
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
        """Freeze a copy of the centres."""
        super().__init__(centres.shape[0])
        self.register_buffer("centres", centres.detach().clone())

    def forward(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n k"]:
        """One for the nearest centre, zero for the others."""
        # ‖x − c‖² without ‖x‖², which all centres share.
        centres = self.centres.to(x)
        nearness = x @ centres.T - centres.square().sum(dim=1) / 2
        return nn.functional.one_hot(nearness.argmax(dim=1), self.count).to(x)


class CodeGates(NodeGates):
    """Exclusive gates that tile the input: one for each of the 2^m ways in which m gates can be open or closed."""

    def __init__(self, base: NodeGates):
        """Tile by the joint state of ``base``, its first gate the highest bit."""
        if base.count > 16:
            raise InputError(f"{base.count} gates make 2^{base.count} cells; give at most 16, or use CellGates")
        super().__init__(2**base.count)
        self.base = base

    def forward(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n k"]:
        """One for the cell that x lies in."""
        powers = 2 ** torch.arange(self.base.count - 1, -1, -1, device=x.device)
        code = ((self.base(x) > 0) * powers).sum(dim=1)
        return nn.functional.one_hot(code, self.count).to(x)


class FirstOpenGates(NodeGates):
    """Exclusive gates from any gates: of those that are open, only the first stays so."""

    def __init__(self, base: NodeGates):
        """Make ``base`` exclusive."""
        super().__init__(base.count)
        self.base = base

    def forward(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n k"]:
        """One for the first open gate; zeros if all are closed."""
        opened = self.base(x) > 0
        return (opened & (opened.cumsum(dim=1) == 1)).to(x)


class RepeatedGates(NodeGates):
    """Redundant gates: the first of ``base`` copies[0] times, then the second copies[1] times, … (gdln, 3.5)."""

    copies: Tensor

    def __init__(self, base: NodeGates, copies: Sequence[int]):
        """Repeat each gate at least once."""
        if len(copies) != base.count or min(copies) < 1:
            raise InputError(f"copies are {list(copies)} for {base.count} gates; give one positive number for each")
        super().__init__(sum(copies))
        self.base = base
        self.register_buffer("copies", torch.tensor(copies))

    def forward(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n k"]:
        """The scores, repeated."""
        return self.base(x).repeat_interleave(self.copies, dim=1)


class ChosenGates(NodeGates):
    """Some gates of others, by their places."""

    places: Tensor

    def __init__(self, base: NodeGates, places: Sequence[int]):
        """Keep the gates at ``places``."""
        if not places or not all(0 <= place < base.count for place in places):
            raise InputError(f"places are {list(places)}; there are gates 0 to {base.count - 1}")
        super().__init__(len(places))
        self.base = base
        self.register_buffer("places", torch.tensor(list(places)))

    def forward(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n k"]:
        """Their scores."""
        return self.base(x)[:, self.places]


class JoinedGates(NodeGates):
    """Several sets of gates, one behind the other."""

    def __init__(self, *parts: NodeGates):
        """Join them."""
        super().__init__(sum(part.count for part in parts))
        self.parts = nn.ModuleList(parts)

    def forward(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n k"]:
        """All scores."""
        return torch.cat([part(x) for part in self.parts], dim=1)
