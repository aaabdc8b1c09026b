import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import gatelab as gl
from gatelab.errors import InputError, UnsupportedModelError
from gatelab.gates import HardGate, SoftGate, gated
from gatelab.models import DeepGatedNetwork, DeepLinearlyGatedNetwork, mlp, resnet
from tests import zoo


def with_biases(model: nn.Module) -> nn.Module:
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(parameter)
    return model


def eta_by_autograd(layer, model, x) -> torch.Tensor:
    """∂η/∂x of every unit, by running the model itself and catching q where it is used."""
    caught = {}

    class Catch(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            if func is gated:
                caught[f"{len(caught)}"] = args[1]
            return func(*args, **(kwargs or {}))

    with Catch():
        model(x)
    q = list(caught.values())[layer].flatten(1)
    return torch.stack([torch.autograd.grad(unit, x, retain_graph=True)[0][0] for unit in q[0]])


DENSE = {
    "plain": lambda: DeepLinearlyGatedNetwork([3, 5, 4, 6, 2]),
    "piecewise constant": lambda: DeepLinearlyGatedNetwork([3, 5, 4, 2], piecewise_constant=True, gate=HardGate()),
    "shallow": lambda: DeepLinearlyGatedNetwork([3, 5, 4, 2], shallow=True),
    "without gate biases": lambda: DeepLinearlyGatedNetwork([3, 5, 4, 2], gate_bias=False),
    "converted": lambda: gl.to_dlgn(mlp([3, 5, 4, 2], bias=True)),
    "converted, leaky": lambda: gl.to_dlgn(nn.Sequential(nn.Linear(3, 4), nn.LeakyReLU(0.2), nn.Linear(4, 2))),
    "converted, with batch-norm": lambda: gl.to_dlgn(
        nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2)).eval()
    ),
}


