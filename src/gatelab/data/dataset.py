"""Image data sets in memory; pixels stay bytes until they are used."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int64, UInt8
from torch import Tensor

from gatelab.data.catalogue import CIFAR10, CIFAR100, FASHION, JPEG_ARCHIVE, MNIST, Entry
from gatelab.data.folders import data_folders, find
from gatelab.data.read import read_cifar, read_idx_set, read_jpeg_archive
from gatelab.errors import DataError, InputError
from gatelab.printing import Brief, in_brief


@dataclass(frozen=True, repr=False)
class Dataset(Brief):
    """Images and labels, split for training and test.

    Attributes:
        name: the name to load it by.
        title: the name in print, e.g. "CIFAR-10 (JPEG)".
        train_x, test_x: bytes, (n, channels, height, width).
        train_y, test_y: labels from 0.
        classes: names of the labels.
        largest: the byte that stands for 1.

    Example:
        >>> image, label = torch.full((1, 1, 2, 2), 51, dtype=torch.uint8), torch.zeros(1, dtype=torch.int64)
        >>> data = Dataset("dots", "Dots", image, label, image, label, classes=("dot",))
        >>> data.inputs(data.train_x).unique().tolist()
        [0.20000000298023224]
    """

    name: str
    title: str
    train_x: UInt8[Tensor, "n c h w"]
    train_y: Int64[Tensor, " n"]
    test_x: UInt8[Tensor, "m c h w"]
    test_y: Int64[Tensor, " m"]
    classes: tuple[str, ...]
    largest: float = 255.0

    def __post_init__(self) -> None:
        for part, x, y in (("training", self.train_x, self.train_y), ("test", self.test_x, self.test_y)):
            if len(x) != len(y):
                raise InputError(f"{self.name}: {len(x)} {part} images, {len(y)} labels; give one label for each image")

    def facts(self) -> dict[str, str]:
        """Return what a prompt and a notebook show."""
        size = "×".join(map(str, self.train_x.shape[1:]))
        examples = f"{len(self.train_x):,} training and {len(self.test_x):,} test examples of {size}"
        return {"title": self.title, "examples": examples, "classes": in_brief(self.classes)}

    def inputs(self, x: UInt8[Tensor, "..."], dtype: torch.dtype | None = None) -> Float[Tensor, "..."]:
        """Convert bytes to numbers between 0 and 1.

        Args:
            x: bytes of any shape, such as ``train_x``.
            dtype: of the result; torch's default if left out.

        Returns:
            The numbers, in the shape of x.
        """
        return x.to(dtype or torch.get_default_dtype()).div_(self.largest)

    def subset(self, train: int | None, test: int | None = None, *, seed: int = 0) -> "Dataset":
        """Return a random subset.

        Args:
            train: number of training examples; None keeps all.
            test: number of test examples; None keeps all.
            seed: seed of the choice.

        Returns:
            The subset, in the order of the whole.
        """
        generator = torch.Generator().manual_seed(seed)
        parts = []
        for x, y, count in ((self.train_x, self.train_y, train), (self.test_x, self.test_y, test)):
            if count is not None and (not isinstance(count, int) or count < 0):
                raise InputError(f"cannot take {count!r} examples; {self.name} has {len(x)} in this part")
            chosen = slice(None) if count is None else torch.randperm(len(x), generator=generator)[:count].sort().values
            parts += [x[chosen], y[chosen]]
        return replace(self, train_x=parts[0], train_y=parts[1], test_x=parts[2], test_y=parts[3])

    def shrunk(self, factor: int) -> "Dataset":
        """Shrink images by a whole factor: each new pixel is the rounded mean of a square of pixels."""
        height, width = self.train_x.shape[2:]
        if not isinstance(factor, Integral) or factor < 1 or height % factor or width % factor:
            raise InputError(f"images of {height} × {width} cannot shrink by {factor}; give a divisor of both")
        if factor == 1:
            return self

        def shrink(x: Tensor) -> Tensor:
            squares = x.unfold(2, factor, factor).unfold(3, factor, factor)
            return squares.float().mean(dim=(4, 5)).round().to(torch.uint8)

        title = f"{self.title}, {height // factor} × {width // factor} pixels"
        return replace(self, title=title, train_x=shrink(self.train_x), test_x=shrink(self.test_x))


def evenly(total: int, count: int) -> Int64[Tensor, " k"]:
    """Return the indices of up to ``count`` examples, evenly spaced, since some data sets are sorted by class.

    Example:
        >>> evenly(10, 4).tolist(), evenly(3, 4).tolist()
        ([0, 2, 5, 7], [0, 1, 2])
    """
    count = min(total, count)
    return torch.arange(count) * total // max(1, count)


def load(name: str, root: str | Path | None = None) -> Dataset:
    """Load a data set: digits, mnist, mnist-4-7, fashion-mnist, cifar10 or cifar100.

    Args:
        name: one of :func:`names`.
        root: a folder to search before the default ones.

    Returns:
        The data set, as bytes.

    Raises:
        InputError: the name is unknown.
        DataError: files are missing, truncated or corrupt; the message names them and the remedy.

    Example:
        >>> load("digits").train_x.shape
        torch.Size([1437, 1, 8, 8])
    """
    if name not in _LOADERS:
        raise InputError(f"there is no data set '{name}'; the data sets are {', '.join(_LOADERS)}")
    return _LOADERS[name](root)


def names() -> tuple[str, ...]:
    """Return the names that :func:`load` knows."""
    return tuple(_LOADERS)


def _digits(root: str | Path | None) -> Dataset:
    """Return scikit-learn's 1797 digits of 8×8 pixels; a fifth of them are test images."""
    del root
    from sklearn.datasets import load_digits  # noqa: PLC0415  slow to import, and needed here only

    bunch: Any = load_digits()
    x, y = torch.from_numpy(bunch.images).to(torch.uint8).unsqueeze(1), torch.from_numpy(bunch.target).long()
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    test, train = order[:360], order[360:]
    return Dataset("digits", "digits", x[train], y[train], x[test], y[test], MNIST.classes, largest=16.0)


