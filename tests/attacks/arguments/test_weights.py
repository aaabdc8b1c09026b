"""Weights and buffers that are not numbers, and numbers that are too large: refused in every function."""

import pytest
import torch
from torch import nn

import gatelab as gl
from gatelab.kernels import infinite_width_kernels
from tests.attacks.calls import CALLS, MORE_CALLS, answer
from tests.attacks.outcomes import SilentlyWrongError, refusal

pytestmark = pytest.mark.attack("inputs and arguments")

# read shows a model; it computes no quantity of its weights.
EVERY = {
    name: call
    for name, call in (CALLS | MORE_CALLS).items()
    if name not in ("read", "RegionPlan", "mixture_of_experts")
}
DENSE_ONLY = {"neural_path_features", "neural_path_values", "value_tangent_kernel"}
FRESH_VALUES = {"to_dlgn", "to_dln", "to_dgn", "to_dgn with learnt gates", "widen_values"}
GATED_ONLY = {"refit_values"}


def dense() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))


def normed() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2)).eval()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", [name for name in EVERY if name not in FRESH_VALUES])
def test_weight_that_is_no_number(name, value):
    model = dense()
    model[2].weight.data[1, 1] = value
    refusal(lambda: EVERY[name](model, torch.randn(4, 3)))


@pytest.mark.parametrize("buffer", ["running_mean", "running_var"])
@pytest.mark.parametrize("name", [name for name in EVERY if name not in FRESH_VALUES | DENSE_ONLY])
def test_batch_norm_buffer_that_is_no_number(name, buffer):
    model = normed()
    getattr(model[1], buffer)[2] = float("nan")
    refusal(lambda: EVERY[name](model, torch.randn(4, 3)))


@pytest.mark.parametrize(
    "name", ["neural_path_kernel", "neural_tangent_kernel", "to_dgn", "activation_region", "top_paths"]
)
def test_negative_variance(name):
    """The square root of a negative running variance is NaN."""
    model = normed()
    model[1].running_var.fill_(-1.0)
    refusal(lambda: EVERY[name](model, torch.randn(4, 3)))


def finite(ours) -> None:
    """An answer, if there is one, has no infinite or NaN entry."""
    if ours is not None and not bool(torch.isfinite(ours).all()):
        raise SilentlyWrongError(f"answered {ours!r:.200}")


KERNELS = {
    "neural_path_kernel": gl.neural_path_kernel,
    "raw neural_path_kernel": MORE_CALLS["raw neural_path_kernel"],
    "neural_tangent_kernel": gl.neural_tangent_kernel,
    "OverlapKernel": MORE_CALLS["OverlapKernel"],
    "path_features": CALLS["path_features"],
    "infinite_width_ntk": lambda _model, x: gl.infinite_width_ntk(x, depth=3),
    "infinite_width_kernels": lambda _model, x: infinite_width_kernels(x, depth=3).ntk,
}


@pytest.mark.parametrize(
    ("dtype", "size"),
    [(torch.float16, 300.0), (torch.bfloat16, 1e25), (torch.float32, 1e25), (torch.float64, 1e160)],
    ids=str,
)
@pytest.mark.parametrize("name", KERNELS)
def test_kernel_that_does_not_fit(name, dtype, size):
    """Squares of x are larger than the dtype holds."""
    x = (size * torch.randn(4, 3, generator=torch.Generator().manual_seed(0))).to(dtype)
    finite(answer(lambda: KERNELS[name](dense().to(dtype), x)))


@pytest.mark.parametrize("name", KERNELS)
def test_weights_that_overflow(name):
    """Finite weights whose products are infinite."""
    model = dense().float()
    for layer in (model[0], model[2], model[4]):
        layer.weight.data.mul_(1e20)
    finite(answer(lambda: KERNELS[name](model, torch.randn(4, 3).float())))


@pytest.mark.parametrize("name", KERNELS)
def test_numbers_that_underflow(name):
    """x of order 1e-30: squares vanish in float32, but a kernel of zeros with a diagonal of zeros is an answer."""
    finite(answer(lambda: KERNELS[name](dense().float(), 1e-30 * torch.randn(4, 3).float())))


@pytest.mark.parametrize("name", KERNELS)
def test_zero_input(name):
    finite(answer(lambda: KERNELS[name](dense(), torch.zeros(4, 3))))


def test_path_counts_that_overflow():
    layers = [nn.Linear(3, 60), nn.ReLU()] + [part for _ in range(180) for part in (nn.Linear(60, 60), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(60, 1))
    for layer in model:
        if isinstance(layer, nn.Linear):
            nn.init.ones_(layer.bias)
            nn.init.constant_(layer.weight, 1e-3)
    assert "normalise=True" in refusal(lambda: gl.neural_path_kernel(model, torch.rand(3, 3), normalise=False))


@pytest.mark.slow
@pytest.mark.timeout(1800)  # about ten seconds each, but of a core that others use too
@pytest.mark.parametrize("name", [name for name in CALLS if name != "activation_region"])
def test_thousand_layers(name):
    torch.manual_seed(0)
    layers = [part for _ in range(1000) for part in (nn.Linear(3, 3), nn.ReLU())]
    answer(lambda: CALLS[name](nn.Sequential(*layers, nn.Linear(3, 1)), torch.randn(3, 3)))


@pytest.mark.parametrize(
    "name", ["capture_gates", "neural_path_kernel", "neural_tangent_kernel", "to_dgn", "top_paths"]
)
def test_million_features(name):
    model = nn.Sequential(nn.Linear(10**6, 2), nn.ReLU(), nn.Linear(2, 1)).float()
    answer(lambda: CALLS[name](model, torch.randn(2, 10**6, dtype=torch.float32)))
