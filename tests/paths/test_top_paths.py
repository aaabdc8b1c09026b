"""Top paths and their number against all paths, listed one by one from Jacobians."""

import copy
from collections import OrderedDict
from math import fsum

import pytest
import torch
from torch import nn
from torch.nn.modules.conv import _ConvNd

import gatelab as gl
from gatelab.errors import InputError, UnsupportedModelError
from gatelab.gates import HardGate, SoftGate
from gatelab.paths import count_paths
from gatelab.paths.rules import layers_of
from tests import image_zoo
from tests.paths.networks import NETWORKS, network
from tests.references.paths import listed_paths


@pytest.fixture(scope="module", params=NETWORKS)
def case(request):
    model, x = network(request.param)
    head = model[:-1] if request.param == "no gate" else model  # paths end before a final softmax
    return model, x, head(x).detach().flatten(), listed_paths(head, x)


def test_all_paths_sum_to_the_output(case):
    model, x, y, listed = case
    paths = gl.top_paths(model, x, len(listed) + 10)
    assert len(paths) == len(listed) == count_paths(model, x)
    for output, value in enumerate(y.tolist()):
        for found in (paths, listed):
            assert fsum(p.contribution for p in found if p.output == output) == pytest.approx(value, abs=1e-12)
        assert count_paths(model, x, output) == sum(path.output == output for path in listed)


@pytest.mark.parametrize("k", [1, 7, 10**6])
def test_top_paths_are_the_largest_of_the_listed_ones(case, k):
    model, x, _, listed = case
    sizes = sorted((abs(path.contribution) for path in listed), reverse=True)[:k]
    found = gl.top_paths(model, x, k)
    assert [abs(path.contribution) for path in found] == pytest.approx(sizes, rel=1e-9, abs=1e-15)
    last = [path for path in listed if path.output == 1]
    of_one = gl.top_paths(model, x, k, output=1)
    sizes = sorted((abs(path.contribution) for path in last), reverse=True)[:k]
    assert {path.output for path in of_one} <= {1}
    assert [abs(path.contribution) for path in of_one] == pytest.approx(sizes, rel=1e-9, abs=1e-15)


def test_paths_pass_the_units_of_the_listed_ones(case):
    model, x, _, listed = case
    weights = {"x"} | {name for name, module in model.named_modules() if isinstance(module, nn.Linear | _ConvNd)}
    found = gl.top_paths(model, x, len(listed))
    shapes = {}

    def note(name):
        return lambda module, args, result: shapes.update({name: result.shape[1:]})

    handles = [module.register_forward_hook(note(name)) for name, module in model.named_modules()]
    model(x)
    shapes["x"] = x.shape[1:]
    for handle in handles:
        handle.remove()

    def number(name, index):
        flat = 0
        for place, size in zip(index, shapes[name], strict=True):
            flat = flat * size + place
        return flat

    expected = sorted(
        (path.output, [place for place in path.passed if place[0].replace("input", "x") in weights], path.contribution)
        for path in listed
    )
    actual = sorted(
        (
            path.output,
            [(p.layer, number(p.layer, p.index)) for p in path.places if p.layer in weights],
            path.contribution,
        )
        for path in found
    )
    assert len(expected) == len(actual)
    for one, other in zip(expected, actual, strict=True):
        assert [(name.replace("input", "x"), unit) for name, unit in one[1]] == other[1]
        assert one[2] == pytest.approx(other[2], rel=1e-9, abs=1e-15)


def test_different_paths_pass_different_places(case):
    model, x, _, listed = case
    found = gl.top_paths(model, x, len(listed))
    assert len({(path.start, path.places, path.output) for path in found}) == len(found)
    assert sum(path.start == 0 for path in found) == sum(path.from_input for path in listed)


def _value(layers):
    """The output as the layers describe it, unit by unit."""
    values = []
    for layer in layers:
        value = layer.constant.clone()
        for part in layer.connections:
            for unit in range(len(value)):
                units, weights = part.of(unit)
                value[unit] += float(values[part.source].numpy()[units] @ weights)
        values.append(value)
    return values[-1]


@pytest.mark.parametrize("kind", image_zoo.ALL)
def test_layers_of_larger_networks_give_the_output(kind):
    model = image_zoo.made(kind)
    x = kind.images()[:1]
    value, y = _value(layers_of(model, x)), model(x).detach().flatten()
    if kind is image_zoo.LeNet:  # paths end before the log-softmax
        value = value.log_softmax(0)
    torch.testing.assert_close(value, y, rtol=1e-10, atol=1e-12)
    paths = gl.top_paths(model, x[0], 50)
    sizes = [abs(path.contribution) for path in paths]
    assert len(paths) == 50
    assert sizes == sorted(sizes, reverse=True)


