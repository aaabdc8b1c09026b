"""Watching gates and kernels while a network trains."""

import pytest
import torch
from torch import nn

import gatelab as gl
from gatelab.errors import InputError
from tests import image_zoo, zoo
from tests.contracts.gated_model import snapshot


def test_records_are_what_the_functions_say():
    model, x, y = gl.models.mlp([5, 8, 8, 2]), torch.randn(12, 5), torch.randn(12).sign()
    tracker = gl.GateTracker(model, x, y)
    before = gl.capture_gates(model, x)
    first = tracker.record(0)
    assert first.flips == {}
    with torch.no_grad():
        model[0].weight.add_(0.3 * torch.randn_like(model[0].weight))
    second = tracker.record(10)
    after = gl.capture_gates(model, x)
    assert second.flips == after.flips(before)
    assert sum(second.flips.values()) > 0
    assert tracker.switching_instants() == [10]
    assert second.active == after.active_fraction()
    kernel = gl.neural_path_kernel(model, x)
    assert second.complexity == pytest.approx(gl.kernels.label_complexity(kernel, y), rel=1e-6)
    tangent = gl.neural_tangent_kernel(model, x)
    assert second.tangent["all"] == pytest.approx((tangent.trace().item(), torch.linalg.matrix_norm(tangent).item()))
    assert tracker.gates == after


def test_a_gated_network_has_two_tangent_kernels():
    model = gl.to_dgn(gl.models.mlp([5, 8, 8, 2]), gl.Regime.DNPFL)
    record = gl.GateTracker(model, torch.randn(6, 5)).record(0)
    whole, feature, value = (record.tangent[part][0] for part in ("all", "feature", "value"))
    assert whole == pytest.approx(feature + value)
    assert record.complexity is None


def test_tracking_leaves_no_trace_in_the_middle_of_training():
    model = image_zoo.made(image_zoo.Vgg).train()
    x = image_zoo.Vgg.images()
    before = snapshot(model)
    tracker = gl.GateTracker(model, x)
    tracker.record(0)
    assert snapshot(model) == before


def test_models_without_a_path_kernel_are_tracked_all_the_same():
    record = gl.GateTracker(zoo.Tied(), torch.randn(4, 5), tangent=False).record(0)
    assert record.cosine is None
    assert record.tangent == {}
    assert record.active


def test_bad_input():
    with pytest.raises(InputError, match="12 probes, 3 labels"):
        gl.GateTracker(gl.models.mlp([5, 4, 1]), torch.randn(12, 5), torch.ones(3))
    with pytest.raises(InputError, match="nothing has been recorded"):
        _ = gl.GateTracker(nn.Sequential(nn.Linear(5, 4), nn.ReLU()), torch.randn(2, 5)).gates
