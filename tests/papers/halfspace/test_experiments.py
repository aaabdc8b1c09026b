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
from gatelab.papers.halfspace import circle_findings as halfspace_circle_findings
from gatelab.papers.halfspace.circle import CircleConfig, halves, look, tilt
from gatelab.papers.halfspace.circle_findings import CircleRuns, concentration
from gatelab.papers.halfspace.fashion import class_means
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
    data = circle(40)
    net = upper_half_network()
    seen = look(net, data, 8, tangent=True, plan=RegionPlan(net))
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
    assert "tangent" not in look(net, data, 8, tangent=False, plan=RegionPlan(net))


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


def _losses(*kinds):
    """Results in which each run of a kind has a mean square of 1 until it has learnt."""
    names = ("relu", "dlgn", "frozen")
    return {
        kind: {"train_loss": [[0.5] * ((epoch or 9) - 1) + [0.0] * (9 - (epoch or 9)) for epoch in runs]}
        for kind, runs in zip(names, kinds, strict=True)
    }


@pytest.mark.parametrize(
    ("dlgn", "frozen", "decision"),
    [
        ((2,) * 4, (None,) * 4, Outcome.HOLDS),  # whenever frozen gates learn, it is later
        ((None,) * 4, (2,) * 4, Outcome.FAILS),
        ((None,) * 4, (None,) * 4, Outcome.UNDECIDED),
        ((2, None, None, None), (None,) * 4, Outcome.UNDECIDED),
        ((2, 2), (5, 5), Outcome.UNDECIDED),  # two runs of each are too few
        ((2, 3, 2, 3), (5, 6, 7, None), Outcome.HOLDS),
    ],
)
def test_runs_that_never_learn_decide_nothing_by_the_last_epoch(dlgn, frozen, decision):
    seen = CircleRuns(_losses((1,) * 4, dlgn, frozen), circle(8), (0, 1, 8))
    assert halfspace_circle_findings._slow(seen).outcome is decision


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
