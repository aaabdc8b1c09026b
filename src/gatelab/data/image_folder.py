"""A folder of images with one folder per class."""

from math import prod
from pathlib import Path

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from gatelab.data.user_data import refuse_beyond_memory
from gatelab.errors import DataError, InputError

_ENDINGS = frozenset(".png .jpg .jpeg .bmp .gif .ppm .pgm .tif .tiff .webp".split())
_TEST_NAMES = ("test", "val", "valid", "validation")


def read_image_folder(folder: Path, size: int | None = None) -> tuple[tuple[Tensor, np.ndarray], ...]:
    """Read images as bytes (n, channels, height, width), and the names of their folders as labels.

    Args:
        folder: holds one folder per class; or ``train`` and ``test`` (or ``val``), each with one folder per class.
        size: resize images to this height and width; None keeps their size.

    Returns:
        The training part, and the test part if there is one.

    Raises:
        DataError: there are no images, or a file cannot be read.
        InputError: images differ in size.
    """
    train = folder / "train"
    test = next((folder / name for name in _TEST_NAMES if (folder / name).is_dir()), None)
    roots = [train, test] if train.is_dir() and test is not None else [folder]
    listed = [_files(root) for root in roots]
    channels = 1 if all(_is_grey(file) for files in listed for file, _ in files) else 3
    return tuple(_read(files, channels, size) for files in listed)


def _files(folder: Path) -> list[tuple[Path, str]]:
    classes = sorted(child for child in folder.iterdir() if child.is_dir() and not child.name.startswith("."))
    found = [
        (file, child.name) for child in classes for file in sorted(child.rglob("*")) if file.suffix.lower() in _ENDINGS
    ]
    if not found:
        raise DataError(
            f"{folder} holds no images in class folders; arrange them as {folder.name}/CLASS/image.png, with endings "
            f"{', '.join(sorted(_ENDINGS))}"
        )
    return found


# What Pillow raises when a file is damaged, or claims to have more pixels than anybody would draw.
_BROKEN = (UnidentifiedImageError, OSError, SyntaxError, ValueError, Image.DecompressionBombError)


def _open(file: Path) -> Image.Image:
    if file.exists() and not file.is_file():  # a pipe would be waited for
        raise DataError(f"{file} is no plain file; remove it")
    try:
        return Image.open(file)
    except _BROKEN as error:
        raise DataError(f"{file} is not an image that can be read ({error}); remove or replace it") from error


def _is_grey(file: Path) -> bool:
    with _open(file) as image:
        return image.mode in ("1", "L", "I;16", "I", "LA")


def _read(files: list[tuple[Path, str]], channels: int, size: int | None) -> tuple[Tensor, np.ndarray]:
    mode, images, first = ("L" if channels == 1 else "RGB"), [], None
    if size is not None and size < 1:
        raise InputError(f"image_size is {size}; give a number of pixels, at least 1")
    for file, _ in files:
        with _open(file) as opened:
            pixels = prod(opened.size) if size is None else size**2
            refuse_beyond_memory(len(files) * channels * pixels, f"{len(files):,} images of the size of {file}")
            try:
                image = opened.convert(mode)
            except _BROKEN as error:
                raise DataError(f"{file} is damaged ({error}); remove or replace it") from error
        if size is not None:
            image = image.resize((size, size), Image.Resampling.BILINEAR)
        first = first or (file, image.size)
        if image.size != first[1]:
            raise InputError(
                f"{file} has {image.size[0]} × {image.size[1]} pixels, {first[0]} has {first[1][0]} × {first[1][1]}; "
                "resize them all, for example with image_size=32"
            )
        images.append(np.asarray(image).reshape(*image.size[::-1], channels))
    pixels = np.stack(images).transpose(0, 3, 1, 2)
    return torch.from_numpy(np.ascontiguousarray(pixels)), np.array([label for _, label in files])
