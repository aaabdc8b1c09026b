"""A user's own data in memory: examples of any shape, with class numbers or real targets."""

from dataclasses import dataclass, replace

import numpy as np
import psutil
import torch
from jaxtyping import Float, Int64, Num, Shaped
from torch import Tensor

from gatelab.data.circle_data import Regression
from gatelab.data.dataset import Dataset
from gatelab.errors import InputError

NO_TEST_PART = "There is no test part"  # how a remark about it begins
_HELD_OUT = 5  # one example in five is for test if there is no test part


@dataclass(frozen=True)
class UserData:
    """Examples and targets, split for training and test.

    Attributes:
        title: the name in print.
        train_x, test_x: examples first; bytes stay bytes until they are used.
        train_y, test_y: class numbers (int64), or real targets, (n,) or (n, k).
        classes: names of the classes; empty if they have none.
        largest: the byte that stands for 1.
        remarks: sentences that say how the data were changed on loading.
        rows: the places of both parts in the given examples, if the test part was taken from them because there was
            none.
    """

    title: str
    train_x: Shaped[Tensor, "n ..."]
    train_y: Num[Tensor, " n *k"]
    test_x: Shaped[Tensor, "m ..."]
    test_y: Num[Tensor, " m *k"]
    classes: tuple[str, ...] = ()
    largest: float = 255.0
    remarks: tuple[str, ...] = ()
    rows: tuple[Int64[Tensor, " n"], Int64[Tensor, " m"]] | None = None

    def inputs(self, x: Shaped[Tensor, "..."], dtype: torch.dtype | None = None) -> Float[Tensor, "..."]:
        """Return floating numbers; bytes are divided by ``largest``."""
        numbers = x.to(dtype or torch.get_default_dtype())
        return numbers / self.largest if x.dtype == torch.uint8 else numbers

    def subset(self, train: int | None, test: int | None = None, *, seed: int = 0) -> "UserData":
        """Return a random subset, in the order of the whole; None keeps all."""
        generator = torch.Generator().manual_seed(seed)
        parts, rows = [], []
        given = (self.train_x, self.train_y, train), (self.test_x, self.test_y, test)
        for (x, y, count), own in zip(given, self.rows or (None, None), strict=True):
            chosen = slice(None) if count is None else torch.randperm(len(x), generator=generator)[:count].sort().values
            parts += [x[chosen], y[chosen]]
            rows += [] if own is None else [own[chosen]]
        kept = (rows[0], rows[1]) if rows else None
        return replace(self, train_x=parts[0], train_y=parts[1], test_x=parts[2], test_y=parts[3], rows=kept)


# What training accepts: labels are whole numbers, targets are real ones.
Examples = Dataset | Regression | UserData
Part = tuple[Tensor, "Tensor | np.ndarray"]  # examples; targets as they come from the source


def user_data(title: str, train: Part, test: Part | None, *, seed: int = 0, remarks: tuple[str, ...] = ()) -> UserData:
    """Make a data set from its parts; without a test part, a random fifth of the examples is held out."""
    notes, rows = list(remarks), None
    if test is None:
        _refuse_unusable(title, "training", train[0], len(train[1]))
        rows = _held_out(len(train[0]), seed)
        train, test = _rows(train, rows[0]), _rows(train, rows[1])
        notes.append(f"{NO_TEST_PART}: a random fifth, {len(test[0]):,} examples, is held out, the same in every run.")
    for name, (x, y) in (("training", train), ("test", test)):
        _refuse_unusable(title, name, x, len(y))
    if train[0].shape[1:] != test[0].shape[1:]:
        raise InputError(
            f"{title}: training examples have shape {tuple(train[0].shape[1:])}, test examples "
            f"{tuple(test[0].shape[1:])}; give both the same shape"
        )
    train_y, test_y, classes, said = encoded(title, train[1], test[1])
    if train[0].dtype == torch.uint8:
        notes.append("Bytes are divided by 255.")
    parts = title, train[0], train_y, test[0], test_y, classes
    return UserData(*parts, remarks=(*notes, *said), rows=rows)


