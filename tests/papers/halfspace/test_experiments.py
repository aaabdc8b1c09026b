"""What the half-space experiments measure."""

import itertools
import json

import pytest
import torch
from torch import nn

from gatelab.data import circle
from gatelab.gates import GatePattern, HardGate
from gatelab.lab.looks import Looks, short
from gatelab.lab.team import SingleTeam
from gatelab.lab.verdicts import Outcome
from gatelab.models import DeepLinearlyGatedNetwork
from gatelab.papers.halfspace.circle import CircleConfig, full_look, halves, tilt
from gatelab.papers.halfspace.circle_claims import slow
from gatelab.papers.halfspace.circle_runs import CircleRuns, concentration, times_text
from gatelab.papers.halfspace.fashion import class_means
from gatelab.papers.halfspace.spectrum import energy_from, inner_energy, smooth_half_spectrum
from gatelab.papers.halfspace.tables import ImagesConfig
from gatelab.regions import RegionPlan


def upper_half_network():
    """One gate that is open just above, one that is open everywhere."""
    net = DeepLinearlyGatedNetwork([2, 2, 1], gate=HardGate())
    with torch.no_grad():
        net.feature[0].weight.copy_(torch.tensor([[0.0, 1.0], [0.0, 0.0]]))
        net.feature[0].bias.copy_(torch.tensor([0.0, 1.0]))
    return net


def test_a_look_at_a_network_that_is_known():
    data, config = circle(40), CircleConfig(points=40, kernel_points=8)
    net = upper_half_network()
    seen = full_look(net, data, config, RegionPlan(net))
    assert seen["paths"] == (2.0, 1.0)
    assert seen["tilt"] == [0.5]
    outputs = torch.tensor(seen["outputs"])
    errors = (outputs - data.train_y).square()
    assert seen["error"] == pytest.approx((float(errors[:20].mean()), float(errors[20:].mean())), rel=1e-3)
    overlap = torch.tensor(seen["overlap"])
    assert overlap.trace() == pytest.approx(8, rel=1e-3)
    assert overlap[0, 0] == pytest.approx(2 * float(overlap[-1, -1]), rel=1e-3)
    torch.testing.assert_close(torch.tensor(seen["half_spaces"][0]), torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]))
    assert torch.tensor(seen["tangent"]).trace() == pytest.approx(8, rel=1e-3)
    fine = circle(160)
    square = (net(fine.train_x)[:, 0] - fine.train_y)[:80].square().mean().item()
    assert sum(seen["spectrum"]) == pytest.approx(square, rel=1e-3)


def test_means_over_halves_and_tilt():
    upper = torch.tensor([True, True, False, False])
    assert halves(torch.tensor([1.0, 3.0, 10.0, 20.0]), upper) == (2.0, 15.0)
    gates = GatePattern({"a": torch.tensor([[1, 1], [1, 0], [0, 0], [0, 1]], dtype=torch.bool)})
    assert tilt(gates, upper) == [0.5]


def test_concentration_of_half_spaces():
    up, aside, none = [0.0, 3.0, 9.0], [0.5, 0.0, 0.0], [0.0, 0.0, 1.0]
    assert concentration([up, up]) == (1.0, 1.0)
    assert concentration([up, aside, none]) == pytest.approx((0.5**0.5, 0.5))
    assert concentration([up, [0.0, -1.0, 0.0]]) == (0.0, 0.0)
    assert concentration([none]) == (0.0, 0.0)


def _runs(dlgn, frozen, end=4, frozen_end=40):
    """Runs that have a mean square of 1 until they have learnt."""

    def histories(times, epochs):
        return [[0.5] * ((time or epochs + 1) - 1) + [0.0] * (epochs + 1 - (time or epochs + 1)) for time in times]

    results = {"dlgn": {"train_loss": histories(dlgn, end)}, "frozen": {"train_loss": histories(frozen, frozen_end)}}
    return CircleRuns(results, circle(8), (0, 1, end), frozen_end, 8)


@pytest.mark.parametrize(
    ("dlgn", "frozen", "decision"),
    [
        ((2,) * 4, (None,) * 4, Outcome.HOLDS),  # whenever frozen gates learn, it is later
        ((2,) * 4, (30,) * 4, Outcome.HOLDS),
        ((2,) * 4, (11,) * 4, Outcome.FAILS),  # 5.5 times as long is not more than ten times
        ((2,) * 4, (20,) * 4, Outcome.UNDECIDED),
        ((None,) * 4, (None,) * 4, Outcome.UNDECIDED),
        ((2, None, None, None), (None,) * 4, Outcome.UNDECIDED),
        ((2, 2), (None, None), Outcome.UNDECIDED),  # two runs of each are too few
    ],
)
def test_more_than_ten_times_as_long_means_that(dlgn, frozen, decision):
    assert slow(_runs(dlgn, frozen), "frozen").outcome is decision


def test_times_that_are_not_known_enter_no_mean():
    assert _runs((2, None), (3, 3)).epochs_to_learn("dlgn") == [2, None]
    assert times_text([20, 50, 30], 400) == "20–50, median 30"
    assert times_text([20, None, None, 50], 400) == "20–50; 2 of 4 not within 400"
    assert times_text([20, 40, 30, None], 4000) == "20–40, median 35; 1 of 4 not within 4,000"
    assert times_text([None, None], 4000) == "2 of 2 not within 4,000"


