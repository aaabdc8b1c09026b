"""The facts of an explorer page against computations that share no code with it."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import gatelab as gl
from gatelab.lab.explore.boxes import seen_boxes
from gatelab.lab.explore.closing import contributions_of_inputs, outputs_without
from gatelab.lab.explore.subject import subject_of
from gatelab.network import read
from gatelab.paths.rules import layers_of

CLASSES = 3


class SmallCNN(nn.Module):
    """conv, pool, conv, pool, dense."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 3, 3, padding=1), nn.Conv2d(3, 4, 3)
        self.one, self.two = nn.ReLU(), nn.ReLU()
        self.pool = nn.MaxPool2d(2)
        self.last = nn.Linear(16, CLASSES)

    def forward(self, x):
        x = self.pool(self.one(self.first(x)))
        return self.last(self.two(self.second(x)).flatten(1))


@pytest.fixture(scope="module")
def explored(tmp_path_factory):
    torch.manual_seed(1)
    torch.set_default_dtype(torch.float64)
    net = SmallCNN()
    x, y = torch.randn(24, 1, 8, 8), torch.arange(24) % CLASSES
    path = tmp_path_factory.mktemp("explore") / "page.html"
    page = gl.explore(net, (x, y), path, examples=8, paths=6, planes=0)
    torch.set_default_dtype(torch.float32)
    return net, x, y, page.contents


def shown_inputs(explored):
    """The examples of the gallery: those of (x, y) that were held out come last."""
    net, x, y, facts = explored
    _, whole, targets = subject_of(net, (x, y)).part(None)
    rows = list(facts.examples.numbers)
    assert targets[rows].tolist() == list(facts.examples.labels)
    return whole[rows]


def bits(layer):
    """Unpacked by NumPy."""
    units = int(np.prod(layer.shape))
    return np.unpackbits(layer.bits, axis=1, bitorder="little")[:, :units].astype(bool)


def test_gates_are_those_that_hooks_see(explored):
    net, facts = explored[0], explored[3]
    x, seen = shown_inputs(explored), {}
    handles = [
        module.register_forward_hook(lambda _, __, out, name=name: seen.update({name: out > 0}))
        for name, module in net.named_modules()
        if isinstance(module, nn.ReLU)
    ]
    outputs = net(x)
    for handle in handles:
        handle.remove()
    assert [layer.name for layer in facts.gates] == ["one", "pool", "two"]
    for layer in (facts.gates[0], facts.gates[2]):
        assert np.array_equal(bits(layer), seen[layer.name].flatten(1).numpy())
    np.testing.assert_allclose(facts.examples.outputs, outputs.detach().numpy(), rtol=0, atol=1e-12)
    assert facts.examples.decisions == tuple(outputs.argmax(1).tolist())
    # One winner for each window.
    assert (bits(facts.gates[1]).reshape(-1, 4).sum(1) == 1).all()


def test_kernels_are_those_of_the_library(explored):
    net, facts, x = explored[0], explored[3], shown_inputs(explored)
    found = {kernel.symbol: kernel.values for kernel in facts.kernels}
    assert set(found) == {"H", "K"}
    np.testing.assert_allclose(found["H"], gl.neural_path_kernel(net, x).numpy(), rtol=1e-6)
    np.testing.assert_allclose(found["K"], gl.neural_tangent_kernel(net, x).detach().numpy(), rtol=1e-6)
    assert any(gap.part == "overlap Λ" and "dense layers only" in gap.reason for gap in facts.omissions)


def closed_by_hooks(net, x, gates, names):
    """Close gates with hooks on the network's own modules: later gates react."""
    handles = []
    for number, unit in gates:

        def close(module, _, out, unit=unit):
            del module
            closed = out.clone()
            closed.view(-1)[unit] = 0
            return closed

        handles.append(dict(net.named_modules())[names[number]].register_forward_hook(close))
    answer = net(x)[0]
    for handle in handles:
        handle.remove()
    return answer


def closed_by_hand(net, x, gates, names):
    """Close gates, and keep all others as they are for x, in a forward pass written out."""
    masks = {"one": (net.first(x) > 0).double(), "two": None, "pool": None}
    pooled, winners = F.max_pool2d(F.relu(net.first(x)), 2, return_indices=True)
    masks["pool"], masks["two"] = torch.ones_like(pooled), (net.second(pooled) > 0).double()
    for number, unit in gates:
        masks[names[number]].view(-1)[unit] = 0
    kept = (net.first(x) * masks["one"]).flatten(2).gather(2, winners.flatten(2)).view_as(pooled) * masks["pool"]
    return net.last((net.second(kept) * masks["two"]).flatten(1))[0]


def test_closing_the_gates_of_each_path(explored):
    net, facts, x = explored[0], explored[3], shown_inputs(explored)
    names = [layer.name for layer in facts.gates]
    assert len(facts.paths) >= 8
    checked = 0
    for shown in facts.paths:
        example = x[shown.example : shown.example + 1]
        assert shown.value == pytest.approx(float(net(example)[0, shown.output].detach()), abs=1e-12)
        for path in shown.paths:
            reacting = closed_by_hooks(net, example, path.gates, names)
            kept = closed_by_hand(net, example, path.gates, names)
            assert path.reacting == pytest.approx(float(reacting[shown.output].detach()), abs=1e-12)
            assert path.kept == pytest.approx(float(kept[shown.output].detach()), abs=1e-12)
            assert path.decision == int(reacting.argmax())
            checked += len(path.gates) > 0 and path.kept != shown.value
    assert checked > 20


