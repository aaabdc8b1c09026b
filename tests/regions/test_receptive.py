"""Receptive fields: which operations have one."""

import pytest
import torch
from torch import nn

import gatelab as gl
from gatelab.errors import UnsupportedModelError
from gatelab.gates import HardGate, gated
from gatelab.network.operations import OPERATIONS, Kind


def test_windows_that_have_a_field_are_not_dilated():
    windows = {name: row for name, row in OPERATIONS.items() if "kernel_size" in row.arguments}
    assert {row.kind for row in windows.values()} == {Kind.SPATIAL, Kind.SELECTION}
    for name, row in windows.items():
        assert ("dilation" in row.arguments) == (row.kind is Kind.SELECTION), name


class Pooled(nn.Module):
    """Gates that read an image behind a convolution and a pooling."""

    def __init__(self, pool, window):
        super().__init__()
        self.feature, self.value = nn.Conv2d(1, 2, 2), nn.Conv2d(1, 2, window)
        self.pool, self.last = pool, nn.Linear(2, 1)

    def forward(self, x):
        return self.last(gated(self.value(x), self.pool(self.feature(x)), HardGate()).mean((2, 3)))


def test_the_field_behind_an_average_is_what_its_normals_read():
    layers = gl.half_spaces(Pooled(nn.AvgPool2d(2, 1), 3).double(), (1, 5, 5))
    (layer,) = layers.values()
    assert layer.filters is not None
    read = layer.normals([(0, 1, 1)])[0, 0] != 0
    inside = torch.zeros(5, 5, dtype=torch.bool)
    inside[1:4, 1:4] = True
    assert torch.equal(read, inside)
    assert layer.filters.weight.shape[-2:] == (3, 3)


def test_a_dilated_maximum_has_no_half_spaces():
    with pytest.raises(UnsupportedModelError, match="MaxPool2d"):
        gl.half_spaces(Pooled(nn.MaxPool2d(2, 1, dilation=2), 4).double(), (1, 6, 6))