def test_the_spectrum_of_a_sum_of_waves():
    angles = (torch.arange(200).double() + 0.5) * (2 * torch.pi / 200)
    wave = 0.5 + 2 * (3 * angles).cos() - (70 * angles).cos()
    lower = angles > torch.pi
    spectrum = smooth_half_spectrum(torch.where(lower, 100.0, wave))  # what happens below does not matter
    expected = torch.zeros(64, dtype=torch.float64)
    expected[0], expected[3], expected[63] = 0.25, 2.0, 0.5
    torch.testing.assert_close(spectrum, expected)
    assert energy_from(spectrum.tolist(), 8) == pytest.approx(0.5)


def test_kernels_that_move_and_those_that_do_not():
    kernels = [[[2.0, 0.0], [0.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]]]
    seen = [{"epoch": 0, "members": [{"tangent": k} for k in kernels]}]
    seen.append({"epoch": 4, "members": [{"tangent": kernels[0]}, {"tangent": kernels[0]}]})
    runs = CircleRuns({"relu": {"seen": seen}}, circle(8), (0, 1, 4), 4, 8)
    assert runs.moved("relu", "tangent", 4).values == (0.0, 1.0)  # ‖diag(1, −1)‖ / ‖I‖
    assert runs.between_starts("relu", "tangent").values == pytest.approx((0.5**0.5, 1.0))


def test_kernels_are_averaged_over_classes():
    kernel = torch.tensor([[2.0, 1.0, 0.0], [1.0, 4.0, 1.0], [0.0, 1.0, 6.0]])
    means = class_means(kernel, torch.tensor([0, 0, 1]))
    torch.testing.assert_close(means, torch.tensor([[2.0, 0.5], [0.5, 6.0]]))


def test_a_table_must_say_what_it_compares():
    with pytest.raises(TypeError, match="abstract"):
        ImagesConfig()


def test_moments_begin_dense_and_end_at_the_end():
    moments = CircleConfig(epochs=400, frames=20).moments()
    assert moments[:3] == (0, 1, 2)
    assert moments[-1] == 400
    assert list(moments) == sorted(set(moments))
    steps = [b - a for a, b in itertools.pairwise(moments)]
    assert steps[-2] > steps[2]


def test_short_numbers_have_four_digits():
    values = [1 / 3, -2 / 3e5, 0.0, 123456.0, 0.99999]
    assert short(torch.tensor(values)) == [0.3333, -6.667e-06, 0.0, 123500.0, 1.0]
    assert short(torch.tensor([values, values]))[1] == short(torch.tensor(values))


def test_looks_are_kept_in_files(tmp_path):
    asked = []

    def see(model, epoch, place):
        asked.append((epoch, place))
        return {"weight": short(model.weight)}

    looks = Looks(tmp_path, (0, 2), see, networks=2)
    teams = [SingleTeam(nn.Linear(1, 1, bias=False)) for _ in range(2)]
    for place, team in enumerate(teams):
        for epoch in range(3):
            looks.at(epoch, team, place)
    assert asked == [(0, 0), (2, 0), (0, 1), (2, 1)]
    seen = Looks(tmp_path, (2, 0), see, networks=2).seen()  # as another process would read it
    assert [entry["epoch"] for entry in seen] == [0, 2]
    value = float(f"{float(teams[1].member(0).weight.detach()):.4g}")
    assert seen[1]["members"][1]["weight"] == [[value]]
    json.dumps(seen)


def test_early_paths_are_those_when_the_loss_has_first_fallen():
    def seen(epoch, *looks):
        return {"epoch": epoch, "members": [{"error": error, "paths": paths} for error, paths in looks]}

    looks = [
        seen(0, ((0.5, 0.5), (9, 9)), ((0.5, 0.5), (9, 9)), ((0.5, 0.5), (9, 9))),
        seen(2, ((0.0, 0.5), (4, 2)), ((0.4, 0.4), (9, 9)), ((0.5, 0.5), (9, 9))),
        seen(4, ((0.0, 0.0), (9, 9)), ((0.1, 0.4), (6, 2)), ((0.5, 0.5), (9, 9))),  # the last run never gets there
    ]
    runs = CircleRuns({"relu": {"seen": looks, "seeds": [0, 1, 2]}}, circle(8), (0, 2, 4), 4, 8)
    assert [part.values for part in runs.early_paths("relu")] == [(4, 6), (2, 2)]


def test_the_inner_energy_leaves_out_the_ends():
    angles = (torch.arange(200).double() + 0.5) * torch.pi / 100
    wave, at_the_end = 0.1 * (20 * angles).cos(), torch.where(angles < 0.08 * torch.pi, 1.0, 0.0).double()
    assert inner_energy(wave, 8) == pytest.approx(0.005, rel=0.05)
    assert inner_energy(at_the_end, 8) == 0
    assert inner_energy(at_the_end, 8, margin=0.0) > 0.01
    assert inner_energy(3 * angles.cos(), 8) < 1e-3, "a slow wave that does not fit its part leaks little"
