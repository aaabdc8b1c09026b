"""Record a model's operations on two examples as a graph of pure functions."""

import operator
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._C import (
    DisableTorchFunction,
    _get_function_stack_at,
    _len_torch_function_stack,
    _pop_torch_function_stack,
    _push_on_torch_function_stack,
)
from torch.fx import Graph, Node, map_arg
from torch.nn.modules.module import _has_any_global_hook

from gatelab.errors import InputError, UnsupportedModelError
from gatelab.network.batch_size import BatchSize
from gatelab.network.calls import call_of, operation_of, with_first_argument
from gatelab.network.functions import OVERWRITING, Function, function_of, node_name
from gatelab.network.operations import SHAPE_ONLY, tensors_in
from gatelab.network.rows import SOMEWHERE, Rows, first_rows, rows_after
from gatelab.network.running import called_through, draws_nothing, is_one_operation, source_line, start
from gatelab.network.tensors import Constant, TensorNodes
from gatelab.observe import RANDOM, OwnChance

_SIZES = frozenset({"shape", "size"})
_RESHAPING = frozenset({"view", "reshape", "expand"})
# These remove the axis along which branches were stacked.
_JOINING_BRANCHES = frozenset({"mean", "sum", "getitem", "select", "unbind"})
_SHAPED_AS = {"view_as": Tensor.view, "reshape_as": Tensor.reshape}


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