@pytest.mark.parametrize("mode", ["zeros", "reflect", "replicate", "circular"])
def test_padding_is_part_of_a_convolution_or_not(mode):
    inside = nn.Conv2d(1, 2, 2, padding=1, padding_mode=mode)
    padding = {"zeros": nn.ZeroPad2d, "reflect": nn.ReflectionPad2d, "replicate": nn.ReplicationPad2d,
               "circular": nn.CircularPad2d}[mode]  # fmt: skip
    outside = nn.Conv2d(1, 2, 2)
    outside.load_state_dict(inside.state_dict())
    head = nn.Sequential(nn.ReLU(), nn.Flatten(), nn.Linear(18, 1))
    x = torch.randn(1, 2, 2)
    one, other = (gl.top_paths(nn.Sequential(*net, head), x, 10**4) for net in ([inside], [padding(1), outside]))
    # A unit that is repeated is read by several weights, and each makes a path.
    assert len(one) == len(other)
    assert sorted(p.contribution for p in one) == pytest.approx(sorted(p.contribution for p in other), abs=1e-15)


class Twice(nn.Module):
    def __init__(self, copied):
        super().__init__()
        self.a, self.b, self.copied = nn.Linear(2, 3), nn.Linear(3, 1), copied

    def forward(self, x):
        h = torch.relu(self.a(x))
        return self.b(h + (h.clone() if self.copied else h))


def test_a_signal_added_to_itself_makes_two_paths():
    one, other = Twice(copied=False), Twice(copied=True)
    other.load_state_dict(one.state_dict())
    one, other = ([path.contribution for path in gl.top_paths(net, torch.ones(2), 99)] for net in (one, other))
    assert len(one) > 1
    assert one == other


def test_ties_are_all_found():
    model = nn.Sequential(nn.Conv2d(1, 2, 2, bias=False), nn.ReLU(), nn.Flatten(), nn.Linear(8, 1, bias=False))
    for parameter in model.parameters():
        nn.init.constant_(parameter, 0.1)
    x = torch.ones(1, 3, 3)
    for k in (1, 5, 32, 40):
        paths = gl.top_paths(model, x, k)
        assert [path.contribution for path in paths] == pytest.approx([0.01] * min(k, 32))
        assert len({path.places for path in paths}) == len(paths)


@pytest.mark.parametrize("constant", [False, True])
def test_paths_of_gated_networks_are_those_of_their_features(constant):
    model = gl.models.DeepLinearlyGatedNetwork([3, 4, 5, 2], gate=HardGate(), piecewise_constant=constant)
    x = torch.randn(3)
    listed = (gl.neural_path_features(model, x[None])[0][:, None] * gl.neural_path_values(model)).flatten()
    listed = listed[listed != 0].sort().values
    paths = gl.top_paths(model, x, 10**4)
    assert {path.start for path in paths} == {0}
    assert sorted(path.contribution for path in paths) == pytest.approx(listed.tolist(), rel=1e-12)


