"""What all tasks need, on its way to workers and there."""

import io
import pickle
import sys
import threading
from collections.abc import Callable
from typing import Any

import cloudpickle
import numpy as np
import torch
from torch import Tensor

from gatelab.work.executor import USER_MODULE

# Bytes from which on a tensor is held once, beside the pickle, and not in it as well.
_LARGE = 2**20

Opened = tuple[Callable[[Any, Any], Any], Any]


class Held:
    """Function and ``common`` on a worker: unpickled once, for all of its tasks, and sent on as they came.

    The pickle is kept, for a peer may ask for it while a task works on the objects: a network whose parameters are
    exchanged for a moment must not be pickled then. Large tensors are not in it. They are used and sent on as they are,
    so that examples are in memory once.

    Dask takes it for a small object, and so does not let an idle worker wait because the way there seems long.
    """

    def __init__(self, content: Any, tensors: list[Tensor]):
        """Hold what was pickled, as any buffer, and the tensors that are not in it."""
        self._content, self._tensors = content, tensors
        self._lock = threading.Lock()
        self._opened: Opened | None = None

    @classmethod
    def of(cls, function: Callable[[Any, Any], Any], common: Any) -> "Held":
        """Pickle them, with the code of a user's own file, which no worker could import."""
        for name, module in list(sys.modules.items()):
            if name.startswith(USER_MODULE):
                cloudpickle.register_pickle_by_value(module)
        file = io.BytesIO()
        pickler = _Pickler(file)
        pickler.dump((function, common))
        return cls(file.getvalue(), list(pickler.tensors.values()))

    def open(self) -> Opened:
        """The same objects for everyone."""
        with self._lock:
            opened = self._opened = self._opened or _Unpickler(io.BytesIO(self._content), self._tensors).load()
            return opened

    def __reduce_ex__(self, protocol: Any) -> tuple[Callable[..., "Held"], tuple[Any, ...]]:
        """Without what is opened, and without a copy where the protocol can do that."""

        def buffer(content: Any) -> Any:
            return pickle.PickleBuffer(content) if protocol >= 5 else bytes(content)

        tensors = [(buffer(_memory(tensor)), tensor.dtype, tuple(tensor.shape)) for tensor in self._tensors]
        return _arrive, (buffer(self._content), tensors)


def _arrive(content: Any, tensors: list[tuple[Any, torch.dtype, tuple[int, ...]]]) -> Held:
    return Held(content, [_copied(*tensor) for tensor in tensors])


def _copied(memory: Any, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    """In memory of torch's own: how that is aligned may decide about the last bit of a product."""
    tensor = torch.empty(shape, dtype=dtype)
    _memory(tensor)[:] = np.frombuffer(memory, dtype=np.uint8)
    return tensor


def _memory(tensor: Tensor) -> Any:
    return tensor.reshape(-1).view(torch.uint8).numpy()


class _Pickler(cloudpickle.Pickler):
    """Leaves large plain tensors out, each with its number."""

    def __init__(self, file: io.BytesIO):
        super().__init__(file)
        self.tensors: dict[Any, Tensor] = {}
        self._numbers: dict[Any, int] = {}

    def persistent_id(self, obj: Any) -> int | None:
        if type(obj) is not Tensor or obj.layout != torch.strided or obj.device.type != "cpu":
            return None
        plain = obj.is_contiguous() and not (obj.requires_grad or obj.is_conj() or obj.is_neg())
        if not plain or obj.nbytes < _LARGE:
            return None
        key = obj.data_ptr(), obj.dtype, tuple(obj.shape)
        self.tensors.setdefault(key, obj)
        return self._numbers.setdefault(key, len(self._numbers))


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, tensors: list[Tensor]):
        super().__init__(file)
        self._tensors = tensors

    def persistent_load(self, pid: Any) -> Tensor:
        return self._tensors[pid]
