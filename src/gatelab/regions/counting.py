"""The number of open paths of any network of gates and weight layers, without listing them.

Set every weight to one and every bias to zero, and keep the gates as they are for an input: the output is then the
number of open paths. A sum of signals adds their paths; a unit of a weight layer gets all paths of the units it sees.
"""

import copy
import operator
from collections.abc import Callable
from functools import reduce
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.fx import Node
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from gatelab.errors import PathCountOverflowError, UnsupportedModelError
from gatelab.gates.operations import DROPPING
from gatelab.network.nodes import ancestors, describe, is_shape, node_operation, parameter, weight_parameters
from gatelab.network.tracing import value_sources
from gatelab.observe import batches, examples
from gatelab.regions.interpreter import call
from gatelab.regions.replay import Opened, Replay

BLOCK_ENTRIES = 2**22  # gates of a block of examples

_AVERAGES: dict[type[nn.Module], Callable[..., Tensor]] = {nn.AvgPool2d: F.avg_pool2d, nn.AvgPool3d: F.avg_pool3d}
_ADAPTIVE = (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d)
# Modules and operations that only move units, or sum them: on a network of ones they count paths as they are.
_MOVING_MODULES = (nn.Flatten, nn.Unflatten, nn.ZeroPad1d, nn.ZeroPad2d, nn.ZeroPad3d)
_MOVES = frozenset(
    """
    cat concat concatenate stack sum flatten unflatten view reshape squeeze unsqueeze permute transpose getitem select
    narrow chunk split contiguous clone ones_like
    """.split()
)
_SUMS = frozenset("add radd iadd sub rsub isub subtract neg".split())
_SCALINGS = frozenset("mul rmul imul multiply div truediv itruediv divide".split())


def count_active_paths(model: nn.Module, x: Float[Tensor, "n ..."]) -> Float[Tensor, " n"]:
    """Return the number of active paths of each input in a dense, convolutional or residual network, gated or not.

    A path leads from a unit of the first weight layer through open gates to one output; the units that it passes define
    it. If the input bypasses the first weight layer, or meets a gate before it, paths start at the input's nodes. In a
    chain of dense layers the number is Π_l (open gates of layer l), see :func:`active_path_counts`. Biases start no
    paths. Paths pass batch-norm and every unit of an averaged window, and weights count whatever their values. If a
    network ends with a gate, the paths to all outputs are counted.

    Soft gates count as hard ones. Counts are in float64: exact up to 2⁵³, rounded beyond.

    Args:
        model: the network.
        x: the inputs.

    Returns:
        The number of paths for each input.

    Raises:
        UnsupportedModelError: an operation has no rule or is a max-pooling, or the outputs have different numbers of
            paths.
        PathCountOverflowError: a count is larger than float64 holds.

    Example:
        >>> net = nn.Sequential(nn.Linear(2, 2, bias=False), nn.ReLU(), nn.Linear(2, 1))
        >>> _ = net[0].weight.data.copy_(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))
        >>> count_active_paths(net, torch.tensor([[3.0, 5.0], [0.0, 5.0]])).tolist()
        [1.0, 0.0]
    """
    replay = Replay(model)
    x = examples(x).to(replay.device, torch.float64)
    shape = replay.input_shape(x.shape[1:])
    return open_paths(replay, replay.opened(x), len(x), shape)


