"""The neural race: pathways whose modes decouple learn them at rates that are known exactly (beyond gdln)."""

from dataclasses import dataclass
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor

from gatelab.dynamics.gated_flow import Times
from gatelab.dynamics.pathways import ContextMoments
from gatelab.errors import InputError
from gatelab.models import PathwayNetwork


@dataclass(frozen=True)
class Runner:
    """Pathways with equal gates and the modes they learn.

    Attributes:
        nodes: the hidden nodes, which share the modes.
        left, right: singular vectors of Σʸˣ, as columns.
        strength: σ, singular values of Σʸˣ.
        variance: δ, of the input along ``right``.
    """

    nodes: tuple[int, ...]
    left: Float[Tensor, "k r"]
    right: Float[Tensor, "d r"]
    strength: Float[Tensor, " r"]
    variance: Float[Tensor, " r"]


class NeuralRace:
    r"""Exact learning of a one-hidden-layer pathway network whose modes decouple.

    Nodes with equal gates run together; different ones must never be open together, and the singular vectors of a
    runner's Σʸˣ must diagonalise its Σˣˣ. From balanced, aligned weights of size √s₀ per node, the sum s of a
    mode over a runner's nodes obeys τ ṡ = 2 s (σ − δ s), which gives

    .. math:: s(t) = \frac{\sigma/\delta}{1 - (1 - \sigma/(\delta s_0))\, e^{-2\sigma t/\tau}}

    and the nodes of a runner keep their shares of s: whoever starts ahead stays ahead.
    """

    def __init__(self, moments: ContextMoments, tau: float = 1.0, *, tolerance: float = 1e-8):
        """Find runners and modes.

        Args:
            moments: those of a network with one hidden layer.
            tau: τ.
            tolerance: how much of Σˣˣ may lie off the modes, relative to its largest entry.

        Raises:
            InputError: more hidden layers, nodes that overlap, or modes that mix; PathwayFlow integrates these.
        """
        if len(moments.gates) != 1:
            raise InputError(
                f"{len(moments.gates)} hidden layers; the exact race has one: PathwayFlow integrates others"
            )
        self.tau, self._moments = tau, moments
        self.runners = [_runner(moments, nodes, tolerance) for nodes in _runners(moments, tolerance)]

    def align(self, network: PathwayNetwork, start: float, generator: torch.Generator | None = None) -> None:
        """Give a network the balanced weights from which the race starts, s₀ = ``start`` for every mode and node."""
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
                    basis, _ = torch.linalg.qr(basis)
                    rows = slice(node * width, (node + 1) * width)
                    first[rows] = start**0.5 * basis @ runner.right.T
                    last[:, rows] = start**0.5 * runner.left @ basis.T

    def strengths(self, t: Times, start: float) -> list[Float[Tensor, "*times r"]]:
        """s(t) of every mode of every runner, summed over its nodes."""
        found = []
        for runner in self.runners:
            times = torch.as_tensor(t, dtype=runner.strength.dtype, device=runner.strength.device)[..., None]
            found.append(logistic(times, runner.strength, runner.variance, len(runner.nodes) * start, self.tau))
        return found

    def loss(self, t: Times, start: float) -> Float[Tensor, "*times"]:
        """L(t) = ½⟨‖y‖²⟩ − Σ (σ s − ½ δ s²)."""
        total = cast("Tensor", 0.0)
        for runner, s in zip(self.runners, self.strengths(t, start), strict=True):
            total = total + (runner.strength * s - runner.variance * s.square() / 2).sum(dim=-1)
        return self._moments.yy / 2 - total


def logistic(t: Tensor, strength: Tensor, variance: Tensor, start: float, tau: float) -> Tensor:
    """The solution of τ ṡ = 2 s (σ − δ s); at σ = 0 it is s₀ / (1 + 2 δ s₀ t/τ)."""
    if start <= 0:
        raise InputError(f"s₀ = {start}; a mode that starts at zero never moves")
    growth = 2 * strength * t / tau
    # s = s₀ e^g / (1 + δ s₀ (e^g − 1)/σ), written so that large t does not overflow and σ = 0 is its own limit.
    gained = torch.where(strength > 0, -torch.expm1(-growth) / torch.where(strength > 0, strength, 1), 2 * t / tau)
    return start / (torch.exp(-growth) + variance * start * gained)


def _runners(moments: ContextMoments, tolerance: float) -> list[tuple[int, ...]]:
    (gates,) = moments.gates
    groups: dict[tuple[bool, ...], list[int]] = {}
    for node in range(gates.shape[1]):
        groups.setdefault(tuple(gates[:, node].tolist()), []).append(node)
    found = [tuple(nodes) for opened, nodes in groups.items() if any(opened)]
    scale = moments.xx.sum(dim=0).abs().max()
    for place, first in enumerate(found):
        for second in found[:place]:
            shared = moments.input_input([first[0]], [second[0]]).abs().max() / scale
            if shared > tolerance:
                raise InputError(
                    f"nodes {second[0]} and {first[0]} differ but are open together (Σˣˣ(p, q) is {float(shared):.3g} "
                    "of the largest): their modes do not decouple; PathwayFlow integrates them"
                )
    return found


def _runner(moments: ContextMoments, nodes: tuple[int, ...], tolerance: float) -> Runner:
    path = [nodes[0]]
    left, strength, right = torch.linalg.svd(moments.input_output(path), full_matrices=False)
    variance = right @ moments.input_input(path, path)
    off = (variance - (variance * right).sum(dim=1, keepdim=True) * right).abs().max() / variance.abs().max()
    if off > tolerance:
        raise InputError(
            f"node {nodes[0]}: {float(off):.3g} of Σˣˣ lies off the singular vectors of Σʸˣ, so that modes mix; "
            "whiten the inputs, or integrate with PathwayFlow"
        )
    return Runner(nodes, left, right.T, strength, (variance * right).sum(dim=1))
