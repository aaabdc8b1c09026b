"""Record a model's operations on a few examples as a graph of pure functions."""

import operator
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.fx import Graph, Node
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakIdKeyDictionary

from gatelab.errors import UnsupportedModelError
from gatelab.gates.operations import READS, SHAPE_ONLY, operation_name, tensors_in
from gatelab.network.batch_size import BatchSize, holds_batch_size
from gatelab.network.nodes import node_operation, put_arguments_in_order
from gatelab.network.running import is_one_operation, source_line, start, unseen

EXAMPLES = 2  # with one example, ``squeeze()`` would take the batch axis away

_RANDOM = frozenset(
    """
    rand randn randint randperm rand_like randn_like randint_like bernoulli multinomial normal poisson uniform
    exponential random cauchy geometric log_normal
    """.split()
)
_SIZES = frozenset({"shape", "size"})
_RESHAPING = frozenset({"view", "reshape", "expand"})
# Python's operators, where fx knows them better under this name.
_OPERATORS = {
    "__getitem__": operator.getitem,
    "__add__": operator.add,
    "__sub__": operator.sub,
    "__mul__": operator.mul,
}


def record(model: nn.Module, x: Tensor) -> Graph:
    """Run ``model`` on two examples, and return its operations as a graph.

    A call of one of torch's own modules is one node, as in a trace by torch.fx; everything else is a node for each
    operation. In-place writes appear as the functions that they compute, sizes that depend on the number of examples as
    multiples of it, and every node knows its shape, its module and its line in the source.

    Args:
        model: a stand-in of the user's model, in evaluation mode; its hooks are used while it runs.
        x: examples; two are run.

    Raises:
        UnsupportedModelError: control flow depends on values, or a signal cannot be followed.
    """
    recorder = _Recorder(model, torch.cat([x[:1], x[-1:]]).detach().clone())
    return recorder.run()


@dataclass(frozen=True)
class _Constant:
    """A tensor that forward makes without its input: by which call, and whether chance had a part in it."""

    function: Any
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    by_chance: bool = False


_UNKNOWN = _Constant(None)