class _Recorder(OwnChance):
    def __init__(self, model: nn.Module, x: Tensor):
        super().__init__()
        self._model, self._input = model, x
        self._lines: dict[tuple[str, int], str] = {}  # source lines as they are shown
        self.graph = Graph()
        with DisableTorchFunction():
            self._tensors = TensorNodes(self.graph, model, self._refuse, self._note)
        self._stack: list[tuple[str, nn.Module]] = [("", model)]
        self._inside: nn.Module | None = None  # the torch module that is running, recorded as one node
        self._refusal: UnsupportedModelError | None = None
        self._hooked = _has_any_global_hook()  # hooks of all modules, which may do anything
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
        single, stack, place = is_one_operation(module), self._stack, (path, module)
        unseen = single and not self._hooked and draws_nothing(module)
        # A part that torch.compile wraps runs as it was written.
        run: Any = module._modules.get("_orig_mod", module._call_impl)

        def call(*args: Any, **kwargs: Any) -> Any:
            stack.append(place)
            try:
                if single and self._inside is None:
                    return self._one_node(path, module, args, kwargs, unseen=unseen)
                return run(*args, **kwargs)
            finally:
                stack.pop()

        return call

    def _one_node(
        self, path: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], *, unseen: bool
    ) -> Any:
        """Run a module as one operation; ``unseen`` if nothing inside it needs this mode."""
        with DisableTorchFunction():
            tensors = _tensors_in(args, kwargs)
            known = any(map(self._tensors.of, tensors))
            # Now: the module may overwrite its input.
            pending = self._tensors.arguments(*with_first_argument("input", args, kwargs)) if known else None
            versions = [tensor._version for tensor in tensors]
        if pending is None:
            return module._call_impl(*args, **kwargs)
        if unseen and _get_function_stack_at(_len_torch_function_stack() - 1) is self:  # forward entered no other mode
            _pop_torch_function_stack()
            try:
                result = module._call_impl(*args, **kwargs)
            finally:
                _push_on_torch_function_stack(self)
        else:
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
        node = self.graph.create_node(op, target, name=node_name(target))
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
            return self.run_by_chance(func, args, kwargs)
        function = function_of(func)
        with DisableTorchFunction():  # what is only looked at need not pass the other modes
            tensors = _tensors_in(args, kwargs)
            if function.name in _SIZES and tensors:
                return self._sizes(func, args, kwargs)
            if function.reads or function.writes:
                self._refuse_misuse(function, args, tensors)
            known = any(map(self._tensors.__contains__, tensors))
            if function.name == "setitem" and known:
                return self._tensors.write_part(*args)
            pending = self._call(function, args, kwargs) if known else None  # now: the call may overwrite arguments
            versions = [tensor._version for tensor in tensors]
        result = self.run_by_chance(func, args, kwargs) if function.draws else func(*args, **kwargs)
        with DisableTorchFunction():
            if pending is not None and (isinstance(result, Tensor) or any(True for _ in tensors_in(result))):
                node = self._created(*pending)
                self._add(node, result)
                self._tensors.note_writes(node, tensors, versions)
            elif pending is None:
                by_chance = function.name in RANDOM or self._tensors.made_by_chance(tensors)
                for tensor in tensors_in(result):
                    self._tensors.note_constant(tensor, Constant(func, args, kwargs, by_chance))
        return result

    def _refuse_misuse(self, function: Function, args: tuple[Any, ...], tensors: list[Tensor]) -> None:
        """Refuse what reads the values of a signal, or writes into a parameter."""
        name = function.name
        if function.reads and any(self._depends_on_input(tensor) for tensor in tensors):
            raise self._refuse(
                name,
                "forward reads the value of a signal. Control flow must not depend on the data; move such code out of "
                "forward",
            )
        if function.writes and args and any(self._tensors.is_parameter(tensor) for tensor in tensors_in(args[0])):
            raise self._refuse(name, "it writes into a parameter of the model; change weights outside forward")
        if name == "numpy" and any(self._tensors.is_parameter(tensor) for tensor in tensors):
            raise self._refuse(
                name, "it lets NumPy write into a parameter of the model; take the array outside forward"
            )

    def _call(self, function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, Any, Any, Any]:
        """Return the call in fx's form, out of place."""
        name, own = function.name, function.own
        if function.draws and name in RANDOM:
            raise self._refuse(name, f"{name} draws random numbers, so the outputs depend on chance")
        if name in _SHAPED_AS and len(args) == 2:
            function, args = function_of(_SHAPED_AS[name]), (args[0], tuple(self._sizes(Tensor.size, args[1:], {})))
        elif name in _RESHAPING:
            args = self._with_batch_size(args)
        args, kwargs = with_first_argument(function.first, args, kwargs)
        if "inplace" in kwargs or "out" in kwargs:
            if kwargs.get("out") is not None:
                raise self._refuse(name, "it writes into out=, which cannot be followed; compute a new tensor")
            kwargs = {key: value for key, value in kwargs.items() if key not in ("inplace", "out")}
        written, options = self._tensors.arguments(args, kwargs)
        if own == "__set__":
            raise self._refuse(name, f"assigning to .{name} of a tensor cannot be followed; compute a new tensor")
        if own == "__get__":
            return "call_function", getattr, (written[0], name), {}
        if own in OVERWRITING:
            return OVERWRITING[own](*written)
        if function.form is None:
            raise self._refuse(name, f"{own} has no out-of-place form; compute a new tensor")
        return *function.form, written[::-1] if function.turned else written, options

    def _with_batch_size(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Recognise the number of examples that came through ``len(x)``, which can only return a plain integer."""
        signal, *sizes = args
        rows = self._rows(signal)
        whole = bool(sizes) and isinstance(sizes[0], tuple | list)
        sizes = list(sizes[0]) if whole else sizes
        if rows and not rows.axis and sizes and type(sizes[0]) is int and sizes[0] == signal.shape[0]:
            sizes[0] = BatchSize(sizes[0], rows.each)
        return (signal, tuple(sizes)) if whole else (signal, *sizes)

    def _sizes(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return sizes in which the number of examples is marked as such."""
        sizes, tensor = func(*args, **kwargs), args[0]
        rows = self._rows(tensor)
        if rows is None or tensor.ndim == 0:
            return sizes
        own = BatchSize(tensor.shape[rows.axis], rows.each)
        if isinstance(sizes, torch.Size):
            return torch.Size([*sizes[: rows.axis], own, *sizes[rows.axis + 1 :]])
        dim = args[1] if len(args) > 1 else kwargs["dim"]
        return own if dim in (rows.axis, rows.axis - tensor.ndim) else sizes

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
        """Record where a node was made, what it returned, and where the examples are in it."""
        meta, op = node.meta, node.op
        name = "" if op == "call_module" else operation_of(node, {})
        first = from_data = op == "placeholder"
        before: Rows | None = None
        behind_branches = False
        for source in node.all_input_nodes:
            about = source.meta
            from_data = from_data or about.get("data", False)
            before = before or about.get("rows")
            behind_branches = behind_branches or about.get("stacked", False)
        meta["module"] = self._stack[-1][0]
        meta["source"] = "" if first else source_line(self._lines)
        meta["data"] = from_data and (name not in SHAPE_ONLY or name == "ones_like")
        whole = isinstance(result, Tensor)
        if whole:
            meta["shape"], meta["dtype"] = tuple(result.shape), result.dtype
        if name == "stack":  # from here on, rows are not examples
            stacked = before is not None and call_of(node, {})["dim"] == 0
        else:
            stacked = behind_branches and name not in _JOINING_BRANCHES
        meta["stacked"], meta["rows"] = stacked, None
        if not stacked and (first or before or behind_branches):
            if not whole:
                meta["rows"] = before or SOMEWHERE
            else:
                meta["rows"] = rows_after(name, before, result) if before else first_rows(result)

    def _depends_on_input(self, tensor: Tensor) -> bool:
        node = self._tensors.of(tensor)
        return node is not None and node.meta.get("data", False)

    def _rows(self, tensor: Tensor) -> Rows | None:
        node = self._tensors.of(tensor)
        return None if node is None else node.meta.get("rows")

    def _refuse(self, operation: str, what: str) -> UnsupportedModelError:
        self._refusal = self._refusal or UnsupportedModelError(f"{self._place(operation)}: {what}")
        return self._refusal

    def _place(self, operation: str) -> str:
        path, module = self._stack[-1]
        where = f"module '{path}' ({type(module).__name__})" if path else f"{type(module).__name__}.forward"
        return f"{where}, operation {operation}{source_line(self._lines)}"


def _tensors_in(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
    """The tensors inside the arguments of a call; most calls have one or two, by themselves."""
    found: list[Tensor] = []
    for value in (*args, *kwargs.values()) if kwargs else args:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, tuple | list | dict | deque):
            found.extend(tensors_in(value))
    return found
