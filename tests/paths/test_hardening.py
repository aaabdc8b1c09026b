"""The gap between a network and the one with hard gates, against the networks themselves."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import gatelab as gl
from gatelab.errors import InputError
from gatelab.gates import HardGate
from gatelab.models import DeepGatedNetwork


def test_losses_and_accuracies_are_those_of_both_networks():
    model = gl.to_dgn(gl.models.mlp([4, 16, 16, 3]), gl.Regime.DNPFL)
    x, y = torch.randn(300, 4), torch.randint(3, (300,))
    hard = copy.deepcopy(model).set_gates(HardGate())
    gap = gl.hardening_gap(model, x, y)
    with torch.no_grad():
        outputs, others = model(x), hard(x)
    assert gap.soft_loss == pytest.approx(F.cross_entropy(outputs, y).item())
    assert gap.hard_loss == pytest.approx(F.cross_entropy(others, y).item())
    assert gap.soft_accuracy == (outputs.argmax(1) == y).double().mean()
    assert gap.hard_accuracy == (others.argmax(1) == y).double().mean()
    assert gap.same_class == (outputs.argmax(1) == others.argmax(1)).double().mean()
    spread = (outputs - outputs.mean(0)).square().mean()
    assert gap.agreement == pytest.approx(1 - float((outputs - others).square().mean() / spread))
    assert gap.soft_gates == 2
    assert "accuracy" in str(gap)
    assert gap.hard_loss != gap.soft_loss


def test_a_silu_network_hardens_to_the_relu_network_of_its_weights():
    silu = nn.Sequential(nn.Linear(4, 8), nn.SiLU(), nn.Linear(8, 8), nn.SiLU(), nn.Linear(8, 1))
    relu = nn.Sequential(silu[0], nn.ReLU(), silu[2], nn.ReLU(), silu[4])
    x, y = torch.randn(50, 4), torch.randn(50)
    gap = gl.hardening_gap(silu, x, y)
    with torch.no_grad():
        assert gap.hard_loss == pytest.approx(float((relu(x)[:, 0] - y).square().mean()))
        assert gap.soft_loss == pytest.approx(float((silu(x)[:, 0] - y).square().mean()))
    assert gap.soft_accuracy is None


@pytest.mark.usefixtures("single_precision")
def test_a_selu_hardens_to_its_scale_in_float64():
    """torch.where of two numbers would round the scale, 1.0507009873554805, to float32, torch's default."""
    selu = nn.Sequential(nn.Linear(4, 8), nn.SELU(), nn.Linear(8, 1, bias=False)).double()
    x = torch.randn(50, 4, dtype=torch.float64)
    with torch.no_grad():
        hardened = (selu[0](x).clamp(min=0) * 1.0507009873554805) @ selu[2].weight.T
    assert gl.hardening_gap(selu, x, hardened[:, 0]).hard_loss < 1e-28
    assert gl.hardening_gap(selu, x, hardened[:, 0] * (1 + 1e-8)).hard_loss > 1e-18


def test_bits_have_nothing_to_harden():
    gap = gl.hardening_gap(gl.models.mlp([4, 8, 2]), torch.randn(9, 4), torch.randint(2, (9,)))
    assert (gap.agreement, gap.same_class, gap.soft_gates) == (1.0, 1.0, 0)
    assert gap.soft_loss == gap.hard_loss
    assert "nothing" in str(gap)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (torch.zeros(8), "one label for each of 9"),
        (torch.full((9,), 2), "2 outputs"),
        (torch.zeros(9, 3), r"\(9, 3\)"),
        (torch.zeros(9, 2, dtype=torch.long), "classes of shape"),
    ],
)
def test_labels_that_do_not_fit(y, message):
    with pytest.raises(InputError, match=message):
        gl.hardening_gap(gl.models.mlp([4, 8, 2]), torch.randn(9, 4), y)


def test_the_tracker_records_the_gap_of_soft_gates_only():
    x, y = torch.randn(20, 4), torch.randn(20)
    soft, hard = gl.to_dlgn(gl.models.mlp([4, 8, 1])), DeepGatedNetwork([4, 8, 1])
    gap = gl.GateTracker(soft, x, y, tangent=False).record(0).hardening
    with torch.no_grad():
        assert gap.soft_loss == pytest.approx(float((soft(x)[:, 0] - y).square().mean()))
    assert gl.GateTracker(hard, x, y, tangent=False).record(0).hardening is None
