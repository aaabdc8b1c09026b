"""Seeing the gates of any model by watching its operations, not its modules."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakIdKeyDictionary

from gatelab.errors import InputError, UnsupportedModelError
from gatelab.gates.bits import pack
from gatelab.gates.events import GateState, gate_state, is_gate_module
from gatelab.gates.operations import (
    DROPPING,
    NORMALISING,
    READS,
    SHAPE_ONLY,
    is_linear_in_data,
    is_training,
    operation_name,
    tensors_in,
)
from gatelab.gates.pattern import GateLayer, GatePattern
from gatelab.observe import Run, batches, examples, observable, stand_in, undisturbed


def capture_gates(model: nn.Module, x: Float[Tensor, "n ..."], batch_size: int | None = None) -> GatePattern:
    """Which gates of ``model`` are open for each example.

    Seen are ReLU, LeakyReLU, ``clamp(min=0)``, ``threshold(0, 0)``, max-pooling and :func:`gatelab.gates.gated`,
    whether modules, functions, in place, shared or reused, as long as the output depends on them along a path. A gate
    is named by the path of its module and, from the second time on, a count: ``"block.relu"``, ``"block.relu#2"``.

    Args:
        model: any module in evaluation mode, or without batch-norm and dropout.
        x: examples, on the model's device and in its dtype.
        batch_size: run so many examples at a time; None runs all at once.

    Raises:
        UnsupportedModelError: the model has no gates, or something that is not a gate (GELU, softmax, a product of
            two signals, a branch that depends on the data, …) stands before one, or the gates of one example depend
            on the others.
        InputError: x does not fit, or batch-norm or dropout is active.

    Example:
        >>> net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
        >>> capture_gates(net, torch.zeros(5, 2)).layers
        ('1',)
    """
    model = stand_in(observable(model))
    x = examples(x, model)
    n = x.shape[0]
    with undisturbed(model, x) as run, torch.no_grad():
        parts = [_record(model, run, x[rows]) for rows in batches(n, batch_size)]
        pattern = GatePattern(_join(parts), x.dtype)
        if n > 1:
            _check_independence(pattern[n - 1 :], GatePattern(_record(model, run, x[-1:]), x.dtype))
    return pattern


def _record(model: nn.Module, run: Run, batch: Tensor) -> dict[str, GateLayer]:
    recorder = _Recorder(model, batch.shape[0])
    with recorder.watching():
        recorder.finish(run(recorder.watch(batch)))
    return recorder.layers()


def _check_independence(among_others: GatePattern, alone: GatePattern) -> None:
    """An example must have the gates alone that it has among others, but for those that rounding may tip over."""
    same_layers = among_others.layers == alone.layers
    shapes = all(same_layers and among_others.layer(name).shape == alone.layer(name).shape for name in alone)
    units = sum(alone.layer(name).units for name in alone)
    if not shapes or sum(among_others.flips(alone).values()) > 0.01 * units:
        raise UnsupportedModelError(
            "an example has other gates alone than among others: they depend on the other examples, on chance, or the "
            "examples are not on the first axis"
        )


@dataclass(frozen=True)
class _Obstacle:
    """An operation behind which the network is no longer a sum over gated paths."""

    order: int
    what: str
    place: str


# What is known of a tensor: the gates on the paths that lead to it, and the obstacles on the way.
_History = frozenset["str | _Obstacle"]


class _Recorder(TorchFunctionMode):
    """Follows what depends on the input through one run of the model."""

    def __init__(self, model: nn.Module, n: int):
        super().__init__()
        self._model = model
        self._n = n
        self._history = WeakIdKeyDictionary()  # root of a tensor -> _History, for what depends on the input
        self._sources = WeakIdKeyDictionary()  # tensor -> the tensor whose memory it shares without being its view
        self._stack: list[tuple[str, nn.Module]] = [("", model)]
        self._calls: Counter[str] = Counter()
        self._events: dict[str, GateLayer] = {}
        self._branches: list[_Obstacle] = []
        self._obstacles = 0
        self._path_gates: frozenset[str] = frozenset()

    def watch(self, x: Tensor) -> Tensor:
        """Declare x the input; the copy that the run makes of it inherits this."""
        self._remember(x, frozenset())
        return x

    @contextmanager
    def watching(self) -> Iterator[None]:
        """See every operation, and know which module is running."""
        handles = []
        try:
            for name, module in self._model.named_modules():
                entry = (name, module)
                handles += [
                    module.register_forward_pre_hook(lambda _module, _args, entry=entry: self._stack.append(entry)),
                    module.register_forward_hook(self._leave, always_call=True),
                ]
            with self:
                yield
        finally:
            for handle in handles:
                handle.remove()

    def _leave(self, *_: Any) -> None:
        self._stack.pop()

    def finish(self, output: Any) -> None:
        """Keep the gates that the output depends on along a path."""
        known = [self._recall(tensor) for tensor in tensors_in(output)]
        histories = [history for history in known if history is not None]
        if not histories:
            raise UnsupportedModelError(
                "the output cannot be followed back to the input: the model leaves torch on the way (NumPy, a custom "
                "extension); rewrite that part with torch operations"
            )
        self._path_gates = frozenset(g for history in histories for g in history if isinstance(g, str))
        if not self._path_gates:
            raise UnsupportedModelError(
                f"no gates found in {type(self._model).__name__}: it has no ReLU, LeakyReLU, clamp(min=0) or "
                "max-pooling on the way from input to output"
            )

    def layers(self) -> dict[str, GateLayer]:
        """The gates on paths to the output, in order of execution."""
        return {name: layer for name, layer in self._events.items() if name in self._path_gates}

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run one operation and note what it means for the paths."""
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
                f"{self._place(name)}: {name} runs in training mode, so that one example's gates would depend on "
                "chance or on the other examples; pass training=self.training and call model.eval()"
            )
        state = gate_state(func, args, kwargs)  # before the operation may overwrite its input
        versions = [_version(t) for t in arguments]
        result = func(*args, **kwargs)
        results = list(tensors_in(result))

        if state is not None:
            event = self._name(name)
            history = self._recall(state.value) or frozenset()
            self._refuse_obstacles(event, history)
            self._events[event] = self._layer(event, state)
            history |= {event}
        else:
            history = frozenset().union(*(self._recall(t) or () for t in data))
            if not results and name in READS:
                self._branches.append(self._obstacle(f"reading the value of a signal ({name})", name))
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
        """A detached tensor shares memory with its source, though it is no view of it: they share a history too."""
        for result in results:
            for source in data:
                if result is not source and result._base is None and _shares_memory(result, source):
                    self._sources[result] = self._root(source)

    def _layer(self, event: str, state: GateState) -> GateLayer:
        gates = state.gates
        if gates.ndim < 2 or gates.shape[0] != self._n:
            raise UnsupportedModelError(
                f"gate '{event}' has shape {tuple(gates.shape)}, but there are n = {self._n} examples: gates must "
                "keep the examples on the first axis"
            )
        return GateLayer(state.kind, tuple(gates.shape[1:]), pack(gates.flatten(1)), state.slope)

    def _refuse_obstacles(self, event: str, history: "_History") -> None:
        obstacles = [o for o in history if isinstance(o, _Obstacle)] + self._branches
        if obstacles:
            first = min(obstacles, key=lambda obstacle: obstacle.order)
            more = f" (and {len(obstacles) - 1} more)" if len(obstacles) > 1 else ""
            raise UnsupportedModelError(
                f"{first.place}: {first.what}{more} is not a gate and stands before the gate '{event}', so that the "
                "network is not a sum over gated paths; gates are ReLU, LeakyReLU, clamp(min=0), max-pooling and "
                "gatelab.gates.gated(value, q, gate)"
            )

    def _obstacle(self, what: str, operation: str) -> _Obstacle:
        self._obstacles += 1
        return _Obstacle(self._obstacles, what, self._place(operation))

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
        """The tensor under which a history is kept: views and aliases share it, as writing to one writes to all."""
        base = tensor if tensor._base is None else tensor._base
        source = self._sources.get(base)
        return base if source is None else source


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _shares_memory(one: Tensor, other: Tensor) -> bool:
    try:
        return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr() != 0
    except (NotImplementedError, RuntimeError):  # sparse and other tensors without a storage
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