def test_contributions_are_products_along_the_path(explored):
    """x · conv weight · conv weight · dense weight, each looked up by position."""
    net, facts, x = explored[0], explored[3], shown_inputs(explored)
    seen = 0
    for shown in facts.paths:
        for path in (path for path in shown.paths if not path.from_bias):
            pixel, first, second, last = (place.index for place in path.places)
            window = bits(facts.gates[1])[shown.example].reshape(3, 4, 4, 4)
            rows, columns = np.divmod(window.argmax(3), 2)
            # The unit of the first layer is the winner of the window that the second layer reads.
            row, column = first[1] // 2, first[2] // 2
            assert (rows[first[0], row, column], columns[first[0], row, column]) == (first[1] % 2, first[2] % 2)
            product = float(x[shown.example][pixel])
            product *= float(net.first.weight.detach()[first[0], 0, pixel[1] - first[1] + 1, pixel[2] - first[2] + 1])
            product *= float(net.second.weight.detach()[second[0], first[0], row - second[1], column - second[2]])
            product *= float(net.last.weight.detach()[last[0], (second[0] * 2 + second[1]) * 2 + second[2]])
            assert path.contribution == pytest.approx(product, rel=1e-12)
            seen += 1
    assert seen > 20


def test_inputs_and_biases_add_up(explored):
    net, facts, x = explored[0], explored[3], shown_inputs(explored)
    for shown in facts.paths[:4]:
        example = x[shown.example : shown.example + 1].clone().requires_grad_()
        (slope,) = torch.autograd.grad(net(example)[0, shown.output], example)
        expected = (slope * example)[0, 0].detach().numpy()
        np.testing.assert_allclose(shown.by_input, expected, rtol=1e-5, atol=1e-7)  # kept in float32
        assert shown.biases == pytest.approx(shown.value - expected.sum(), abs=1e-12)


def test_boxes_hold_exactly_what_units_see():
    net = SmallCNN()
    for parameter in net.parameters():
        parameter.data = parameter.data.abs() + 0.1  # so that no connection is lost
    layers = layers_of(net, torch.rand(1, 1, 8, 8), all_open=True)
    boxes = dict(zip((layer.name for layer in layers), seen_boxes(layers), strict=True))
    for name, unit in (("first", 0), ("first", 2 * 64 + 9), ("second", 3), ("second", 4)):
        box = boxes[name][unit].tolist()
        touched = torch.zeros(8, 8, dtype=torch.bool)
        # A change at a pixel reaches the unit if the pixel can be made the winner of its windows.
        for row in range(8):
            for column in range(8):
                x = torch.zeros(1, 1, 8, 8)
                x[0, 0, row, column] = 1
                hidden = net.first(x) - net.first(torch.zeros_like(x))
                value = hidden if name == "first" else F.conv2d(F.max_pool2d(hidden, 2), net.second.weight)
                touched[row, column] = bool(value.flatten()[unit] != 0)
        rows, columns = touched.any(1).nonzero(), touched.any(0).nonzero()
        assert box == [int(rows[0]), int(columns[0]), int(rows[-1]), int(columns[-1])]
    assert boxes["last"][0].tolist() == [0, 0, 7, 7]


def test_the_mistakes_are_counted_and_shown(explored):
    net, x, y, facts = explored
    wrong = int((net(x).argmax(1) != y).sum())
    assert (facts.examples.looked_at, facts.examples.mistakes) == (24, wrong)
    shown = sum(a != b for a, b in zip(facts.examples.labels, facts.examples.decisions, strict=True))
    assert shown >= min(wrong, 8 // 5)


def test_soft_gates_and_leaky_gates_are_closed_too():
    """Contributions by input and biases add up where gates are numbers, and a closed unit returns nothing."""
    for act in (nn.LeakyReLU(0.1), nn.Hardtanh(), nn.Softplus()):
        net = nn.Sequential(nn.Linear(4, 5), act, nn.Linear(5, 2))
        x = torch.randn(1, 4)
        network = read(net, torch.cat([x, x]))
        (name,) = network.gates.values()
        hidden = act(net[0](x))
        hidden[0, 3] = 0
        for reacting in (False, True):
            found = outputs_without(network, x, [[], [(name, (3,))]], reacting=reacting)
            torch.testing.assert_close(found[0], net(x)[0].detach())
            torch.testing.assert_close(found[1], net[2](hidden)[0].detach())
        paths = gl.top_paths(net, x, 100, output=1)
        by_input = contributions_of_inputs(network, x, 1)
        expected = torch.zeros(4)
        for path in paths:
            if path.start == 0:
                expected[path.units[0]] += path.contribution
        torch.testing.assert_close(by_input, expected)
