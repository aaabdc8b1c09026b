"""Deeper gated linear networks: gradient flow from moments, integrated numerically (beyond gdln)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from scipy.integrate import solve_ivp
from torch import Tensor

from gatelab.errors import InputError
from gatelab.models import PathwayNetwork


@dataclass(frozen=True)
class ContextMoments:
    """What a data set looks like to a network with node gates.

    A context is one joint state of all gates; within it the network is linear, so that the moments of each context are
    all that learning sees. Those of pathways are sums over contexts: :meth:`input_output`, :meth:`input_input`.

    Attributes:
        gates: open nodes of each hidden layer, in every context.
        xx: ⟨x xᵀ 1_c⟩.
        yx: ⟨y xᵀ 1_c⟩.
        yy: ⟨‖y‖²⟩ over all contexts.
    """

    gates: tuple[Bool[Tensor, "c _"], ...]
    xx: Float[Tensor, "c d d"]
    yx: Float[Tensor, "c k d"]
    yy: float

    def is_open(self, path: Sequence[int]) -> Bool[Tensor, " c"]:
        """The contexts in which a pathway, one node from each hidden layer, is open."""
        if len(path) != len(self.gates):
            raise InputError(
                f"the pathway {tuple(path)} has {len(path)} nodes; there are {len(self.gates)} hidden layers"
            )
        return torch.stack([layer[:, node] for layer, node in zip(self.gates, path, strict=True)]).all(dim=0)

    def input_output(self, p: Sequence[int]) -> Float[Tensor, "k d"]:
        """Σʸˣ(p), for the pathway p."""
        return self.yx[self.is_open(p)].sum(dim=0)

    def input_input(self, p: Sequence[int], q: Sequence[int]) -> Float[Tensor, "d d"]:
        """Σˣˣ(p, q), for the pathways p and q."""
        return self.xx[self.is_open(p) & self.is_open(q)].sum(dim=0)


def context_moments(network: PathwayNetwork, x: Float[Tensor, "n d"], y: Float[Tensor, "n k"]) -> ContextMoments:
    """The moments of a data set in every context of a network's gates."""
    if len(x) != len(y) or not len(x):
        raise InputError(f"{len(x)} examples, {len(y)} targets; give at least one, and as many of each")
    opened = [gates.opened(x) for gates in network.node_gates()]
    states, context = torch.unique(torch.cat(opened, dim=1), dim=0, return_inverse=True)
    xx, yx = x.new_zeros(len(states), x.shape[1], x.shape[1]), x.new_zeros(len(states), y.shape[1], x.shape[1])
    for place in range(len(states)):
        of_context = context == place
        inputs, targets = x[of_context], y[of_context]
        xx[place], yx[place] = inputs.T @ inputs / len(x), targets.T @ inputs / len(x)
    layers = states.split([gates.shape[1] for gates in opened], dim=1)
    return ContextMoments(tuple(layers), xx, yx, y.square().sum(dim=1).mean().item())


class PathwayFlow:
    r"""Gradient flow of a :class:`~gatelab.models.PathwayNetwork` on L = ½⟨‖y − ŷ‖²⟩, from its moments alone.

    .. math::
        \tau \dot W_\ell = \sum_c B_{\ell,c}^\top \big[\Sigma^{yx}_c - \bar W_c \Sigma^{xx}_c\big] F_{\ell-1,c}^\top

    F is what the layers below ℓ make of x in the context c, B what those above make of its output, and
    W̄ = B W F the network. Summed over the pathways through an edge this is the flow of gated deep linear networks.
    """

    def __init__(self, moments: ContextMoments, network: PathwayNetwork, tau: float = 1.0):
        """Take widths and w(0) from the network as it is now."""
        if tau <= 0:
            raise InputError(f"tau = {tau}; the time constant must be positive")
        self.moments, self.tau = moments, tau
        self.initial = [weight.detach().clone() for weight in network.weights()]
        self._masks = [
            gates.to(moments.xx).repeat_interleave(width, dim=1)
            for gates, width in zip(moments.gates, network.node_widths, strict=True)
        ]

    def velocity(self, weights: Sequence[Tensor]) -> list[Tensor]:
        """Ẇ for every layer."""
        below = self._below(weights)
        total = weights[-1] @ below[-1]
        above = torch.eye(len(weights[-1]), dtype=total.dtype, device=total.device).expand(len(total), -1, -1)
        error = self.moments.yx - total @ self.moments.xx
        rates = []
        for layer in range(len(weights) - 1, -1, -1):
            rates.append((above.mT @ error @ below[layer].mT).sum(dim=0) / self.tau)
            if layer:
                above = (above @ weights[layer]) * self._masks[layer - 1][:, None, :]
        return rates[::-1]

    def loss(self, weights: Sequence[Tensor]) -> float:
        """L at these weights."""
        total = weights[-1] @ self._below(weights)[-1]
        cross, square = (total * self.moments.yx).sum(), ((total @ self.moments.xx) * total).sum()
        return float(self.moments.yy / 2 - cross + square / 2)

    def solve(self, times: Float[Tensor, " times"], *, accuracy: float = 1e-10) -> list[Float[Tensor, "times _ _"]]:
        """The weights of every layer at rising times, by an adaptive Runge-Kutta method of order eight.

        Args:
            times: when to look, from 0 on.
            accuracy: relative error of a step.
        """
        if not len(times) or times[0] < 0 or (times[1:] <= times[:-1]).any():
            raise InputError("times must rise, from 0 on")
        sizes, shapes = [weight.numel() for weight in self.initial], [weight.shape for weight in self.initial]
        like = self.initial[0]

        def unpack(flat: np.ndarray) -> list[Tensor]:
            parts = torch.from_numpy(flat).to(like).split(sizes)
            return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]

        def rate(_time: float, flat: np.ndarray) -> np.ndarray:
            return _packed(self.velocity(unpack(flat)))

        found = solve_ivp(
            rate,
            (0.0, float(times[-1])),
            _packed(self.initial),
            method="DOP853",
            t_eval=times.double().cpu().numpy(),
            rtol=accuracy,
            atol=accuracy * 1e-2,
        )
        if not found.success:
            raise InputError(f"the flow could not be followed to t = {float(times[-1]):g}: {found.message}")
        states = [unpack(np.ascontiguousarray(state)) for state in found.y.T]
        return [torch.stack(layer) for layer in zip(*states, strict=True)]

    def _below(self, weights: Sequence[Tensor]) -> list[Float[Tensor, "c _ d"]]:
        """F_ℓ for ℓ = 0 … L − 1."""
        eye = torch.eye(self.moments.xx.shape[-1], dtype=weights[0].dtype, device=weights[0].device)
        found = [eye.expand(len(self.moments.xx), -1, -1)]
        for weight, mask in zip(weights[:-1], self._masks, strict=True):
            found.append(mask[:, :, None] * (weight @ found[-1]))
        return found


def _packed(weights: Sequence[Tensor]) -> np.ndarray:
    return torch.cat([weight.flatten() for weight in weights]).double().cpu().numpy()
