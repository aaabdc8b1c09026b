"""Networks as they are read: recorded on an example, pure, for any number of examples."""

import pytest
import torch
import torch.nn.functional as F
from torch import fx, nn

import gatelab as gl
from gatelab.errors import GatelabError, TooManyPathsError, UnsupportedModelError
from gatelab.network.operations import Kind
from gatelab.observe import stand_in
from tests import image_zoo, zoo
from tests.contracts.gated_model import snapshot


class Written(nn.Module):
    """Layers a and b, and a forward given as a function."""

    def __init__(self, forward):
        super().__init__()
        self.a, self.b = nn.Conv2d(2, 4, 3, padding=1), nn.Linear(4, 3)
        self.norm = nn.BatchNorm2d(4).eval()
        self._forward = forward

    def forward(self, x):
        return self._forward(self, x)


def in_place(s, x):
    h = s.a(x)
    h.relu_()
    h += 1
    return s.b(h.mul_(2).mean((2, 3)))


def shuffle(s, x):
    h = F.relu(s.a(x))
    n, c, high, wide = h.size()
    h = h.view(n, 2, c // 2, high, wide).transpose(1, 2).contiguous().view(n, -1, high, wide)
    return s.b(h.flatten(2).mean(2).view(x.shape[0], -1))


def by_shape(s, x):
    h = F.relu(s.a(x))
    while h.shape[-1] > 1:
        h = F.avg_pool2d(h, 2) if h.shape[-1] % 2 == 0 else h[..., 1:]
    return s.b(h.squeeze())


def functional_norm(s, x):
    h = F.conv2d(x, weight=s.a.weight, bias=s.a.bias, padding=1)
    h = F.batch_norm(h, s.norm.running_mean, s.norm.running_var, s.norm.weight, s.norm.bias, training=False)
    return s.b(F.adaptive_max_pool2d(torch.clamp(h, min=0), 1).reshape(len(x), -1))


def padded(s, x):
    h = s.a(x)
    h = torch.cat([F.relu(h[:, :2]), h.new_zeros(h.shape[0], 2, *h.shape[2:])], dim=1)
    return s.b((2 - h).mean((2, 3)))


def write_through_a_view(s, x):
    h = s.a(x)
    h.view(-1).relu_()
    return s.b(h.mean((2, 3)))


def write_into_a_part(s, x):
    h = s.a(x)
    h[:, 0] = 0.0
    h[:, 1, ::2] = h[:, 3, ::2].relu()
    return s.b(h.mean((2, 3)))


def write_into_halves(s, x):
    h = s.a(x)
    low, high = h[:, :2], h[:, 2:]
    low.relu_()
    high += 2
    return s.b((h + low.repeat(1, 2, 1, 1)).mean((2, 3)))


def write_into_zeros(s, x):
    h = x.new_zeros(x.shape[0], 4, 4, 4)
    h[:, 1:3] = F.relu(s.a(x))[:, :2]
    return s.b(h.mean((2, 3)))


def write_through_data(s, x):
    h = s.a(x)
    h.data.clamp_(min=0)
    return s.b(h.detach().mul_(3).mean((2, 3)) + h.mean((2, 3)))


def positions_first(s, x):
    h = s.a(x)[:, :, :3, :3].flatten(2).permute(2, 0, 1)  # (9, n, 4)
    n = h.shape[1]
    return s.b(F.relu(h.transpose(0, 1).reshape(n, 4, -1)).mean(2))


def size_of_a_part(s, x):
    q, k, v = s.a(x)[:, :3].flatten(2).permute(1, 0, 2).unbind(0)
    n, p = q.shape
    return s.b(F.relu(torch.cat([q, k, v], 1).reshape(n, 4, 3 * p // 4)).mean(2))


def axes_of_equal_size(s, x):
    h = s.a(x).view(len(x), 2, 2, 16).permute(1, 2, 0, 3)  # (2, 2, n, 16)
    pairs = h.flatten(0, 1).transpose(0, 1)
    return s.b(F.relu(pairs.reshape(h.size(2), h.size(0) * h.size(1), 16)).mean(2))


def parts_of_a_stack(s, x):
    h = s.a(x)
    one, other = torch.stack([F.relu(h), h], 0).unbind(0)
    n = one.shape[0]
    return s.b((one + other).reshape(n, 4, -1).mean(2))


def one_more_axis(s, x):
    h = F.relu(s.a(x)).unsqueeze(0)
    return s.b(h.expand(3, *h.shape[1:]).mean(0).reshape(h.size(1), 4, -1).mean(2))


def shaped_as(s, x):
    h = s.a(x)
    return s.b(F.relu(h.flatten(2).reshape_as(h)).flatten(1).view_as(h).mean((2, 3)))


def normalised_at_the_end(s, x):
    return F.normalize(s.b(F.relu(s.a(x)).mean((2, 3))), dim=1)


def normalised_weight(s, x):
    return F.linear(F.relu(s.a(x)).mean((2, 3)), F.normalize(s.b.weight, dim=1))


FORWARDS = [
    *(in_place, shuffle, by_shape, functional_norm, padded, write_through_a_view, write_into_a_part),
    *(write_into_halves, write_into_zeros, write_through_data),
    *(
        positions_first,
        size_of_a_part,
        axes_of_equal_size,
        one_more_axis,
        shaped_as,
        normalised_at_the_end,
        normalised_weight,
    ),
]


def replayed(model, graph, x):
    """Run the graph as fx does, on a copy of the model that holds the graph's own constants."""
    held = stand_in(model)
    for node in graph.nodes:
        if "constant" in node.meta:
            held.register_buffer(node.target, node.meta["constant"])
    return fx.GraphModule(held, graph)(x)


@pytest.mark.parametrize("forward", FORWARDS, ids=lambda forward: forward.__name__)
def test_what_is_recorded_is_what_runs_for_any_number_of_examples(forward):
    model = Written(forward)
    network = gl.read(model, torch.randn(1, 2, 4, 4))
    for n in (2, 3, 7):
        x = torch.randn(n, 2, 4, 4)
        assert torch.equal(replayed(model, network.graph, x), model(x))


def test_sums_of_products_are_scales_and_shifts():
    """addcmul may round once where a product and a sum round twice."""

    def scaled(s, x):
        h = F.relu(torch.addcmul(s.norm.bias, s.norm.weight, s.a(x).mean((2, 3)), value=0.5))
        return s.b(h)

    def by_hand(s, x):
        return s.b(F.relu(s.norm.bias + 0.5 * (s.norm.weight * s.a(x).mean((2, 3)))))

    model, x = Written(scaled), torch.randn(3, 2, 4, 4)
    nn.init.uniform_(model.norm.weight)
    nn.init.normal_(model.norm.bias)
    network = gl.read(model, x)
    torch.testing.assert_close(replayed(model, network.graph, x), model(x), rtol=0, atol=1e-14)
    assert "addcmul" not in str(network)
    kernel = gl.neural_path_kernel(model, x)
    model._forward = by_hand
    torch.testing.assert_close(kernel, gl.neural_path_kernel(model, x), rtol=1e-12, atol=0)
    model._forward = scaled
    gl.to_dlgn(model, x=x)


@pytest.mark.parametrize(
    "kind", [image_zoo.LeNet, image_zoo.Vgg, image_zoo.Residual, image_zoo.PreActivation, image_zoo.Dense]
)
def test_gates_have_the_names_that_capture_gives_them(kind):
    model, x = image_zoo.made(kind), kind.images()
    names = [name for node, name in gl.read(model, x).gates.items() if node.users]
    assert set(gl.capture_gates(model, x).layers) <= set(names)


def test_reading_leaves_no_trace():
    class Sticky(zoo.Functional):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            self.calls += 1
            torch.rand(1)
            self.seen = super().forward(x)
            return self.seen

    model, x = Sticky(), torch.randn(2, 5)
    before, names = snapshot(model), set(vars(model))
    gl.read(model, x)
    assert snapshot(model) == before
    assert set(vars(model)) == names


def branch_on_a_value(s, x):
    h = F.relu(s.a(x)).mean((2, 3))
    return s.b(h) if h.sum() > 0 else s.b(-h)


def noise(s, x):
    return s.b(F.relu(s.a(x) + torch.randn_like(x[:, :1])).mean((2, 3)))


def noise_made_apart(s, x):
    return s.b(F.relu(s.a(x) + 0.1 * torch.rand(1)).mean((2, 3)))


def write_across_examples(s, x):
    h = s.a(x)
    h.flatten(0, 1)[::3].relu_()
    return s.b(h.mean((2, 3)))


def write_by_a_mask(s, x):
    h = s.a(x)
    h[:, torch.tensor([0, 2])] = 0.0
    return s.b(h.mean((2, 3)))


def by_numpy(s, x):
    return s.b(torch.from_numpy(s.a(x).detach().numpy()).mean((2, 3)))


def into_a_tensor(s, x):
    h = s.a(x).mean((2, 3))
    return s.b(torch.clamp(h, min=0, out=torch.empty_like(h)))


REFUSED = {
    into_a_tensor: "writes into out=",
    branch_on_a_value: "reads the value of a signal",
    noise: "draws random numbers",
    noise_made_apart: "draws random numbers",
    write_across_examples: "another view of its memory",
    write_by_a_mask: "chosen by a tensor",
    by_numpy: "reads the value of a signal",
}


@pytest.mark.parametrize("forward", REFUSED, ids=lambda forward: forward.__name__)
def test_what_has_no_graph_is_refused_with_its_line(forward):
    with pytest.raises(UnsupportedModelError, match=REFUSED[forward]) as caught:
        gl.read(Written(forward), torch.randn(2, 2, 4, 4))
    assert "test_reading.py:" in str(caught.value)


def test_a_network_prints_its_operations():
    network = gl.read(Written(shuffle), torch.randn(1, 2, 4, 4))
    lines = str(network).splitlines()
    assert lines[0].split() == ["node", "operation", "kind", "shape"]
    assert any(line.split() == ["a", "conv2d", "weight", "layer", "4×4×4"] for line in lines)
    assert repr(network) == "Network of Written: 10 operations, 1 gates"
    svg = network.draw()
    assert svg.count("<rect") == len(lines) - 1
    assert network._repr_svg_() == svg


CALLS = {
    "gates (capture_gates)": gl.capture_gates,
    "twins (to_dgn, to_dlgn, to_dln)": lambda model, x: gl.to_dgn(model, gl.Regime.FRNPF_DI, x=x),
    "path kernel (neural_path_kernel)": gl.neural_path_kernel,
    "listed paths (neural_path_features)": gl.neural_path_features,
    "regions (gatelab.regions)": lambda model, x: gl.regions.activation_region(model, x[:1]),
}
MODELS = {
    "mlp": (lambda: gl.models.mlp([3, 4, 1]), (3,)),
    "tied": (zoo.Tied, (5,)),
    "Tanh": (lambda: nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1)), (3,)),
    "ReLU6": (lambda: nn.Sequential(nn.Linear(3, 4), nn.ReLU6(), nn.Linear(4, 1)), (3,)),
    "gated": (lambda: Written(lambda s, x: s.b(F.relu((h := s.a(x)) * h.sigmoid()).mean((2, 3)))), (2, 4, 4)),
    "convolutions": (lambda: image_zoo.made(image_zoo.LeNet), tuple(image_zoo.LeNet.images().shape[1:])),
    "residual": (lambda: image_zoo.made(image_zoo.Residual), tuple(image_zoo.Residual.images().shape[1:])),
    "softmax at the end": (lambda: nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2), nn.Softmax(1)), (3,)),
}


