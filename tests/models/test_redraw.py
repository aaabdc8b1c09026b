"""Redrawn networks are random, whatever the network and its layers do."""

import pytest
import torch
from torch import nn

from gatelab.errors import UnsupportedModelError
from gatelab.models.redraw import redrawn


class SelfSeeding(nn.Linear):
    """A layer whose own rule gives the same weights each time."""

    def reset_parameters(self):
        torch.manual_seed(3)
        super().reset_parameters()


class Loose(nn.Module):
    """Weights outside any layer: one that learns, a scale, a frozen mask; and a layer whose rule needs an argument."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(5, 4))
        self.scale = nn.Parameter(torch.rand(4) + 0.5)
        self.mask = nn.Parameter((torch.rand(5, 4) > 0.5).double(), requires_grad=False)
        self.strange = Strange(4, 3)

    def forward(self, x):
        return self.strange(torch.relu(x @ (self.weight * self.mask) * self.scale))


class Strange(nn.Linear):
    def reset_parameters(self, gain=None):
        if gain is None and hasattr(self, "made"):
            raise TypeError("gain is missing")
        self.made = True
        super().reset_parameters()


def test_layers_follow_their_own_rule():
    model = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 2))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(100.0)  # no initial weight of a layer is as large
        model[1].running_mean.fill_(7.0)
    drawn = redrawn(model, 0)
    assert drawn.permuted == ()
    assert max(float(p.detach().abs().max()) for p in drawn.network.parameters()) == 1.0  # batch norm's own start
    assert float(drawn.network[1].running_mean.abs().max()) == 0.0
    assert float(model[1].running_mean.max()) == 7.0  # the network itself is not touched
    assert all(bool((p == 100).all()) for p in model.parameters())


@pytest.mark.parametrize("make", [lambda: nn.Sequential(SelfSeeding(6, 5), nn.ReLU(), nn.Linear(5, 2)), Loose])
def test_two_draws_differ_and_one_seed_draws_the_same(make):
    model = make()
    first, again, other = (redrawn(model, seed) for seed in (1, 1, 2))
    assert first.permuted
    for name, parameter in first.network.named_parameters():
        assert torch.equal(parameter, again.network.get_parameter(name))
        if name not in first.kept:
            assert not torch.equal(parameter, other.network.get_parameter(name)), name
            assert not torch.equal(parameter, model.get_parameter(name)), name


def test_what_has_no_rule_keeps_its_sizes():
    model = Loose()
    drawn = redrawn(model, 0)
    assert set(drawn.permuted) == {"weight", "scale", "strange.weight", "strange.bias"}
    assert drawn.kept == ("mask",)
    before, after = model.weight.detach().abs().flatten().sort(), drawn.network.weight.abs().flatten().sort()
    assert torch.equal(before.values, after.values)
    assert bool((drawn.network.scale > 0).all())  # a scale stays a scale
    assert "permuting and re-signing their entries (weight, scale" in drawn.text()


def test_a_network_that_is_frozen_as_a_whole_has_no_masks():
    model = Loose().requires_grad_(False)
    assert "weight" in redrawn(model, 0).permuted


def test_the_global_random_state_stays():
    layer = nn.Linear(3, 2)
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    redrawn(layer, 0)
    assert torch.equal(torch.rand(1), expected)


def test_a_network_that_cannot_be_copied_is_refused():
    model = nn.Linear(2, 2)
    model.stream = (step for step in range(3))
    with pytest.raises(UnsupportedModelError, match="Linear cannot be copied"):
        redrawn(model, 0)
