"""Exact moments of Gaussian data under half-spaces against samples, quadrature and each other."""

import numpy as np
import pytest
import torch
from scipy.integrate import dblquad

from gatelab.data import NLGP, GaussianClone, SinglePulse
from gatelab.dynamics import estimate_moments, exact_moments, moments_of
from gatelab.dynamics.gaussian_moments import _quadrant_moments, gaussian_gated_moments, orthant_probability
from gatelab.dynamics.population import gaussian_drive
from gatelab.errors import InputError
from gatelab.models import HalfSpaceGates


@pytest.mark.parametrize(("h", "k", "rho"), [(0.0, 0.0, 0.6), (0.3, -0.7, -0.8), (1.2, 0.4, 0.95)])
def test_quadrant_moments_are_the_integrals(h, k, rho):
    root = np.sqrt(1 - rho**2)

    def integral(power_u, power_v):
        def density(v, u):
            return u**power_u * v**power_v * np.exp(-(u * u - 2 * rho * u * v + v * v) / (2 * root**2))

        return dblquad(density, h, 10, k, 10, epsabs=1e-9, epsrel=1e-9)[0] / (2 * np.pi * root)

    P, ones, twos = _quadrant_moments(h, k, rho)
    assert P == pytest.approx(integral(0, 0), abs=1e-8) == orthant_probability(h, k, rho)
    assert ones == pytest.approx([integral(1, 0), integral(0, 1)], abs=1e-8)
    assert twos == pytest.approx(
        np.array([[integral(2, 0), integral(1, 1)], [integral(1, 1), integral(0, 2)]]), abs=1e-8
    )


@pytest.mark.parametrize(
    "source",
    [GaussianClone(NLGP((1.0, 0.3), 3.0, (8,))), GaussianClone(SinglePulse(((3, 4), (1, 2)), (8,)))],
    ids=["clone of an NLGP", "clone of pulses, with a mean"],
)
def test_moments_are_those_of_samples(source, generator):
    normals = torch.randn(4, 8, generator=generator)
    normals[3] = -2 * normals[0]  # an opposite half-space
    gates = HalfSpaceGates(normals, torch.tensor([0.0, 0.3, -0.5, 1.0]))
    exact = exact_moments(source, gates)
    found = estimate_moments(source, gates, 200_000, generator=generator)
    for estimate, error, expected in ((found.A, found.A_error, exact.A), (found.b, found.b_error, exact.b)):
        z = (estimate - expected).abs() / error.clamp(min=1e-9)
        assert z.max() < 5
        assert z.mean() > 0.05
    torch.testing.assert_close(exact.A, exact.A.T)


def test_half_spaces_through_the_origin_halve_the_covariance():
    source = GaussianClone(NLGP((2.0, 0.3), 100.0, (16,)))
    gates = HalfSpaceGates(torch.randn(3, 16))
    exact = exact_moments(source, gates)
    half = (source.second_moment(0) + source.second_moment(1)) / 4
    for unit in range(3):
        torch.testing.assert_close(exact.input_input(unit, unit), half)
    assert float((exact.input_input(0, 1) - half).abs().max()) > 0.05
    torch.testing.assert_close(exact.b.view(3, -1), gaussian_drive(gates.normals, source.second_moment(1)))


def test_a_singular_covariance_and_a_gate_that_never_varies():
    gates = HalfSpaceGates(torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]), torch.tensor([0.2, 0.5]))
    mean, covariance = torch.tensor([0.1, 0.2, 0.0]), torch.diag(torch.tensor([1.0, 2.0, 0.0]))
    second, first = gaussian_gated_moments(mean, covariance, gates)
    x = mean + torch.randn(400_000, 3) * covariance.diagonal().sqrt()
    sampled = moments_of(x, torch.ones(len(x)), gates)
    torch.testing.assert_close(second, sampled.A, rtol=0, atol=0.02)
    torch.testing.assert_close(first, sampled.b, rtol=0, atol=0.01)
    with pytest.raises(InputError, match="the same dimension"):
        gaussian_gated_moments(mean[:2], covariance[:2, :2], gates)
