"""Two classes of translation-invariant data on a ring or a torus (gdln, Section 1)."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from math import prod
from numbers import Integral

import torch
from jaxtyping import Float
from torch import Tensor

from gatelab.errors import InputError


class TwoClasses(ABC):
    """A mixture of two translation-invariant distributions, y = 1 and y = 0 with probability ½ each.

    Examples are flat; d is the number of sites. ``shape`` is (n,) for a ring and (height, width) for a torus.
    """

    shape: tuple[int, ...]

    @property
    def dim(self) -> int:
        """Number of sites."""
        return prod(self.shape)

    def of_class(
        self, label: int, count: int, *, generator: torch.Generator | None = None, dtype: torch.dtype | None = None
    ) -> Float[Tensor, "n d"]:
        """Draw independent examples of one class.

        Args:
            label: the class, 1 or 0.
            count: number of examples.
            generator: source of randomness; the examples are on its device.
            dtype: of the examples; torch's default if left out.

        Returns:
            The examples.
        """
        if not isinstance(count, Integral) or count < 1:
            raise InputError(f"{count!r} examples of class {label} cannot be drawn; ask for a whole number, at least 1")
        return self._draw(label, count, generator, dtype or torch.get_default_dtype())

    @abstractmethod
    def _draw(self, label: int, count: int, generator: torch.Generator | None, dtype: torch.dtype) -> Tensor:
        """Draw examples of one class for :meth:`of_class`."""

    @abstractmethod
    def mean(self, label: int) -> float:
        """Return ⟨x_i⟩ of a class, which is the same at every site."""

    @abstractmethod
    def correlation(self, label: int) -> Float[Tensor, "*shape"]:
        """Return ⟨x_0 x_j⟩ of a class for every site j, in float64: the first row of its second moment."""

    def second_moment(self, label: int) -> Float[Tensor, "d d"]:
        """Return ⟨x xᵀ⟩ of a class, in float64."""
        return circulant(self.correlation(label))

    def covariance(self, label: int) -> Float[Tensor, "d d"]:
        """Return ⟨x xᵀ⟩ − ⟨x⟩⟨x⟩ᵀ of a class, in float64."""
        return self.second_moment(label) - self.mean(label) ** 2

    def sample(
        self, count: int, *, generator: torch.Generator | None = None, dtype: torch.dtype | None = None
    ) -> tuple[Float[Tensor, "n d"], Float[Tensor, " n"]]:
        """Draw an even number of examples, like :meth:`of_class`, with alternating labels y = 1, 0, 1, 0, …."""
        if not isinstance(count, Integral) or count < 2 or count % 2:
            raise InputError(f"{count!r} examples cannot be split equally between two classes; ask for an even number")
        ones = self.of_class(1, count // 2, generator=generator, dtype=dtype)
        zeros = self.of_class(0, count // 2, generator=generator, dtype=dtype)
        y = torch.tensor([1.0, 0.0], dtype=ones.dtype, device=ones.device).repeat(count // 2)
        return torch.stack([ones, zeros], dim=1).flatten(0, 1), y

    def stream(
        self, batch: int, *, generator: torch.Generator | None = None, dtype: torch.dtype | None = None
    ) -> Iterator[tuple[Float[Tensor, "n d"], Float[Tensor, " n"]]]:
        """Yield new balanced batches without end."""
        while True:
            yield self.sample(batch, generator=generator, dtype=dtype)


def check_label(label: int) -> None:
    """Raise InputError unless the class is 0 or 1."""
    if label not in (0, 1):
        raise InputError(f"there is no class {label}; the classes are 0 and 1")


def check_shape(shape: tuple[int, ...]) -> None:
    """Raise InputError unless the shape is a ring or a torus."""
    whole = isinstance(shape, Sequence) and all(isinstance(size, Integral) for size in shape)
    if not whole or len(shape) not in (1, 2) or min(shape) < 2:
        raise InputError(
            f"shape is {shape}; give (n,) for a ring or (height, width) for a torus, two sites or more each"
        )


def squared_distances(shape: tuple[int, ...]) -> Float[Tensor, "*shape"]:
    """Return the squared distance of every site from site 0, the short way round.

    Example:
        >>> squared_distances((5,)).tolist()
        [0.0, 1.0, 4.0, 4.0, 1.0]
    """
    axes = [torch.arange(size, dtype=torch.float64) for size in shape]
    rings = [torch.minimum(axis, size - axis).square() for axis, size in zip(axes, shape, strict=True)]
    return rings[0] if len(rings) == 1 else rings[0][:, None] + rings[1]


def circulant(row: Float[Tensor, "*shape"]) -> Float[Tensor, "d d"]:
    """Return the translation-invariant matrix M[i, j] = row[j − i] on a ring or a torus.

    Example:
        >>> circulant(torch.tensor([2.0, 1.0, 0.0])).tolist()
        [[2.0, 1.0, 0.0], [0.0, 2.0, 1.0], [1.0, 0.0, 2.0]]
    """
    sites = torch.arange(row.numel(), device=row.device)
    places, offset = torch.unravel_index(sites, row.shape), torch.zeros_like(sites)
    for place, size in zip(places, row.shape, strict=True):
        offset = offset * size + (place - place[:, None]) % size
    return row.flatten()[offset]


def gaussian_field(
    root: Float[Tensor, "*half"],
    shape: tuple[int, ...],
    count: int,
    generator: torch.Generator | None,
    dtype: torch.dtype,
) -> Float[Tensor, "n d"]:
    """Draw from a zero-mean Gaussian whose covariance has the eigenvalues root², by convolution of white noise.

    This costs O(n d log d) and needs no d × d matrix.
    """
    device = None if generator is None else generator.device
    white = torch.randn(count, *shape, generator=generator, dtype=dtype, device=device)
    axes = tuple(range(1, len(shape) + 1))
    return torch.fft.irfftn(torch.fft.rfftn(white, dim=axes) * root.to(white), s=shape, dim=axes).flatten(1)


def root_spectrum(row: Float[Tensor, "*shape"], what: str) -> Float[Tensor, "*half"]:
    """Return the roots of a covariance's eigenvalues, from its first row; rounding errors below zero become zero."""
    spectrum = torch.fft.rfftn(row).real  # the eigenvalues of a symmetric translation-invariant matrix
    low, high = float(spectrum.min()), float(spectrum.max())
    if low < -1e-6 * high:
        raise InputError(f"{what} is not a covariance: its eigenvalues range from {low:.3g} to {high:.3g}")
    return spectrum.clamp(min=0).sqrt()
