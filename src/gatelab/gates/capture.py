"""Capture the gates of any model by watching its operations, not its modules."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import prod
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakIdKeyDictionary

from gatelab.errors import InputError, UnsupportedModelError
from gatelab.gates.events import GateState, gate_state, is_gate_module
from gatelab.gates.operations import (
    BILINEAR,
    DROPPING,
    ELEMENTWISE,
    NORMALISING,
    READS,
    SHAPE_ONLY,
    is_linear_in_data,
    is_training,
    operation_name,
    tensors_in,
)
from gatelab.gates.pattern import GateLayer, GatePattern
from gatelab.observe import batches, examples, observable, stand_in, undisturbed


def capture_gates(model: nn.Module, x: Float[Tensor, "n ..."], batch_size: int | None = None) -> GatePattern:
    """Return which gates of ``model`` are open for each example.

    Gates are ReLU, LeakyReLU, ``clamp(min=0)``, ``threshold(0, 0)``, max-pooling and :func:`gatelab.gates.gated`. They
    may be modules or functions, in place, shared or reused. Only gates on a path to the output are returned. The name
    of a gate is the path of its module, plus a count from the second use on: ``"block.relu"``, ``"block.relu#2"``.

    Args:
        model: any module in evaluation mode, or without batch-norm and dropout.
        x: examples, on the model's device and in its dtype.
        batch_size: how many examples to run at a time; None runs all at once.

    Returns:
        The gates of all layers, in order of execution.

    Raises:
        UnsupportedModelError: the model has no gates; or an operation before a gate is neither a gate nor linear (GELU,
            softmax, a product of two signals, a branch that depends on the data); or gates change with the batch.
        InputError: x does not fit the model, or batch-norm or dropout is active.

    Example:
        >>> net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
        >>> capture_gates(net, torch.zeros(5, 2)).layers
        ('1',)
    """
    model = stand_in(observable(model))
    x = examples(x, model)
    n = x.shape[0]
    with undisturbed(model, x) as run, torch.no_grad():
        recorders = [_Recorder(model, x[rows]) for rows in batches(n, batch_size)]
        parts = [recorder.record(run) for recorder in recorders]
        pattern = GatePattern(_join(parts), x.dtype, is_chain=all(recorder.is_chain for recorder in recorders))
        if n > 1:
            _check_independence(pattern[n - 1 :], GatePattern(_Recorder(model, x[-1:]).record(run), x.dtype))
    return pattern


def _check_independence(in_batch: GatePattern, alone: GatePattern) -> None:
    """Refuse gates that change with the batch; rounding may flip up to 1 % of them."""
    units = {name: alone.layer(name).shape for name in alone}
    same_units = units == {name: in_batch.layer(name).shape for name in in_batch}
    if not same_units or sum(in_batch.flips(alone).values()) > 0.01 * sum(map(prod, units.values())):
        raise UnsupportedModelError(
            "gates change with the batch: the last example alone has other gates than among the others; make sure that "
            "gates depend on neither the other examples nor chance, and that examples are on the first axis"
        )


# What is known about a tensor: the names of the gates on the paths that lead to it, and the numbers of the obstacles on
# the way. An obstacle is an operation after which the network is no longer a sum over gated paths.
_History = frozenset["str | int | tuple[str]"]
# Two more facts about the way to a tensor: signals have met on it; no weight layer has been passed since the last gate.
_JOINED, _JUST_GATED = ("joined",), ("just gated",)


class _Recorder(TorchFunctionMode):
    """Follow everything that depends on the input through one run of the model."""

    def __init__(self, model: nn.Module, batch: Tensor):
        super().__init__()
        self._model = model
        self._batch = batch
        self._history = WeakIdKeyDictionary()  # root of a tensor -> _History, for tensors that depend on the input
        self._sources = WeakIdKeyDictionary()  # tensor -> the tensor whose memory it shares without being its view
        self._stack: list[tuple[str, nn.Module]] = [("", model)]
        self._calls: Counter[str] = Counter()
        self._events: dict[str, GateLayer] = {}
        self._obstacles: list[str] = []
        self.is_chain = True  # whether all paths pass all gates, one weight layer after another
        self._branches: set[int] = set()  # obstacles in the way of everything that runs later
        self._remember(batch, frozenset())  # the copy that the run makes of the batch inherits this

    def record(self, run: Callable[[Tensor], Any]) -> dict[str, GateLayer]:
        """Run the model and return the gates on paths to the output, in order of execution."""
        with self._named_modules(), self:
            output = run(self._batch)
        known = [self._recall(tensor) for tensor in tensors_in(output)]
        histories = [history for history in known if history is not None]
        if not histories:
            raise UnsupportedModelError(
                "the output cannot be followed back to the input: the model leaves torch on the way (NumPy, a custom "
                "extension); rewrite that part with torch operations"
            )
        path_gates = frozenset().union(*histories)
        self.is_chain = _JOINED not in path_gates
        layers = {name: layer for name, layer in self._events.items() if name in path_gates}
        if not layers:
            raise UnsupportedModelError(
                f"no gates found in {type(self._model).__name__}: it has no ReLU, LeakyReLU, clamp(min=0) or "
                "max-pooling on the way from input to output"
            )
        return layers

    @contextmanager
    def _named_modules(self) -> Iterator[None]:
        """Keep the stack of running modules up to date."""
        handles = []
        try:
            for entry in self._model.named_modules():
                handles += [
                    entry[1].register_forward_pre_hook(lambda _module, _args, entry=entry: self._stack.append(entry)),
                    entry[1].register_forward_hook(self._leave, always_call=True),
                ]
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _leave(self, *_: Any) -> None:
        self._stack.pop()

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run one operation and record its effect on paths."""
        del types
        kwargs = kwargs or {}
        arguments = list(tensors_in(args, kwargs))
        data = [t for t in arguments if self._recall(t) is not None]
        if not data:
            return func(*args, **kwargs)

        name = operation_name(func)
        if name in SHAPE_ONLY:
            return func(*args, **kwargs)
        if name in NORMALISING | DROPPING and is_training(name, args, kwargs):
            raise InputError(
                f"{self._place(name)}: {name} runs in training mode: the gates of one example depend on chance or on "
                "the other examples; pass training=self.training and call model.eval()"
            )
        state = gate_state(func, args, kwargs)  # now, because the operation may overwrite its input
        versions = [_version(t) for t in arguments]
        result = func(*args, **kwargs)
        results = list(tensors_in(result))

        if state is not None:
            event = self._name(name)
            history = self._recall(state.value) or frozenset()
            self._refuse_obstacles(event, history)
            self._events[event] = self._layer(event, state)
            history |= {event, _JOINED} if _JUST_GATED in history else {event}
            history |= {_JUST_GATED}
        else:
            history = frozenset().union(*(self._recall(t) or () for t in data))
            if len(data) > 1:
                history |= {_JOINED}
            if name in BILINEAR - ELEMENTWISE:
                history -= {_JUST_GATED}
            if not results and name in READS:
                self._branches.add(self._obstacle(f"reading the value of a signal ({name})", name))
            elif not is_linear_in_data(name, args, kwargs, data) or not all(t.is_floating_point() for t in results):
                history |= {self._obstacle(name, name)}
        overwritten = [t for t, version in zip(arguments, versions, strict=True) if _version(t) != version]
        if getattr(func, "__name__", "") == "__set__":  # x.data = y overwrites without a new version
            overwritten.append(args[0])
        self._note_aliases(results, data)
        for tensor in [*results, *overwritten]:
            self._remember(tensor, history)
        return result

    def _note_aliases(self, results: list[Tensor], data: list[Tensor]) -> None:
        """Let a detached tensor share the history of its source: it is not a view, but shares the memory."""
        for result in results:
            for source in data:
                if result is not source and result._base is None and _shares_memory(result, source):
                    self._sources[result] = self._root(source)

    def _layer(self, event: str, state: GateState) -> GateLayer:
        gates = state.gates
        n = self._batch.shape[0]
        if gates.ndim < 2 or gates.shape[0] != n:
            raise UnsupportedModelError(
                f"gate '{event}' has shape {tuple(gates.shape)}, but there are n = {n} examples: gates must keep the "
                "examples on the first axis"
            )
        return GateLayer.of(gates, state.kind, state.slope)

    def _refuse_obstacles(self, event: str, history: "_History") -> None:
        obstacles = {number for number in history if isinstance(number, int)} | self._branches
        if obstacles:
            more = f" (and {len(obstacles) - 1} more)" if len(obstacles) > 1 else ""
            raise UnsupportedModelError(
                f"{self._obstacles[min(obstacles)]}{more} is not a gate and stands before the gate '{event}', so the "
                "network is not a sum over gated paths; gates are ReLU, LeakyReLU, clamp(min=0), max-pooling and "
                "gatelab.gates.gated(value, q, gate)"
            )

    def _obstacle(self, what: str, operation: str) -> int:
        self._obstacles.append(f"{self._place(operation)}: {what}")
        return len(self._obstacles) - 1

    def _name(self, operation: str) -> str:
        path, module = self._stack[-1]
        base = path if is_gate_module(module) and path else ".".join(filter(None, (path, operation)))
        self._calls[base] += 1
        return base if self._calls[base] == 1 else f"{base}#{self._calls[base]}"

    def _place(self, operation: str) -> str:
        path, module = self._stack[-1]
        where = f"module '{path}' ({type(module).__name__})" if path else f"{type(module).__name__}.forward"
        return f"{where}, operation {operation}"

    def _recall(self, tensor: Tensor) -> "_History | None":
        return self._history.get(self._root(tensor))

    def _remember(self, tensor: Tensor, history: "_History") -> None:
        root = self._root(tensor)
        self._history[root] = history | (self._history.get(root) or frozenset())

    def _root(self, tensor: Tensor) -> Tensor:
        """Return the tensor that holds the history: views and aliases share it, since a write to one writes to all."""
        base = tensor if tensor._base is None else tensor._base
        source = self._sources.get(base)
        return base if source is None else source


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _shares_memory(one: Tensor, other: Tensor) -> bool:
    try:
        return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr() != 0
    except (NotImplementedError, RuntimeError):  # sparse and other tensors have no storage
        return False


def _join(parts: Iterable[dict[str, GateLayer]]) -> dict[str, GateLayer]:
    first, *rest = parts
    for other in rest:
        if [(k, v.shape) for k, v in other.items()] != [(k, v.shape) for k, v in first.items()]:
            raise UnsupportedModelError(
                f"the gates depend on the data: {list(first)} for the first batch, {list(other)} for a later one"
            )
    return {
        name: replace(layer, words=torch.cat([layer.words, *(other[name].words for other in rest)]))
        for name, layer in first.items()
    }