class _Recorder(TorchFunctionMode):
    def __init__(self, model: nn.Module, x: Tensor):
        super().__init__()
        self._model, self._input = model, x
        self.graph = Graph()
        self._nodes: Any = WeakIdKeyDictionary()  # tensor -> (the node that made its values, its version then)
        self._made: Any = WeakIdKeyDictionary()  # constant tensor -> the call that made it
        self._attributes: dict[str, Node] = {}
        self._stack: list[tuple[str, nn.Module]] = [("", model)]
        self._inside: nn.Module | None = None  # the module of torch that is running, itself one node
        self._pending: tuple[Any, Any] = ((), {})  # its arguments
        self._names = {
            id(held): name
            for name, held in (
                *model.named_buffers(remove_duplicate=False),
                *reversed(list(model.named_parameters(remove_duplicate=False))),
            )
        }
        self._n: Node | None = None
        self._refusal: UnsupportedModelError | None = None
        placeholder = self.graph.placeholder("x")
        self._note(placeholder, x)
        self._remember(x, placeholder)

    def run(self) -> Graph:
        """Run the model and return the graph, without what the output does not need."""
        try:
            with self._named_modules(), torch.no_grad(), self:
                output = start(self._model, self._input)
        except Exception:
            # Tensor's operators turn some errors into "unsupported operand"; the first refusal says more.
            if self._refusal is not None:
                raise self._refusal from None
            raise
        if not any(self._nodes.get(tensor) for tensor in tensors_in(output)):
            raise UnsupportedModelError(
                "the output cannot be followed back to the input: the model leaves torch on the way (NumPy, a custom "
                "extension); rewrite that part with torch operations"
            )
        self.graph.output(self._argument(output))
        put_arguments_in_order(self.graph)
        self.graph.eliminate_dead_code(is_impure_node=lambda node: node.op in ("placeholder", "output"))
        return self.graph

    @contextmanager
    def _named_modules(self) -> Iterator[None]:
        handles = []
        try:
            for path, module in self._model.named_modules():
                single = is_one_operation(module)
                handles += [
                    module.register_forward_pre_hook(self._entering(path, single), with_kwargs=True),
                    module.register_forward_hook(self._leaving(path, single), with_kwargs=True, always_call=True),
                ]
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _entering(self, path: str, single: bool) -> Callable[..., None]:
        @unseen
        def enter(module: nn.Module, args: Any, kwargs: Any) -> None:
            self._stack.append((path, module))
            known = self._inside is None and any(self._nodes.get(t) for t in tensors_in(args, kwargs))
            if single and known:
                self._inside = module
                self._pending = self._argument((args, kwargs))  # now: the module may overwrite its input

        return enter

    def _leaving(self, path: str, single: bool) -> Callable[..., None]:
        @unseen
        def leave(module: nn.Module, args: Any, kwargs: Any, result: Any) -> None:
            del kwargs
            if single and self._inside is module:
                self._inside = None
                if result is not None:  # None: the module has failed
                    args, kwargs = self._pending
                    self._add(self.graph.call_module(path, args, kwargs), result)
            self._stack.pop()

        return leave

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run one operation and record it."""
        del types
        kwargs = kwargs or {}
        if self._inside is not None:
            return func(*args, **kwargs)
        name = operation_name(func)
        tensors = list(tensors_in(args, kwargs))
        if name in _SIZES and tensors:
            return self._sizes(func, args, kwargs)
        if name in READS and any(self._depends_on_input(tensor) for tensor in tensors):
            raise self._refuse(
                f"{self._place(name)}: forward reads the value of a signal. Control flow must not depend on the data; "
                "move such code out of forward"
            )
        known = [tensor for tensor in tensors if self._is_known(tensor)]
        pending = self._call(func, name, args, kwargs) if known else None  # now: the call may overwrite its arguments
        result = func(*args, **kwargs)
        if pending is not None and any(True for _ in tensors_in(result)):
            self._add(self.graph.create_node(*pending), result)
        elif pending is None:
            by_chance = name in _RANDOM or any(self._made.get(tensor, _UNKNOWN).by_chance for tensor in tensors)
            for tensor in tensors_in(result):
                self._made[tensor] = _Constant(func, args, kwargs, by_chance)
        return result

    def _call(
        self, func: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[str, Any, Any, Any]:
        """The call as fx writes it, out of place."""
        if name in _RANDOM:
            raise self._random(name)
        if name in _RESHAPING:
            args = self._with_batch_size(args)
        written, options = self._argument((tuple(args), {k: v for k, v in kwargs.items() if k != "inplace"}))
        own = getattr(func, "__name__", "")
        if own in ("__get__", "__set__"):
            if own == "__set__":
                raise self._refuse(f"{self._place(name)}: assigning to .{name} of a tensor cannot be followed")
            return "call_function", getattr, (written[0], name), {}
        if own in _OPERATORS:
            return "call_function", _OPERATORS[own], written, options
        if own.startswith("__r") and hasattr(operator, name[1:]):  # 2 - x is __rsub__(x, 2)
            return "call_function", getattr(operator, name[1:]), written[::-1], options
        if own == "__setitem__" or "out" in kwargs:
            raise self._refuse(
                f"{self._place(name)} writes into a part of a tensor, which cannot be followed; compute a new tensor"
            )
        plain = own if own.startswith("__") else own.rstrip("_")
        if getattr(Tensor, own, None) is func or hasattr(func, "__objclass__"):
            return "call_method", plain, written, options
        if own != plain:
            func = getattr(torch, plain, None) or getattr(F, plain)
        return "call_function", func, written, options

    def _with_batch_size(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Recognise the number of examples that came through ``len(x)``, which can only return a plain integer."""
        signal, *sizes = args
        entry = self._nodes.get(signal)
        factor = entry[0].meta.get("factor") if entry else None
        whole = bool(sizes) and isinstance(sizes[0], tuple | list)
        sizes = list(sizes[0]) if whole else sizes
        if factor and sizes and type(sizes[0]) is int and sizes[0] == signal.shape[0]:
            sizes[0] = BatchSize(sizes[0], factor)
        return (signal, tuple(sizes)) if whole else (signal, *sizes)

    def _sizes(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return sizes in which the number of examples can be told from other numbers."""
        sizes, tensor = func(*args, **kwargs), args[0]
        entry = self._nodes.get(tensor)
        factor = entry[0].meta.get("factor") if entry else None
        if factor is None or tensor.ndim == 0:
            return sizes
        first = BatchSize(tensor.shape[0], factor)
        if isinstance(sizes, torch.Size):
            return torch.Size([first, *sizes[1:]])
        dim = args[1] if len(args) > 1 else kwargs["dim"]
        return first if dim in (0, -tensor.ndim) else sizes

    def _add(self, node: Node, result: Any) -> None:
        self._note(node, result)
        if isinstance(result, Tensor):
            self._remember(result, node)
        elif isinstance(result, tuple | list):
            for place, part in enumerate(result):
                if isinstance(part, Tensor):
                    item = self.graph.call_function(operator.getitem, (node, place))
                    self._note(item, part)
                    self._remember(part, item)

    def _note(self, node: Node, result: Any) -> None:
        path, module = self._stack[-1]
        node.meta["nn_module_stack"] = {path: (path, type(module))} if path else {}
        node.meta["source"] = "" if node.op == "placeholder" else source_line()
        shape_only = node_operation(node) in SHAPE_ONLY - {"ones_like"}  # ones may stand for the input: DLGN-PWC
        from_data = any(source.meta.get("data") for source in node.all_input_nodes)
        node.meta["data"] = node.op == "placeholder" or (from_data and not shape_only)
        examples_first = node.op == "placeholder" or any(source.meta.get("factor") for source in node.all_input_nodes)
        if isinstance(result, Tensor):
            node.meta["shape"], node.meta["dtype"] = tuple(result.shape), result.dtype
            node.meta["factor"] = _factor(result) if examples_first else None
        else:  # a tuple, whose parts are nodes of their own
            node.meta["factor"] = 1 if examples_first else None

    def _depends_on_input(self, tensor: Tensor) -> bool:
        entry = self._nodes.get(tensor)
        return entry is not None and entry[0].meta.get("data", False)

    def _is_known(self, tensor: Tensor) -> bool:
        return self._nodes.get(tensor) is not None or id(tensor) in self._names

    def _remember(self, tensor: Tensor, node: Node) -> None:
        self._nodes[tensor] = (node, tensor._version)

    def _argument(self, value: Any) -> Any:
        """The same structure with nodes for tensors and for numbers of examples."""
        if isinstance(value, Tensor):
            return self._tensor(value)
        if isinstance(value, BatchSize):
            return self._multiple(value.factor)
        if isinstance(value, slice):
            return slice(*(self._argument(part) for part in (value.start, value.stop, value.step)))
        if isinstance(value, dict):
            return {key: self._argument(part) for key, part in value.items()}
        if isinstance(value, list | tuple):
            parts = [self._argument(part) for part in value]
            return parts if isinstance(value, list) else tuple(parts)
        return value

    def _multiple(self, factor: int) -> Node:
        if self._n is None:
            first = next(iter(self.graph.nodes))
            with self.graph.inserting_after(first):
                self._n = self.graph.call_method("size", (first, 0))
        return self._n if factor == 1 else self.graph.call_function(operator.mul, (self._n, factor))

    def _tensor(self, tensor: Tensor) -> Node:
        entry = self._nodes.get(tensor)
        if entry is not None:
            node, version = entry
            if tensor._version != version:
                raise self._refuse(
                    f"{self._place('reading')}: a signal was overwritten through another view of its memory, which "
                    "cannot be followed; write out of place there"
                )
            return node
        name = self._names.get(id(tensor))
        if name is None:
            return self._constant(tensor)
        if name not in self._attributes:
            self._attributes[name] = self.graph.get_attr(name)
            self._attributes[name].meta["shape"] = tuple(tensor.shape)
        return self._attributes[name]

    def _constant(self, tensor: Tensor) -> Node:
        """A tensor that forward makes: by its call if the size depends on the examples, else by its values."""
        made = self._made.get(tensor, _UNKNOWN)
        if made.by_chance:
            raise self._random(operation_name(made.function))
        if holds_batch_size((made.args, made.kwargs)):
            written, options = self._argument((made.args, made.kwargs))
            node = self.graph.call_function(made.function, written, options)
        else:
            node = self.graph.get_attr(f"_tensor_constant{len(self.graph.nodes)}")
            node.meta["constant"] = tensor.detach().clone()
        node.meta["shape"] = tuple(tensor.shape)
        self._remember(tensor, node)
        return node

    def _refuse(self, message: str) -> UnsupportedModelError:
        self._refusal = self._refusal or UnsupportedModelError(message)
        return self._refusal

    def _random(self, name: str) -> UnsupportedModelError:
        return self._refuse(f"{self._place(name)}: {name} draws random numbers, so that the answers depend on chance")

    def _place(self, operation: str) -> str:
        path, module = self._stack[-1]
        where = f"module '{path}' ({type(module).__name__})" if path else f"{type(module).__name__}.forward"
        return f"{where}, operation {operation}{source_line()}"


def _factor(signal: Tensor) -> int | None:
    """How many rows each example has on the first axis; None if examples are not there."""
    rows = signal.shape[0] if signal.ndim else 0
    return rows // EXAMPLES if rows and rows % EXAMPLES == 0 else None
