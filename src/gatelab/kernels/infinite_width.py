"""Kernels of infinitely wide fully connected ReLU networks (npk, Appendix A)."""

from dataclasses import dataclass
from math import pi
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from gatelab.errors import InputError
from gatelab.kernels.overflow import refuse_overflow
from gatelab.kernels.tiles import bytes_of, evaluate, fill, tile_size
from gatelab.observe import examples


@dataclass(frozen=True)
class InfiniteWidthKernels:
    r"""The two standard limits of a network with d weight layers, weights N(0, 1), hidden layers scaled by √(2/w).

    Attributes:
        nngp: covariance of the output over random weights, :math:`\Sigma^{(d)}`.
        ntk: the tangent kernel, :math:`\tilde K^{(d)}`.
    """

    nngp: Float[Tensor, "n m"]
    ntk: Float[Tensor, "n m"]


def infinite_width_ntk(
    x: Float[Tensor, "n ..."], y: Float[Tensor, "m ..."] | None = None, *, depth: int
) -> Float[Tensor, "n m"]:
    r"""Compute the kernel :math:`K^{(d)} = (\tilde K^{(d)} + \Sigma^{(d)}) / 2` of npk, Eq. 2.

    It is half the sum of the standard tangent kernel and the NNGP kernel, which :func:`infinite_width_kernels` returns.

    Args:
        x: examples; axes behind the first are flattened.
        y: other examples; None means x.
        depth: number of weight layers, hidden layers + 1.

    Returns:
        K^(d), one row for each example of x and one column for each of y.

    Example:
        >>> infinite_width_ntk(torch.eye(2), depth=1).tolist()   # one weight layer is linear: the input Gram matrix
        [[1.0, 0.0], [0.0, 1.0]]
    """
    return evaluate(InfiniteWidthKernel(depth).on(x, y), x, y)


@dataclass(frozen=True)
class InfiniteWidthKernel:
    """The infinite-width kernel for any number of examples; see :func:`infinite_width_ntk`.

    Attributes:
        depth: number of weight layers, hidden layers + 1.
    """

    depth: int

    def about(self) -> dict[str, Any]:
        """Return what distinguishes this kernel from others, as plain data."""
        return {"kind": "infinite", "depth": self.depth}

    def on(self, x: Float[Tensor, "n ..."], y: Float[Tensor, "m ..."] | None = None) -> "_InfiniteWidthTiles":
        """Return the kernel on examples of x against y, to be evaluated block by block."""
        _check(x, y, self.depth)
        return _InfiniteWidthTiles(self.depth, x.dtype)


@dataclass(frozen=True)
class _InfiniteWidthTiles:
    depth: int
    dtype: torch.dtype
    outputs: tuple[int, ...] = ()

    def rows(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n d"]:
        return x.detach().flatten(1)

    def bytes_kept(self, rows: Float[Tensor, "n d"]) -> int:
        return bytes_of(rows)

    def bytes_working(self, rows: Float[Tensor, "n d"], size: int) -> int:
        tile = tile_size(size)
        return 8 * (12 * tile**2 + 2 * tile * rows.shape[1])  # a dozen float64 matrices, and the rows in float64

    def block(self, left: Float[Tensor, "n d"], right: Float[Tensor, "m d"]) -> Float[Tensor, "n m"]:
        kernel = torch.empty(left.shape[0], right.shape[0], dtype=self.dtype, device=left.device)

        def tile(i: slice, j: slice) -> None:
            nngp, ntk = _recursion(left[i].double(), right[j].double(), self.depth)
            kernel[i, j] = (nngp + ntk) / 2

        fill(kernel, tile, symmetric=right is left)
        refuse_overflow(kernel, "the infinite-width kernel")
        return kernel


def infinite_width_kernels(
    x: Float[Tensor, "n ..."], y: Float[Tensor, "m ..."] | None = None, *, depth: int
) -> InfiniteWidthKernels:
    r"""Compute the NNGP and tangent kernels of depth d by their recursion, in closed form for ReLU.

    .. math::
        \Sigma^{(l+1)} &= \sqrt{\Sigma_{ss}\Sigma_{s's'}}\,(\sin\theta + (\pi-\theta)\cos\theta)/\pi, \qquad
        \hat\Sigma^{(l+1)} = (\pi-\theta)/\pi \\
        \tilde K^{(l+1)} &= \tilde K^{(l)} \odot \hat\Sigma^{(l+1)} + \Sigma^{(l+1)}

    with θ the angle of layer l and Σ⁽¹⁾ = K̃⁽¹⁾ the input Gram matrix. The factor 2 of Eq. 2 keeps the diagonal at ‖x‖².
    Computed in float64, because an angle from a rounded cosine loses half the digits; returned in the dtype of x.

    Args:
        x: examples; axes behind the first are flattened.
        y: other examples; None means x.
        depth: number of weight layers, hidden layers + 1.

    Returns:
        Both kernels, as ``.nngp`` and ``.ntk``.

    Example:
        >>> kernels = infinite_width_kernels(torch.tensor([[3.0, 4.0]]), depth=3)
        >>> kernels.nngp.item(), kernels.ntk.item()  # ‖x‖² and depth · ‖x‖²
        (25.0, 75.0)
    """
    _check(x, y, depth)
    rows = x.detach().flatten(1)
    columns = rows if y is None else y.detach().flatten(1)
    nngp = torch.empty(rows.shape[0], columns.shape[0], dtype=x.dtype, device=x.device)
    ntk = torch.empty_like(nngp)

    def tile(i: slice, j: slice) -> None:
        nngp[i, j], ntk[i, j] = _recursion(rows[i].double(), columns[j].double(), depth)

    # symmetric=True would mirror only one of the two matrices, and tiles are cheap.
    fill(nngp, tile, symmetric=False)
    refuse_overflow(ntk, "the infinite-width kernel")  # the larger of the two
    return InfiniteWidthKernels(nngp, ntk)


def _check(x: Tensor, y: Tensor | None, depth: int) -> None:
    if not isinstance(depth, int) or depth < 1:
        raise InputError(f"depth is {depth!r}; it counts weight layers: give a whole number, at least 1")
    width = examples(x).flatten(1).shape[1]
    if not width:
        raise InputError(f"x has shape {tuple(x.shape)}: its examples hold no values")
    other = width if y is None else examples(y, name="y").flatten(1).shape[1]
    if width != other:
        raise InputError(f"x has {width} values per example, y has {other}")
    if y is not None and y.dtype != x.dtype:
        raise InputError(f"x is {x.dtype}, y is {y.dtype}; use y.to({x.dtype})")


def _recursion(x: Float[Tensor, "n d"], y: Float[Tensor, "m d"], depth: int) -> tuple[Tensor, Tensor]:
    norms = x.norm(dim=1)[:, None] * y.norm(dim=1)
    nngp = x @ y.T
    ntk = nngp.clone()
    for _ in range(depth - 1):
        cosine = (nngp / norms.where(norms > 0, 1.0)).clamp(-1, 1)
        # Rounding must not open an angle between an example and itself: arccos(1 - ε) is √(2ε).
        theta = torch.arccos(cosine.where(1 - cosine > 8 * torch.finfo(cosine.dtype).eps, 1.0))
        nngp = norms * (theta.sin() + (pi - theta) * theta.cos()) / pi
        ntk = ntk * (pi - theta) / pi + nngp
    return nngp, ntk
