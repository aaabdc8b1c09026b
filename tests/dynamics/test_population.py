"""The population flow against closed forms, enumeration of signs, samples and trained networks."""

from itertools import product
from math import asin, pi

import pytest
import torch
from scipy.stats import multivariate_normal

from gatelab.data import NLGP
from gatelab.data.power_field import PowerField
from gatelab.dynamics import inverse_participation_ratio
from gatelab.dynamics.population import PopulationFlow, excess_kurtosis, gaussian_drive, half_normal_nodes
from gatelab.dynamics.population_centre import CentredFlow, predict_fields
from gatelab.errors import InputError
from gatelab.papers.gdln.training import Activation, Descent, initial_weights, train_fields


def field(sites, **weights):
    w = torch.zeros(sites)
    for place, weight in weights.items():
        w[int(place[1:])] = weight
    return w


def test_the_quadrature_is_exact_for_polynomials():
    z, weights = half_normal_nodes(12)
    for power, moment in ((0, 1.0), (1, (2 / pi) ** 0.5), (2, 1.0), (4, 3.0), (10, 945.0)):
        assert float((weights * z**power).sum()) == pytest.approx(moment, rel=1e-10)


@pytest.mark.parametrize("make", [PopulationFlow.of_field, PopulationFlow.of_marginal])
def test_gaussian_fields_have_the_closed_form(make, generator):
    source = PowerField((2.0, 0.3), 1.0, (16,))
    w = torch.randn(5, 16, generator=generator)
    exact = gaussian_drive(w, source.second_moment(1))
    torch.testing.assert_close(make(source, nodes=24).drive(w), exact, rtol=1e-4, atol=1e-6)
    near = NLGP((2.0, 0.3), 1e-3, (16,))
    exact = gaussian_drive(w, near.second_moment(1))
    torch.testing.assert_close(CentredFlow(near, 3).drive(w), exact, rtol=1e-2, atol=1e-3)


def enumerated_drive(source, w):
    """½⟨1(wᵀx > 0) x⟩ for signs x, summed over the signs of the sites with weights and of one more."""
    covariance = source.field_covariance(1)
    b = torch.zeros(len(w))
    used = [int(place) for place in w.nonzero()]
    for site in range(len(w)):
        sites = used if site in used else [*used, site]
        offsets = torch.tensor([[(i - j) % len(w) for j in sites] for i in sites])
        C = covariance[offsets].numpy() / float(covariance[0])
        for signs in product((1.0, -1.0), repeat=len(sites)):
            value = sum(sign * float(w[place]) for sign, place in zip(signs, sites, strict=True))
            if value > 0:
                flipped = C * torch.tensor(signs).numpy()[:, None] * torch.tensor(signs).numpy()
                orthant = multivariate_normal(cov=flipped, allow_singular=True).cdf([0.0] * len(sites))
                b[site] += 0.5 * orthant * signs[sites.index(site)]
    return b


@pytest.mark.parametrize(
    ("w", "plain", "centred"),
    [
        (field(12, s3=1.0), 0.1, 1e-3),
        (field(12, s3=1.0, s4=0.4), 0.25, 0.01),
        (field(12, s3=1.0, s4=0.7, s2=0.6), 0.15, 0.12),
    ],
)
def test_few_weights_by_enumeration(w, plain, centred):
    """For signs the sum over patterns is exact; conditioning on the centre comes closer to it."""
    source = NLGP((1.5, 0.1), 1e4, (12,))
    exact = enumerated_drive(source, w)
    gaps = [
        float((flow.drive(w) - exact).norm() / exact.norm())
        for flow in (PopulationFlow.of_field(source), CentredFlow(source, 3))
    ]
    assert gaps[0] < plain
    assert gaps[1] < centred
    if int((w != 0).sum()) == 1:  # then b_j = arcsin(C_0j)/(2π)
        row = source.field_covariance(1)
        expected = torch.tensor([asin(min(1.0, float(c / row[0]))) / (2 * pi) for c in row]).roll(3)
        torch.testing.assert_close(exact, expected, rtol=0, atol=1e-4)


