"""The number of open paths of any network of gates and weight layers, without listing them.

With every weight one, every bias zero and gates as they are for an input, the output of a network is the number of its
open paths: sums of signals add paths, a weight layer gives each of its units all paths of the units that it sees.
"""

import copy
import operator
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.fx import Node
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from gatelab.errors import PathCountOverflowError, UnsupportedModelError
from gatelab.gates.operations import DROPPING
from gatelab.network.nodes import ancestors, is_shape, node_operation, parameter, weight_parameters
from gatelab.network.tracing import value_sources
from gatelab.observe import batches, examples
from gatelab.regions.plan import call, modules_of
from gatelab.regions.replay import Replay

# Gates of a block of examples.
BLOCK_ENTRIES = 2**22

_MOVING_MODULES = (nn.Flatten, nn.Unflatten, nn.ZeroPad1d, nn.ZeroPad2d, nn.ZeroPad3d)
_AVERAGES: dict[type[nn.Module], Callable[..., Tensor]] = {nn.AvgPool2d: F.avg_pool2d, nn.AvgPool3d: F.avg_pool3d}
_ADAPTIVE = (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d)
_MOVES = frozenset(
    """
    cat concat concatenate stack sum flatten unflatten view reshape squeeze unsqueeze permute transpose getitem select
    narrow chunk split contiguous clone ones_like
    """.split()
)
_SUMS = frozenset("add radd iadd sub rsub isub subtract neg".split())
_SCALINGS = frozenset("mul rmul imul multiply div truediv itruediv divide".split())


def count_active_paths(model: nn.Module, x: Float[Tensor, "n ..."]) -> Float[Tensor, " n"]:
    """The number of active paths of each input in a dense, convolutional or residual network, gated or not.

    A path leads from a unit of the first weight layer through open gates to one output, and is told by the units that
    it passes; where the input passes by the first weight layer, or meets a gate before it, paths start at the input's
    nodes. In a chain of dense layers it is Π_l (open gates of layer l), see :func:`active_path_counts`. Biases start no
    paths; paths pass batch-norm and every unit of an averaged window; a weight counts whatever its value. Of a network
    that ends with a gate the paths to all outputs are counted.

    Soft gates count as hard ones. All is in float64, so that counts are exact up to 2⁵³ and rounded beyond.

    Raises:
        UnsupportedModelError: something in the model has no rule, or pools by maximum; or the outputs are reached by
            different numbers of paths.
        PathCountOverflowError: a count is larger than float64 holds.

    Example:
        >>> net = nn.Sequential(nn.Linear(2, 2, bias=False), nn.ReLU(), nn.Linear(2, 1))
        >>> _ = net[0].weight.data.copy_(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))
        >>> count_active_paths(net, torch.tensor([[3.0, 5.0], [0.0, 5.0]])).tolist()
        [1.0, 0.0]
    """
    replay = Replay(model)
    x = examples(x).to(replay.device, torch.float64)
    shape = replay.input_shape(tuple(x.shape[1:]))
    return open_paths(replay, replay.opened(x), len(x), shape)


