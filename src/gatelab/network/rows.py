"""Where a signal has its examples: on which axis, and how many rows each example has there."""

from dataclasses import dataclass

import torch
from torch import Tensor

EXAMPLES = 2  # of a record; with one example, ``squeeze()`` would remove the batch axis
# Views that may put the examples on another axis. Its stride tells which.
_MOVING = frozenset(
    """
    transpose swapaxes swapdims permute movedim moveaxis t T mT H mH adjoint unsqueeze squeeze getitem select unbind
    narrow split chunk tensor_split
    """.split()
)


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of the examples of a signal.

    Attributes:
        axis: the axis on which they are.
        each: how many each example has.
        stride: how far apart they are in memory.
    """

    axis: int
    each: int
    stride: int


SOMEWHERE = Rows(0, 1, 0)  # of a tuple, whose parts are looked at one by one


def first_rows(signal: Tensor) -> Rows | None:
    """Return the rows on the first axis; None if their number does not fit two examples."""
    rows = signal.shape[0] if signal.ndim and signal.layout is torch.strided else 0
    return Rows(0, rows // EXAMPLES, signal.stride(0)) if rows and rows % EXAMPLES == 0 else None


def rows_after(operation: str, before: Rows, signal: Tensor) -> Rows | None:
    """Return the rows of the result of an operation on a signal with the rows ``before``.

    The result is a guess where nothing tells, as behind a reshape: then the rows are on the first axis. A wrong guess
    gives a record that does not run on other numbers of examples, which its certificate finds.

    Example:
        >>> import torch
        >>> x = torch.zeros(2, 5, 8)
        >>> rows_after("transpose", first_rows(x), x.transpose(0, 1))
        Rows(axis=1, each=1, stride=40)
    """
    size = EXAMPLES * before.each
    if signal.layout is not torch.strided:
        return None
    if operation in _MOVING:
        axes = [
            axis
            for axis, about in enumerate(zip(signal.shape, signal.stride(), strict=True))
            if about == (size, before.stride)
        ]
        if len(axes) == 1:
            return Rows(axes[0], before.each, before.stride)
    elif 0 < before.axis < signal.ndim and signal.shape[before.axis] == size:
        return Rows(before.axis, before.each, signal.stride(before.axis))
    return first_rows(signal)
