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


def smoothed_relu_flow(
    x: Float[Tensor, "n d"],
    y: Float[Tensor, " n"],
    start: Float[Tensor, "k d"],
    horizon: float,
    tau: float,
    width: float,
) -> Float[Tensor, "k d"]:
    """Return w at the horizon of a ReLU network whose gates open over a width ε, clip(wᵀx/ε + ½, 0, 1).

    It uses a stiff solver without events or sliding; as ε → 0 the result tends to Filippov's flow.
    """
    inputs, targets, (units, dim) = x.numpy(), y.numpy(), start.shape
    share = 1 / (len(inputs) * units * tau)

    def rate(_time: float, w: np.ndarray) -> np.ndarray:
        h = inputs @ w.reshape(units, dim).T
        gates = np.clip(h / width + 0.5, 0, 1)
        error = targets - (gates * h).mean(axis=1)
        return (((gates * error[:, None]).T @ inputs) * share).ravel()

    def jacobian(_time: float, w: np.ndarray) -> np.ndarray:
        h = inputs @ w.reshape(units, dim).T
        gates, slopes = np.clip(h / width + 0.5, 0, 1), (np.abs(h) < width / 2) / width
        error = targets - (gates * h).mean(axis=1)
        blocks = np.zeros((units, dim, units, dim))
        for k in range(units):
            blocks[k, :, k] += (inputs * (slopes[:, k] * error)[:, None]).T @ inputs
            for j in range(units):
                blocks[k, :, j] -= (
                    inputs * (gates[:, k] * (gates[:, j] + slopes[:, j] * h[:, j]) / units)[:, None]
                ).T @ inputs
        return blocks.reshape(units * dim, -1) * share

    solved = solve_ivp(rate, (0, horizon), start.numpy().ravel(), "LSODA", rtol=1e-9, atol=1e-11, jac=jacobian)
    return torch.from_numpy(solved.y[:, -1].copy()).view(units, dim)
