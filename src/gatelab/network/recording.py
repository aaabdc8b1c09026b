"""Record a model's operations on two examples as a graph of pure functions."""

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._C import DisableTorchFunction
from torch.fx import Graph, Node, map_arg
from torch.overrides import TorchFunctionMode

from gatelab.errors import InputError, UnsupportedModelError
from gatelab.network.batch_size import BatchSize
from gatelab.network.calls import call_of, operation_of, with_first_argument
from gatelab.network.operations import READS, SHAPE_ONLY, argument_names, operation_name, tensors_in
from gatelab.network.running import called_through, is_one_operation, source_line, start
from gatelab.network.tensors import Constant, TensorNodes
from gatelab.observe import RANDOM

EXAMPLES = 2  # with one example, ``squeeze()`` would remove the batch axis

_SIZES = frozenset({"shape", "size"})
_RESHAPING = frozenset({"view", "reshape", "expand"})
# The results of in-place writes that have no out-of-place form.
_OVERWRITING: dict[str, Callable[..., tuple[str, Any, Any, Any]]] = {
    "zero_": lambda old: ("call_function", torch.zeros_like, (old,), {}),
    "fill_": lambda old, value: ("call_function", torch.full_like, (old, value), {}),
    "copy_": lambda old, new, *_: ("call_method", "expand_as", (new, old), {}),
}
# These remove the axis along which branches were stacked.
_JOINING_BRANCHES = frozenset({"mean", "sum", "getitem", "select", "unbind"})
# Python's operators that fx knows under another name.
_OPERATORS = {
    "__getitem__": operator.getitem,
    "__add__": operator.add,
    "__sub__": operator.sub,
    "__mul__": operator.mul,
}


@dataclass(frozen=True)
class Recording:
    """What was recorded: all operations in order, the two examples, and the model's output for them."""

    graph: Graph
    examples: Tensor
    answer: Any


def record(model: nn.Module, x: Tensor) -> Recording:
    """Run ``model`` on two examples, and return its operations as a graph.

    A call of one of torch's own modules is one node; everything else is a node for each operation. In-place writes
    appear as the functions that they compute, sizes that depend on the number of examples as multiples of it, and every
    node knows its shape, its module and its line in the source.

    Args:
        model: a stand-in of the user's model, in evaluation mode; its hooks are used while it runs.
        x: examples; the first and the last are run, or a single one and a scaled copy of it.

    Raises:
        UnsupportedModelError: control flow depends on values, or a signal cannot be followed.
        InputError: the model cannot run on x.
    """
    other = x[-1:] if len(x) > 1 else 0.75 * x  # not the same example twice, so that mixing shows
    pair = torch.cat([x[:1], other]).detach()
    recorder = _Recorder(model, pair.clone())
    answer = recorder.run()
    return Recording(recorder.graph, pair, answer)


def same_calls(one: Graph, other: Graph) -> bool:
    """Whether two records hold the same operations with the same arguments, whatever their shapes."""

    def calls(graph: Graph) -> list[Any]:
        return [
            (node.op, node.target, *map_arg((node.args, node.kwargs), lambda source: source.name))
            for node in graph.nodes
            if "constant" not in node.meta
        ]

    return calls(one) == calls(other)


