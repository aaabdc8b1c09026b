"""Data sets in memory, as bytes until they are used."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int64, UInt8
from torch import Tensor

from gatelab.data.catalogue import CIFAR10, CIFAR100, FASHION, JPEG_ARCHIVE, MNIST
from gatelab.data.folders import data_folders
from gatelab.data.read import read_cifar, read_idx_set, read_jpeg_archive
from gatelab.errors import DataError, InputError


@runtime_checkable
class Examples(Protocol):
    """What training needs of data: inputs, and labels (whole numbers) or targets (real ones)."""

    @property
    def title(self) -> str:
        """As it is printed."""
        ...

    @property
    def train_x(self) -> Tensor:
        """What to learn from."""
        ...

    @property
    def train_y(self) -> Tensor:
        """What to say to it."""
        ...

    @property
    def test_x(self) -> Tensor:
        """What to be tested on."""
        ...

    @property
    def test_y(self) -> Tensor:
        """What to say to that."""
        ...

    def inputs(self, x: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """Examples as a network takes them."""
        ...


@dataclass(frozen=True)
class Dataset:
    """Images and labels, split for training and test.

    Attributes:
        name: as it is asked for.
        title: as it is printed, "CIFAR-10 (JPEG)" say.
        train_x, test_x: bytes, (n, channels, height, width).
        train_y, test_y: labels from 0.
        classes: names of the labels.
        largest: the byte that stands for 1.
    """

    name: str
    title: str
    train_x: UInt8[Tensor, "n c h w"]
    train_y: Int64[Tensor, " n"]
    test_x: UInt8[Tensor, "m c h w"]
    test_y: Int64[Tensor, " m"]
    classes: tuple[str, ...]
    largest: float = 255.0

    def inputs(self, x: UInt8[Tensor, "..."], dtype: torch.dtype | None = None) -> Float[Tensor, "..."]:
        """Bytes as numbers between 0 and 1."""
        return x.to(dtype or torch.get_default_dtype()).div_(self.largest)

    def subset(self, train: int | None, test: int | None = None, *, seed: int = 0) -> "Dataset":
        """As many random examples of each part; None keeps all."""
        generator = torch.Generator().manual_seed(seed)
        parts = []
        for x, y, count in ((self.train_x, self.train_y, train), (self.test_x, self.test_y, test)):
            chosen = torch.randperm(len(x), generator=generator)[:count].sort().values if count else slice(None)
            parts += [x[chosen], y[chosen]]
        return replace(self, train_x=parts[0], train_y=parts[1], test_x=parts[2], test_y=parts[3])

    def shrunk(self, factor: int) -> "Dataset":
        """Images smaller by a whole factor: each pixel the mean of a square of pixels, rounded."""
        height, width = self.train_x.shape[2:]
        if factor < 1 or height % factor or width % factor:
            raise InputError(f"images of {height} × {width} cannot shrink by {factor}; give a divisor of both")
        if factor == 1:
            return self

        def shrink(x: Tensor) -> Tensor:
            squares = x.unfold(2, factor, factor).unfold(3, factor, factor)
            return squares.float().mean(dim=(4, 5)).round().to(torch.uint8)

        title = f"{self.title}, {height // factor} × {width // factor} pixels"
        return replace(self, title=title, train_x=shrink(self.train_x), test_x=shrink(self.test_x))


def load(name: str, root: str | Path | None = None) -> Dataset:
    """A data set by name: digits, mnist, mnist-4-7, fashion-mnist, cifar10, cifar100.

    Raises:
        InputError: there is none of this name.
        DataError: its files are missing, truncated or corrupt; says which, and what to do.
    """
    if name not in _LOADERS:
        raise InputError(f"there is no data set '{name}'; there are {', '.join(_LOADERS)}")
    return _LOADERS[name](root)


def names() -> tuple[str, ...]:
    """The names that :func:`load` knows."""
    return tuple(_LOADERS)


def _digits(root: str | Path | None) -> Dataset:
    """The 1797 digits of 8×8 pixels that come with scikit-learn; a fifth of them for test."""
    del root
    from sklearn.datasets import load_digits  # noqa: PLC0415  slow to import, and needed here only

    bunch: Any = load_digits()
    x, y = torch.from_numpy(bunch.images).to(torch.uint8).unsqueeze(1), torch.from_numpy(bunch.target).long()
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    test, train = order[:360], order[360:]
    return Dataset("digits", "digits", x[train], y[train], x[test], y[test], MNIST.classes, largest=16.0)


def _mnist(root: str | Path | None) -> Dataset:
    return Dataset("mnist", MNIST.title, *read_idx_set(MNIST, root), MNIST.classes)


def _four_or_seven(root: str | Path | None) -> Dataset:
    """MNIST's fours and sevens, labelled 0 and 1 (npk, Figure 3: −1 and +1)."""
    whole = _mnist(root)
    parts = []
    for x, y in ((whole.train_x, whole.train_y), (whole.test_x, whole.test_y)):
        chosen = (y == 4) | (y == 7)
        parts += [x[chosen], (y[chosen] == 7).long()]
    return Dataset("mnist-4-7", "MNIST, 4 or 7", parts[0], parts[1], parts[2], parts[3], ("4", "7"))


def _fashion(root: str | Path | None) -> Dataset:
    return Dataset("fashion-mnist", FASHION.title, *read_idx_set(FASHION, root), FASHION.classes)


def _cifar10(root: str | Path | None) -> Dataset:
    """The original files if they are there, else the JPEG archive, named as such."""
    try:
        return Dataset("cifar10", CIFAR10.title, *read_cifar(CIFAR10, root), CIFAR10.classes)
    except DataError:
        archive = jpeg_archive(root)
        if archive is None:
            raise
    return Dataset("cifar10", "CIFAR-10 (JPEG)", *read_jpeg_archive(archive), CIFAR10.classes)


def jpeg_archive(root: str | Path | None = None) -> Path | None:
    """Where CIFAR-10's JPEG archive lies, if it is here."""
    return next((path for folder in data_folders(root) if (path := folder / JPEG_ARCHIVE).is_file()), None)


def _cifar100(root: str | Path | None) -> Dataset:
    return Dataset("cifar100", CIFAR100.title, *read_cifar(CIFAR100, root), CIFAR100.classes)


_LOADERS: dict[str, Callable[[str | Path | None], Dataset]] = {
    "digits": _digits,
    "mnist": _mnist,
    "mnist-4-7": _four_or_seven,
    "fashion-mnist": _fashion,
    "cifar10": _cifar10,
    "cifar100": _cifar100,
}
