"""The flow equation τẇ = (1/K)[b − (1/K)Aw] followed step by step, without the closed form."""

import numpy as np
import torch
from jaxtyping import Float
from scipy.integrate import solve_ivp
from torch import Tensor

from gatelab.dynamics import GatedMoments


def integrated(
    moments: GatedMoments,
    initial: Float[Tensor, "k d"],
    times: Float[Tensor, " times"],
    tau: float = 1.0,
    *,
    rtol: float = 1e-12,
    atol: float = 1e-13,
) -> Float[Tensor, "times k d"]:
    """Integrate gradient flow by a Runge-Kutta method of order eight."""
    A, b, K = moments.A.numpy(), moments.b.numpy(), moments.units

    def rate(_time: float, w: np.ndarray) -> np.ndarray:
        return (b - A @ w / K) / (K * tau)

    span = (0.0, float(times[-1]))
    solution = solve_ivp(rate, span, initial.flatten().numpy(), "DOP853", times.numpy(), rtol=rtol, atol=atol)
    return torch.from_numpy(solution.y.T.copy()).view(len(times), *initial.shape)


def descended(
    moments: GatedMoments, initial: Float[Tensor, "k d"], horizon: float, steps: int, tau: float = 1.0
) -> Float[Tensor, "k d"]:
    """Return the end point of gradient descent with ``steps`` equal steps to time ``horizon``."""
    w, K, step = initial.flatten(), moments.units, horizon / steps / tau
    A, b = moments.A * (-step / K**2), moments.b * (step / K)
    for _ in range(steps):
        w = torch.addmv(w, A, w).add_(b)
    return w.view_as(initial)
