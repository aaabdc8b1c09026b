"""A ReLU network's flow with gates that open over a width ε, by a stiff solver; it tends to Filippov's as ε → 0."""

import numpy as np
import torch
from scipy.integrate import solve_ivp


def smoothed_relu_flow(x, y, start, horizon, tau, width):
    """Integrate the flow whose gates are clip(wᵀx/ε + ½, 0, 1); nothing here knows of events or sliding."""
    x, y, (units, dim) = x.numpy(), y.numpy(), start.shape
    share = 1 / (len(x) * units * tau)

    def rate(_time, w):
        h = x @ w.reshape(units, dim).T
        gates = np.clip(h / width + 0.5, 0, 1)
        error = y - (gates * h).mean(axis=1)
        return (((gates * error[:, None]).T @ x) * share).ravel()

    def jacobian(_time, w):
        h = x @ w.reshape(units, dim).T
        gates, slopes = np.clip(h / width + 0.5, 0, 1), (np.abs(h) < width / 2) / width
        error = y - (gates * h).mean(axis=1)
        blocks = np.zeros((units, dim, units, dim))
        for k in range(units):
            blocks[k, :, k] += (x * (slopes[:, k] * error)[:, None]).T @ x
            for j in range(units):
                blocks[k, :, j] -= (x * (gates[:, k] * (gates[:, j] + slopes[:, j] * h[:, j]) / units)[:, None]).T @ x
        return blocks.reshape(units * dim, -1) * share

    solved = solve_ivp(rate, (0, horizon), start.numpy().ravel(), "LSODA", rtol=1e-9, atol=1e-11, jac=jacobian)
    return torch.from_numpy(solved.y[:, -1].copy()).view(units, dim)
