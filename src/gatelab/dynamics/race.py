"""The neural race: pathways whose modes decouple learn them at exactly known rates (beyond gdln)."""

from dataclasses import dataclass
from itertools import combinations
from math import inf

import torch
from jaxtyping import Float
from torch import Tensor

from gatelab.dynamics.gated_flow import Times, as_times, check_tau
from gatelab.dynamics.pathways import ContextMoments
from gatelab.errors import InputError
from gatelab.models import PathwayNetwork

_TOLERANCE = 1e-8  # how much of Σˣˣ may lie off the modes, relative to its largest entry


@dataclass(frozen=True)
class Runner:
    """Hidden nodes with equal gates, and the modes they learn.

    A mode has singular vectors of Σʸˣ, columns of ``left`` and ``right``, its singular value σ as ``strength``, and the
    input's ``variance`` δ along ``right``.
    """

    nodes: tuple[int, ...]
    left: Float[Tensor, "k r"]
    right: Float[Tensor, "d r"]
    strength: Float[Tensor, " r"]
    variance: Float[Tensor, " r"]


class NeuralRace:
    r"""Exact learning of a one-hidden-layer pathway network whose modes decouple.

    Nodes with equal gates form a runner. Different runners must never be open together, and the singular vectors of
    a runner's Σʸˣ must diagonalise its Σˣˣ. From balanced, aligned weights of size √s₀ per node, the sum s of a mode
    over a runner's nodes obeys τ ṡ = 2 s (σ − δ s), so

    .. math:: s(t) = \frac{\sigma/\delta}{1 - (1 - \sigma/(\delta s_0))\, e^{-2\sigma t/\tau}}

    The nodes of a runner keep their shares of s: a node that starts ahead stays ahead.

    Args:
        moments: moments of a network with one hidden layer.
        tau: τ, the time constant.

    Raises:
        InputError: there are more hidden layers, nodes overlap, or modes mix; use PathwayFlow for these.

    Example:
        >>> from gatelab.dynamics.pathways import context_moments
        >>> from gatelab.models import OpenGates
        >>> network = PathwayNetwork(2, 1, [OpenGates(1)], [2])
        >>> race = NeuralRace(context_moments(network, torch.eye(2), torch.tensor([[1.0], [0.0]])))
        >>> [round(float(s), 3) for s in race.strengths(100.0, start=0.01)[0]]
        [1.0]
    """

    def __init__(self, moments: ContextMoments, tau: float = 1.0):
        if len(moments.gates) != 1:
            raise InputError(f"{len(moments.gates)} hidden layers; the exact race has one: use PathwayFlow for others")
        check_tau(tau)
        self.tau, self._moments = tau, moments
        self.runners = [_runner(moments, nodes) for nodes in _equal_nodes(moments)]

    def align(self, network: PathwayNetwork, start: float, generator: torch.Generator | None = None) -> None:
        """Set a network to the balanced weights from which the race starts.

        Args:
            network: the network, whose weights are overwritten.
            start: s₀ of every mode and node.
            generator: source of the units' directions within a node.
        """
        _check_start(start)
        if len(network.node_widths) != 1:
            raise InputError(f"the network has {len(network.node_widths)} hidden layers; the race starts from one")
        first, last = network.weights()
        (width,) = network.node_widths
        with torch.no_grad():
            first.zero_()
            last.zero_()
            for runner in self.runners:
                rank = len(runner.strength)
                if rank > width:
                    raise InputError(f"a node of {width} units cannot hold {rank} modes; make nodes of {rank} or more")
                for node in runner.nodes:
                    basis = torch.randn(width, rank, generator=generator, dtype=first.dtype, device=first.device)
                    basis, _ = torch.linalg.qr(basis)  # one direction per mode, so modes stay apart within a node
                    rows = slice(node * width, (node + 1) * width)
                    first[rows] = start**0.5 * basis @ runner.right.T
                    last[:, rows] = start**0.5 * runner.left @ basis.T

    def strengths(self, t: Times, start: float) -> list[Float[Tensor, "*times r"]]:
        """Return s(t) of every mode of every runner, summed over the runner's nodes.

        Args:
            t: one time or a tensor of times.
            start: s₀ of every mode and node.

        Returns:
            A tensor for each runner, with its modes on the last axis.
        """
        _check_start(start)
        return [self._strength(runner, t, len(runner.nodes) * start) for runner in self.runners]

    def _strength(self, runner: Runner, t: Times, start: float) -> Tensor:
        strength = runner.strength
        times = as_times(t, strength)[..., None] / self.tau
        growth = 2 * strength * times
        # s = s₀ e^g / (1 + δ s₀ (e^g − 1)/σ), divided by e^g against overflow at large t. At σ = 0 its limit is
        # s₀ / (1 + 2 δ s₀ t/τ).
        gained = torch.where(strength > 0, -torch.expm1(-growth) / torch.where(strength > 0, strength, 1), 2 * times)
        return start / (torch.exp(-growth) + runner.variance * start * gained)

    def loss(self, t: Times, start: float) -> Float[Tensor, "*times"]:
        """Return L(t) = ½⟨‖y‖²⟩ − Σ (σ s − ½ δ s²).

        Args:
            t: one time or a tensor of times.
            start: s₀ of every mode and node.

        Returns:
            The loss at each time.
        """
        learnt = [
            (runner.strength * s - runner.variance * s.square() / 2).sum(dim=-1)
            for runner, s in zip(self.runners, self.strengths(t, start), strict=True)
        ]
        return self._moments.yy / 2 - sum(learnt, torch.zeros(()))


def _check_start(start: float) -> None:
    if not 0 < start < inf:
        raise InputError(f"s₀ = {start}; a mode that starts at zero never moves: start above zero")


def _equal_nodes(moments: ContextMoments) -> list[tuple[int, ...]]:
    """Group nodes with equal gates, leaving out nodes that never open; refuse groups that are open together."""
    (gates,) = moments.gates
    groups: dict[tuple[bool, ...], tuple[int, ...]] = {}
    for node, opened in enumerate(map(tuple, gates.T.tolist())):
        if any(opened):
            groups[opened] = (*groups.get(opened, ()), node)
    scale = moments.xx.sum(dim=0).abs().max()
    for (second, *_), (first, *_) in combinations(groups.values(), 2):
        shared = moments.input_input([first], [second]).abs().max() / scale
        if shared > _TOLERANCE:
            raise InputError(
                f"nodes {second} and {first} differ but are open together (Σˣˣ(p, q) is {float(shared):.3g} "
                "of the largest): their modes do not decouple; use PathwayFlow"
            )
    return list(groups.values())


def _runner(moments: ContextMoments, nodes: tuple[int, ...]) -> Runner:
    path = [nodes[0]]
    left, strength, right = torch.linalg.svd(moments.input_output(path), full_matrices=False)
    # Rows vᵀΣˣˣ; each is a multiple of its own vᵀ if and only if v is an eigenvector.
    variance = right @ moments.input_input(path, path)
    off = (variance - (variance * right).sum(dim=1, keepdim=True) * right).abs().max() / variance.abs().max()
    if off > _TOLERANCE:
        raise InputError(
            f"node {nodes[0]}: {float(off):.3g} of Σˣˣ lies off the singular vectors of Σʸˣ, so modes mix; "
            "whiten the inputs, or integrate with PathwayFlow"
        )
    return Runner(nodes, left, right.T, strength, (variance * right).sum(dim=1))
