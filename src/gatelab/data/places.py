"""Open data by name: a known data set, a file, a folder of images, or a function in a Python file."""

from pathlib import Path
from typing import Any

import numpy as np

from gatelab.data.dataset import load, names
from gatelab.data.image_folder import read_image_folder
from gatelab.data.objects import gathered
from gatelab.data.tables import ENDINGS, read_frame
from gatelab.data.user_data import Examples, refuse_beyond_memory, user_data
from gatelab.errors import DataError, InputError
from gatelab.work.user_code import from_file, is_there

_TRAIN, _TEST = ("train_{}", "{}_train", "{}_tr"), ("test_{}", "{}_test", "{}_te")
_X, _Y = ("x", "X", "images", "data", "features", "inputs"), ("y", "Y", "labels", "targets", "target")


def open_data(
    place: str,
    *,
    test: str | None = None,
    label: str | None = None,
    root: str | Path | None = None,
    image_size: int | None = None,
) -> Examples:
    """Read the data that ``place`` names.

    Args:
        place: a name such as "mnist"; ``file.npz``, ``file.npy``, a table (``.csv``, ``.tsv``, ``.parquet``), a folder
            of images with a folder per class, or ``file.py:function``.
        test: the same for the test part, if ``place`` has none; else a random fifth is held out.
        label: the column of a table that holds the labels; of a ``.npy``, the file with the labels.
        root: a folder to search before the default ones, for names.
        image_size: resize images of a folder to this height and width.

    Raises:
        InputError, DataError: the data cannot be read or used; the message says why.
    """
    if place in names():
        if test is not None:
            raise InputError(f"{place} has a test part of its own; leave the test data out")
        return load(place, root)
    path, title = Path(place), Path(place).name
    if ".py:" in place:
        return _from_function(place, test, label)
    if not is_there(place):
        raise InputError(
            f"there is no data set or file '{place:.200}'; the data sets are {', '.join(names())}; you may also name a "
            ".npz, .npy, .csv or .parquet file, a folder of images, or file.py:function"
        )
    if test is not None and Path(test).suffix != path.suffix:
        raise InputError(f"{place} and {test} are files of different kinds; give both parts in the same form")
    if path.is_dir():
        parts = [part for one in (place, test) if one for part in read_image_folder(Path(one), image_size)]
        if len(parts) > 2:
            raise InputError(f"{place} has a test part of its own; leave {test} out")
        return user_data(title, parts[0], parts[1] if len(parts) == 2 else None)
    if path.suffix == ".npz":
        return _from_npz(path, None if test is None else Path(test))
    if path.suffix == ".npy":
        return _from_npy(path, test, label)
    if path.suffix in ENDINGS:
        return gathered(read_frame(path), None if test is None else read_frame(Path(test)), label=label, title=title)
    raise InputError(
        f"{place}: supported suffixes are .npz, .npy, {', '.join(ENDINGS)}; for other files, write a function that "
        "returns examples and labels, and give file.py:function"
    )


def _from_function(place: str, test: str | None, label: str | None) -> Examples:
    parts = []
    for one in (place, test):
        if one is None:
            continue
        function = from_file(one, "data")
        try:
            parts.append(function() if callable(function) else function)
        except Exception as error:
            raise InputError(
                f"{one}() failed: {type(error).__name__}: {error}; it must work without arguments"
            ) from error
    title = Path(place).name
    given = parts[0]
    if isinstance(given, tuple | list) and len(given) == 4:  # x, y, x, y
        given = (tuple(given[:2]), tuple(given[2:]))
    return gathered(given, parts[1] if len(parts) == 2 else None, label=label, title=title)


def _from_npz(path: Path, test: Path | None) -> Examples:
    arrays = _arrays(path)
    if test is not None:
        return gathered(_pair(path, arrays), _pair(test, _arrays(test)), title=path.name)
    train = (
        _found(arrays, [form.format(x) for form in _TRAIN for x in _X]),
        _found(arrays, [form.format(y) for form in _TRAIN for y in _Y]),
    )
    held = (
        _found(arrays, [form.format(x) for form in _TEST for x in _X]),
        _found(arrays, [form.format(y) for form in _TEST for y in _Y]),
    )
    if None not in (*train, *held):
        return gathered(
            (arrays[str(train[0])], arrays[str(train[1])]),
            (arrays[str(held[0])], arrays[str(held[1])]),
            title=path.name,
        )
    return gathered(_pair(path, arrays), title=path.name)


def _pair(path: Path, arrays: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    x, y = _found(arrays, _X), _found(arrays, _Y)
    if x is None or y is None:
        raise DataError(
            f"{path} holds {', '.join(arrays) or 'nothing'}; name its arrays x and y, or train_x, train_y, test_x "
            "and test_y"
        )
    return arrays[x], arrays[y]


def _found(arrays: dict[str, np.ndarray], wanted: Any) -> str | None:
    return next((name for name in wanted if name in arrays), None)


def _arrays(path: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as held:
            # Zeros pack a thousandfold: what counts is the size of what will be unpacked.
            refuse_beyond_memory(sum(member.file_size for member in held.zip.infolist()), f"the arrays of {path}")
            return {name: held[name] for name in held.files}
    except InputError:
        raise
    except Exception as error:  # a damaged archive raises errors of many kinds
        raise DataError(f"{path} cannot be read as arrays: {type(error).__name__}: {error}") from error


def _from_npy(path: Path, test: str | None, label: str | None) -> Examples:
    if label is None:
        raise InputError(f"{path} holds only examples; name the file with their labels: --label labels.npy")
    labels = Path(label)
    if test is not None:
        raise InputError(
            "a .npy file has no room for test labels; put x and y of each part into a .npz file, or give one "
            ".npz with train_x, train_y, test_x and test_y"
        )
    return gathered((read_npy(path), read_npy(labels)), title=path.name)


def read_npy(path: Path) -> np.ndarray:
    """Read one array without unpickling anything."""
    try:
        return np.load(path, allow_pickle=False)
    except (OSError, ValueError, TypeError, MemoryError, EOFError) as error:
        raise DataError(f"{path} cannot be read as an array: {error}; give a .npy file of real numbers") from error
