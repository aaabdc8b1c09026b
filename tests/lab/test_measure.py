from math import isnan

import numpy as np
import pytest
import torch

from gatelab.kernels import neural_tangent_kernel
from gatelab.lab.measure import ErrorFlow, Mean, all_signs, random_signs, tangent_kernels
from gatelab.lab.verdicts.fits import fitted_power
from gatelab.models import mlp


def test_exact_powers():
    assert fitted_power([1, 2, 4], [3, 12, 48]) == pytest.approx(2)
    assert fitted_power([1, 2, 4], [5, 2.5, 1.25]) == pytest.approx(-1)


def test_noisy_values_are_fitted_as_numpy_fits_them():
    generator = np.random.default_rng(0)
    x = np.geomspace(3, 700, 9)
    y = 0.2 * x**-0.7 * np.exp(0.3 * generator.standard_normal(9))
    assert fitted_power(x.tolist(), y.tolist()) == pytest.approx(np.polyfit(np.log(x), np.log(y), 1)[0], abs=1e-11)


def test_one_point_has_no_power():
    assert isnan(fitted_power([1], [2]))


def test_a_mean_knows_its_error():
    draws = torch.tensor([[1.0, 5.0], [3.0, 5.0], [8.0, 5.0]])
    mean = Mean.of(draws)
    assert mean.mean.tolist() == [4.0, 5.0]
    assert mean.variance.tolist() == [13.0, 0.0]
    assert mean.error[0].item() == pytest.approx((13 / 3) ** 0.5)
    assert mean.z_score(torch.tensor([4 + 3 * (13 / 3) ** 0.5, 5.0])) == pytest.approx(3)
    assert mean.z_score(torch.tensor([4.0, 5.001])) > 1e5, "an entry that does not vary must be met"


def test_all_signs_are_all_patterns_once():
    signs = all_signs({"a": torch.zeros(2, 1), "b": torch.zeros(1)}, 0.5)
    assert {name: tensor.shape for name, tensor in signs.items()} == {"a": (8, 2, 1), "b": (8, 1)}
    patterns = torch.cat([tensor.flatten(1) for tensor in signs.values()], dim=1)
    assert len({tuple(row) for row in patterns.tolist()}) == 8
    assert patterns.abs().unique().tolist() == [0.5]


def test_random_signs_are_balanced(generator):
    (signs,) = random_signs({"a": torch.zeros(4, 5)}, 0.5, 500, generator).values()
    assert signs.shape == (500, 4, 5)
    assert signs.abs().unique().tolist() == [0.5]
    assert abs(signs.mean().item()) < 5 * 0.5 / 10_000**0.5  # five standard errors
    assert len(signs.flatten(1).unique(dim=0)) > 490, "draws differ"


def test_stacked_tangent_kernels_are_those_of_each_network(generator):
    model, x = mlp([3, 4, 4, 1], generator=generator), torch.randn(5, 3, generator=generator)
    weights = {name: torch.randn(70, *p.shape, generator=generator) for name, p in model.named_parameters()}
    kernels = tangent_kernels(model, x, weights)  # more draws than are computed at once
    for draw in (0, 69):
        model.load_state_dict({name: tensor[draw] for name, tensor in weights.items()})
        torch.testing.assert_close(kernels[draw], neural_tangent_kernel(model, x))
    first = {"0.weight": weights["0.weight"]}  # the others stay what they are
    torch.testing.assert_close(tangent_kernels(model, x, first)[69], neural_tangent_kernel(model, x, wrt=model[0]))


def test_a_flow_has_the_velocity_of_autograd_and_fourth_order(generator):
    model, x = mlp([3, 4, 1], generator=generator), torch.randn(5, 3, generator=generator)
    flow = ErrorFlow(model, x, torch.ones(5))
    (0.5 * (model(x)[:, 0] - 1).square().sum()).backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(flow.velocity(flow.parameters)[name], -parameter.grad)
    ends = {}
    for steps in (1, 2, 16):
        point = flow.parameters
        for _ in range(steps):
            point = flow.stages(point, 0.02 / steps)[-1]
        ends[steps] = flow.error(point)
    one, two = ((ends[steps] - ends[16]).norm() for steps in (1, 2))
    assert 12 < one / two < 20  # halving the step divides the error by 2⁴
