"""Tensors that share memory: what was written where, and what a reader gets afterwards."""

from collections import defaultdict
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.fx import Node
from torch.overrides import handle_torch_function, has_torch_function


@dataclass(frozen=True)
class Strides:
    """Where the entries of a tensor lie in its memory."""

    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]

    @classmethod
    def of(cls, tensor: Tensor) -> "Strides":
        """Return the geometry of a tensor."""
        return cls(int(tensor.storage_offset()), tuple(tensor.shape), tensor.stride())

    def fills_the_memory_of(self, other: "Strides") -> bool:
        """Whether two tensors are the same entries, one after another, in different shapes."""
        return self.offset == other.offset and self._run_length() == other._run_length() != 0

    def _run_length(self) -> int:
        """The number of entries if they lie one after another, else 0."""
        expected = 1
        for size, step in zip(reversed(self.shape), reversed(self.stride), strict=True):
            if size != 1 and step != expected:
                return 0
            expected *= size
        return expected

    def units(self) -> Int[Tensor, " units"]:
        """Return the addresses of the entries of the first example."""
        addresses = torch.tensor(self.offset)
        for size, step in zip(self.shape[1:], self.stride[1:], strict=True):
            addresses = addresses[..., None] + torch.arange(size) * step
        return addresses.flatten()

    def places_in(self, written: "Strides") -> Int[Tensor, " units"] | None:
        """Return, for each unit, its number among the units of ``written``, or −1; None if examples lie differently."""
        if not self.shape or self.shape[:1] != written.shape[:1] or self.stride[:1] != written.stride[:1]:
            return None
        own, other = self.units(), written.units()
        order = other.argsort()
        place = torch.searchsorted(other[order], own).clamp(max=max(0, len(other) - 1))
        found = order[place] if len(other) else torch.zeros_like(own)
        return torch.where(other[found] == own, found, -1) if len(other) else torch.full_like(own, -1)


class WriteLog:
    """The in-place writes of one forward pass, by memory."""

    def __init__(self) -> None:
        self._writes: dict[int, list[tuple[Strides, Node]]] = defaultdict(list)

    def add(self, tensor: Tensor, node: Node) -> None:
        """Note that a tensor now holds the values of a node."""
        self._writes[address_of(tensor)].append((Strides.of(tensor), node))

    def mark(self, tensor: Tensor) -> int:
        """Return how often the memory of a tensor has been written to."""
        if not self._writes:
            return 0
        address = address_of(tensor)
        return len(self._writes[address]) if address in self._writes else 0

    def since(self, tensor: Tensor, mark: int) -> list[tuple[Strides, Node]]:
        """Return the writes to a tensor's memory after a mark."""
        if not self._writes:
            return []
        address = address_of(tensor)
        return self._writes[address][mark:] if address in self._writes else []


def address_of(tensor: Tensor) -> int:
    """Return where the memory of a tensor begins; 0 if it has none."""
    try:
        return tensor.untyped_storage().data_ptr()
    except (NotImplementedError, RuntimeError):  # sparse and other tensors have no storage
        return 0


def overlaid(
    old: Float[Tensor, " n *shape"], new: Tensor, places: Int[Tensor, " units"], shape: tuple[int, ...]
) -> Float[Tensor, " n *shape"]:
    """Return ``old`` after a part of its memory was overwritten: unit u is unit places[u] of ``new`` where that is ≥ 0.

    Args:
        old: the values before the write.
        new: what was written; it may be a number, or need expanding.
        places: for each unit of ``old``, the unit of ``new``.
        shape: the shape of ``new`` for one example.

    Example:
        >>> overlaid(torch.zeros(1, 3), torch.ones(1, 1), torch.tensor([-1, 0, -1]), (1,)).tolist()
        [[0.0, 1.0, 0.0]]
    """
    if has_torch_function((old, new)):
        return handle_torch_function(overlaid, (old, new), old, new, places, shape)
    rows = old.shape[0]
    written = new.expand(rows, *shape).reshape(rows, -1)[:, places.clamp(min=0)]
    return torch.where(places >= 0, written, old.reshape(rows, -1)).view(old.shape)
