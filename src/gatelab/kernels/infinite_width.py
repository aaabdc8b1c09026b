"""Kernels of infinitely wide fully connected ReLU networks (npk, Appendix A)."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf, pi
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gatelab.errors import InputError
from gatelab.kernels.overflow import refuse_overflow
from gatelab.kernels.tiles import bytes_of, evaluate, fill, refuse_too_large, tile_size
from gatelab.observe import examples

_NEAR = 1e-3  # how close to ±1 a cosine may come before arccos loses more than three digits
_PAIRS = 4096  # pairs of such examples computed at a time
_SMALL_ANGLE = 0.1  # below this angle the series is exact to all digits


@dataclass(frozen=True)
class InfiniteWidthKernels:
    r"""The two standard limits of a network with d weight layers, weights N(0, 1), hidden layers scaled by √(2/w).

    Attributes:
        nngp: the NNGP (neural network Gaussian process) kernel, the covariance of the output over random weights,
            :math:`\Sigma^{(d)}`.
        ntk: the tangent kernel, :math:`\tilde K^{(d)}`.
    """

    nngp: Float[Tensor, "n m"]
    ntk: Float[Tensor, "n m"]


def infinite_width_ntk(
    x: Float[Tensor, "n ..."], y: Float[Tensor, "m ..."] | None = None, *, depth: int, last_layer: float = 1.0
) -> Float[Tensor, "n m"]:
    r"""Compute the limit of the tangent kernel of ReLU networks of width w → ∞ (npk, Eq. 2).

    .. math:: K = \frac{c}{2} (\tilde K^{(d)} - \Sigma^{(d)}) + \Sigma^{(d)}

    for normal weights of variance 2/w, and c/w in the last layer; :func:`infinite_width_kernels` returns K̃ and Σ. With
    c = 1 it is the K^(d) of Eq. 2. With c = 2, the variance of npk's Sections 5 and 6, it is K̃, another kernel.
    Signs ±σ in the first layer, as drawn there, have another limit again, since few inputs make no normal sum.

    Args:
        x: examples; axes behind the first are flattened.
        y: other examples; None means x.
        depth: number of weight layers, hidden layers + 1.
        last_layer: c, the variance of the last layer's weights times the width.

    Returns:
        K, one row for each example of x and one column for each of y.

    Example:
        >>> infinite_width_ntk(torch.eye(2), depth=1).tolist()   # one weight layer is linear: the input Gram matrix
        [[1.0, 0.0], [0.0, 1.0]]
    """
    return evaluate(InfiniteWidthKernel(depth, last_layer).on(x, y), x, y)


@dataclass(frozen=True)
class InfiniteWidthKernel:
    """The infinite-width kernel for any number of examples; see :func:`infinite_width_ntk`.

    Attributes:
        depth: number of weight layers, hidden layers + 1.
        last_layer: variance of the last layer's weights times the width.
    """

    depth: int
    last_layer: float = 1.0

    def about(self) -> dict[str, Any]:
        """Return what distinguishes this kernel from others, as plain data."""
        # Nothing is added for Eq. 2, so that older stores remain valid.
        other = {} if self.last_layer == 1 else {"last_layer": self.last_layer}
        return {"kind": "infinite", "depth": self.depth, **other}

    def on(self, x: Float[Tensor, "n ..."], y: Float[Tensor, "m ..."] | None = None) -> "_InfiniteWidthTiles":
        """Return the kernel on examples of x against y, to be evaluated block by block."""
        _check(x, y, self.depth)
        if isinstance(self.last_layer, bool) or not isinstance(self.last_layer, int | float):
            raise InputError(f"last_layer is {self.last_layer!r}; give a variance times the width, such as 1 or 2")
        if not 0 <= self.last_layer < inf:
            raise InputError(f"last_layer is {self.last_layer:g}; a variance is finite and not negative")
        return _InfiniteWidthTiles(self.depth, self.last_layer, x.dtype)


@dataclass(frozen=True)
class _InfiniteWidthTiles:
    depth: int
    last_layer: float
    dtype: torch.dtype
    outputs: tuple[int, ...] = ()

    def rows(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n d"]:
        return x.detach().flatten(1)

    def method(self, x: Float[Tensor, "n ..."]) -> list[str]:
        """Return how entries are computed."""
        del x
        return [f"closed form for {self.depth} layers, from the Gram matrix of the inputs"]

    def bytes_kept(self, rows: Float[Tensor, "n d"]) -> int:
        return bytes_of(rows)

    def bytes_working(self, rows: Float[Tensor, "n d"], size: int) -> int:
        tile = tile_size(size)
        return 8 * (16 * tile**2 + 2 * tile * rows.shape[1])  # some float64 matrices, and the rows in float64

    def block(self, left: Float[Tensor, "n d"], right: Float[Tensor, "m d"]) -> Float[Tensor, "n m"]:
        kernel = torch.empty(left.shape[0], right.shape[0], dtype=self.dtype, device=left.device)

        def tile(i: slice, j: slice) -> None:
            nngp, ntk = _recursion(left[i].double(), right[j].double(), self.depth)
            kernel[i, j] = nngp + self.last_layer / 2 * (ntk - nngp)

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
    Computed in float64, by angles that keep their digits for (anti)parallel examples; returned in the dtype of x.

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
    refuse_too_large(len(x), len(x if y is None else y), x.dtype)
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


def fixed_gates_ntk(
    x: Float[Tensor, "n ..."], y: Float[Tensor, "m ..."] | None = None, *, depth: int
) -> Float[Tensor, "n m"]:
    r"""Compute the limit of the values' tangent kernel under fixed gates of normal weights, for values of variance 2/w.

    .. math:: K^V \to d\, \Sigma \odot \prod_{l=1}^{d-1} \kappa_0(\theta_l), \quad \kappa_0(\theta) = (\pi - \theta)/\pi

    This is the setting FRNPF (fixed random neural path features): d σ^{2(d−1)} H of npk, Theorem 5.1, with the overlap
    of each layer at its mean, and θ_l as in the ReLU network that makes the gates. Unlike those of a ReLU network,
    the values keep the inner product of the inputs.

    Args:
        x: examples; axes behind the first are flattened.
        y: other examples; None means x.
        depth: number of weight layers, hidden layers + 1.
    """
    _check(x, y, depth)
    refuse_too_large(len(x), len(x if y is None else y), x.dtype)
    rows = x.detach().flatten(1).double()
    columns = rows if y is None else y.detach().flatten(1).double()
    (rows, exponents), (columns, others) = _scaled(rows), _scaled(columns)
    kernel = depth * (rows @ columns.T)
    for _, both_open in angle_maps(rows, columns, depth - 1):
        kernel = kernel * both_open
    kernel = _ldexp(kernel, exponents[:, None] + others).to(x.dtype)
    refuse_overflow(kernel, "the infinite-width kernel")
    return kernel


def _check(x: Tensor, y: Tensor | None, depth: int) -> None:
    if not isinstance(depth, int) or depth < 1:
        raise InputError(f"depth is {depth!r}; it counts weight layers: give a whole number, at least 1")
    width = examples(x).flatten(1).shape[1]
    if not width:
        raise InputError(f"x has shape {tuple(x.shape)}: its examples are empty; give at least one value each")
    other = width if y is None else examples(y, name="y").flatten(1).shape[1]
    if width != other:
        raise InputError(f"x has {width} values per example, y has {other}; give both the same number")
    if y is not None and y.dtype != x.dtype:
        raise InputError(f"x is {x.dtype}, y is {y.dtype}; use y.to({x.dtype})")


def _recursion(x: Float[Tensor, "n d"], y: Float[Tensor, "m d"], depth: int) -> tuple[Tensor, Tensor]:
    (x, exponents), (y, others) = _scaled(x), _scaled(y)
    norms, nngp = x.norm(dim=1)[:, None] * y.norm(dim=1), x @ y.T
    ntk = nngp.clone()
    for cosine, both_open in angle_maps(x, y, depth - 1):
        nngp = norms * cosine
        ntk = ntk * both_open + nngp
    scale = exponents[:, None] + others
    return _ldexp(nngp, scale), _ldexp(ntk, scale)


def _scaled(rows: Float[Tensor, "n d"]) -> tuple[Float[Tensor, "n d"], Int[Tensor, " n"]]:
    """Divide rows by a power of two so that squares neither overflow nor underflow; return the exponents, too."""
    exponents = torch.frexp(rows.abs().amax(dim=1)).exponent
    return _ldexp(rows, -exponents[:, None]), exponents


def _ldexp(values: Tensor, exponents: Int[Tensor, "..."]) -> Tensor:
    """Multiply by powers of two that may lie beyond the range of doubles, in two steps."""
    half = exponents // 2
    return torch.ldexp(torch.ldexp(values, half), exponents - half)


def angle_maps(x: Float[Tensor, "n d"], y: Float[Tensor, "m d"], layers: int) -> Iterator[tuple[Tensor, Tensor]]:
    r"""Yield what each ReLU layer does to the angle θ of two examples, φ = π − θ.

    .. math:: \cos θ' = (\sin φ - φ \cos φ)/π, \qquad κ_0 = φ/π \quad \text{(twice the share of units open for both)}

    θ' comes from 1 − cos θ' = 2 sin²(θ/2) − (sin θ − θ cos θ)/π, which keeps the digits of small angles.
    """
    theta, phi = _angles(x, y)
    for _ in range(layers):
        yield _sine_excess(phi) / pi, phi / pi
        versine = 2 * (theta / 2).sin().square() - _sine_excess(theta) / pi
        theta = 2 * (versine / 2).clamp(0, 1).sqrt().asin()
        phi = pi - theta


def _angles(x: Float[Tensor, "n d"], y: Float[Tensor, "m d"]) -> tuple[Tensor, Tensor]:
    """The angle θ between any two examples, and π − θ, each to full precision; π/2 for an example that is zero."""
    u, v = (rows / rows.norm(dim=1, keepdim=True).clamp(min=torch.finfo(rows.dtype).tiny) for rows in (x, y))
    cosine = (u @ v.T).clamp(-1, 1)
    theta = cosine.arccos()
    phi = pi - theta
    # arccos loses half of the digits near ±1; there 2 atan2(‖u − v‖, ‖u + v‖) is used, pair by pair.
    for i, j in (part.T for part in (cosine.abs() > 1 - _NEAR).nonzero().split(_PAIRS)):
        apart, together = (u[i] - v[j]).norm(dim=1), (u[i] + v[j]).norm(dim=1)
        theta[i, j], phi[i, j] = 2 * torch.atan2(apart, together), 2 * torch.atan2(together, apart)
    return theta, phi


def _sine_excess(angle: Tensor) -> Tensor:
    """Return sin a − a cos a, by its series where the difference would cancel."""
    square = angle.square()
    series = angle * square / 3 * (1 - square / 10 * (1 - square / 28 * (1 - square / 54)))
    return torch.where(angle < _SMALL_ANGLE, series, angle.sin() - angle * angle.cos())