def _four_or_seven(root: str | Path | None) -> Dataset:
    """Return MNIST's fours and sevens, labelled 0 and 1 (npk, Figure 3: −1 and +1)."""
    whole = _from_files(MNIST, root)
    parts = []
    for x, y in ((whole.train_x, whole.train_y), (whole.test_x, whole.test_y)):
        chosen = (y == 4) | (y == 7)
        parts += [x[chosen], (y[chosen] == 7).long()]
    return Dataset("mnist-4-7", "MNIST, 4 or 7", parts[0], parts[1], parts[2], parts[3], ("4", "7"))


def _cifar10(root: str | Path | None) -> Dataset:
    """Read the original files if they are present, else the JPEG archive, which is labelled as such."""
    try:
        find(CIFAR10, root)
    except DataError as error:
        archive = jpeg_archive(root)
        if archive is None:
            raise DataError(f"{error}; {JPEG_ARCHIVE} serves, too") from error
    else:
        return _from_files(CIFAR10, root)  # damaged files raise: they must not give way to other images in silence
    return Dataset("cifar10", "CIFAR-10 (JPEG)", *read_jpeg_archive(archive), CIFAR10.classes)


def jpeg_archive(root: str | Path | None = None) -> Path | None:
    """Return the path of CIFAR-10's JPEG archive, or None if it is not present."""
    return next((path for folder in data_folders(root) if (path := folder / JPEG_ARCHIVE).is_file()), None)


def _from_files(entry: Entry, root: str | Path | None) -> Dataset:
    read = read_cifar if entry in (CIFAR10, CIFAR100) else read_idx_set
    return Dataset(entry.name, entry.title, *read(entry, root), entry.classes)


_LOADERS: dict[str, Callable[[str | Path | None], Dataset]] = {
    "digits": _digits,
    "mnist": partial(_from_files, MNIST),
    "mnist-4-7": _four_or_seven,
    "fashion-mnist": partial(_from_files, FASHION),
    "cifar10": _cifar10,
    "cifar100": partial(_from_files, CIFAR100),
}
