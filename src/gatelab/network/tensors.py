"""Which node of a recorded graph a tensor's values belong to, through views, writes and constants."""

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from weakref import ReferenceType, ref

import numpy as np
import torch
from torch import Tensor, nn
from torch.fx import Graph, Node
from torch.utils.weak import WeakIdKeyDictionary

from gatelab.network.batch_size import BatchSize, holds_batch_size
from gatelab.network.memory import Strides, WriteLog, address_of, overlaid
from gatelab.network.operations import operation_name

Refuse = Callable[[str, str], Exception]  # the operation, and what is wrong with it


@dataclass(frozen=True)
class Constant:
    """A tensor that forward makes without its input: the call that made it, and whether it is random."""

    function: Any = None
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    by_chance: bool = False


_UNKNOWN = Constant()
_ATOMS = frozenset({bool, int, float, str, type(None), torch.dtype, torch.device})  # stand for themselves


@dataclass(slots=True)
class _Known:
    """The node whose values a tensor holds, and the state of its memory at that time."""

    tensor: ReferenceType[Tensor]
    node: Node
    mark: int
    version: int


class TensorNodes:
    """The nodes of the tensors of one forward pass.

    Args:
        graph: the graph that is being written.
        model: the model that runs.
        refuse: makes the error that refuses an operation.
        describe: records the shape and source of a new node, given the tensor that it returns.
    """

    def __init__(self, graph: Graph, model: nn.Module, refuse: Refuse, describe: Callable[[Node, Tensor], None]):
        self._graph, self._refuse, self._describe = graph, refuse, describe
        self._by_id: dict[int, _Known] = {}  # a WeakIdKeyDictionary takes ten times as long; each call looks often
        self._made: Any = WeakIdKeyDictionary()  # constant tensor -> Constant
        self._writes = WriteLog()
        self._attributes: dict[str, Node] = {}
        self._n: Node | None = None
        self._parameters: list[Tensor] = []
        self._names: dict[int, str] = {}
        self._name_tensors(model)

    def _name_tensors(self, model: nn.Module) -> None:
        """Note the parameters, by their first names, and the buffers."""
        parameters: dict[int, str] = {}
        for path, module in model.named_modules(remove_duplicate=False):
            start = f"{path}." if path else ""
            for name, parameter in module._parameters.items():
                if parameter is not None and id(parameter) not in parameters:
                    parameters[id(parameter)] = start + name
                    self._parameters.append(parameter)
            for name, buffer in module._buffers.items():
                if buffer is not None:
                    self._names[id(buffer)] = start + name
        self._names |= parameters

    @cached_property
    def _addresses(self) -> set[int]:
        """Where the parameters' memory begins; first asked before anything could be written there."""
        return {address_of(parameter) for parameter in self._parameters} - {0}

    def __contains__(self, tensor: Tensor) -> bool:
        """Whether a tensor belongs to the model, or was computed from its input or its parameters."""
        return self._known(tensor) is not None or id(tensor) in self._names

    def _known(self, tensor: Tensor) -> _Known | None:
        known = self._by_id.get(id(tensor))
        return known if known is not None and known.tensor() is tensor else None  # ids are used again

    def is_parameter(self, tensor: Any) -> bool:
        """Whether a tensor shares the memory of one of the model's parameters, which are the user's own."""
        return isinstance(tensor, Tensor) and address_of(tensor) in self._addresses

    def of(self, tensor: Tensor) -> Node | None:
        """Return the node that a tensor was last known as; None for parameters and unknown tensors."""
        known = self._known(tensor)
        return None if known is None else known.node

    def remember(self, tensor: Tensor, node: Node) -> None:
        """Note that a tensor holds the values of a node."""
        self._by_id[id(tensor)] = _Known(ref(tensor), node, self._writes.mark(tensor), tensor._version)

    def note_constant(self, tensor: Tensor, constant: Constant) -> None:
        """Record how a tensor that does not depend on the input was made."""
        self._made[tensor] = constant

    def made_by_chance(self, tensors: Iterable[Tensor]) -> bool:
        """Whether one of these tensors depends on random numbers."""
        return any(self._made.get(tensor, _UNKNOWN).by_chance for tensor in tensors)

    def note_writes(self, node: Node, tensors: Iterable[Tensor], versions: Iterable[int]) -> None:
        """Record the tensors that an operation has overwritten, which have new versions, for later readers."""
        for tensor, version in zip(tensors, versions, strict=True):
            if tensor._version != version:
                self._writes.add(tensor, node)
                self.remember(tensor, node)

    def write_part(self, target: Tensor, index: Any, value: Any) -> None:
        """Run and record ``target[index] = value``."""
        old, new, part = self.argument(target), self.argument(value), target[index]
        target[index] = value
        if part._base is None or part.untyped_storage().data_ptr() != target.untyped_storage().data_ptr():
            raise self._refuse(
                "setitem",
                "it writes into entries that are chosen by a tensor, which cannot be followed; use slices, or compute "
                "a new tensor",
            )
        if not isinstance(value, Tensor):
            new = self._held(torch.tensor(value, dtype=target.dtype, device=target.device))
        node = self._overlay(old, Strides.of(target), new, Strides.of(part))
        self._describe(node, target)
        self.note_writes(node, [target], [-1])

    def arguments(self, args: Iterable[Any], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of a call, with nodes for tensors and for numbers of examples."""
        return tuple(map(self.argument, args)), self.argument(kwargs) if kwargs else {}

    def argument(self, value: Any) -> Any:
        """Return the same structure with nodes for tensors and for numbers of examples."""
        if type(value) in _ATOMS:
            return value
        if isinstance(value, Tensor):
            return self._node(value)
        if isinstance(value, BatchSize):
            return self._multiple(value.factor)
        if isinstance(value, slice):
            return slice(*(self.argument(part) for part in (value.start, value.stop, value.step)))
        if isinstance(value, dict):
            return {key: self.argument(part) for key, part in value.items()}
        if isinstance(value, list | tuple):
            parts = map(self.argument, value)
            value = list(parts) if isinstance(value, list) else tuple(parts)
        return value.item() if isinstance(value, np.generic) else value

    def _multiple(self, factor: int) -> Node:
        if self._n is None:
            first = next(iter(self._graph.nodes))
            with self._graph.inserting_after(first):
                self._n = self._graph.call_method("size", (first, 0))
        return self._n if factor == 1 else self._graph.call_function(operator.mul, (self._n, factor))

    def _node(self, tensor: Tensor) -> Node:
        known = self._known(tensor)
        if known is not None:
            return self._current(tensor, known)
        name = self._names.get(id(tensor))
        if name is None:
            return self._constant(tensor)
        if name not in self._attributes:
            self._attributes[name] = self._graph.get_attr(name)
            self._attributes[name].meta["shape"] = tuple(tensor.shape)
        return self._attributes[name]

    def _current(self, tensor: Tensor, known: _Known) -> Node:
        """The node of a tensor's values, after all writes to its memory."""
        writes = self._writes.since(tensor, known.mark)
        if not writes and tensor._version == known.version:
            return known.node
        if not writes:
            raise self._refuse(
                "reading", "a signal was overwritten in a way that cannot be followed; write out of place there"
            )
        node = known.node
        for written, new in writes:
            node = self._overlay(node, Strides.of(tensor), new, written)
            self._describe(node, tensor)
        self.remember(tensor, node)
        return node

    def _overlay(self, old: Node, geometry: Strides, new: Node, written: Strides) -> Node:
        """The values of a tensor after another one, in the same memory, was written."""
        if geometry == written:
            return new
        places = geometry.places_in(written)
        if places is not None:
            return self._graph.call_function(overlaid, (old, new, self._held(places), written.shape[1:]))
        if geometry.fills_the_memory_of(written):
            return self._graph.call_method("reshape", (new, (self._multiple(1), *geometry.shape[1:])))
        raise self._refuse(
            "reading",
            "a signal was overwritten through another view of its memory, which cannot be followed; write out of "
            "place there",
        )

    def _constant(self, tensor: Tensor) -> Node:
        """Return a node for a tensor that forward makes: by call if its size depends on the examples, else by value."""
        made = self._made.get(tensor, _UNKNOWN)
        if made.by_chance:
            name = operation_name(made.function)
            raise self._refuse(name, f"{name} draws random numbers, so the outputs depend on chance")
        if holds_batch_size((made.args, made.kwargs)):
            written, options = self.argument((made.args, made.kwargs))
            node = self._graph.call_function(made.function, written, options)
            node.meta["shape"] = tuple(tensor.shape)
        else:
            node = self._held(tensor)
        self.remember(tensor, node)
        return node

    def _held(self, tensor: Tensor) -> Node:
        """A node that holds fixed values."""
        node = self._graph.get_attr(f"_tensor_constant{len(self._graph.nodes)}")
        node.meta["constant"], node.meta["shape"] = tensor.detach().clone(), tuple(tensor.shape)
        return node
