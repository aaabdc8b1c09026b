"""Node gates: which of K linear units an example opens (gdln, Section 3.1).

A set of gates is a module that returns one score per unit. A gate is open where its score is positive, as everywhere in
gatelab. Scores are computed in the dtype of the example. Half-space gates return the affine score itself, so gate
capture can follow it back to the input.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from numbers import Integral

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from gatelab.errors import InputError


class NodeGates(nn.Module, ABC):
    """K = ``count`` gates as functions of the example."""

    def __init__(self, count: int):
        super().__init__()
        if not isinstance(count, Integral) or count < 1:
            raise InputError(f"the number of gates is {count!r}; give a whole number, at least 1")
        self.count = count

    @property
    def inputs(self) -> int | None:
        """Dimension d of the examples that the gates read; None if they read any."""
        return None

    def check_inputs(self, dim: int) -> None:
        """Raise InputError unless the gates read examples of this dimension."""
        if self.inputs not in (None, dim):
            raise InputError(
                f"{type(self).__name__} read examples of dimension {self.inputs}, not {dim}; "
                "make gates for the dimension of the examples"
            )

    @abstractmethod
    def forward(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n k"]:
        """Return the scores; a gate is open where its score is positive."""

    def opened(self, x: Float[Tensor, "n d"]) -> Bool[Tensor, "n k"]:
        """Return which gates are open."""
        self.check_inputs(x.shape[-1])
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
        _check_rows("normals", normals)
        super().__init__(normals.shape[0])
        if offsets is not None and offsets.shape != normals.shape[:1]:
            raise InputError(f"{len(normals)} normals, {offsets.numel()} offsets; give a vector with one for each")
        offsets = normals.new_zeros(len(normals)) if offsets is None else offsets
        if not bool(torch.isfinite(offsets).all()):
            raise InputError("an offset is NaN or infinite, which leaves its gate undefined; check the offsets")
        self.register_buffer("normals", normals.detach().clone())
        self.register_buffer("offsets", offsets.detach().clone())

    @property
    def inputs(self) -> int:
        """Dimension d of the normals."""
        return self.normals.shape[1]

    def forward(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n k"]:
        """Return the signed margins nᵀx + o."""
        return nn.functional.linear(x, self.normals.to(x), self.offsets.to(x))


class FunctionGates(NodeGates):
    """Gates given as functions of x, one per unit, each (n, d) → (n,), open where true or positive."""

    def __init__(self, functions: Sequence[Callable[[Tensor], Tensor]]):
        if not all(callable(function) for function in functions):
            raise InputError("a gate is not a function; give functions (n, d) → (n,), e.g. lambda x: x[:, 0] > 0")
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
        _check_rows("centres", centres)
        super().__init__(centres.shape[0])
        self.register_buffer("centres", centres.detach().clone())

    @property
    def inputs(self) -> int:
        """Dimension d of the centres."""
        return self.centres.shape[1]

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

    @property
    def inputs(self) -> int | None:
        """Dimension d that ``base`` reads."""
        return self.base.inputs

    def forward(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n k"]:
        """Return one for the cell that contains x, zero for the others."""
        powers = 2 ** torch.arange(self.base.count - 1, -1, -1, device=x.device)
        code = ((self.base(x) > 0) * powers).sum(dim=1)
        return nn.functional.one_hot(code, self.count).to(x)


class ChosenGates(NodeGates):
    """Gates taken from another set by index; a repeated index makes redundant gates (gdln, Section 3.5).

    Args:
        base: the gates to choose from.
        places: the index in ``base`` of each gate of this set.

    Example:
        >>> base = HalfSpaceGates(torch.tensor([[1.0], [-1.0]]))
        >>> ChosenGates(base, [0, 0, 1]).opened(torch.tensor([[5.0]])).tolist()
        [[True, True, False]]
    """

    places: Tensor

    def __init__(self, base: NodeGates, places: Sequence[int]):
        if not isinstance(base, NodeGates):
            raise InputError(f"base is {type(base).__name__}; give node gates, e.g. HalfSpaceGates(normals)")
        if not places or not all(isinstance(place, Integral) and 0 <= place < base.count for place in places):
            raise InputError(f"places are {list(places)}; choose from gates 0 to {base.count - 1}")
        super().__init__(len(places))
        self.base = base
        self.register_buffer("places", torch.tensor(list(places)))

    @property
    def inputs(self) -> int | None:
        """Dimension d that ``base`` reads."""
        return self.base.inputs

    def forward(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n k"]:
        """Return the scores of the chosen gates."""
        return self.base(x)[:, self.places]


def _check_rows(what: str, rows: Float[Tensor, "k d"]) -> None:
    """Raise InputError unless these are finite vectors, one in each row."""
    if not isinstance(rows, Tensor) or rows.ndim != 2 or rows.shape[1] < 1:
        shape = tuple(rows.shape) if isinstance(rows, Tensor) else type(rows).__name__
        raise InputError(f"{what} are {shape}; give a matrix with one row of d numbers for each gate")
    if not bool(torch.isfinite(rows).all()):
        raise InputError(f"{what} hold NaN or infinite values, which leave a gate undefined; check them")
