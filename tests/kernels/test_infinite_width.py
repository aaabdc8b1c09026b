import math
from math import pi

import pytest
import torch
from scipy import integrate

import gatelab as gl
from gatelab.errors import InputError
from gatelab.kernels import infinite_width_kernels
from gatelab.kernels.infinite_width import fixed_gates_ntk


def quadrature(covariance: torch.Tensor, function) -> float:
    """2 E[f(q) f(q')] for (q, q') ~ N(0, covariance), in polar coordinates."""
    root = torch.linalg.cholesky(covariance).numpy()

    def integrand(angle):
        import numpy as np

        u = root @ np.array([np.cos(angle), np.sin(angle)])
        return function(u)

    value, _ = integrate.quad(integrand, 0, 2 * pi, limit=400, points=None)
    return 2 * value / (2 * pi)


def recursion_by_quadrature(x: torch.Tensor, y: torch.Tensor, depth: int) -> tuple[float, float]:
    """npk Eq. 2 with the expectations integrated, not in closed form."""
    covariance = torch.stack([x, y]) @ torch.stack([x, y]).T
    ntk = covariance[0, 1].item()
    for _ in range(depth - 1):
        # E over the radius of a 2-D Gaussian: E[r²] = 2 for the product of ReLUs, 1 for the product of steps.
        relu = 2 * quadrature(covariance, lambda u: max(u[0], 0.0) * max(u[1], 0.0))
        step = quadrature(covariance, lambda u: float(u[0] > 0) * float(u[1] > 0))
        ntk = ntk * step + relu
        covariance = torch.tensor([[covariance[0, 0].item(), relu], [relu, covariance[1, 1].item()]])
    return covariance[0, 1].item(), ntk


@pytest.mark.filterwarnings("ignore::scipy.integrate.IntegrationWarning")
@pytest.mark.parametrize("depth", [1, 2, 3, 5])
def test_closed_forms_agree_with_quadrature(depth):
    generator = torch.Generator().manual_seed(depth)
    x, y = torch.randn(2, 3, generator=generator)
    nngp, ntk = recursion_by_quadrature(x, y, depth)
    kernels = infinite_width_kernels(x[None], y[None], depth=depth)
    # The step's product has jumps, which limit the quadrature.
    assert kernels.nngp.item() == pytest.approx(nngp, rel=1e-7)
    assert kernels.ntk.item() == pytest.approx(ntk, rel=1e-4)
    assert gl.infinite_width_ntk(x[None], y[None], depth=depth).item() == pytest.approx((ntk + nngp) / 2, rel=1e-4)


def test_wide_networks_tend_to_the_standard_kernel():
    """√(2/w) scaling, N(0, 1) weights: the limit of finite tangent kernels, within Monte-Carlo error."""
    generator = torch.Generator().manual_seed(1)
    width, x = 1024, torch.randn(3, 4, generator=generator)
    draws = []
    for _ in range(12):
        model = gl.models.mlp([4, width, width, 1])
        for layer in model[::2]:
            layer.weight.data.normal_(generator=generator)
        scaled, scale = x, (2 / width) ** 0.5
        kernel = torch.zeros(3, 3)
        signals = [scaled]
        for layer in (model[0], model[2]):
            signals.append(scale * torch.relu(signals[-1] @ layer.weight.T).detach())
        gates = [(s > 0).double() for s in signals[1:]]
        back = [scale * model[4].weight.detach() * gates[1]]
        back.insert(0, scale * (back[0] @ model[2].weight.detach()) * gates[0])
        for signal, delta in zip(signals, [*back, torch.ones(3, 1)], strict=True):
            kernel += (signal @ signal.T) * (delta @ delta.T)
        draws.append(kernel)
    stack = torch.stack(draws)
    error = stack.std(dim=0) / len(draws) ** 0.5
    assert ((stack.mean(dim=0) - infinite_width_kernels(x, depth=3).ntk).abs() < 5 * error + 0.02).all()


