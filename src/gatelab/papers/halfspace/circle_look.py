"""What is seen of a network on the circle at one moment of its training."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from gatelab.data.circle_data import Regression
from gatelab.gates import GatePattern
from gatelab.kernels import neural_tangent_kernel, overlap_kernel
from gatelab.kernels.spectra import trace_normalised
from gatelab.lab.looks import Look, short
from gatelab.models import DeepLinearlyGatedNetwork
from gatelab.regions import RegionPlan, active_path_counts, half_spaces


def look(model: nn.Module, data: Regression, points: int, *, tangent: bool, plan: RegionPlan | None = None) -> Look:
    """Errors and active paths on both halves, outputs, kernels on so many of the points, half-spaces of a DLGN.

    ``plan`` is that of a model of the same make; it saves most of the time.
    """
    plan = plan or RegionPlan(model)
    gates, answers = plan.capture(model, data.train_x)
    outputs = answers[:, 0]
    upper = data.train_x[:, 1] > 0
    paths = torch.tensor(active_path_counts(gates), dtype=torch.float64)
    some = torch.linspace(0, len(data.train_x) - 1, points).round().long()
    seen: Look = {
        "error": halves((outputs - data.train_y).square(), upper),
        "paths": halves(paths, upper),
        "tilt": tilt(gates, upper),
        "outputs": short(outputs),
        "overlap": short(trace_normalised(overlap_kernel(gates[some]))),
    }
    if tangent:
        seen["tangent"] = short(trace_normalised(neural_tangent_kernel(model, data.train_x[some])))
    if isinstance(model, DeepLinearlyGatedNetwork):
        layers = half_spaces(model, plan=plan).values()
        seen["half_spaces"] = [short(torch.cat([one.normals(), one.offsets.unsqueeze(1)], 1)) for one in layers]
    return seen


def halves(values: Float[Tensor, " n"], upper: Bool[Tensor, " n"]) -> tuple[float, float]:
    """Means over the upper and the lower half of the circle."""
    return float(values[upper].mean()), float(values[~upper].mean())


def concentration(half_spaces: Sequence[Sequence[float]]) -> tuple[float, float]:
    """How much the normals of a layer point one way, and how much that way is up, the middle of the upper half.

    The length of the mean of the unit normals, 0 if they cancel and 1 if they are one direction; and the mean's second
    coordinate. Half-spaces are (normal, offset); those without a normal are left out.
    """
    normals = torch.tensor(half_spaces, dtype=torch.float64)[:, :2]
    lengths = normals.norm(dim=1)
    if not bool((lengths > 0).any()):
        return 0.0, 0.0
    mean = (normals[lengths > 0] / lengths[lengths > 0, None]).mean(dim=0)
    return float(mean.norm()), float(mean[1])


def tilt(gates: GatePattern, upper: Bool[Tensor, " n"]) -> list[float]:
    """For each layer how much more of the upper half than of the lower a gate is open on, on average: −1 to 1."""
    opened = [gates[name].double() for name in gates]
    return [float(layer[upper].mean() - layer[~upper].mean()) for layer in opened]
