"""Data that a user holds in Python: arrays, tensors, torch data sets and loaders, data frames."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import (
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
)
from torch.utils.data import Dataset as TorchDataset

from gatelab.data.circle_data import Regression
from gatelab.data.dataset import Dataset
from gatelab.data.tables import is_frame, split_frame
from gatelab.data.user_data import Examples, Part, UserData, refuse_beyond_memory, user_data
from gatelab.errors import GatelabError, InputError

_PROBED = 3  # examples that are read twice to detect data that change
WHOLE = (Dataset, Regression, UserData)
_KEYS = (("x", "y"), ("X", "y"), ("data", "target"), ("data", "labels"), ("images", "labels"), ("image", "label"),
         ("features", "labels"), ("inputs", "targets"))  # fmt: skip


UNNAMED = "your data"


def gathered(train: Any, test: Any = None, *, label: str | None = None, title: str = UNNAMED) -> Examples:
    """Read training and test examples, whatever holds them, into memory.

    Args:
        train: (x, y) as arrays or tensors, a torch ``Dataset`` or ``DataLoader``, a DataFrame, a mapping with x and y,
            or a data set of gatelab, which has a test part of its own.
        test: the same; None holds out a random fifth of ``train``.
        label: of a DataFrame, the column with the labels.
        title: names the data in messages and reports.

    Raises:
        InputError: the data cannot be used; the message says why and gives a remedy.
    """
    if isinstance(train, WHOLE):
        if test is not None:
            raise InputError(f"{train.title} has a test part of its own; leave test out, or give arrays")
        return train
    if test is None and _is_pair_of_parts(train):
        train, test = train
    names = ("train", "test") if title == UNNAMED else (title, f"{title}, test part")
    first = _part(train, names[0], label)
    return user_data(title, first, None if test is None else _part(test, names[1], label))


def _is_pair_of_parts(given: Any) -> bool:
    """Return whether this is (train, test) rather than (x, y)."""
    if not isinstance(given, tuple | list) or len(given) != 2:
        return False
    return all(
        isinstance(part, TorchDataset | DataLoader | Mapping) or is_frame(part)
        or (isinstance(part, tuple | list) and len(part) == 2 and all(_is_array(half) for half in part))
        for part in given
    )  # fmt: skip


def _is_array(given: Any) -> bool:
    return isinstance(given, np.ndarray | Tensor) or (hasattr(given, "__array__") and not is_frame(given))


def _part(given: Any, name: str, label: str | None) -> Part:
    if is_frame(given):
        return split_frame(given, label, name)
    if isinstance(given, Mapping):
        for x, y in _KEYS:
            if x in given and y in given:
                return _arrays(given[x], given[y], name)
        raise InputError(f"{name}: the mapping has {', '.join(map(str, given))}; give x and y")
    if isinstance(given, DataLoader):
        return _from_loader(given, name)
    if isinstance(given, TorchDataset):
        return _from_dataset(given, name)
    if isinstance(given, tuple | list) and len(given) == 2:
        return _arrays(given[0], given[1], name)
    raise InputError(
        f"{name} is a {type(given).__name__}; give (x, y), a torch Dataset or DataLoader, a DataFrame with label=, or "
        "the name of a data set"
    )


def _arrays(x: Any, y: Any, name: str) -> Part:
    if is_frame(x):
        x = split_frame(x, None, name, labelled=False)[0]
    return _tensor(x, f"{name}: x"), _labels(y, f"{name}: y")


def _labels(y: Any, name: str) -> np.ndarray:
    """Labels as an array: numbers in one shape, or texts."""
    try:
        if isinstance(y, Tensor) and y.is_floating_point():
            y = y.to(torch.promote_types(y.dtype, torch.float32))  # NumPy has no bfloat16
        labels = y.detach().cpu().numpy() if isinstance(y, Tensor) else np.asarray(y)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{name} does not hold labels in one shape ({error}); give one for each example") from error
    if labels.ndim == 0:
        raise InputError(f"{name} is {y!r:.100}; give one label for each example")
    return labels


def _tensor(x: Any, name: str) -> Tensor:
    if isinstance(x, Tensor) and (x.is_meta or x.layout != torch.strided):
        raise InputError(f"{name} is a tensor of {x.layout} on {x.device}; give a dense tensor that holds numbers")
    try:
        values = x.detach().cpu() if isinstance(x, Tensor) else torch.from_numpy(np.array(x, order="C"))
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} does not hold numbers in one shape ({error}); give an array of numbers") from error
    if values.dtype == torch.bool:
        values = values.to(torch.uint8).to(torch.get_default_dtype())
    # Bytes stay bytes: they are pixels. Everything else is converted once, here.
    return values if values.dtype == torch.uint8 or values.is_complex() else values.to(torch.get_default_dtype())


def _from_dataset(dataset: TorchDataset[Any], name: str) -> Part:
    if isinstance(dataset, IterableDataset):
        return _stacked(_twice(lambda: _guarded(dataset, name), name), name)
    count = _length(dataset, name)
    _refuse_if_changing(dataset, count, name)
    items = _guarded((dataset[place] for place in range(count)), name)
    if count:
        _refuse_if_too_large(count, _tensor(_pair(dataset[0], name)[0], name), name)
    return _stacked(items, name)


def _length(dataset: Any, name: str) -> int:
    try:
        return len(dataset)
    except (TypeError, NotImplementedError) as error:
        raise InputError(f"{name}: the data set has no length ({error}); give it __len__, or give arrays") from error


def _guarded(items: Iterable[Any], name: str) -> Iterator[Any]:
    """Pass items on; an error inside a user's data set is told as one."""
    try:
        yield from items
    except GatelabError:
        raise
    except Exception as error:
        raise InputError(f"{name}: the data set failed: {type(error).__name__}: {error}; mend or replace it") from error


