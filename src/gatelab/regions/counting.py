"""The number of open paths of any network of gates and weight layers, without listing them.

Set every weight to one and every bias to zero, and keep the gates as they are for an input: the output is then the
number of open paths. A sum of signals adds their paths; a unit of a weight layer gets all paths of the units it sees.
"""

import copy
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.fx import Node

from gatelab.errors import PathCountOverflowError, UnsupportedModelError
from gatelab.gates.pooling import per_axis
from gatelab.network.evaluation import call
from gatelab.network.nodes import ancestors, is_shape, parameter, value_sources, weight_parameters
from gatelab.network.operations import Kind
from gatelab.observe import batches, examples
from gatelab.regions.replay import Replay
from gatelab.regions.states import States

BLOCK_ENTRIES = 2**22  # gates of a block of examples


def count_active_paths(model: nn.Module, x: Float[Tensor, "n ..."]) -> Float[Tensor, " n"]:
    """Return the number of active paths of each input in a dense, convolutional or residual network, gated or not.

    A path leads from a unit of the first weight layer through open gates to one output; the units that it passes define
    it. A max-pooling passes the paths of its winners. If the input bypasses the first weight layer, or meets a gate
    before it, paths start at the input's nodes. In a
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
        UnsupportedModelError: an operation has no rule, or the outputs have different numbers of paths.
        PathCountOverflowError: a count is larger than float64 holds.

    Example:
        >>> net = nn.Sequential(nn.Linear(2, 2, bias=False), nn.ReLU(), nn.Linear(2, 1))
        >>> _ = net[0].weight.data.copy_(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))
        >>> count_active_paths(net, torch.tensor([[3.0, 5.0], [0.0, 5.0]])).tolist()
        [1.0, 0.0]
    """
    replay = Replay(model, shape=examples(x).shape[1:])
    x = examples(x).to(replay.device, torch.float64)
    shape = replay.input_shape(x.shape[1:])
    return open_paths(replay, replay.states(x), len(x), shape)


def open_paths(replay: Replay, states: States, n: int, shape: tuple[int, ...]) -> Float[Tensor, " n"]:
    """Return the number of paths that are open under each of n states of all gates, for examples of this shape."""
    network = _NetworkOfOnes(replay)
    size = max(1, BLOCK_ENTRIES // max(1, sum(state[0].numel() for state in states.values())))
    return torch.cat(
        [
            network.count({name: state[rows] for name, state in states.items()}, rows.stop - rows.start, shape)
            for rows in batches(n, size)
        ]
    )


class _NetworkOfOnes:
    """A network with all weights one: its output is the number of paths."""

    def __init__(self, replay: Replay):
        self._replay, self._plan = replay, replay.plan
        self._model = copy.deepcopy(replay.model)
        self._nodes = self._path_nodes()
        modules = self._plan.network.modules
        self._weighted = {node: names for node in self._nodes if (names := weight_parameters(node, modules))}
        for node, names in self._weighted.items():
            for name, value in zip(names, (1.0, 0.0), strict=True):
                if name is not None:
                    parameter(self._model, name, self._plan.network.where(node)).fill_(value)
        rules = {node: self._rule(node) for node in self._nodes if node.op != "placeholder"}
        self._rules = {node: rule for node, rule in rules.items() if rule is not None}

    def count(self, states: States, n: int, shape: tuple[int, ...]) -> Float[Tensor, " n"]:
        """Return the number of paths for each of n states of all gates."""
        factors = {name: self._replay.gate(name).action(state, plain=True) for name, state in states.items()}
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
        network = self._plan.network
        kind, operation = network.kind(node), network.operation(node)
        if kind in (Kind.NORMALISATION, Kind.DROPOUT, Kind.PASSING):
            return _pass
        if kind is Kind.SPATIAL:
            return self._sums(node, operation)
        operands = _operands(node.args, node.kwargs)
        signals = [source in self._nodes for source in operands]
        if kind is Kind.SUM or (kind is Kind.SCALE and sum(signals) == 1):
            return _added(signals)
        others = [source for source in node.all_input_nodes if source not in self._nodes]
        moves = kind in (Kind.REARRANGEMENT, Kind.CONCATENATION, Kind.START)
        if moves and all(is_shape(other) or other.op == "get_attr" for other in others):
            return None
        raise self._no_rule(node)

    def _sums(self, node: Node, operation: str) -> Callable[..., Any] | None:
        """Sums in place of averages."""
        if operation in ("mean", "sum"):
            dims = self._plan.network.call(node)
            return lambda x, *_args, **_kwargs: (
                x.sum() if dims["dim"] is None else x.sum(dim=dims["dim"], keepdim=dims["keepdim"])
            )
        if operation.startswith("adaptive"):
            return lambda *args: self._adaptive_sums(node, args[0], call(node, self._model, *args))
        if operation.startswith("avg_pool"):
            return _window_sums(self._plan.network.call(node).arguments, int(operation[-2]))
        raise self._no_rule(node)

    def _start(self, node: Node) -> Callable[..., Tensor]:
        """A path starts at every unit that sees the input, and not only padding."""
        return lambda *args, **kwargs: (call(node, self._model, *args, **kwargs) > 0).double()

    def _adaptive_sums(self, node: Node, x: Tensor, averages: Tensor) -> Tensor:
        if any(size % out for size, out in zip(x.shape[2:], averages.shape[2:], strict=True)):
            raise self._no_rule(node)  # the windows overlap
        return (averages * (x.numel() // averages.numel())).round()

    def _no_rule(self, node: Node) -> UnsupportedModelError:
        return UnsupportedModelError(
            f"{self._plan.network.where(node)}: no rule says how many paths pass it; rules exist for Linear and "
            "Conv layers, gates, batch-norm, dropout, average pooling, sums, concatenation and operations that only "
            "move units"
        )


def _pass(x: Tensor, *_args: Any, **_kwargs: Any) -> Tensor:
    return x


def _operands(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """What is added or multiplied, by place or by name."""
    return [*args[:2], *(kwargs[name] for name in ("input", "other") if name in kwargs)]


def _added(signals: list[bool]) -> Callable[..., Tensor]:
    """Add the paths of all signals, whatever their signs and factors; constants have none, but may have a shape."""

    def added(*args: Any, **kwargs: Any) -> Tensor:
        operands = _operands(args, kwargs)
        return reduce(operator.add, [arg if path else 0 * arg for arg, path in zip(operands, signals, strict=True)])

    return added


def _window_sums(options: Mapping[str, Any], axes: int) -> Callable[..., Tensor]:
    """Return the sum over each window of an average pooling; one over a line is one over an image one pixel high."""
    kernel = per_axis(options["kernel_size"], axes)
    stride = per_axis(options["stride"] or kernel, axes)
    padding = per_axis(options["padding"], axes)

    def sums(x: Tensor, *_args: Any, **_kwargs: Any) -> Tensor:
        if axes == 1:
            high = ((1, *kernel), (1, *stride), (0, *padding), bool(options["ceil_mode"]))
            return F.avg_pool2d(x.unsqueeze(-2), *high, divisor_override=1).squeeze(-2)
        pool = F.avg_pool2d if axes == 2 else F.avg_pool3d
        return pool(x, kernel, stride, padding, bool(options["ceil_mode"]), divisor_override=1)

    return sums