def open_paths(
    replay: Replay, opened: Mapping[str, Bool[Tensor, "n ..."]], n: int, shape: tuple[int, ...]
) -> Float[Tensor, " n"]:
    """The number of paths that are open under each of n patterns of gates, for examples of this shape."""
    counting = _Counting(replay)
    size = max(1, BLOCK_ENTRIES // max(1, sum(gates[0].numel() for gates in opened.values())))
    parts = [
        counting.run({name: gates[rows] for name, gates in opened.items()}, rows, shape) for rows in batches(n, size)
    ]
    return torch.cat(parts)


class _Counting:
    """A network of ones: what it gives is the number of paths."""

    def __init__(self, replay: Replay):
        self._plan, self._device = replay.plan, replay.device
        self._model = copy.deepcopy(replay.model)
        self._modules = modules_of(self._model)
        self._nodes = self._plan.path_nodes()
        weights = {node: names for node in self._nodes if (names := weight_parameters(node, self._modules))}
        for node, names in weights.items():
            for name, value in zip(names, (1.0, 0.0), strict=True):
                if name is not None:
                    parameter(self._model, name, self._plan.describe(node)).fill_(value)
        self._weighted = set(weights)
        rules = {node: self._rule(node) for node in self._nodes if node.op != "placeholder"}
        self._rules = {node: rule for node, rule in rules.items() if rule is not None}

    def run(self, opened: Mapping[str, Tensor], rows: slice, shape: tuple[int, ...]) -> Float[Tensor, " n"]:
        """The number of paths for each row."""
        ones = torch.ones(rows.stop - rows.start, *shape, dtype=torch.float64, device=self._device)
        factors = {name: gates.double() for name, gates in opened.items()}
        targets = [self._plan.output]
        counts = self._plan.run(self._model, self._modules, targets, ones, factors, instead=self._rules)[0]
        counts = counts.reshape(len(ones), -1)
        if not bool(torch.isfinite(counts).all()):
            raise PathCountOverflowError(
                "there are more paths than float64 holds; count those of a part of the network"
            )
        if self._plan.is_gate(self._plan.output):
            return counts.sum(dim=1)
        if not bool((counts == counts[:, :1]).all()):
            raise UnsupportedModelError("the outputs are reached by different numbers of paths; return one of them")
        return counts[:, 0]

    def _rule(self, node: Node) -> Callable[..., Any] | None:
        """What paths do at a node; None if running it does just that."""
        if self._plan.is_gate(node):
            return None
        if node in self._weighted:
            return None if self._is_behind_others(node) else self._start(node)
        rule = self._module_rule(node) if node.op == "call_module" else self._operation_rule(node)
        return None if rule is call else rule

    def _is_behind_others(self, node: Node) -> bool:
        before = ancestors(node, sources=value_sources) - {node}
        return any(other in self._weighted or self._plan.is_gate(other) for other in before)

    def _start(self, node: Node) -> Callable[..., Tensor]:
        """A path starts at every unit that sees the input, and not only padding."""
        return lambda *args, **kwargs: (call(node, self._modules, *args, **kwargs) > 0).double()

    def _module_rule(self, node: Node) -> Callable[..., Any]:
        module = self._modules[str(node.target)]
        if isinstance(module, _BatchNorm | _DropoutNd | nn.Identity):
            return _pass
        if type(module) in _AVERAGES:
            return _window_sums(module)
        if isinstance(module, _ADAPTIVE):
            return lambda x: self._adaptive_sums(node, x, module(x))
        if isinstance(module, _MOVING_MODULES):
            return call
        raise self._no_rule(node)

    def _operation_rule(self, node: Node) -> Callable[..., Any]:
        operation = node_operation(node) or ""
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
            return call
        raise self._no_rule(node)

    def _adaptive_sums(self, node: Node, x: Tensor, averages: Tensor) -> Tensor:
        if any(size % out for size, out in zip(x.shape[2:], averages.shape[2:], strict=True)):
            raise self._no_rule(node)  # windows that overlap
        return (averages * (x.numel() // averages.numel())).round()

    def _no_rule(self, node: Node) -> UnsupportedModelError:
        return UnsupportedModelError(
            f"{self._plan.describe(node)}: there is no rule for how many paths pass it; rules exist for Linear and "
            "Conv layers, gates, batch-norm, dropout, average pooling, sums, concatenation and what only moves units"
        )


def _pass(x: Tensor, *_args: Any, **_kwargs: Any) -> Tensor:
    return x


def _added(signals: list[bool]) -> Callable[..., Tensor]:
    """Paths of all signals together, whatever their signs and factors; constants have none, but may have a shape."""

    def added(*args: Any, **_kwargs: Any) -> Tensor:
        parts = [arg if is_signal else 0 * arg for arg, is_signal in zip(args, signals, strict=True)]
        return reduce(operator.add, parts)

    return added


def _window_sums(module: Any) -> Callable[[Tensor], Tensor]:
    windows = (module.kernel_size, module.stride, module.padding, module.ceil_mode)
    return lambda x: _AVERAGES[type(module)](x, *windows, divisor_override=1)