def open_paths(replay: Replay, opened: Opened, n: int, shape: tuple[int, ...]) -> Float[Tensor, " n"]:
    """Return the number of paths that are open under each of n patterns of gates, for examples of this shape."""
    network = _NetworkOfOnes(replay)
    size = max(1, BLOCK_ENTRIES // max(1, sum(gates[0].numel() for gates in opened.values())))
    return torch.cat(
        [
            network.count({name: gates[rows] for name, gates in opened.items()}, rows.stop - rows.start, shape)
            for rows in batches(n, size)
        ]
    )


class _NetworkOfOnes:
    """A network with all weights one: its output is the number of paths."""

    def __init__(self, replay: Replay):
        self._replay, self._plan = replay, replay.plan
        self._model = copy.deepcopy(replay.model)
        self._nodes = self._path_nodes()
        self._weighted = {node: names for node in self._nodes if (names := weight_parameters(node, self._plan.modules))}
        for node, names in self._weighted.items():
            for name, value in zip(names, (1.0, 0.0), strict=True):
                if name is not None:
                    parameter(self._model, name, describe(node, self._plan.modules)).fill_(value)
        rules = {node: self._rule(node) for node in self._nodes if node.op != "placeholder"}
        self._rules = {node: rule for node, rule in rules.items() if rule is not None}

    def count(self, opened: Opened, n: int, shape: tuple[int, ...]) -> Float[Tensor, " n"]:
        """Return the number of paths for each of n patterns."""
        factors = {name: gates.double() for name, gates in opened.items()}
        ones, targets = self._replay.zeros(n, *shape) + 1, [self._plan.output]
        (counts,) = self._plan.interpreter.run(self._model, targets, ones, lambda name, _q: factors[name], self._rules)
        counts = counts.reshape(n, -1)
        if not bool(torch.isfinite(counts).all()):
            raise PathCountOverflowError(
                "there are more paths than float64 holds; count those of a part of the network"
            )
        if self._plan.is_gate(self._plan.output):
            return counts.sum(dim=1)
        if not bool((counts == counts[:, :1]).all()):
            raise UnsupportedModelError("the outputs are reached by different numbers of paths; return one of them")
        return counts[:, 0]

    def _path_nodes(self) -> set[Node]:
        """The nodes through which paths lead from the input to the output, both included."""
        passed, found = ancestors(self._plan.output, sources=value_sources), set[Node]()
        for node in self._plan.interpreter.nodes_before(self._plan.output):
            if node.op == "placeholder" or (node in passed and any(source in found for source in value_sources(node))):
                found.add(node)
        return found

    def _rule(self, node: Node) -> Callable[..., Any] | None:
        """What paths do at a node; None if its operation, run on a network of ones, does just that."""
        if self._plan.is_gate(node):
            return None
        if node in self._weighted:
            before = ancestors(node, sources=value_sources) - {node}
            later = any(other in self._weighted or self._plan.is_gate(other) for other in before)
            return None if later else self._start(node)
        if node.op == "call_module":
            return self._module_rule(node, self._plan.modules[str(node.target)])
        return self._operation_rule(node, node_operation(node) or "")

    def _start(self, node: Node) -> Callable[..., Tensor]:
        """A path starts at every unit that sees the input, and not only padding."""
        return lambda *args, **kwargs: (call(node, self._model, *args, **kwargs) > 0).double()

    def _module_rule(self, node: Node, module: nn.Module) -> Callable[..., Any] | None:
        if isinstance(module, _BatchNorm | _DropoutNd | nn.Identity):
            return _pass
        if type(module) in _AVERAGES:
            return _window_sums(module)
        if isinstance(module, _ADAPTIVE):
            return lambda x: self._adaptive_sums(node, x, module(x))
        if isinstance(module, _MOVING_MODULES):
            return None
        raise self._no_rule(node)

    def _operation_rule(self, node: Node, operation: str) -> Callable[..., Any] | None:
        if operation in DROPPING or operation == "batch_norm":
            return _pass
        if operation == "mean":
            return lambda x, *args, **kwargs: x.sum(*args, **kwargs)
        signals = [source in self._nodes for source in node.args]
        named = any(isinstance(value, Node) for value in node.kwargs.values())
        if not named and (operation in _SUMS or (operation in _SCALINGS and sum(signals) == 1)):
            return _added(signals)
        others = [source for source in node.all_input_nodes if source not in self._nodes]
        if operation in _MOVES and all(map(is_shape, others)):
            return None
        raise self._no_rule(node)

    def _adaptive_sums(self, node: Node, x: Tensor, averages: Tensor) -> Tensor:
        if any(size % out for size, out in zip(x.shape[2:], averages.shape[2:], strict=True)):
            raise self._no_rule(node)  # the windows overlap
        return (averages * (x.numel() // averages.numel())).round()

    def _no_rule(self, node: Node) -> UnsupportedModelError:
        return UnsupportedModelError(
            f"{describe(node, self._plan.modules)}: no rule says how many paths pass it; rules exist for Linear and "
            "Conv layers, gates, batch-norm, dropout, average pooling, sums, concatenation and operations that only "
            "move units"
        )


def _pass(x: Tensor, *_args: Any, **_kwargs: Any) -> Tensor:
    return x


def _added(signals: list[bool]) -> Callable[..., Tensor]:
    """Add the paths of all signals, whatever their signs and factors; constants have none, but may have a shape."""

    def added(*args: Any, **_kwargs: Any) -> Tensor:
        return reduce(operator.add, [arg if path else 0 * arg for arg, path in zip(args, signals, strict=True)])

    return added


def _window_sums(module: Any) -> Callable[[Tensor], Tensor]:
    windows = (module.kernel_size, module.stride, module.padding, module.ceil_mode)
    return lambda x: _AVERAGES[type(module)](x, *windows, divisor_override=1)
