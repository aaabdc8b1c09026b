r"""Kernels of infinitely wide convolutional ReLU networks (CNTK: convolutional NTK), flattened or globally pooled.

The recursion of Arora et al. (2019, "On exact computation with an infinitely wide neural net") with stride 1 and zero
padding, and its form for fixed random gates. With S(p, p') at positions p of x and p' of x', the k × k filter taps o,
T S(p, p') = Σ_o S(p + o, p' + o)/k², and κ₀, κ₁ the maps of a ReLU layer on normalised covariances,

.. math::
    Σ_{l+1} = T A_l, \quad A_l = \sqrt{Σ_l(p,p) Σ_l(p',p')}\, κ_1, \quad
    Θ_{l+1} = T(κ_0 ⊙ Θ_l) + Σ_{l+1}, \quad V_{l+1} = T(κ_0 ⊙ V_l)

from Σ₁ = Θ₁ = V₁ = T of the inputs' channel Gram. Flattening averages over p = p', global pooling over all (p, p').
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import pi

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from gatelab.errors import InputError
from gatelab.kernels.overflow import refuse_overflow
from gatelab.kernels.tiles import tiles
from gatelab.observe import examples

_ENTRIES = 2**18  # entries of a covariance computed at a time: 2 MiB fit in a cache


@dataclass(frozen=True)
class ConvolutionalKernels:
    """The limits of one architecture, weights N(0, 1), layers scaled by √(2/fan-in), the first by √(1/k²).

    Attributes:
        nngp: covariance of the output over random weights.
        ntk: the tangent kernel (CNTK).
        fixed_gates: the values' tangent kernel under fixed random gates (fixed random neural path features, FRNPF),
            with the same scales.
    """

    nngp: Float[Tensor, "n m"]
    ntk: Float[Tensor, "n m"]
    fixed_gates: Float[Tensor, "n m"]


def convolutional_kernels(
    x: Float[Tensor, "n c h w"],
    y: Float[Tensor, "m c h w"] | None = None,
    *,
    convolutions: int,
    pooled: bool,
    filter_size: int = 3,
) -> ConvolutionalKernels:
    """Compute the kernels of ``convolutions`` layers of k × k filters, each with a ReLU, and a dense readout.

    O(n m P k²) for P positions if flattened, O(n m P² k²) with global pooling; in float64, examples in tiles. Angles
    come from covariances, so where two patches are almost parallel or antiparallel each layer is exact to 2e-8 only.

    Args:
        x: images.
        y: other images; None means x.
        convolutions: number of convolutions.
        pooled: whether the readout averages over positions first; otherwise it reads all of them.
        filter_size: k, odd.

    Returns:
        Three kernels, as ``.nngp``, ``.ntk`` and ``.fixed_gates``.

    Example:
        >>> kernels = convolutional_kernels(torch.ones(1, 1, 1, 1), convolutions=2, pooled=True, filter_size=1)
        >>> kernels.nngp.item(), kernels.ntk.item()  # one pixel: a fully connected network of depth 3
        (1.0, 3.0)
    """
    for name, number in (("convolutions", convolutions), ("filter_size", filter_size)):
        if not isinstance(number, int) or isinstance(number, bool) or number < 1:
            raise InputError(f"{name} is {number!r}; give a whole number, at least 1")
    if filter_size % 2 == 0:
        raise InputError(f"filter_size is {filter_size}; give an odd one, which has a middle")
    rows = _images(x, "x")
    columns = rows if y is None else _images(y, "y")
    if y is not None and y.dtype != x.dtype:
        raise InputError(f"x is {x.dtype}, y is {y.dtype}; use y.to({x.dtype})")
    if rows.shape[1:] != columns.shape[1:]:
        raise InputError(f"x has images of shape {tuple(rows.shape[1:])}, y of {tuple(columns.shape[1:])}")
    positions = rows[0, 0].numel() ** (2 if pooled else 1)
    tile = max(1, int((_ENTRIES / positions) ** 0.5))
    found = rows.new_empty(3, len(rows), len(columns))
    for i, j in tiles(len(rows), len(columns), symmetric=y is None, size=tile):
        block = found[:, i, j] = _block(rows[i], columns[j], convolutions, filter_size, pooled)
        if y is None:
            found[:, j, i] = block.mT
    found = found.to(x.dtype)
    refuse_overflow(found, "the infinite-width kernel")
    return ConvolutionalKernels(*found)


def _images(x: Tensor, name: str) -> Float[Tensor, "n c h w"]:
    """Check images, and return them in float64."""
    images = examples(x, name=name).detach()
    if images.ndim != 4 or not images[0].numel():
        raise InputError(
            f"{name} has shape {tuple(images.shape)}; give images (examples, channels, height, width), none of them "
            "empty; gray ones have one channel: x.unsqueeze(1)"
        )
    return images.double()


def _block(x: Tensor, y: Tensor, convolutions: int, k: int, pooled: bool) -> Float[Tensor, "3 n m"]:
    """The three kernels of two blocks of images."""
    gram = torch.einsum("nchw,mcij->nmhwij", x, y) if pooled else torch.einsum("nchw,mchw->nmhw", x, y)
    covariance = _taps(gram, k, pooled)
    tangent = values = covariance
    activated = both_open = covariance
    for layer, (norms, others) in enumerate(zip(_norms(x, convolutions, k), _norms(y, convolutions, k), strict=True)):
        if layer > 0:
            covariance = _taps(activated, k, pooled)
            tangent, values = _taps(both_open * tangent, k, pooled) + covariance, _taps(both_open * values, k, pooled)
        scale = norms[:, None, :, :, None, None] * others[:, None, None] if pooled else norms[:, None] * others
        cosine = (covariance / scale.where(scale > 0, 1.0)).clamp(-1, 1)
        # Rounding must not create an angle between an image and itself: arccos(1 − ε) is √(2ε).
        cosine = cosine.where(1 - cosine > 8 * torch.finfo(cosine.dtype).eps, 1.0)
        both_open = 1 - cosine.arccos() / pi
        activated = scale * (((1 - cosine) * (1 + cosine)).sqrt() / pi + both_open * cosine)
    nngp, below, fixed = (part.flatten(2).mean(dim=2) for part in (activated, both_open * tangent, both_open * values))
    return torch.stack([nngp, below + nngp, (convolutions + 1) * fixed])


def _norms(x: Float[Tensor, "n c h w"], convolutions: int, k: int) -> Iterator[Float[Tensor, "n h w"]]:
    """√Σ_l(p, p) of each image, layer by layer; a ReLU scaled by √2 does not change it."""
    own = x.square().sum(dim=1)
    for _ in range(convolutions):
        own = F.avg_pool2d(own[:, None], k, 1, k // 2)[:, 0]
        yield own.sqrt()


def _taps(covariance: Tensor, k: int, pooled: bool) -> Tensor:
    """T: the mean over filter taps, which move both positions together; zero outside the image."""
    if not pooled:
        return F.avg_pool2d(covariance, k, 1, k // 2)
    *_, height, width = covariance.shape
    padded = F.pad(covariance, (k // 2,) * 8)
    rows = sum(
        (padded[:, :, i : i + height, :, i : i + height] for i in range(1, k)), padded[:, :, :height, :, :height]
    )
    first = rows[:, :, :, :width, :, :width]
    return sum((rows[:, :, :, j : j + width, :, j : j + width] for j in range(1, k)), first) / k**2