@pytest.mark.parametrize("make", DENSE.values(), ids=DENSE)
def test_half_spaces_are_the_captured_gates_and_the_gradients_of_eta(make):
    model = with_biases(make())
    layers = gl.half_spaces(model)
    x = torch.randn(200, 3)
    pattern = gl.capture_gates(model, x).hard()
    assert tuple(layers) == pattern.layers
    for number, (name, layer) in enumerate(layers.items()):
        normals = layer.normals()
        assert torch.equal(x @ normals.T + layer.offsets > 0, pattern[name])
        assert torch.equal(layer.is_open(x), pattern[name])
        one = torch.randn(1, 3, requires_grad=True)
        torch.testing.assert_close(normals, eta_by_autograd(number, model, one), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("shallow", [False, True])
def test_normals_are_products_of_the_gating_weights(shallow):
    model = with_biases(DeepLinearlyGatedNetwork([4, 6, 5, 3, 1], shallow=shallow))
    normal, offset = torch.eye(4), torch.zeros(4)
    for linear, layer in zip(model.feature, gl.half_spaces(model).values(), strict=True):
        start = (torch.eye(4), torch.zeros(4)) if shallow else (normal, offset)
        normal, offset = linear.weight @ start[0], linear.weight @ start[1] + linear.bias
        torch.testing.assert_close(layer.normals(), normal.detach(), rtol=1e-12, atol=1e-14)
        torch.testing.assert_close(layer.offsets, offset.detach(), rtol=1e-12, atol=1e-14)


class Residual(nn.Module):
    """Two branches that meet, at one step."""

    def __init__(self):
        super().__init__()
        self.stem, self.inner = nn.Conv2d(2, 3, 3, padding=1, stride=2), nn.Conv2d(3, 3, 3, padding=1)
        self.head, self.relu = nn.Linear(3, 2), nn.ReLU()

    def forward(self, x):
        x = self.relu(self.stem(x))
        x = self.relu(self.inner(x) + x)
        return self.head(x.mean((2, 3)))


CONVOLUTIONAL = {
    "same size": lambda: gl.models.gconv(channels=[3, 4], dense=[5], inputs=2),
    "strided, dilated, grouped": lambda: nn.Sequential(
        *(nn.Conv2d(2, 4, 3, stride=2, padding=1), nn.ReLU(), nn.AvgPool2d(2, 1), nn.BatchNorm2d(4)),
        *(nn.Conv2d(4, 4, 3, dilation=2, padding=(2, 1), groups=2), nn.ReLU(), nn.Flatten(), nn.LazyLinear(3)),
    ),
    "padding 'same', even kernel": lambda: nn.Sequential(
        *(nn.Conv2d(2, 3, 4, padding="same"), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 1))
    ),
    "residual": Residual,
    "one axis": lambda: nn.Sequential(
        *(nn.Conv1d(2, 3, 5, padding=2), nn.ReLU(), nn.Conv1d(3, 2, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(1))
    ),
}


@pytest.mark.parametrize("make", CONVOLUTIONAL.values(), ids=CONVOLUTIONAL)
@pytest.mark.filterwarnings("ignore:Using padding='same'")
def test_convolutional_half_spaces(make):
    network = make()
    shape = (
        (2, 11) if isinstance(network[0] if isinstance(network, nn.Sequential) else None, nn.Conv1d) else (2, 11, 13)
    )
    network(torch.randn(2, *shape))
    model = with_biases(gl.to_dlgn(network.eval()))
    layers = gl.half_spaces(model, shape)
    x = torch.randn(30, *shape)
    pattern = gl.capture_gates(model, x).hard()
    interiors = 0
    for number, (name, layer) in enumerate(layers.items()):
        normals, offsets = layer.normals(), layer.offsets.flatten()
        assert torch.equal((x.flatten(1) @ normals.flatten(1).T + offsets > 0).view(-1, *layer.shape), pattern[name])
        one = torch.randn(1, *shape, requires_grad=True)
        torch.testing.assert_close(normals, eta_by_autograd(number, model, one), rtol=1e-12, atol=1e-14)
        if len(layer.shape) == 1:
            assert layer.filters is None
            continue
        window, weight = layer.filters.window, layer.filters.weight
        for unit in torch.cartesian_prod(*map(torch.arange, layer.shape)).tolist():
            channel, *position = unit
            if not window.is_interior(tuple(position), shape[1:]):
                continue
            interiors += 1
            expected = torch.zeros(shape)
            begin = [s + p * step for s, p, step in zip(window.start, position, window.step, strict=True)]
            cut = tuple(slice(b, b + size) for b, size in zip(begin, window.size, strict=True))
            expected[(slice(None), *cut)] = weight[channel]
            torch.testing.assert_close(layer.normals([tuple(unit)])[0], expected, rtol=1e-12, atol=1e-14)
            torch.testing.assert_close(layer.offsets[tuple(unit)], layer.filters.offset[channel])
    assert interiors > 20


def test_a_border_unit_is_another_half_space_than_an_interior_one():
    model = with_biases(gl.to_dlgn(gl.models.gconv(channels=[3, 4], dense=[5], inputs=1)))
    first, second, dense = gl.half_spaces(model, (1, 9, 9)).values()
    assert second.filters.weight.shape == (4, 1, 5, 5)
    assert not second.filters.window.is_interior((1, 4), (9, 9))
    # Next to the border only what lies outside the image is gone; on it, also what layer 1 would see from there.
    torch.testing.assert_close(second.normals([(0, 1, 1)])[0][:, :4, :4], second.filters.weight[0][:, 1:, 1:])
    assert not torch.allclose(second.normals([(0, 0, 0)])[0][:, :3, :3], second.filters.weight[0][:, 2:, 2:])
    assert not torch.allclose(second.offsets[0, 0, 0], second.filters.offset[0])  # fewer biases of layer 1
    assert first.filters.weight.shape == (3, 1, 3, 3)
    assert dense.filters is None


class Centred(nn.Module):
    """A network that takes something away from its images first."""

    def __init__(self, mean, *, turned=False):
        super().__init__()
        self.first, self.head, self.turned = nn.Conv2d(2, 3, 3, padding=1), nn.Linear(3, 1), turned
        self.register_buffer("mean", mean)

    def forward(self, x):
        x = self.mean.neg() + x if self.turned else x - self.mean
        return self.head(torch.relu(self.first(x)).mean((2, 3)))


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("shape", "one_filter"),
    [((), True), ((2, 1, 1), True), ((1, 2, 1, 1), True), ((1, 6, 7), False), ((7,), False), ((6, 1), False)],
)
def test_a_constant_with_positions_leaves_no_one_filter(shape, one_filter, turned):
    model = with_biases(gl.to_dlgn(Centred(torch.randn(shape), turned=turned)))
    (layer,) = gl.half_spaces(model, (2, 6, 7)).values()
    assert (layer.filters is not None) is one_filter
    x = torch.randn(20, 2, 6, 7)
    assert torch.equal(layer.is_open(x), gl.capture_gates(model, x).hard()[layer.gate])
    if one_filter:
        torch.testing.assert_close(layer.filters.weight[1], layer.normals([(1, 2, 3)])[0, :, 1:4, 2:5])
        torch.testing.assert_close(layer.filters.offset, layer.offsets[:, 2, 3])


