"""The neural tangent kernel (NTK) of any model, without Jacobians where its structure allows that."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from itertools import chain, product
from math import isqrt, prod
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gatelab.errors import GatelabError, InputError
from gatelab.kernels.disk.digest import model_digest
from gatelab.kernels.overflow import refuse_overflow
from gatelab.kernels.tangent.factors import DenseFactor, ExplicitFactor, Factor, PositionFactor, UnitFactor
from gatelab.kernels.tangent.gradients import GradientRows, Gradients, NoStructureError, Outputs
from gatelab.kernels.tangent.layers import Names
from gatelab.kernels.tangent.sums import widest
from gatelab.kernels.tiles import bytes_of, evaluate, fill, tile_size
from gatelab.network.chance import refuse_chance
from gatelab.observe import examples_for, observable, stand_in
from gatelab.printing import Brief

# Entries of an array between two blocks of examples; for shared weights it has all pairs of positions.
TILE_ENTRIES = 2**24
# Examples on each side of a block: two Gram matrices and the running sum then stay in a core's cache, and in every
# thread they are small beside the result.
MOST_EXAMPLES = 256
# Factors whose short products are added up in the caller's precision: a sum in float64 would leave the cache.
_FEW = 16

# Bytes of a number in which sums are added up.
_WIDE = 8

# The forms of a gradient, in words.
_FORMS = {
    DenseFactor: "with Gram matrices of inputs and signals",
    PositionFactor: "with Gram matrices over pairs of positions",
    ExplicitFactor: "with gradients written out",
    UnitFactor: "with gradients written out, once for all outputs",
}

# The factors of one weight for rows and columns, and the outputs that they belong to.
_Pair = tuple[Factor, Factor, tuple[slice, slice]]
Wrt = nn.Module | nn.Parameter | str | Iterable[str | nn.Parameter] | None


def neural_tangent_kernel(
    model: nn.Module,
    x: Float[Tensor, "n ..."],
    y: Float[Tensor, "m ..."] | None = None,
    wrt: Wrt = None,
    outputs: Outputs = "trace",
    *,
    batch_size: int | None = None,
    output: int | str | None = None,
) -> Float[Tensor, "n m"] | Float[Tensor, "n m k k"]:
    r"""Compute the Gram matrix of the output's gradients with respect to the parameters (npk, Section 1.1).

    .. math:: K(s, s') = \langle \nabla_\Theta \hat y(x_s), \nabla_\Theta \hat y(x_{s'}) \rangle

    For each dense layer this is (Gram of inputs) ⊙ (Gram of back-propagated signals); no Jacobian is formed.
    Convolutions use the cheaper of that and per-example gradients; parameters used in any other way go through
    ``torch.func``. Two examples are checked against plain autograd; if they differ, all gradients are computed one
    example at a time.

    Memory: the result, the layers' inputs and signals, one tile, and a pass, whose signals take 64 MB or those of two
    examples and one output, whichever is more. Outputs go through the network in groups of that size. If the factors of
    all groups take more than 512 MB, a trace keeps none of them: every block recomputes them, one group at a time.

    Precision: long sums are added up in float64, so that they add a relative error below 1e-5 to a float32 kernel.
    Rounding inside the network comes on top, as in plain autograd: it grows with depth, and may open or close a gate.
    The result has the dtype of x.

    Args:
        model: any module whose output for one example does not depend on the others.
        x: examples.
        y: other examples, for a rectangular kernel; None means x.
        wrt: the parameters to differentiate by: a sub-module, parameters, or their names; None means all. With the
            value or feature network of a deep gated network it gives K^V or K^F.
        outputs: "trace" sums the kernels of the outputs; "full" gives all pairs of outputs, (n, m, k, k); a number
            gives the kernel of that output.
        batch_size: examples per forward and backward pass; by default as many as keep the signals within 64 MB, but at
            least two.
        output: which part of its answer to differentiate, if the model returns a tuple or a dict.

    Returns:
        K, one row for each example of x and one column for each of y; with ``outputs="full"`` a matrix for each pair.

    Raises:
        UnsupportedModelError: the output for one example depends on the others, or on chance.

    Example:
        >>> net = nn.Linear(2, 1)
        >>> neural_tangent_kernel(net, torch.tensor([[1.0, 2.0]])).tolist()   # ‖x‖² + 1, for weight and bias
        [[6.0]]
    """
    part = model if output is None else observable(model, output)
    return evaluate(TangentKernel(part, wrt, outputs, batch_size).on(x, y), x, y)


def _refuse_chance(model: nn.Module, few: Float[Tensor, "n ..."]) -> None:
    """Refuse a model whose output depends on chance, or that does not run on several examples at once."""
    try:
        refuse_chance(model, few)
    except GatelabError:
        raise
    except (RuntimeError, ValueError, TypeError) as error:
        raise InputError(
            f"{type(model).__name__} does not run on {len(few)} examples at once: {error}; pass batch_size=1"
        ) from error


@dataclass(frozen=True, repr=False)
class TangentKernel(Brief):
    """The neural tangent kernel of a model, for any number of examples; see :func:`neural_tangent_kernel`.

    Attributes:
        model: any module whose output for one example does not depend on the others.
        wrt: the parameters to differentiate by; None means all.
        outputs: "trace", "full", or the number of an output.
        batch_size: examples per forward and backward pass.

    Example:
        >>> net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
        >>> TangentKernel(net).about()["kind"]  # compute(TangentKernel(net), x, store="K.zarr") writes it to disk
        'ntk'
    """

    model: nn.Module
    wrt: Wrt = None
    outputs: Outputs = "trace"
    batch_size: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.wrt, Iterator):  # it can be read only once
            object.__setattr__(self, "wrt", tuple(self.wrt))

    def about(self) -> dict[str, Any]:
        """Return what distinguishes this kernel from others, as plain data."""
        names = parameter_names(observable(self.model), self.wrt)
        return {"kind": "ntk", "wrt": names, "outputs": self.outputs, "model": model_digest(self.model)}

    def on(self, x: Float[Tensor, "n ..."], y: Float[Tensor, "m ..."] | None = None) -> "TangentTiles":
        """Return the kernel on examples of x against y, to be evaluated block by block."""
        model = stand_in(observable(self.model))
        x, other = examples_for(model, x, y)
        gradients = Gradients(model, parameter_names(model, self.wrt), x[:1], self.outputs)
        _refuse_chance(model, x[: min(2, self.batch_size or 2)])
        columns = (x if other is None else other).shape[0]
        return TangentTiles(gradients, x.dtype, self.outputs == "full", columns, self.batch_size)


@dataclass
class TangentTiles:
    """Tiles of the tangent kernel, from the inputs and signals of every layer.

    Attributes:
        columns: the number of columns of the whole kernel, which share the cost of forming gradients.
    """

    gradients: Gradients
    dtype: torch.dtype
    full: bool
    columns: int
    batch_size: int | None

    def __post_init__(self) -> None:
        self.outputs = (self.gradients.outputs,) * 2 if self.full else ()

    def rows(self, x: Float[Tensor, "n ..."]) -> GradientRows:
        """Return the gradients of some examples, as factors."""
        return self.gradients.rows(x.detach(), self.batch_size, self.columns)

    def method(self, x: Float[Tensor, "n ..."]) -> list[str]:
        """Return how entries are computed: which form the gradient of each parameter has."""
        rows = self.rows(x)
        if rows.loose is None:
            return ["gradients of all parameters by torch.func, one example at a time"]
        if not rows.kept:
            return ["gradients in factors, made anew for every tile because those of all outputs do not fit memory"]
        forms = Counter(_FORMS[type(factor)] for factor in rows.kept[0].values())
        return [f"layers: {', '.join(f'{count} {form}' for form, count in forms.items())}"]

    def bytes_kept(self, rows: GradientRows) -> int:
        """Return the memory of the factors that are kept."""
        return bytes_of(rows.x) + rows.group_bytes * len(rows.kept)

    def bytes_working(self, rows: GradientRows, size: int) -> int:
        """Return the working memory: arrays of the largest tile, a pass, and factors that are made for every block.

        A tile takes three arrays for each pair of outputs, and its sum in float64.
        """
        tile = min(size, self._tile(rows))
        arrays = tile**2 * prod(self.outputs) * (3 * rows.pair_entries * self.dtype.itemsize + _WIDE)
        anew = 0 if rows.kept else 2 * size * rows.group_bytes // rows.x.shape[0] + size**2 * _WIDE
        return arrays + anew + self.gradients.bytes_making(size, self.dtype.itemsize)

    def _tile(self, rows: GradientRows) -> int:
        """The number of examples that keeps the largest array of a tile within the limit."""
        return tile_size(min(MOST_EXAMPLES, isqrt(TILE_ENTRIES // rows.pair_entries)))

    def block(self, left: GradientRows, right: GradientRows) -> Float[Tensor, "n m"] | Float[Tensor, "n m k k"]:
        """Return the tangent kernel between two blocks."""
        symmetric = left is right
        with torch.autocast(left.x.device.type, enabled=False):  # the caller's would round products to bfloat16
            try:
                kernel = self._block(left, right, symmetric=symmetric)
            except NoStructureError:  # one side has no factored form: use none on both
                left = self.gradients.explicit(left, self.batch_size)
                right = left if symmetric else self.gradients.explicit(right, self.batch_size)
                kernel = self._block(left, right, symmetric=symmetric)
        refuse_overflow(kernel, "the tangent kernel")
        return kernel

    def _block(self, left: GradientRows, right: GradientRows, *, symmetric: bool) -> Tensor:
        if (left.loose is None) != (right.loose is None):
            raise NoStructureError
        kept = bool(left.kept and right.kept)
        groups = self._group_pairs(left, right)
        shape = (left.x.shape[0], right.x.shape[0], *self.outputs)
        # Recomputed groups are added up one after another, so the whole block is a running sum.
        kernel = torch.zeros(shape, dtype=self.dtype if kept else widest(left.x.device), device=left.x.device)
        size = min(self._tile(left), self._tile(right))
        for pairs in [list(chain.from_iterable(groups))] if kept else groups:
            fill(kernel, partial(self._add, kernel, pairs), symmetric=symmetric, size=size)
        return kernel.to(self.dtype)

    def _group_pairs(self, left: GradientRows, right: GradientRows) -> Iterator[list[_Pair]]:
        """Yield the pairs of factors of each group of outputs, or of each two groups if all pairs are wanted."""
        ours = self.gradients.groups(left, self.batch_size, self.columns)
        if not self.full:
            whole = slice(None)
            both = zip(ours, self.gradients.groups(right, self.batch_size, self.columns), strict=True)
            for row, column in ((row, row) for row in ours) if left is right else both:
                yield _matched(row, column, (whole, whole))
            return
        size = self.gradients.group_size(left)
        for (a, row), (b, column) in product(enumerate(left.kept), enumerate(right.kept)):
            places = slice(a * size, (a + 1) * size), slice(b * size, (b + 1) * size)
            yield _matched(row, column, places)

    def _add(self, kernel: Tensor, pairs: list[_Pair], i: slice, j: slice) -> None:
        """Add the sum over all factors to one tile of the kernel."""
        short = len(pairs) <= _FEW and not any(row.long() for row, _, _ in pairs) and self.dtype.itemsize >= 4
        total = kernel[i, j] if short else torch.zeros_like(kernel[i, j], dtype=widest(kernel.device))
        for row, column, places in pairs:
            # Both sides hold factors of matching kinds for each weight.
            if self.full:
                row.add_full(total[:, :, *places], column, i, j)  # pyright: ignore
            else:
                row.add_trace(total, column, i, j)  # pyright: ignore
        if not short:
            kernel[i, j] += total


def _matched(row: dict[Names, Factor], column: dict[Names, Factor], places: tuple[slice, slice]) -> list[_Pair]:
    if row.keys() != column.keys():
        raise NoStructureError
    return [(factor, column[name], places) for name, factor in row.items()]


def parameter_names(model: nn.Module, wrt: Wrt = None) -> list[str]:
    """Return the names of the parameters that ``wrt`` selects, in the model's order."""
    own = dict(model.named_parameters())
    if wrt is None:
        return list(own)
    if not isinstance(wrt, nn.Module | Tensor | Iterable):
        raise InputError(f"wrt is {wrt!r}; give a sub-module, parameters or their names")
    asked = [wrt] if isinstance(wrt, str | Tensor) else list(wrt.parameters() if isinstance(wrt, nn.Module) else wrt)
    every_name = dict(model.named_parameters(remove_duplicate=False))  # a tied parameter goes by any of its names
    for name in asked:
        if isinstance(name, str) and name not in every_name:
            close = get_close_matches(name, every_name, n=3)
            hint = f"did you mean {', '.join(close)}?" if close else f"it has {', '.join(list(own)[:8])}"
            raise InputError(f"wrt: the model has no parameter '{name}'; {hint}")
        if isinstance(name, Tensor) and not any(name is parameter for parameter in own.values()):
            raise InputError(f"wrt: the parameter of shape {tuple(name.shape)} does not belong to the model")
    wanted = {id(every_name[part] if isinstance(part, str) else part) for part in asked}
    names = [name for name, parameter in own.items() if id(parameter) in wanted]
    if not names:
        raise InputError(f"wrt: {type(wrt).__name__} has no parameter that belongs to the model")
    return names
