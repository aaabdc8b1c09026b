"""Sources on a ring: closed forms against sampling and against sums over the support."""

import pytest
import torch

from gatelab.data import NLGP, GaussianClone, SinglePulse
from gatelab.data.ring import circulant, root_spectrum, squared_distances
from gatelab.errors import InputError

SOURCES = [
    NLGP((2.0, 0.5), 3.0, (16,)),
    NLGP((1.0, 0.4), 0.01, (8, 10)),
    NLGP((1.0, 0.4), 100.0, (9,)),
    SinglePulse(((4, 6), (1, 3)), (12,)),
    SinglePulse(((3, 4), (1, 2)), (5, 6), inverted=True),
    SinglePulse(((3, 4), (1, 2)), (9,), centred=True),
    GaussianClone(NLGP((2.0, 0.5), 3.0, (16,))),
    GaussianClone(SinglePulse(((4, 6), (1, 3)), (12,))),
]


def z_scores(samples, mean, second):
    """Return the deviations of sampled moments from the exact ones, in standard errors."""
    products = samples[:, :1] * samples
    pairs = [(samples, mean), (products, second)]
    return [((s.mean(0) - m) / (s.std(0) / len(s) ** 0.5).clamp(min=1e-12)).abs().max() for s, m in pairs]


@pytest.mark.parametrize("source", SOURCES, ids=str)
@pytest.mark.parametrize("label", [0, 1])
def test_closed_moments_are_those_of_the_samples(source, label, generator):
    x = source.of_class(label, 20_000, generator=generator)
    assert x.shape == (20_000, source.dim)
    mean = torch.full((source.dim,), source.mean(label))
    second = source.second_moment(label)
    # The largest of some hundred deviations; 5 standard errors are reached once in ten thousand runs.
    assert max(z_scores(x, mean, second[0])) < 5
    assert ((x.T @ x / len(x) - second).abs() < 0.05).all()
    torch.testing.assert_close(source.covariance(label), second - torch.outer(mean, mean))


def test_erf_covariance_by_quadrature():
    """Compare the closed form with a two-dimensional Gauss-Hermite sum, which does not use arcsin."""
    import numpy as np

    source = NLGP((2.0, 0.5), 0.8, (16,))
    nodes, weights = np.polynomial.hermite_e.hermegauss(120)
    nodes, weights = torch.tensor(nodes), torch.tensor(weights) / (2 * torch.pi) ** 0.5
    field = source.field_covariance(1)
    first = torch.erf(source.gain * nodes)
    for distance, correlation in zip(field.tolist(), source.correlation(1).tolist(), strict=True):
        second = distance * nodes[:, None] + max(0.0, 1 - distance**2) ** 0.5 * nodes
        integral = (weights[:, None] * weights * first[:, None] * torch.erf(source.gain * second)).sum()
        scale = (weights * first.square()).sum()
        assert correlation == pytest.approx((integral / scale).item(), abs=1e-8)


def test_variance_is_one_and_the_field_has_the_given_covariance():
    source = NLGP((3.0, 0.1), 3.0)
    for label, length in ((1, 3.0), (0, 0.1)):
        assert source.correlation(label)[0].item() == 1
        torch.testing.assert_close(source.field_covariance(label), (-squared_distances((40,)) / length**2).exp())


def test_gain_goes_from_gaussian_to_signs(generator):
    gaussian = NLGP((2.0, 0.5), 0.01, (16,)).of_class(1, 40_000, generator=generator)
    signs = NLGP((2.0, 0.5), 1000.0, (16,)).of_class(1, 1000, generator=generator)
    assert (gaussian**4).mean().item() == pytest.approx(3, abs=0.1)
    assert (signs.abs() - 1).abs().median() < 1e-3  # Z is 1 − O(1/g)


def test_support_is_the_set_of_draws(generator):
    source = SinglePulse(((2, 3), (1, 1)), (5,), inverted=True)
    drawn = {tuple(row) for row in source.of_class(1, 2000, generator=generator).tolist()}
    assert drawn == {tuple(row) for row in source.support(1).tolist()}
    assert len(drawn) == 2 * 2 * 5 - 10  # an inverted pulse of 2 is a pulse of 3
    assert source.mean(1) == 0.5


def test_centred_pulses_have_mean_zero():
    source = SinglePulse(((3, 4), (1, 2)), (9,), centred=True)
    assert source.mean(1) == pytest.approx(-source.mean(0))
    assert source.mean(1) > 0.1
    turned = SinglePulse(((3, 4), (1, 2)), (9,), inverted=True, centred=True)
    assert set(turned.support(0).unique().tolist()) == {-0.5, 0.5}


def test_pulse_on_a_torus_is_a_square():
    source = SinglePulse(((2, 2), (1, 1)), (3, 4))
    assert source.support(1).shape == (12, 12)
    first = source.support(1)[0].view(3, 4)
    assert first.tolist() == [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0]]
    assert source.mean(1) == pytest.approx(4 / 12)


def test_sets_and_streams_are_balanced_and_seeded():
    source = NLGP((3.0, 0.1), 3.0)
    make = lambda: torch.Generator().manual_seed(3)  # noqa: E731
    x, y = source.sample(10, generator=make())
    assert y.tolist() == [1, 0] * 5
    batches = source.stream(10, generator=make())
    torch.testing.assert_close(next(batches)[0], x)
    assert not torch.equal(next(batches)[0], x)
    assert source.sample(4, dtype=torch.float32)[0].dtype == torch.float32


def test_circulant_matrices_on_ring_and_torus():
    row = torch.rand(6)
    torch.testing.assert_close(circulant(row), torch.stack([row.roll(i) for i in range(6)]))
    grid = torch.rand(3, 4)
    shifted = [grid.roll((i, j), (0, 1)).flatten() for i in range(3) for j in range(4)]
    torch.testing.assert_close(circulant(grid), torch.stack(shifted))
    symmetric = (-squared_distances((3, 5))).exp()
    expected = torch.linalg.eigvalsh(circulant(symmetric))
    half = root_spectrum(symmetric, "exp(−d²)").square()
    found = torch.cat([half[:, :1], half[:, 1:], half[:, 1:]], dim=1).flatten().sort().values
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: NLGP((0.0, 1.0), 1.0), "ξ₁ = 0.0"),
        (lambda: NLGP((1.0, -1.0), 1.0), "ξ₂ = -1.0"),
        (lambda: NLGP((1.0, 1.0), 0.0), "the gain is 0.0"),
        (lambda: NLGP((1.0, 1.0), -3.0), "it must be positive"),
        (lambda: NLGP((20.0, 1.0), 1.0), "is not a covariance: its eigenvalues range from -"),
        (lambda: NLGP((1.0, 1.0), 1.0, (4, 4, 4)), "a ring or"),
        (lambda: SinglePulse(((0, 3), (1, 1)), (8,)), "class 1: pulse widths 0 to 3"),
        (lambda: SinglePulse(((1, 3), (1, 9)), (8,)), "class 0: pulse widths 1 to 9 do not fit on"),
        (lambda: SinglePulse(((3, 2), (1, 1)), (8,)), "least ≤ largest"),
        (lambda: NLGP((1.0, 1.0), 1.0).sample(7), "even number"),
        (lambda: NLGP((1.0, 1.0), 1.0).of_class(2, 7), "no class 2"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_bad_input_is_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_a_hundred_thousand_samples_take_a_second(generator):
    import time

    start = time.process_time()
    x, _ = NLGP((3.0, 0.1), 3.0).sample(100_000, generator=generator, dtype=torch.float32)
    assert x.shape == (100_000, 40)
    assert time.process_time() - start < 1
