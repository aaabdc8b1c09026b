"""Gradient flow of a gated linear classifier on the cross-entropy, which has no closed form: integrated numerically."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int64
from scipy.integrate import solve_ivp
from torch import Tensor

from gatelab.dynamics.gated_flow import FlowStoppedError, check_tau
from gatelab.dynamics.moments import Gates, gated_inputs
from gatelab.errors import InputError


@dataclass(frozen=True)
class ClassifierFlow:
    """Weights (times, K, d, classes) and the mean cross-entropy at each time."""

    times: tuple[float, ...]
    weights: Float[Tensor, "times k d c"]
    loss: Float[Tensor, " times"]


def cross_entropy_flow(
    x: Float[Tensor, "n d"],
    labels: Int64[Tensor, " n"],
    gates: Gates,
    times: Sequence[float],
    tau: float = 1.0,
    *,
    initial: Float[Tensor, "k d c"] | None = None,
    classes: int | None = None,
) -> ClassifierFlow:
    r"""Follow τẇ = −∂L/∂w for logits (1/K) Σ_k g_k W_kᵀx and L = −⟨log softmax(logits)_label⟩, to relative 1e-9.

    Args:
        x: examples, taken as the population.
        labels: classes 0, 1, …
        gates: the gates, or which of them are open for each example.
        times: rising times from 0 on.
        tau: τ, the time constant.
        initial: W(0); zeros by default.
        classes: number of classes; by default the largest label plus one.

    Returns:
        Weights and loss at the times. On separable data, weights grow without bound, like the logarithm of time.

    Example:
        >>> x, labels = torch.tensor([[1.0], [-1.0]]), torch.tensor([0, 1])
        >>> flow = cross_entropy_flow(x, labels, torch.ones(2, 1, dtype=torch.bool), [0.0, 1.0])
        >>> round(flow.loss[0].item(), 4), bool(flow.loss[1] < flow.loss[0])
        (0.6931, True)
    """
    check_tau(tau)
    if x.ndim != 2 or labels.shape != x.shape[:1] or not len(x) or labels.is_floating_point() or int(labels.min()) < 0:
        raise InputError(
            f"x has shape {tuple(x.shape)}, labels {tuple(labels.shape)} {labels.dtype}; give (n, d) and (n,) classes"
        )
    count = int(labels.max()) + 1 if classes is None else classes
    if count <= int(labels.max()) or count < 2:
        raise InputError(
            f"{count} classes, labels up to {int(labels.max())}; give two classes or more, and one for each label"
        )
    wanted = [float(time) for time in times]
    if not wanted or wanted[0] < 0 or not np.isfinite(wanted[-1]) or (np.diff(wanted) <= 0).any():
        raise InputError("times must be finite and rise, from 0 on; sort them and remove duplicates")
    features = gated_inputs(x.double(), gates)
    units = features.shape[1] // x.shape[1]
    shape = (units, x.shape[1], count)
    if initial is not None and tuple(initial.shape) != shape:
        raise InputError(f"W(0) is {tuple(initial.shape)}; it must be (K, d, classes) = {shape}")
    start = torch.zeros(shape, dtype=torch.float64) if initial is None else initial.double()
    inputs, truth = features.numpy() / units, torch.nn.functional.one_hot(labels, count).double().numpy()

    def logs(flat: np.ndarray) -> np.ndarray:
        logits = inputs @ flat.reshape(-1, count)
        logits -= logits.max(axis=1, keepdims=True)
        return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))

    def rate(_time: float, flat: np.ndarray) -> np.ndarray:
        return (inputs.T @ (truth - np.exp(logs(flat)))).ravel() / (len(inputs) * tau)

    solved = solve_ivp(rate, (0.0, wanted[-1]), start.numpy().ravel(), "DOP853", wanted, rtol=1e-9, atol=1e-11)
    if not solved.success:
        raise FlowStoppedError(f"the flow could not be followed to t = {wanted[-1]:g}: {solved.message}")
    losses = [-float((truth * logs(flat)).sum() / len(inputs)) for flat in solved.y.T]
    weights = torch.from_numpy(solved.y.T.copy()).view(-1, *shape)
    return ClassifierFlow(tuple(wanted), weights, torch.tensor(losses, dtype=torch.float64))