class SideBySide(nn.Module):
    """Two images beside one another: along channels they keep their positions, along the width they do not."""

    def __init__(self, axis):
        super().__init__()
        self.a, self.b, self.axis = nn.Conv2d(2, 2, 3, padding=1), nn.Conv2d(2, 2, 3, padding=1), axis
        self.c, self.head = nn.LazyConv2d(3, 3), nn.Linear(3, 1)

    def forward(self, x):
        return self.head(torch.relu(self.c(torch.cat([self.a(x), self.b(x)], self.axis))).mean((2, 3)))


@pytest.mark.parametrize(("axis", "one_filter"), [(1, True), (-3, True), (2, False), (-1, False)])
def test_only_channels_may_stand_beside_one_another(axis, one_filter):
    network = SideBySide(axis)
    network(torch.zeros(1, 2, 8, 8))
    (layer,) = gl.half_spaces(gl.to_dlgn(network), (2, 8, 8)).values()
    assert (layer.filters is not None) is one_filter


def test_resnets_have_half_spaces():
    model = gl.to_dlgn(resnet(8, outputs=3).eval())
    layers = gl.half_spaces(model, (3, 8, 8))
    x = torch.randn(4, 3, 8, 8)
    pattern = gl.capture_gates(model, x).hard()
    for name, layer in layers.items():
        unit = tuple(0 for _ in layer.shape)
        q = (layer.normals([unit]) * x).flatten(1).sum(1) + layer.offsets[unit]
        assert torch.equal(q > 0, pattern[name][(slice(None), *unit)])


def test_a_snapshot_in_the_models_dtype():
    model = DeepLinearlyGatedNetwork([3, 4, 1], dtype=torch.float32)
    (layer,) = gl.half_spaces(model).values()
    before = layer.normals()
    assert before.dtype == layer.offsets.dtype == torch.float32
    with torch.no_grad():
        model.feature[0].weight.zero_()
    assert torch.equal(layer.normals(), before)


def test_zero_weights_are_gates_open_everywhere_or_nowhere():
    model = DeepLinearlyGatedNetwork([2, 2, 3, 1], gate=HardGate())
    with torch.no_grad():
        model.feature[1].weight.zero_()
        model.feature[1].bias.copy_(torch.tensor([1.0, 0.0, -1.0]))
    _, layer = gl.half_spaces(model).values()
    assert not layer.normals().any()
    assert layer.is_open(torch.randn(9, 2)).tolist() == [[True, False, False]] * 9
    assert not gl.active_region(model, (0, 0)).is_empty()
    assert gl.active_region(model, (0, 0)).faces == 1
    assert gl.active_region(model, (0, 1)).is_empty()
    assert gl.active_region(model, (0, 2)).is_empty()


