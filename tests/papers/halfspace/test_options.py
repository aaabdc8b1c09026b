"""The choices that experiments offer: starts, gates, and what the notes say about them."""

import re

import pytest
import torch

from gatelab.errors import InputError
from gatelab.gates import HardGate, SoftGate, StraightThroughGate
from gatelab.models import Start
from gatelab.models.init import initialise
from gatelab.papers import find_experiment
from gatelab.papers.halfspace.options import DlgnOptions
from gatelab.papers.halfspace.tables import ResidualConfig, Table1Config

WIDTHS = [2, 5, 4, 1]


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))


def test_defaults_are_the_paper_s():
    net = DlgnOptions().dlgn(WIDTHS, 0)
    assert net.piecewise_constant
    assert net.gate == SoftGate(10.0)
    assert net.feature[0].bias is not None
    assert net.value[0].bias is None
    assert bool(net.feature[0].bias.any()), "PyTorch's start has random biases"
    assert DlgnOptions().name() == "DLGN-PWC"


def test_frozen_gates_are_those_of_the_dlgn_of_the_same_seed():
    options = DlgnOptions()
    hard, soft = (options.frozen(WIDTHS, 7, hard=hard) for hard in (True, False))
    assert same(hard, options.dlgn(WIDTHS, 7))
    assert not same(hard, options.dlgn(WIDTHS, 8))
    assert (hard.gate, soft.gate) == (HardGate(), SoftGate(10.0))
    assert {p.requires_grad for p in hard.feature_parameters()} == {False}
    assert {p.requires_grad for p in hard.value_parameters()} == {True}


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"straight_through": True}, "straight-through gates"),
        ({"gate_bias": False}, "without biases"),
        ({"final_beta": 100.0}, "grows to 100"),
        ({"shallow": True}, "DLGN-SF-PWC: .*every gate layer reads x"),
        ({"piecewise_constant": False}, "DLGN: .*linear in x"),
    ],
)
def test_every_choice_changes_the_network_and_is_told(settings, told):
    options = DlgnOptions(**settings)
    net = options.dlgn(WIDTHS, 0)
    assert type(net.gate) is (StraightThroughGate if options.straight_through else SoftGate)
    assert (net.feature[0].bias is not None) is options.gate_bias
    assert (net.shallow, net.piecewise_constant) == (options.shallow, options.piecewise_constant)
    assert net.feature[1].in_features == (2 if options.shallow else 5)
    assert re.search(told, options.told()[0])


def test_a_start_can_be_named_and_an_unknown_one_is_refused():
    layers = [torch.nn.Linear(64, 64) for _ in range(2)]
    named, given = (
        initialise(layer, torch.Generator().manual_seed(1), start)
        for layer, start in zip(layers, ("kaiming", Start.KAIMING), strict=True)
    )
    assert same(named, given)
    with pytest.raises(InputError, match=r"start is 'uniform'; it must be one of pytorch, glorot, kaiming, signs"):
        initialise(layers[0], start="uniform")


@pytest.mark.parametrize("kind", ["dlgn", "pwc", "frozen", "frozen-soft"])
def test_rows_of_a_table_share_the_values_and_draw_their_gates_from_the_start(kind):
    config = Table1Config(layers=2, filters=3, dense=4, start=Start.SIGNS)
    relu, twin = config.make("relu", 3), config.make(kind, 3)
    values = {name.removeprefix("value."): p for name, p in twin.named_parameters() if name.startswith("value.")}
    assert all(torch.equal(values[name], p) for name, p in relu.named_parameters())
    weight = twin.feature.get_parameter("2.weight")
    assert weight.abs().unique().numel() == 1, "±σ"
    assert not torch.equal(weight, values["2.weight"])
    assert weight.requires_grad is (kind in ("dlgn", "pwc"))


def test_residual_networks_start_as_asked():
    assert ResidualConfig(depth=8).start is Start.KAIMING
    net = ResidualConfig(depth=8, start=Start.SIGNS).make("relu", 0)
    assert net.conv.weight.abs().unique().numel() == 1


def test_an_experiment_that_compares_starts_has_no_start_of_its_own():
    with pytest.raises(InputError, match=r"start=signs would change nothing.*; set starts"):
        find_experiment("halfspace-initialisation").read({"start": "signs"})
