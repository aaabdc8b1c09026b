import copy

import pytest
import torch
from torch import nn

import gatelab as gl
from gatelab.errors import InputError, TooManyPathsError
from gatelab.gates import HardGate
from gatelab.kernels import refit_values
from gatelab.kernels.solve.refit import normalised_features
from gatelab.models import DeepLinearlyGatedNetwork, mlp


def dlgn(constant=False, bias=False) -> nn.Module:
    model = DeepLinearlyGatedNetwork([3, 4, 5, 1], gate=HardGate(), piecewise_constant=constant, value_bias=bias)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(parameter)
    return model


@pytest.mark.parametrize("ridge", [1.0, 1e-3])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("n", [12, 90])
def test_kernel_and_explicit_paths_agree(constant, bias, ridge, n):
    model, x, y, new = dlgn(constant, bias), torch.randn(n, 3), torch.randn(n, 2), torch.randn(7, 3)
    refitted = refit_values(model, x, y, ridge, biases=bias)
    # Ridge regression on listed path features, by least squares, with nothing of the kernel in it.
    features, fresh = (normalised_features(model, points, biases=bias) for points in (x, new))
    paths = features.shape[1]
    rows = torch.cat([features, ridge**0.5 * torch.eye(paths)])
    values = torch.linalg.lstsq(rows, torch.cat([y, torch.zeros(paths, 2)])).solution
    torch.testing.assert_close(refitted.path_values(), values, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(refitted.predict(new), fresh @ values, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(refitted.predict(x), features @ values, rtol=1e-8, atol=1e-8)


def test_without_ridge_the_fit_is_the_best_and_least():
    model, x, y = dlgn(), torch.randn(80, 3), torch.randn(80)
    refitted = refit_values(model, x, y, ridge=0)
    features = normalised_features(model, x)
    best = torch.linalg.pinv(features) @ y[:, None]
    torch.testing.assert_close(refitted.path_values(), best, rtol=1e-6, atol=1e-7)


def test_no_values_of_the_network_fit_better():
    model, x, y = dlgn(), torch.randn(60, 3), torch.randn(60, 1)
    least = (refit_values(model, x, y, ridge=1e-9).predict(x) - y).square().mean()
    optimiser = torch.optim.Adam(model.value_parameters(), lr=0.02)
    for _ in range(300):
        loss = (model(x) - y).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert least <= loss.item() + 1e-9


def test_the_networks_own_answers_are_refitted_exactly():
    model, x = dlgn(), torch.randn(100, 3)
    refitted = refit_values(model, x, model(x).detach(), ridge=1e-10)
    torch.testing.assert_close(refitted.predict(x), model(x).detach(), rtol=1e-5, atol=1e-6)


def test_convolutional_and_relu_networks_refit_too():
    model = gl.to_dlgn(gl.models.gconv(channels=[3, 3], dense=[4], inputs=1, outputs=1)).set_gates(HardGate())
    x, y = torch.randn(20, 1, 5, 5), torch.randn(20)
    assert (refit_values(model, x, y, 1e-8).predict(x)[:, 0] - y).abs().max() < 1e-3
    assert refit_values(mlp([3, 8, 8, 1]), torch.randn(9, 3), torch.randn(9)).predict(torch.randn(4, 3)).shape == (4, 1)


def test_a_model_in_single_precision_is_fitted_in_double(single_precision):
    model, x, y = dlgn(bias=True), 255 * torch.randn(100, 3), torch.randn(100)
    double = copy.deepcopy(model).double()
    for ridge in (1e-6, 0.0):
        refitted = refit_values(model, x, y, ridge, biases=True)
        expected = refit_values(double, x.double(), y.double(), ridge, biases=True)
        assert refitted.predict(x).dtype == torch.float32
        torch.testing.assert_close(refitted.predict(x), expected.predict(x.double()).float())
        features = normalised_features(model, x, biases=True)
        said = (features @ refitted.path_values()).float()
        torch.testing.assert_close(said, refitted.predict(x), atol=1e-3, rtol=0)


def test_bad_requests(unchecked):
    model, x = dlgn(), torch.randn(5, 3)
    for y in (torch.zeros(4), torch.zeros(5, 2, 2), torch.zeros(5, dtype=torch.long)):
        with pytest.raises(InputError, match=r"n = 5 examples, .* give floating-point targets"):
            refit_values(model, x, y)
    for ridge in (-1.0, float("nan"), float("inf")):
        with pytest.raises(InputError, match="must be finite and not negative"):
            refit_values(model, x, torch.zeros(5), ridge)
    with pytest.raises(InputError, match="target 0 of example 0 is nan"):
        refit_values(model, x, torch.full((5,), float("nan")))
    with pytest.raises(InputError, match=r"ridge 1e-06 is below the rounding of a kernel with entries up to .*e\+"):
        refit_values(model, 1e9 * torch.randn(50, 3), torch.zeros(50))
    wide = refit_values(mlp([3, 64, 64, 64, 64, 1]), x, torch.zeros(5))
    with pytest.raises(TooManyPathsError):
        wide.path_values()
