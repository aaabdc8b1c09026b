"""Deeper gated linear networks: gradient flow from moments, integrated numerically (beyond gdln)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float
from scipy.integrate import solve_ivp
from torch import Tensor

from gatelab.dynamics.gated_flow import check_tau
from gatelab.errors import InputError, OutOfRangeError
from gatelab.models import PathwayNetwork


@dataclass(frozen=True)
class ContextMoments:
    """The moments of a data set in every context of a network with node gates.

    A context is one joint state of all gates. The network is linear within a context, so learning sees nothing of
    the data but these moments. Moments of pathways are sums over contexts.

    ``gates`` are the open nodes of each hidden layer in every context, ``xx`` and ``yx`` are ⟨x xᵀ 1_c⟩ and ⟨y xᵀ 1_c⟩,
    and ``yy`` is ⟨‖y‖²⟩ over all contexts.
    """

    gates: tuple[Bool[Tensor, "c _"], ...]
    xx: Float[Tensor, "c d d"]
    yx: Float[Tensor, "c k d"]
    yy: float

    def is_open(self, path: Sequence[int]) -> Bool[Tensor, " c"]:
        """Return the contexts in which a pathway, one node from each hidden layer, is open."""
        if len(path) != len(self.gates):
            raise InputError(
                f"the pathway {tuple(path)} has {len(path)} nodes; there are {len(self.gates)} hidden layers"
            )
        for number, (layer, node) in enumerate(zip(self.gates, path, strict=True), 1):
            if not 0 <= node < layer.shape[1]:
                raise OutOfRangeError(f"hidden layer {number} has no node {node}; it has 0 to {layer.shape[1] - 1}")
        return torch.stack([layer[:, node] for layer, node in zip(self.gates, path, strict=True)]).all(dim=0)

    def input_output(self, p: Sequence[int]) -> Float[Tensor, "k d"]:
        """Return Σʸˣ(p) for the pathway p."""
        return self.yx[self.is_open(p)].sum(dim=0)

    def input_input(self, p: Sequence[int], q: Sequence[int]) -> Float[Tensor, "d d"]:
        """Return Σˣˣ(p, q) for the pathways p and q."""
        return self.xx[self.is_open(p) & self.is_open(q)].sum(dim=0)


def context_moments(
    network: PathwayNetwork,
    x: Float[Tensor, "n d"],
    y: Float[Tensor, "n k"],
    *,
    opened: Sequence[Bool[Tensor, "n _"]] | None = None,
) -> ContextMoments:
    """Return the moments of a data set in every context of a network's gates.

    Args:
        network: the network whose gates define the contexts.
        x: examples.
        y: their targets.
        opened: which nodes of each hidden layer are open for each example, if a task decides this rather than x; by
            default the network's own gates.

    Returns:
        One second moment and one input-output correlation for each context that occurs.

    Example:
        >>> from gatelab.models import HalfSpaceGates
        >>> network = PathwayNetwork(2, 1, [HalfSpaceGates(torch.eye(2))], [3])
        >>> context_moments(network, torch.eye(2), torch.ones(2, 1)).gates[0].tolist()
        [[False, True], [True, False]]
    """
    weights = network.weights()
    wanted = (weights[0].shape[1], weights[-1].shape[0])
    if len(x) != len(y) or not len(x) or (x.shape[1:], y.shape[1:]) != (wanted[:1], wanted[1:]):
        raise InputError(
            f"x has shape {tuple(x.shape)}, y {tuple(y.shape)}; the network takes (n, {wanted[0]}) and gives "
            f"(n, {wanted[1]})"
        )
    if not bool(torch.isfinite(x).all() and torch.isfinite(y).all()):
        raise InputError("x or y holds NaN or infinite values; clean the data")
    counts = [gates.count for gates in network.node_gates()]
    if opened is None:
        opened = [gates.opened(x) for gates in network.node_gates()]
    elif [tuple(part.shape) for part in opened] != [(len(x), count) for count in counts]:
        shapes = [tuple(part.shape) for part in opened]
        raise InputError(f"opened has shapes {shapes}; give one for each hidden layer, with (n, nodes), nodes {counts}")
    elif any(part.dtype != torch.bool for part in opened):
        raise InputError("opened holds numbers; give booleans, for example opened > 0")
    states, context = torch.unique(torch.cat(list(opened), dim=1), dim=0, return_inverse=True)
    inputs = [x[context == place] for place in range(len(states))]
    targets = [y[context == place] for place in range(len(states))]
    return ContextMoments(
        states.split([gates.shape[1] for gates in opened], dim=1),
        torch.stack([own.T @ own / len(x) for own in inputs]),
        torch.stack([target.T @ own / len(x) for target, own in zip(targets, inputs, strict=True)]),
        y.square().sum(dim=1).mean().item(),
    )


class PathwayFlow:
    r"""Gradient flow of a :class:`~gatelab.models.PathwayNetwork` on L = ½⟨‖y − ŷ‖²⟩, from its moments alone.

    .. math::
        \tau \dot W_\ell = \sum_c B_{\ell,c}^\top \big[\Sigma^{yx}_c - \bar W_c \Sigma^{xx}_c\big] F_{\ell-1,c}^\top

    In context c, F maps x to the input of layer ℓ, B maps the output of layer ℓ to ŷ, and W̄ = B W F is the network.
    Summed over the pathways through an edge, this is the flow of gated deep linear networks. Everything is in float64.

    Args:
        moments: moments of the data under the network's gates.
        network: gives the widths; its current weights are the initial ones.
        tau: τ, the time constant.

    Example:
        >>> from gatelab.models import OpenGates
        >>> network = PathwayNetwork(2, 1, [OpenGates(1)], [3])
        >>> flow = PathwayFlow(context_moments(network, torch.eye(2), torch.ones(2, 1)), network)
        >>> [layer.shape for layer in flow.solve(torch.tensor([0.0, 1.0]))]
        [torch.Size([2, 3, 2]), torch.Size([2, 1, 3])]
    """

    def __init__(self, moments: ContextMoments, network: PathwayNetwork, tau: float = 1.0):
        check_tau(tau)
        nodes = [gates.shape[1] for gates in moments.gates]
        weights = network.weights()
        shape = (len(weights[-1]), weights[0].shape[1])
        if nodes != [gates.count for gates in network.node_gates()] or moments.yx.shape[1:] != shape:
            raise InputError("the moments belong to another network; use context_moments(network, x, y)")
        self.tau = tau
        # In float32, rounding errors would keep the integrator at tiny steps.
        self.moments = replace(moments, xx=moments.xx.double(), yx=moments.yx.double())
        self.initial = [weight.detach().double().clone() for weight in network.weights()]
        self._masks = [
            gates.double().repeat_interleave(width, dim=1)
            for gates, width in zip(moments.gates, network.node_widths, strict=True)
        ]

    def velocity(self, weights: Sequence[Tensor]) -> list[Tensor]:
        """Return Ẇ for every layer."""
        below = self._below(weights)
        total = weights[-1] @ below[-1]
        above = torch.eye(len(weights[-1]), dtype=total.dtype, device=total.device).expand(len(total), -1, -1)
        error = self.moments.yx - total @ self.moments.xx
        rates = []
        for layer in range(len(weights) - 1, -1, -1):
            rates.append((above.mT @ error @ below[layer].mT).sum(dim=0) / self.tau)
            if layer:  # back through the layer, then through the gates below it
                above = (above @ weights[layer]) * self._masks[layer - 1][:, None, :]
        return rates[::-1]

    def loss(self, weights: Sequence[Tensor]) -> float:
        """Return L for given weights."""
        total = weights[-1] @ self._below(weights)[-1]
        cross, square = (total * self.moments.yx).sum(), ((total @ self.moments.xx) * total).sum()
        return float(self.moments.yy / 2 - cross + square / 2)

    def solve(self, times: Float[Tensor, " times"]) -> list[Float[Tensor, "times _ _"]]:
        """Return the weights of every layer at increasing times, by an adaptive Runge-Kutta method of order eight."""
        if not len(times) or not bool(torch.isfinite(times).all()) or times[0] < 0 or (times[1:] <= times[:-1]).any():
            raise InputError("times must be finite and rise, from 0 on; sort them and remove duplicates")
        start, end = _flat(self.initial), float(times[-1])
        solution = solve_ivp(
            lambda _time, flat: _flat(self.velocity(self._layers(flat))),
            (0.0, end),
            start,
            method="DOP853",
            t_eval=times.double().cpu().numpy(),
            rtol=1e-10,
            atol=1e-12,
        )
        if not solution.success:
            raise InputError(f"the flow could not be followed to t = {end:g}: {solution.message}; end earlier")
        states = [self._layers(np.ascontiguousarray(state)) for state in solution.y.T]
        return [torch.stack(layer) for layer in zip(*states, strict=True)]

    def _below(self, weights: Sequence[Tensor]) -> list[Float[Tensor, "c _ d"]]:
        """Return F_ℓ for ℓ = 0 … L − 1."""
        eye = torch.eye(self.moments.xx.shape[-1], dtype=weights[0].dtype, device=weights[0].device)
        maps = [eye.expand(len(self.moments.xx), -1, -1)]
        for weight, mask in zip(weights[:-1], self._masks, strict=True):
            maps.append(mask[:, :, None] * (weight @ maps[-1]))
        return maps

    def _layers(self, flat: np.ndarray) -> list[Tensor]:
        parts = torch.from_numpy(flat).to(self.initial[0]).split([weight.numel() for weight in self.initial])
        return [part.view_as(weight) for part, weight in zip(parts, self.initial, strict=True)]


def _flat(weights: Sequence[Tensor]) -> np.ndarray:
    return torch.cat([weight.flatten() for weight in weights]).cpu().numpy()