def test_drives_against_samples(generator):
    """Many weights: the error of the Gaussian assumption is a few per cent, if the largest weight is set apart."""
    source, w = NLGP((2.0, 0.1), 3.0, (20,)), torch.randn(20, generator=generator)
    x = source.of_class(1, 400_000, generator=generator)
    sampled = 0.5 * (x * ((x @ w > 0).double() - 0.5)[:, None]).mean(dim=0)  # the mean of x is zero: less noise
    flows = (PopulationFlow.of_field(source), CentredFlow(source, int(w.abs().argmax())))
    plain, centred = (float((flow.drive(w) - sampled).norm() / sampled.norm()) for flow in flows)
    assert centred < 0.05 < plain < 0.2


def test_the_integrator_converges():
    source = NLGP((2.0, 0.3), 3.0, (16,))
    flow = PopulationFlow.of_field(source)
    start = initial_weights([0, 1], 1, 16, 0.1)[:, 0]
    fine = flow.solve(start, [0.0, 5.0, 20.0], tolerance=1e-5).weights
    coarse = flow.solve(start, [0.0, 5.0, 20.0], tolerance=1e-3).weights
    torch.testing.assert_close(fine[0], start)
    assert float((fine - coarse).abs().max()) < 1e-2
    w = start.clone()
    for _ in range(500):  # Heun's method
        first = flow.velocity(w)
        w = w + 0.02 * (first + flow.velocity(w + 0.04 * first))
    torch.testing.assert_close(fine[2], w, rtol=0, atol=1e-3)


def test_fixed_points_are_at_rest_and_stable():
    source = NLGP((2.0, 0.3), 3.0, (16,))
    flow = PopulationFlow.of_field(source)
    point = flow.fixed_point(flow.solve(initial_weights([0], 1, 16, 0.1)[0, 0], [300.0]).weights[-1])
    assert point.speed < 1e-3  # the field still creeps to the nearest place between sites
    assert float(point.growth.max()) < 1e-2  # only a shift of the field is nearly neutral
    assert float(point.growth[1]) < 0
    wave = flow.fixed_point(torch.ones(16))
    assert wave.speed < 1e-6
    assert float(wave.growth.max()) > 1e-2  # a flat field is at rest, and unstable
    assert not wave.stable


@pytest.mark.slow
def test_prediction_meets_trained_networks():
    source = NLGP((2.0, 0.1), 1.0, (20,))
    start = initial_weights([0, 1], 1, 20, 0.1)
    trained = train_fields(source, Activation.RELU, 1, [0, 1], Descent(400, 0.3, 1000), records=2).weights[-1][:, 0]
    predicted = predict_fields(source, start[:, 0], 120.0)
    assert predicted.ipr.mean() == pytest.approx(float(inverse_participation_ratio(trained).mean()), abs=0.04)


def test_power_fields():
    for power in (0.3, 1.0, 2.0):
        source = PowerField((2.0, 0.3), power, (12,))
        x = source.of_class(1, 100_000)
        assert float((x**2).mean()) == pytest.approx(1, abs=0.05)
        torch.testing.assert_close((x[:, :1] * x).mean(dim=0), source.correlation(1), rtol=0, atol=0.06)
    assert excess_kurtosis(PowerField((2.0, 0.3), 0.01, (12,))) == pytest.approx(-2, abs=0.05)
    assert excess_kurtosis(NLGP((2.0, 0.3), 1e3, (20,))) == pytest.approx(-2, abs=0.01)
    assert excess_kurtosis(NLGP((2.0, 0.3), 1e-3, (20,))) == pytest.approx(0, abs=1e-3)
    with pytest.raises(InputError, match="must be positive"):
        PowerField((2.0, 0.3), 0.0)


def test_bad_input_is_refused():
    source = NLGP((1.0, 0.3), 3.0, (10,))
    with pytest.raises(InputError, match=r"give \(\*runs, 10\)"):
        PopulationFlow.of_field(source).solve(torch.ones(9), [1.0])
    with pytest.raises(InputError, match="times that rise"):
        PopulationFlow.of_field(source).solve(torch.ones(10), [1.0, 0.5])
    with pytest.raises(InputError, match="for rings"):
        PopulationFlow.of_marginal(NLGP((1.0, 0.3), 3.0, (10, 10)))
