import pytest
import torch

from gatelab.dynamics import fit_gabor, inverse_participation_ratio, match_location, sign_flip_rate
from gatelab.dynamics.localisation import gate_agreement, open_gates, peak, site_distance
from gatelab.errors import InputError


def test_ipr_from_one_site_to_all():
    assert inverse_participation_ratio(torch.eye(5)).tolist() == [1] * 5
    assert inverse_participation_ratio(torch.ones(7)).item() == pytest.approx(1 / 7)
    field = torch.randn(3, 40)
    torch.testing.assert_close(inverse_participation_ratio(field), inverse_participation_ratio(-5 * field))
    # Gaussian entries: E w⁴ / (n (E w²)²) = 3/n.
    assert inverse_participation_ratio(torch.randn(100_000)).item() == pytest.approx(3e-5, rel=0.05)


@pytest.mark.parametrize(
    ("centre", "width", "frequency", "phase"), [(12.3, 2.0, 0.0, 0.0), (38.7, 3.0, 0.2, 0.7), (5.0, 5.0, 0.33, -1.0)]
)
def test_gabor_is_recovered(centre, width, frequency, phase):
    offset = (torch.arange(40) - centre + 20) % 40 - 20
    field = 1.7 * torch.exp(-(offset**2) / (2 * width**2)) * torch.cos(2 * torch.pi * frequency * offset + phase)
    fit = fit_gabor(field)
    assert fit.r_squared > 1 - 1e-8
    assert fit.centre == pytest.approx(centre, abs=1e-3)
    assert fit.width == pytest.approx(width, rel=1e-3)
    assert fit.frequency == pytest.approx(frequency, abs=1e-3)
    if frequency:
        assert fit.amplitude == pytest.approx(1.7, rel=1e-3)
        assert fit.phase == pytest.approx(phase, abs=1e-2)


def test_gabor_share_is_what_the_fit_leaves():
    offset = (torch.arange(40) - 7.0 + 20) % 40 - 20
    field = torch.exp(-(offset**2) / 8) + 0.1 * torch.randn(40)
    fit = fit_gabor(field)
    own = (torch.arange(40) - fit.centre + 20) % 40 - 20
    wave = torch.cos(2 * torch.pi * fit.frequency * own + fit.phase)
    left = field - fit.amplitude * torch.exp(-(own**2) / (2 * fit.width**2)) * wave
    assert fit.r_squared == pytest.approx((1 - left.square().sum() / field.square().sum()).item(), abs=1e-8)
    assert 0.5 < fit.r_squared < 0.99


def test_gabor_does_not_fit_noise():
    assert fit_gabor(torch.randn(40)).r_squared < 0.8


def test_places():
    field = torch.zeros(2, 40)
    field[0, 3], field[1, 39] = -2.0, 1.0
    assert peak(field).tolist() == [3, 39]
    shifted = field.roll(4, 1)
    match = match_location(field, shifted)
    assert match.distance.tolist() == [4, 4]
    torch.testing.assert_close(match.correlation, torch.ones(2))
    torch.testing.assert_close(match.cosine, torch.zeros(2))
    assert match_location(field, -field).cosine.tolist() == [-1, -1]
    assert site_distance(torch.tensor([0]), torch.tensor([23]), (4, 6)).item() == pytest.approx(2**0.5)
    grid = torch.randn(3, 24)
    torch.testing.assert_close(
        match_location(grid, grid.view(3, 4, 6).roll((1, 2), (1, 2)).flatten(1), (4, 6)).correlation, torch.ones(3)
    )


def test_flips_and_agreement_by_counting():
    x = torch.randn(30, 5)
    weights, bias = torch.randn(4, 2, 5), torch.randn(4, 2)
    gates = open_gates(weights, x, bias)
    for time in range(4):
        assert torch.equal(gates[time], (x @ weights[time].T + bias[time] > 0).T)
    flips = sign_flip_rate(gates)
    assert flips.shape == (3, 2)
    assert flips[1, 0].item() == pytest.approx((gates[2, 0] ^ gates[1, 0]).sum().item() / 30)
    agreement = gate_agreement(gates, gates[-1])
    assert agreement[-1].tolist() == [1, 1]
    assert agreement[0, 1].item() == pytest.approx(1 - (gates[0, 1] ^ gates[-1, 1]).sum().item() / 30)
    # Gates do not see the size of w (gdln, 2.1).
    assert torch.equal(open_gates(3 * weights, x), open_gates(weights, x))


@pytest.mark.usefixtures("unchecked")
def test_bad_input_is_refused():
    with pytest.raises(InputError, match="zero everywhere"):
        inverse_participation_ratio(torch.zeros(4))
    with pytest.raises(InputError, match="zero everywhere"):
        fit_gabor(torch.zeros(4))
    with pytest.raises(InputError, match="two or more"):
        sign_flip_rate(torch.ones(1, 2, 3).bool())
    with pytest.raises(InputError, match="same units"):
        match_location(torch.ones(1, 4), torch.ones(2, 4))