def _held_out(n: int, seed: int) -> tuple[Tensor, Tensor]:
    """The places of the examples for training, and of the fifth for test."""
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    return order[n // _HELD_OUT :].sort().values, order[: n // _HELD_OUT].sort().values


def _rows(whole: Part, rows: Tensor) -> Part:
    x, y = whole
    return x[rows], y[rows.numpy() if isinstance(y, np.ndarray) else rows]


def _refuse_unusable(title: str, part: str, x: Tensor, targets: int) -> None:
    if x.ndim < 2:
        raise InputError(f"{title}: {part} examples have shape {tuple(x.shape)}; give one row for each example, (n, …)")
    if len(x) != targets:
        raise InputError(f"{title}: {len(x)} {part} examples, {targets} labels; give one label for each example")
    if not x[:1].numel() and len(x):
        raise InputError(f"{title}: {part} examples have shape {tuple(x.shape[1:])}, and hold no numbers")
    if len(x) < 2:
        raise InputError(f"{title}: {len(x)} {part} examples; give at least two")
    if x.is_complex():
        raise InputError(f"{title}: {part} examples are complex numbers; give their real and imaginary parts")
    if x.is_floating_point():
        broken = (~torch.isfinite(x)).flatten(1).any(dim=1).nonzero()
        if len(broken):
            first = int(broken[0])
            place = int((~torch.isfinite(x[first])).flatten().nonzero()[0])
            raise InputError(
                f"{title}: {len(broken)} {part} examples hold NaN or infinite values, first example {first} at place "
                f"{place}; remove or impute them"
            )


def encoded(
    title: str, train: Tensor | np.ndarray, test: Tensor | np.ndarray
) -> tuple[Tensor, Tensor, tuple[str, ...], list[str]]:
    """Turn targets into class numbers or real numbers; return these, the classes' names, and remarks on the changes."""
    parts = [np.asarray(part) for part in (train, test)]
    parts = [part[:, 0] if part.ndim == 2 and part.shape[1] == 1 else part for part in parts]
    kinds = {part.dtype.kind for part in parts}
    if not kinds <= set("biuf"):
        return _named(title, parts)
    if "b" in kinds:
        parts = [part.astype(np.int64) for part in parts]
    for name, part in zip(("training", "test"), parts, strict=True):
        broken = np.flatnonzero(~np.isfinite(part).reshape(len(part), -1).all(axis=1))
        if len(broken):
            raise InputError(
                f"{title}: {len(broken)} {name} labels are NaN or infinite, the first at example {broken[0]}; remove "
                "these examples"
            )
    if all(_is_one_hot(part) for part in parts):
        first, second = (torch.from_numpy(part.argmax(axis=1)) for part in parts)
        return first, second, (), ["Labels are one-hot; the column of the 1 is the class."]
    if any(part.ndim > 2 for part in parts):
        raise InputError(f"{title}: labels have shape {parts[0].shape}; give (n,), or (n, k) for k real targets")
    if all(part.dtype.kind in "biu" for part in parts):
        first, second = (torch.from_numpy(part.astype(np.int64)) for part in parts)
        if set(first.unique().tolist()) == {-1, 1} and set(second.unique().tolist()) <= {-1, 1}:
            return (first + 1) // 2, (second + 1) // 2, ("−1", "+1"), ["Labels −1 and +1 are classes 0 and 1."]
        return first, second, (), []
    first, second = (torch.from_numpy(part.astype(np.float64)).to(torch.get_default_dtype()) for part in parts)
    return first, second, (), []


def refuse_beyond_memory(needed: int, what: str) -> None:
    """Refuse data that would take more than half of the memory that is free."""
    free = psutil.virtual_memory().available
    if needed > free / 2:
        raise InputError(
            f"{what} take {needed / 1e9:.3g} GB of memory, and {free / 1e9:.3g} GB are free; give a part of them, for "
            "example torch.utils.data.Subset, smaller images, or bytes instead of floating numbers"
        )


def _is_one_hot(part: np.ndarray) -> bool:
    if part.ndim != 2 or part.shape[1] < 2:
        return False
    return bool(((part == 0) | (part == 1)).all() and (part.sum(axis=1) == 1).all())


def _named(title: str, parts: list[np.ndarray]) -> tuple[Tensor, Tensor, tuple[str, ...], list[str]]:
    """Number the classes of text labels in alphabetical order."""
    if any(part.ndim != 1 for part in parts):
        raise InputError(f"{title}: labels have shape {parts[0].shape} and are not numbers; give one label per example")
    missing = [
        place for part in parts for place, label in enumerate(part) if str(label) in ("None", "nan", "<NA>", "NaT")
    ]
    if missing:
        raise InputError(f"{title}: the label of example {missing[0]} is missing; remove such examples")
    odd = [label for part in parts for label in part if not isinstance(label, str | bytes | int | float | np.generic)]
    if odd:
        raise InputError(f"{title}: a label is a {type(odd[0]).__name__}; labels are numbers or texts")
    names = sorted({str(label) for label in parts[0]})
    unknown = sorted({str(label) for label in parts[1]} - set(names))
    if unknown:
        raise InputError(
            f"{title}: test labels {', '.join(unknown[:5])} do not occur in training, where there are "
            f"{', '.join(names[:10])}"
        )
    number = {name: place for place, name in enumerate(names)}
    first, second = (torch.tensor([number[str(label)] for label in part]) for part in parts)
    shown = ", ".join(f"{name} = {place}" for place, name in enumerate(names[:6])) + (", …" if len(names) > 6 else "")
    return first, second, tuple(names), [f"Classes are numbered in alphabetical order: {shown}."]