class _Recorder(TorchFunctionMode):
    def __init__(self, model: nn.Module, x: Tensor):
        super().__init__()
        self._model, self._input = model, x
        self.graph = Graph()
        self._tensors = TensorNodes(self.graph, model, self._refuse, self._note)
        self._stack: list[tuple[str, nn.Module]] = [("", model)]
        self._inside: nn.Module | None = None  # the torch module that is running, recorded as one node
        self._refusal: UnsupportedModelError | None = None
        placeholder = self.graph.placeholder("x")
        self._note(placeholder, x)
        self._tensors.remember(x, placeholder)

    def run(self) -> Any:
        """Run the model, write the graph, and return the output."""
        try:
            with called_through(self._model, self._watched), torch.no_grad(), self:
                output = start(self._model, self._input)
        except (UnsupportedModelError, InputError):
            raise
        except Exception as error:
            # Tensor's operators turn some errors into "unsupported operand"; the first refusal is more specific.
            if self._refusal is not None:
                raise self._refusal from None
            raise InputError(
                f"{type(self._model).__name__} does not take examples of shape {tuple(self._input.shape[1:])}: {error}"
            ) from error
        if self._refusal is not None:  # the model continued anyway: x.__iadd__ returns NotImplemented
            raise self._refusal
        if not any(self._tensors.of(tensor) for tensor in tensors_in(output)):
            raise UnsupportedModelError(
                "the output cannot be followed back to the input: the model leaves torch on the way (NumPy, a custom "
                "extension); rewrite that part with torch operations"
            )
        self.graph.output(self._tensors.argument(output))
        return output

    def _watched(self, path: str, module: nn.Module) -> Callable[..., Any]:
        """A module's call that notes where it is, and is one node if the module is one of torch's own."""
        single, stack = is_one_operation(module), self._stack
        run = getattr(module, "_orig_mod", module._call_impl)  # a part that torch.compile wraps runs as it was written

        def call(*args: Any, **kwargs: Any) -> Any:
            stack.append((path, module))
            try:
                if single and self._inside is None:
                    return self._one_node(path, module, args, kwargs)
                return run(*args, **kwargs)
            finally:
                stack.pop()

        return call

    def _one_node(self, path: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with DisableTorchFunction():
            tensors = list(tensors_in(args, kwargs))
            known = any(self._tensors.of(tensor) for tensor in tensors)
            # Now: the module may overwrite its input.
            pending = self._tensors.argument(with_first_argument("input", args, kwargs)) if known else None
            versions = _versions(tensors)
        if pending is None:
            return module._call_impl(*args, **kwargs)
        self._inside = module
        try:
            result = module._call_impl(*args, **kwargs)
        finally:
            self._inside = None
        with DisableTorchFunction():
            node = self._created("call_module", path, *pending)
            self._add(node, result)
            self._tensors.note_writes(node, tensors, versions)
        return result

    def _created(self, op: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Node:
        """A new node. Its arguments are set afterwards: fx searches those that it is given for symbols, slowly."""
        node = self.graph.create_node(op, target)
        node.args = args
        if kwargs:
            node.kwargs = kwargs
        return node

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run one operation and record it."""
        del types
        kwargs = kwargs or {}
        if self._inside is not None:
            return func(*args, **kwargs)
        with DisableTorchFunction():  # what is only looked at need not pass the other modes
            name = operation_name(func)
            tensors = list(tensors_in(args, kwargs))
            if name in _SIZES and tensors:
                return self._sizes(func, args, kwargs)
            self._refuse_misuse(func, name, args, tensors)
            known = any(tensor in self._tensors for tensor in tensors)
            if name == "setitem" and known:
                return self._tensors.write_part(*args)
            pending = self._call(func, name, args, kwargs) if known else None  # now: the call may overwrite arguments
            versions = _versions(tensors)
        result = func(*args, **kwargs)
        with DisableTorchFunction():
            if pending is not None and any(True for _ in tensors_in(result)):
                node = self._created(*pending)
                self._add(node, result)
                self._tensors.note_writes(node, tensors, versions)
            elif pending is None:
                by_chance = name in RANDOM or self._tensors.made_by_chance(tensors)
                for tensor in tensors_in(result):
                    self._tensors.note_constant(tensor, Constant(func, args, kwargs, by_chance))
        return result

    def _refuse_misuse(self, func: Callable[..., Any], name: str, args: tuple[Any, ...], tensors: list[Tensor]) -> None:
        """Refuse what reads the values of a signal, or writes into a parameter."""
        if _reads(func, name) and any(self._depends_on_input(tensor) for tensor in tensors):
            raise self._refuse(
                name,
                "forward reads the value of a signal. Control flow must not depend on the data; move such code out of "
                "forward",
            )
        if _writes_first(func) and args and any(self._tensors.is_parameter(tensor) for tensor in tensors_in(args[0])):
            raise self._refuse(name, "it writes into a parameter of the model; change weights outside forward")
        if name == "numpy" and any(self._tensors.is_parameter(tensor) for tensor in tensors):
            raise self._refuse(
                name, "it lets NumPy write into a parameter of the model; take the array outside forward"
            )

    def _call(
        self, func: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[str, Any, Any, Any]:
        """Return the call in fx's form, out of place."""
        if name in RANDOM:
            raise self._refuse(name, f"{name} draws random numbers, so the outputs depend on chance")
        if name in _RESHAPING:
            args = self._with_batch_size(args)
        args, kwargs = with_first_argument(next(iter(argument_names(func, name)), "input"), args, kwargs)
        written, options = self._tensors.argument((tuple(args), {k: v for k, v in kwargs.items() if k != "inplace"}))
        own = getattr(func, "__name__", "")
        if own in ("__get__", "__set__"):
            if own == "__set__":
                raise self._refuse(name, f"assigning to .{name} of a tensor cannot be followed; compute a new tensor")
            return "call_function", getattr, (written[0], name), {}
        if own in _OPERATORS:
            return "call_function", _OPERATORS[own], written, options
        if own.startswith("__r") and hasattr(operator, name[1:]):  # 2 - x is __rsub__(x, 2)
            return "call_function", getattr(operator, name[1:]), written[::-1], options
        if "out" in kwargs:
            raise self._refuse(name, "it writes into out=, which cannot be followed; compute a new tensor")
        if own in _OVERWRITING:
            return _OVERWRITING[own](*written)
        plain = own if own.startswith("__") else own.rstrip("_")
        if own != plain and not (hasattr(Tensor, plain) or hasattr(torch, plain) or hasattr(F, plain)):
            raise self._refuse(name, f"{own} has no out-of-place form; compute a new tensor")
        wrapped = getattr(func, "__module__", "") == "torch._tensor" and hasattr(Tensor, plain)  # h ** 2
        if wrapped or getattr(Tensor, own, None) is func or hasattr(func, "__objclass__"):
            return "call_method", plain, written, options
        if own != plain:
            func = getattr(torch, plain, None) or getattr(F, plain)
        return "call_function", func, written, options

    def _with_batch_size(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Recognise the number of examples that came through ``len(x)``, which can only return a plain integer."""
        signal, *sizes = args
        factor = self._factor(signal)
        whole = bool(sizes) and isinstance(sizes[0], tuple | list)
        sizes = list(sizes[0]) if whole else sizes
        if factor and sizes and type(sizes[0]) is int and sizes[0] == signal.shape[0]:
            sizes[0] = BatchSize(sizes[0], factor)
        return (signal, tuple(sizes)) if whole else (signal, *sizes)

    def _sizes(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return sizes in which the number of examples is marked as such."""
        sizes, tensor = func(*args, **kwargs), args[0]
        factor = self._factor(tensor)
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
            self._tensors.remember(result, node)
        elif isinstance(result, tuple | list):
            for place, part in enumerate(result):
                if isinstance(part, Tensor):
                    item = self._created("call_function", operator.getitem, (node, place), {})
                    self._note(item, part)
                    self._tensors.remember(part, item)

    def _note(self, node: Node, result: Any) -> None:
        sources, first = node.all_input_nodes, node.op == "placeholder"
        name = "" if node.op == "call_module" else operation_of(node, {})
        from_data = any(source.meta.get("data") for source in sources)
        node.meta["module"] = self._stack[-1][0]
        node.meta["source"] = "" if first else source_line()
        node.meta["data"] = first or (from_data and (name == "ones_like" or name not in SHAPE_ONLY))
        if isinstance(result, Tensor):
            node.meta["shape"], node.meta["dtype"] = tuple(result.shape), result.dtype
        self._note_rows(node, name, sources, result)

    def _note_rows(self, node: Node, name: str, sources: list[Node], result: Any) -> None:
        """Record how many rows each example has on the first axis, unless branches were stacked before it."""
        behind_branches = any(source.meta.get("stacked") for source in sources)
        with_rows = node.op == "placeholder" or any(source.meta.get("factor") for source in sources)
        if name == "stack":
            stacked = with_rows and call_of(node, {})["dim"] == 0
        else:
            stacked = behind_branches and name not in _JOINING_BRANCHES
        if stacked or not (with_rows or behind_branches):
            factor = None
        elif isinstance(result, Tensor):
            factor = _rows_of_an_example(result)
        else:  # a tuple, whose parts are nodes of their own
            factor = 1
        node.meta["stacked"], node.meta["factor"] = stacked, factor

    def _depends_on_input(self, tensor: Tensor) -> bool:
        node = self._tensors.of(tensor)
        return node is not None and node.meta.get("data", False)

    def _factor(self, tensor: Tensor) -> int | None:
        node = self._tensors.of(tensor)
        return None if node is None else node.meta.get("factor")

    def _refuse(self, operation: str, what: str) -> UnsupportedModelError:
        self._refusal = self._refusal or UnsupportedModelError(f"{self._place(operation)}: {what}")
        return self._refusal

    def _place(self, operation: str) -> str:
        path, module = self._stack[-1]
        where = f"module '{path}' ({type(module).__name__})" if path else f"{type(module).__name__}.forward"
        return f"{where}, operation {operation}{source_line()}"


def _rows_of_an_example(signal: Tensor) -> int | None:
    """How many rows each example has on the first axis; None if examples are not there."""
    rows = signal.shape[0] if signal.ndim else 0
    return rows // EXAMPLES if rows and rows % EXAMPLES == 0 else None


def _reads(func: Callable[..., Any], name: str) -> bool:
    """Whether a function passes a value to Python: float(h) does, h.float() does not."""
    converts = name in ("bool", "int", "float") and not getattr(func, "__name__", "").startswith("__")
    return name in READS and not converts


def _writes_first(func: Callable[..., Any]) -> bool:
    """Whether a function overwrites its first argument, judged by torch's convention of names."""
    name = getattr(func, "__name__", "")
    own = name.removeprefix("_foreach_")
    return own.startswith("__i") or own in ("__setitem__", "__set__") or (own[-1:] == "_" and own[:1] != "_")


def _versions(tensors: Any) -> list[int]:
    return [tensor._version for tensor in tensors]