def _from_loader(loader: DataLoader[Any], name: str) -> Part:
    """Read the loader's data set in its own order; gatelab itself orders the batches, by seed."""
    if isinstance(loader.dataset, IterableDataset):
        return _joined(_twice(lambda: _guarded(loader, name), name), name)
    sampler: Any = loader.sampler
    if isinstance(sampler, SequentialSampler | RandomSampler) and not getattr(sampler, "replacement", False):
        order = list(range(_length(loader.dataset, name)))
    elif isinstance(sampler, SubsetRandomSampler):
        order = sorted(int(place) for place in sampler.indices)
    else:
        raise InputError(
            f"{name}: the DataLoader draws its examples with a {type(sampler).__name__}, so each pass sees others, "
            "and no two networks would see the same examples; give the loader's .dataset instead, and "
            'metric="balanced" if classes are uneven'
        )
    _refuse_if_changing(loader.dataset, len(order), name, order)
    again = DataLoader(loader.dataset, batch_size=256, sampler=order, collate_fn=loader.collate_fn)
    if order:
        first = _tensor(_pair(next(_guarded(again, name)), name)[0], name)
        _refuse_if_too_large(len(order), first[:1], name)
    return _joined(_guarded(again, name), name)


def _refuse_if_changing(dataset: Any, count: int, name: str, order: list[int] | None = None) -> None:
    for place in range(min(_PROBED, count)):
        index = place if order is None else order[place]
        first, second = (_pair(item, name)[0] for item in _guarded((dataset[index] for _ in range(2)), name))
        if not torch.equal(_tensor(first, name), _tensor(second, name)):
            raise InputError(
                f"{name}: example {index} differs each time it is read, so the data set augments. Gates are compared "
                "on the same examples: remove its random transforms, and pass them as augment= instead"
            )


def _twice(start: Any, name: str) -> Iterator[Any]:
    """Yield the items of a stream, after checking that a second pass begins with the same ones."""
    first, second = (_pair(next(start(), None), name)[0] for _ in range(2))
    if not torch.equal(_tensor(first, name), _tensor(second, name)):
        raise InputError(
            f"{name}: a second pass over the stream begins with other examples, so it shuffles or augments. Gates "
            "are compared on the same examples: fix the stream's order, or give arrays"
        )
    return start()


def _pair(item: Any, name: str) -> tuple[Any, Any]:
    if isinstance(item, Mapping):
        for x, y in _KEYS:
            if x in item and y in item:
                return item[x], item[y]
    if isinstance(item, tuple | list) and len(item) == 2:
        return item[0], item[1]
    raise InputError(f"{name}: an item is a {type(item).__name__}; each must be (x, y), an example and its label")


def _stacked(items: Any, name: str) -> Part:
    pairs = [_pair(item, name) for item in items]
    if not pairs:
        raise InputError(f"{name}: the data set is empty")
    examples = [_tensor(x, f"{name}: example {place}") for place, (x, _) in enumerate(pairs)]
    shapes = sorted({tuple(x.shape) for x in examples})
    if len(shapes) > 1:
        raise InputError(f"{name}: examples have shapes {', '.join(map(str, shapes[:4]))}; give all the same shape")
    return torch.stack(examples), _labels([_plain(y) for _, y in pairs], f"{name}: labels")


def _plain(y: Any) -> Any:
    if isinstance(y, Tensor):
        return y.item() if y.ndim == 0 else y.detach().cpu().numpy()
    return y


def _joined(batches: Iterator[Any], name: str) -> Part:
    xs, ys = [], []
    for batch in batches:
        x, y = _pair(batch, name)
        xs.append(_tensor(x, name))
        ys.append(_labels(y, f"{name}: labels"))
    if not xs:
        raise InputError(f"{name}: the DataLoader gives no batch")
    shapes = sorted({(tuple(x.shape[1:]), labels.shape[1:]) for x, labels in zip(xs, ys, strict=True)})
    if len(shapes) > 1:
        raise InputError(f"{name}: batches hold examples and labels of shapes {shapes[:4]}; give all the same shape")
    return torch.cat(xs), np.concatenate(ys)


def _refuse_if_too_large(count: int, first: Tensor, name: str) -> None:
    needed = count * first.numel() * (1 if first.dtype == torch.uint8 else torch.get_default_dtype().itemsize)
    refuse_beyond_memory(needed, f"{name}: {count:,} examples of shape {tuple(first.shape)}")