class ClosedOver(nn.Module):
    """A gate that looks at a gated signal."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(2, 3), nn.Linear(3, 3), nn.Linear(3, 1)

    def forward(self, x):
        h = gated(self.a(x), self.a(x), SoftGate(3.0))
        return self.c(gated(self.b(h), self.b(h), SoftGate(3.0)))


class Curved(ClosedOver):
    def forward(self, x):
        return self.c(gated(self.a(x), self.a(torch.sin(x)), SoftGate(3.0)))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (mlp([2, 3, 1]), "gate '1' gates its own signal.*to_dlgn"),
        (DeepGatedNetwork([2, 3, 3, 1]), "gate 'relu' gates its own signal.*to_dlgn"),
        (ClosedOver(), "'gated#2' depends on gate 'gated'.*to_dlgn"),
        (Curved(), "sin in the model's forward.*neither a gate nor affine"),
        (gl.models.dln([2, 3, 1]), "no gates.*to_dlgn"),
        (nn.Linear(2, 1), "no gates.*to_dlgn"),
        (zoo.cnn(), "gate '2' gates its own signal.*to_dlgn"),
        (gl.to_dlgn(zoo.cnn()), "gated_max_pool.*average pooling"),
    ],
)
def test_what_is_not_linearly_gated_is_refused(model, message):
    with pytest.raises(UnsupportedModelError, match=message):
        gl.half_spaces(model, (4, 8, 8) if "pool" in message or "'2'" in message else None)


def test_shapes_that_do_not_fit_are_refused(monkeypatch):
    model = gl.to_dlgn(gl.models.vconv(channels=[2], dense=[3], inputs=(1, 6, 6)))
    with pytest.raises(InputError, match=r"convolution.*shape=\(3, 32, 32\)"):
        gl.half_spaces(model)
    with pytest.raises(InputError, match=r"does not take examples of shape \(1, 7, 6\)"):
        gl.half_spaces(model, (1, 7, 6))
    first, dense = gl.half_spaces(model, (1, 6, 6)).values()
    for layer, unit in ((first, (2, 0, 0)), (first, (0, 0)), (dense, 3), (dense, (0, 0)), (first, -1)):
        with pytest.raises(InputError, match="does not exist in layer"):
            layer.normals([unit])
    assert first.normals([]).shape == (0, 1, 6, 6)
    monkeypatch.setattr("gatelab.regions.halfspace.MOST_ENTRIES", 100)
    with pytest.raises(InputError, match=r"do not fit memory.*filters"):
        first.normals()


@settings(deadline=None, max_examples=20)
@given(
    widths=st.lists(st.integers(1, 5), min_size=2, max_size=4), seed=st.integers(0, 99), shallow=st.booleans(),
    constant=st.booleans(),
)  # fmt: skip
def test_a_gate_is_open_exactly_in_its_half_space(widths, seed, shallow, constant):
    generator = torch.Generator().manual_seed(seed)
    model = DeepLinearlyGatedNetwork(
        [*widths, 1], shallow=shallow, piecewise_constant=constant, generator=generator, gate=HardGate()
    )
    for layer in model.feature:
        nn.init.normal_(layer.bias, generator=generator)
    x = torch.randn(50, widths[0], generator=generator)
    pattern = gl.capture_gates(model, x).hard()
    for name, layer in gl.half_spaces(model).items():
        assert torch.equal(x @ layer.normals().T + layer.offsets > 0, pattern[name])


def test_functional_style_networks_convert_and_have_half_spaces():
    model = gl.to_dlgn(zoo.Functional().double())
    shape = (zoo.Functional().first.in_features,)
    x = torch.randn(20, *shape)
    for (name, layer), eta in zip(gl.half_spaces(model).items(), gl.capture_gates(model, x).layers, strict=True):
        assert name == eta
        assert torch.equal(F.linear(x, layer.normals(), layer.offsets) > 0, gl.capture_gates(model, x).hard()[name])
