"""Regions of a network's gates, against gradients of the network itself."""

import pytest
import torch
from torch import nn

from gatelab.errors import InputError, UnsupportedModelError
from gatelab.hierarchy import ReceptiveFields, fields_of
from gatelab.hierarchy.reading import as_layer, by_position, regions_of


class Residual(nn.Module):
    """Strides, padding, a skip, both poolings and a constant shift of the input."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(2, 3, 3, stride=2, padding=1), nn.Conv2d(3, 3, 3, padding=1)
        self.norm, self.last = nn.BatchNorm2d(3), nn.Linear(12, 2)

    def forward(self, x):
        h = torch.relu(self.first(x - 0.3))
        h = torch.relu(self.norm(self.second(h)) + h)
        return self.last(torch.nn.functional.avg_pool2d(torch.max_pool2d(h, 2), 1).flatten(1))


NETS = {
    "padded": (lambda: nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.ReLU(), nn.Conv2d(2, 2, 3, padding=1), nn.ReLU(),
                                     nn.Flatten(), nn.Linear(50, 2)), (1, 5, 5)),
    "strided": (lambda: nn.Sequential(nn.Conv1d(1, 2, 3, stride=2), nn.LeakyReLU(), nn.Conv1d(2, 2, 2, dilation=2),
                                      nn.ReLU(), nn.Flatten(), nn.Linear(2, 2)), (1, 8)),
    "residual": (Residual, (2, 8, 8)),
    "dense": (lambda: nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2)), (4,)),
}  # fmt: skip


@pytest.mark.parametrize("name", NETS)
def test_gradients_reach_exactly_the_positions_of_a_region(name):
    """Over many examples some gate is open, so that a gradient is zero only where there is no way."""
    make, shape = NETS[name]
    net = make().eval()
    regions = regions_of(net, torch.randn(2, *shape))
    x = torch.randn(300, *shape, requires_grad=True)
    raws, outputs, _ = regions.run(x)
    for layer, raw in zip(regions.layers, raws, strict=True):
        columns = by_position(raw)
        assert torch.equal(as_layer(columns, raw), raw)
        for place in range(0, len(layer.regions), max(1, len(layer.regions) // 7)):
            (gradient,) = torch.autograd.grad(columns[:, place].sum(), x, retain_graph=True)
            seen = regions.pixels(gradient.abs()).sum(dim=(0, 2)) > 0
            assert tuple(seen.nonzero()[:, 0].tolist()) == regions.fields.positions(layer.regions[place])
    assert len(outputs) == len(regions.layers)


def test_children_are_the_regions_read_without_a_gate_between():
    net = Residual().eval()
    regions = regions_of(net, torch.randn(2, 2, 8, 8))
    assert set(regions.edges) == {(0, 1), (1, 2), (2, 3)}
    assert regions.fields.children("h2_0") == ("h1_0", "h1_1", "h1_4", "h1_5")
    assert set(regions.fields.children("top")) == set(regions.layers[1].regions)
    assert regions.fields.layer("top") == 0


def test_the_regions_of_a_sequential_are_those_of_fields_of():
    net = NETS["padded"][0]()
    read, listed = regions_of(net, torch.randn(2, 1, 5, 5)).fields, fields_of(net, (5, 5))
    assert read.regions == listed.regions
    assert set(read.edges) == set(listed.edges)


def test_gates_times_sums_are_the_nodes():
    net = nn.Sequential(
        nn.Conv1d(1, 3, 2), nn.PReLU(3), nn.Flatten(), nn.Linear(9, 4), nn.LeakyReLU(0.2), nn.Linear(4, 2)
    )
    nn.init.uniform_(net[1].weight)
    regions, x = regions_of(net, torch.randn(2, 1, 4)), torch.randn(9, 1, 4)
    raws, outputs, _ = regions.run(x)
    for index in range(2):
        torch.testing.assert_close(regions.gate(index, raws[index]) * raws[index], outputs[index])


def test_replaced_layers_are_seen_by_the_layers_above():
    net = NETS["padded"][0]()
    regions, x = regions_of(net, torch.randn(2, 1, 5, 5)), torch.randn(3, 1, 5, 5)
    raws, _, _ = regions.run(x, lambda index, f: torch.zeros_like(f) if index == 0 else f)
    torch.testing.assert_close(raws[1], net[2].bias.detach().view(1, 2, 1, 1).expand_as(raws[1]))


def test_networks_without_regions_are_refused():
    with pytest.raises(UnsupportedModelError, match="has no gate"):
        regions_of(nn.Linear(3, 2), torch.randn(2, 3))
    with pytest.raises(UnsupportedModelError, match="bounds its values from above"):
        regions_of(nn.Sequential(nn.Linear(3, 2), nn.ReLU6()), torch.randn(2, 3))


def test_given_children():
    regions = {"a": [0], "b": [1], "left": [0, 1], "right": [0, 1], "top": [0, 1]}
    children = {"left": ("a", "b"), "right": ("b", "a"), "top": ("left", "right")}
    fields = ReceptiveFields(regions, children)
    assert fields.children("right") == ("b", "a")
    assert fields.bottom_up == ("a", "b", "left", "right", "top")
    assert (fields.top, fields.layer("a"), fields.depth) == ("top", 2, 2)
    with pytest.raises(InputError, match="not a region inside it"):
        ReceptiveFields(regions, children | {"left": ("a", "elsewhere")})
    with pytest.raises(InputError, match="computed from each other"):
        ReceptiveFields(regions, children | {"left": ("a", "b", "right"), "right": ("left",)})
