"""Kernels of infinitely wide fully connected ReLU networks (npk, Appendix A)."""

from dataclasses import dataclass
from math import pi

import torch
from jaxtyping import Float
from torch import Tensor

from gatelab.errors import InputError
from gatelab.kernels.tiles import fill
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
    r"""The kernel :math:`K^{(d)} = (\tilde K^{(d)} + \Sigma^{(d)}) / 2` of npk, Eq. 2.

    Half the sum of the standard tangent kernel and the NNGP kernel; :func:`infinite_width_kernels` gives these two.

    Example:
        >>> infinite_width_ntk(torch.eye(2), depth=1).tolist()   # one weight layer is linear: the input Gram matrix
        [[1.0, 0.0], [0.0, 1.0]]
    """
    kernels = infinite_width_kernels(x, y, depth=depth)
    return (kernels.ntk + kernels.nngp) / 2


def infinite_width_kernels(
    x: Float[Tensor, "n ..."], y: Float[Tensor, "m ..."] | None = None, *, depth: int
) -> InfiniteWidthKernels:
    r"""The NNGP and tangent kernels of depth d by their recursion, in closed form for ReLU.

    .. math::
        \Sigma^{(l+1)} &= \sqrt{\Sigma_{ss}\Sigma_{s's'}}\,(\sin\theta + (\pi-\theta)\cos\theta)/\pi, \qquad
        \hat\Sigma^{(l+1)} = (\pi-\theta)/\pi \\
        \tilde K^{(l+1)} &= \tilde K^{(l)} \odot \hat\Sigma^{(l+1)} + \Sigma^{(l+1)}

    with θ the angle of layer l and Σ⁽¹⁾ = K̃⁽¹⁾ the input Gram matrix. The factor 2 of Eq. 2 keeps the diagonal at ‖x‖².
    Computed in float64 (an angle taken from a rounded cosine loses half the digits), returned in the dtype of x.

    Args:
        x: examples; axes behind the first are flattened.
        y: other examples; None means x.
        depth: number of weight layers, hidden layers + 1.
    """
    if depth < 1:
        raise InputError(f"depth is {depth}; it counts weight layers and is at least 1")
    rows = examples(x).flatten(1)
    columns = rows if y is None else examples(y, name="y").flatten(1)
    if rows.shape[1] != columns.shape[1]:
        raise InputError(f"x has {rows.shape[1]} values per example, y has {columns.shape[1]}")
    nngp = torch.empty(rows.shape[0], columns.shape[0], dtype=x.dtype, device=x.device)
    ntk = torch.empty_like(nngp)

    def tile(i: slice, j: slice) -> None:
        nngp[i, j], ntk[i, j] = _recursion(rows[i].double(), columns[j].double(), depth)

    # Not halved by symmetry: a tile writes two matrices, and is a few element-wise passes either way.
    fill(nngp, tile, symmetric=False)
    return InfiniteWidthKernels(nngp, ntk)


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