def test_diagonal_is_exact_and_zero_inputs_give_zero():
    x = torch.cat([torch.randn(5, 7), torch.zeros(1, 7)])
    norms = x.square().sum(dim=1)
    for depth in (1, 2, 6):
        kernels = infinite_width_kernels(x, depth=depth)
        torch.testing.assert_close(kernels.nngp.diagonal(), norms, rtol=1e-12, atol=1e-15)
        torch.testing.assert_close(kernels.ntk.diagonal(), depth * norms, rtol=1e-12, atol=1e-15)
        assert torch.isfinite(kernels.ntk).all()
        assert torch.equal(kernels.ntk[-1], torch.zeros(6))


def test_float32_is_accurate_for_near_duplicates():
    x = torch.randn(4, 50, dtype=torch.float32)
    near = torch.cat([x, x * (1 + 1e-7)])
    single, double = gl.infinite_width_ntk(near, depth=4), gl.infinite_width_ntk(near.double(), depth=4)
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), double, rtol=1e-6, atol=1e-6)


def test_near_and_opposite_examples_keep_their_digits():
    """Small angles against the first terms of their series, computed from the angle itself."""
    for angle in (1e-3, 1e-6, 1e-9):
        x, y = torch.tensor([[1.0, 0.0]]), torch.tensor([[math.cos(angle), math.sin(angle)]])
        near, opposite = infinite_width_kernels(x, y, depth=2), infinite_width_kernels(x, -y, depth=2)
        assert 1 - near.ntk.item() / 2 == pytest.approx(angle / (2 * pi) + angle**2 / 2, rel=1e-2, abs=1e-15)
        assert opposite.nngp.item() == pytest.approx(angle**3 / (3 * pi), rel=1e-6)
        assert fixed_gates_ntk(x, -y, depth=2).item() == pytest.approx(-2 * math.cos(angle) * angle / pi, rel=1e-6)
    assert infinite_width_kernels(x, -x, depth=2).nngp.item() == 0


@pytest.mark.parametrize("last_layer", [1.0, 2.0, 0.5])
def test_the_last_layers_variance_weighs_the_layers_below(last_layer):
    x = torch.randn(4, 3)
    kernels = infinite_width_kernels(x, depth=3)
    expected = last_layer / 2 * (kernels.ntk - kernels.nngp) + kernels.nngp
    torch.testing.assert_close(gl.infinite_width_ntk(x, depth=3, last_layer=last_layer), expected)


def test_fixed_gates_at_depth_two_by_hand():
    x, y = torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 1.0]])
    assert fixed_gates_ntk(x, y, depth=2).item() == pytest.approx(2 * 1 * 0.75)  # an angle of π/4


def test_examples_of_extreme_sizes():
    """Their squares underflow or overflow, the kernel does not; every kernel is homogeneous in each example."""
    x, y = torch.tensor([[1.0, 1.0], [3.0, -1.0]]), torch.tensor([[1.0, 0.0]])
    small, large = 1e-170, 1e130
    for kernel in (gl.infinite_width_ntk, fixed_gates_ntk):
        expected = 1e-40 * kernel(x, y, depth=3)
        torch.testing.assert_close(kernel(small * x, large * y, depth=3), expected, rtol=1e-12, atol=0)
    tiny = gl.infinite_width_ntk(torch.tensor([[5e-320]]), torch.tensor([[1e300]]), depth=3)
    torch.testing.assert_close(tiny, 2 * torch.tensor([[5e-320]]) * 1e300, rtol=1e-12, atol=0)


def test_kernels_beyond_the_dtype_are_refused():
    with pytest.raises(InputError, match=r"larger than torch\.float64"):
        fixed_gates_ntk(torch.full((1, 2), 1e200), depth=2)


@pytest.mark.parametrize("last_layer", [-1.0, float("nan"), float("inf"), "1", None])
def test_a_last_layer_that_is_no_variance_is_refused(unchecked, last_layer):
    with pytest.raises(InputError, match="last_layer is"):
        gl.infinite_width_ntk(torch.ones(2, 3), depth=2, last_layer=last_layer)


def test_bad_input():
    with pytest.raises(InputError, match="depth is 0"):
        gl.infinite_width_ntk(torch.randn(2, 3), depth=0)
    with pytest.raises(InputError, match="3 values per example, y has 4"):
        gl.infinite_width_ntk(torch.randn(2, 3), torch.randn(2, 4), depth=2)