def test_paths_of_a_softly_gated_convolutional_network_sum_to_its_output():
    conv = nn.Sequential(nn.Conv2d(1, 2, 2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(2, 1))
    model, x = gl.to_dgn(conv, gl.Regime.DNPFL), torch.randn(1, 1, 3, 3)
    total = fsum(path.contribution for path in gl.top_paths(model, x, 10**4))
    assert total == pytest.approx(model(x).item(), rel=1e-10)


def test_paths_of_a_network_with_hard_gates_sum_to_its_output():
    conv = nn.Sequential(nn.Conv2d(1, 2, 2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(2, 1))
    model = gl.to_dgn(conv, gl.Regime.DNPFL)
    hard = copy.deepcopy(model)
    x = torch.randn(1, 1, 3, 3)
    paths = gl.top_paths(model, x, 10**4, gates="hard")
    assert len(paths) > 8
    for module in hard.modules():
        for name, held in vars(module).items():
            if isinstance(held, SoftGate):
                setattr(module, name, HardGate())
    assert fsum(path.contribution for path in paths) == pytest.approx(hard(x).item(), rel=1e-10)


def test_the_number_of_paths_is_exact_beyond_float64():
    depth, width = 40, 7  # odd: powers of two would be exact in float64 anyway
    layers = [layer for _ in range(depth) for layer in (nn.Linear(width, width, bias=False), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(width, 1, bias=False))
    for parameter in model.parameters():
        nn.init.uniform_(parameter, 0.1, 0.3)
    assert count_paths(model, torch.ones(width)) == width ** (depth + 1)
    model[0].weight.data[0, 0] = 0.0  # one connection less
    assert count_paths(model, torch.ones(width)) == (width**2 - 1) * width ** (depth - 1)


def test_paths_print_as_a_person_reads_them():
    torch.manual_seed(0)
    model = nn.Sequential(OrderedDict(conv=nn.Conv2d(1, 1, 1), norm=nn.BatchNorm2d(1), relu=nn.ReLU(),
                                      pool=nn.AvgPool2d(2), flat=nn.Flatten(), fc=nn.Linear(1, 1))).eval()  # fmt: skip
    nn.init.constant_(model.conv.weight, 2.0), nn.init.constant_(model.conv.bias, 0.0)
    nn.init.constant_(model.fc.weight, -4.0), nn.init.constant_(model.fc.bias, 0.25)
    model.norm.running_var.fill_(1 - model.norm.eps)
    model.norm.bias.data.fill_(0.5)
    x = torch.tensor([[[0.0, 0.0], [7.0, 0.0]]])
    first, *_, last = map(str, gl.top_paths(model, x, 6))
    assert first == "x[c=0, 1,0] → conv[c=0, 1,0] → pool[c=0, 0,0] → fc[0]: -14"
    assert last == "bias → fc[0]: +0.25"
    shifted = gl.top_paths(model, x, 5)[1]
    assert str(shifted).startswith("bias → norm[c=0, ")
    assert (shifted.start, shifted.units[1:], shifted.contribution) == (1, (0,), -0.5)


def test_an_example_may_have_a_batch_axis_or_none():
    model, x = network("convolutions")
    assert gl.top_paths(model, x, 9) == gl.top_paths(model, x[0], 9)
    with pytest.raises(InputError, match=r"2 examples; give one example"):
        gl.top_paths(model, torch.cat([x, x]), 9)
    one = nn.Sequential(nn.Conv2d(1, 2, 2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 1))
    x = torch.randn(1, 3, 3)  # one channel, not one example
    assert gl.top_paths(one, x, 9) == gl.top_paths(one, x[None], 9)


def test_contributions_of_a_float32_network_are_float64(single_precision):
    model, x = nn.Sequential(nn.Conv2d(1, 2, 2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 1)), torch.randn(1, 3, 3)
    once, exact = gl.top_paths(model, x, 99), gl.top_paths(model.double(), x.double(), 99)
    assert [path.contribution for path in once] == pytest.approx([path.contribution for path in exact], rel=1e-14)


class Softmax(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.a, self.b = nn.Linear(3, width), nn.Linear(width, 2)

    def forward(self, x):
        return self.b(torch.softmax(self.a(x), 1))


class Product(Softmax):
    def forward(self, x):
        return self.b((h := self.a(x)) * h)


class Attention(Softmax):
    def forward(self, x):
        return nn.functional.linear(torch.relu(self.a(x)), self.a(x))


class Mixing(Softmax):
    def forward(self, x):
        return self.b(torch.relu(self.a(x)).flip(0))


class Mean(Softmax):
    def forward(self, x):
        h = torch.relu(self.a(x))
        return self.b(h - h.mean(0))


class Quotient(Softmax):
    def forward(self, x):
        return self.b(torch.div(self.b.weight[0], 1 + torch.relu(self.a(x))))


# The line is that of the user's forward, except here: the wrappers that check types in tests come between.
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (Softmax, r"do not pass softmax .*\.py:\d+ `.*replace these"),
        (
            lambda: nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)),
            r"do not pass module '1' \(Tanh\).*replace",
        ),
        (lambda: nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.ReLU()), r"module '1' \(LayerNorm\)"),
        (Product, r"mul .*\.py:\d+ `.*multiply a signal by a constant"),
        (Quotient, r"div .*\.py:\d+ `.*multiply a signal by a constant"),
        (Attention, r"linear .*\.py:\d+ `.*gives an example another value beside other"),
        (Mixing, r"flip .*\.py:\d+ `.*gives an example another value beside other"),
        (Mean, r"mean .*\.py:\d+ `.*gives an example another value beside other"),
        (lambda: Mean(2), r"mean .*\.py:\d+ `.*gives an example another value beside other"),
    ],
)
def test_what_is_not_a_sum_over_paths_is_refused(make, message):
    model = make()
    with pytest.raises(UnsupportedModelError, match=message):
        gl.top_paths(model, torch.randn(3), 2)
    with pytest.raises(UnsupportedModelError, match=message):
        count_paths(model, torch.randn(3))


def test_observation_leaves_no_trace():
    model, x = network("residual")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state, hooks = torch.get_rng_state(), [len(module._forward_hooks) for module in model.modules()]
    gl.top_paths(model, x, 5), count_paths(model, x)
    assert torch.equal(state, torch.get_rng_state())
    assert hooks == [len(module._forward_hooks) for module in model.modules()]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None and parameter.requires_grad for parameter in model.parameters())