@pytest.mark.parametrize("name", MODELS)
def test_abilities_are_what_the_functions_can_do(name):
    make, shape = MODELS[name]
    model, x = make(), torch.randn(2, *shape)
    abilities = gl.read(model, x).abilities()
    for ability, call in CALLS.items():
        assert (abilities[ability] == "yes") == _works(call, model, x), f"{ability}: {abilities[ability]}"


def _works(call, model, x):
    try:
        call(model, x)
    except TooManyPathsError:
        return True  # there are only too many to list
    except GatelabError:
        return False
    return True


def test_a_final_softmax_is_behind_the_paths():
    network = gl.read(MODELS["softmax at the end"][0](), torch.randn(2, 3))
    assert network.operation(network.output) == "linear"
    assert [network.kind(node) for node in network.value_nodes[1:]] == [Kind.WEIGHT, Kind.GATE, Kind.WEIGHT]


def test_a_model_compiled_in_place_runs_as_it_was_written():
    """``model.compile()`` keeps a function of the model itself, which a copy must not run."""

    def refuse(*_):
        raise AssertionError("compiled")

    x = torch.randn(3, 2)
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    expected = gl.capture_gates(model, x), gl.neural_path_kernel(model, x), gl.neural_tangent_kernel(model, x)
    model.compile(backend=refuse)
    assert gl.capture_gates(model, x) == expected[0]
    assert torch.equal(gl.neural_path_kernel(model, x), expected[1])
    assert torch.equal(gl.neural_tangent_kernel(model, x), expected[2])
    assert model._compiled_call_impl is not None
