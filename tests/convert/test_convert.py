"""Conversion of ReLU models to gated networks."""

import copy
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import gatelab as gl
from gatelab import Regime
from gatelab.errors import InputError, UnsupportedModelError
from gatelab.gates import HardGate, SoftGate
from tests import image_zoo, zoo
from tests.contracts.gated_model import GatedModelContract, snapshot

FIXED = (Regime.FRNPF_II, Regime.FRNPF_DI, Regime.FLNPF)

every_image_network = pytest.mark.parametrize("kind", image_zoo.ALL)


@every_image_network
def test_twin_with_equal_copies_has_exactly_the_output_of_the_model(kind):
    model, x = image_zoo.made(kind), kind.images()
    twin = gl.to_dgn(model, Regime.FRNPF_DI)
    assert torch.equal(twin(x), model(x))


@every_image_network
def test_twin_has_the_gates_of_the_model(kind):
    model, x = image_zoo.made(kind), kind.images()
    expected, gates = gl.capture_gates(model, x), gl.capture_gates(gl.to_dgn(model, Regime.FLNPF), x)
    assert len(expected.layers) == len(gates.layers) > 0
    for name, twin_name in zip(expected.layers, gates.layers, strict=True):
        assert torch.equal(expected[name], gates[twin_name])
        assert expected.layer(name).slope == gates.layer(twin_name).slope


@every_image_network
def test_conversion_leaves_no_trace_and_shares_nothing(kind):
    model = image_zoo.made(kind)
    before = snapshot(model)
    twin = gl.to_dgn(model, Regime.FRNPF_DI)
    gl.to_dlgn(model, generator=torch.Generator())
    gl.to_dln(model)
    assert snapshot(model) == before
    owned = [p.data_ptr() for p in (*twin.feature_parameters(), *twin.value_parameters())]
    assert len(set(owned)) == len(owned)
    assert not {p.data_ptr() for p in model.parameters()} & set(owned)


@every_image_network
def test_parameters_keep_their_names_and_the_feature_network_ends_at_the_last_gate(kind):
    model = image_zoo.made(kind)
    twin = gl.to_dgn(model, Regime.FRNPF_DI)
    originals = dict(model.named_parameters())
    names = [name for name, _ in twin.named_parameters()]
    assert sorted(n for n in names if n.startswith("value.")) == sorted(f"value.{name}" for name in originals)
    assert {n.removeprefix("feature.") for n in names if n.startswith("feature.")} < set(originals)
    assert len(twin.feature_parameters()) + len(twin.value_parameters()) == len(names)


@every_image_network
def test_state_dict_pickle_and_copy_round_trip(kind):
    model, x = image_zoo.made(kind), kind.images()
    first, second = (gl.to_dgn(model, Regime.FRNPF_II) for _ in range(2))
    assert not torch.equal(first(x), second(x))
    second.load_state_dict(first.state_dict())
    assert torch.equal(first(x), second(x))
    assert torch.equal(pickle.loads(pickle.dumps(first))(x), first(x))
    other = copy.deepcopy(first)
    with torch.no_grad():
        other.value_parameters()[0].add_(1.0)
    assert not torch.equal(other(x), first(x))


@pytest.mark.parametrize("regime", FIXED)
@every_image_network
def test_fixed_gates_are_fixed(kind, regime):
    twin, x = gl.to_dgn(image_zoo.made(kind), regime), kind.images()
    before = {name: tensor.clone() for name, tensor in twin.state_dict().items()}
    optimiser = torch.optim.SGD(twin.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
    for _ in range(3):
        twin.train()
        optimiser.zero_grad()
        twin(x).square().mean().backward()
        optimiser.step()
    assert not any(parameter.requires_grad for parameter in twin.feature_parameters())
    after = twin.state_dict()
    unchanged = {name for name in after if torch.equal(after[name], before[name])}
    assert {name for name in after if name.startswith("feature.")} <= unchanged
    assert not any(name.endswith(("weight", "running_mean")) for name in unchanged if name.startswith("value."))


@every_image_network
def test_decoupled_gates_learn(kind):
    twin, x = gl.to_dgn(image_zoo.made(kind), Regime.DNPFL, beta=2.0), kind.images()
    twin(x).square().sum().backward()
    learnt = [float(p.grad.norm()) for p in twin.feature_parameters() if p.grad is not None]
    assert len(learnt) == len(twin.feature_parameters())
    # With running statistics a bias before batch-norm moves the gates too, so every feature parameter has a gradient.
    assert all(norm > 0 for norm in learnt)


def test_soft_gates_become_hard():
    model, x = image_zoo.made(image_zoo.Vgg), image_zoo.Vgg.images()
    hard = gl.to_dgn(model, Regime.FRNPF_DI)(x)
    errors = [
        (gl.to_dgn(model, Regime.DNPFL, beta, gates_from=model)(x) - hard).abs().max() for beta in (1e1, 1e3, 1e6)
    ]
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 1e-6
    twin = gl.to_dgn(model, Regime.DNPFL, gates_from=model)
    assert torch.equal(twin.set_gates(HardGate())(x), hard)


def test_each_regime_takes_its_weights_from_the_right_network():
    model, trained = zoo.Functional(), zoo.Functional()

    def begins_as(part, network):
        expected = network.state_dict()
        return all(torch.equal(tensor, expected[name]) for name, tensor in part.state_dict().items())

    def twin(*args, **kwargs):
        made = gl.to_dgn(model, *args, **kwargs)
        return [begins_as(part, network) for part in (made.feature, made.value) for network in (model, trained)]

    assert twin(Regime.FRNPF_DI) == [True, False, True, False]
    assert twin(Regime.FRNPF_II) == [False, False, True, False]
    assert twin(Regime.FRNPF_II, gates_from=trained) == [False, True, True, False]
    assert twin(Regime.FLNPF) == [True, False, False, False]
    assert twin(Regime.FLNPF, gates_from=trained) == [False, True, True, False]
    assert twin(Regime.FLNPF, gates_from=gl.to_dgn(trained, Regime.FRNPF_DI)) == [False, True, True, False]
    assert twin(Regime.DNPFL) == [False, False, True, False]


def test_fresh_weights_come_from_the_generator():
    model = zoo.Functional()
    first, second, third = (
        gl.to_dgn(model, Regime.DNPFL, generator=torch.Generator().manual_seed(seed)).feature_parameters()
        for seed in (1, 1, 2)
    )
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert not torch.equal(first[0], third[0])


def _pre_activations(twin, x):
    """Return the pre-activations that the feature network passes to the gates."""
    passed = []
    hooks = [
        module.register_forward_hook(lambda _module, args, _output: passed.append(args[1]))
        for module in twin.gate.modules()
        if not list(module.children())
    ]
    twin(x)
    for hook in hooks:
        hook.remove()
    return passed


@every_image_network
def test_every_gate_of_a_dlgn_is_affine_in_the_input(kind):
    twin, x = gl.to_dlgn(image_zoo.made(kind)), kind.images()
    y, zero = kind.images(), torch.zeros_like(x)
    parts = [_pre_activations(twin, batch) for batch in (0.3 * x + 0.7 * y, x, y)]
    assert len(parts[0]) == len(gl.capture_gates(twin, x).layers)
    for mixed, first, second in zip(*parts, strict=True):
        torch.testing.assert_close(mixed, 0.3 * first + 0.7 * second, rtol=1e-10, atol=1e-10)
    assert not torch.equal(twin(x), twin(zero))


def test_input_reaches_a_piecewise_constant_dlgn_through_gates_only():
    model, x = image_zoo.made(image_zoo.Vgg), image_zoo.Vgg.images()
    twin = gl.to_dlgn(model, piecewise_constant=True).set_gates(HardGate())
    torch.testing.assert_close(twin(x * (1 + 1e-12)), twin(x), rtol=0, atol=0)
    assert not torch.equal(twin(x), twin(-x))
    assert not gl.to_dlgn(model).set_gates(HardGate())(x * (1 + 1e-6)).equal(twin(x))


@every_image_network
def test_dln_is_affine_and_keeps_names(kind):
    model, x, y = image_zoo.made(kind), kind.images(), kind.images()
    linear = gl.to_dln(model)
    assert list(linear.state_dict()) == [name for name in model.state_dict() if name in linear.state_dict()]
    linear.load_state_dict(model.state_dict())
    if kind is not image_zoo.LeNet:  # log-probabilities at its end
        torch.testing.assert_close(linear(0.3 * x + 0.7 * y), 0.3 * linear(x) + 0.7 * linear(y), rtol=1e-10, atol=1e-10)
    assert not torch.equal(linear(x), model(x))


def test_functional_dropout_follows_the_mode():
    twin, x = gl.to_dgn(image_zoo.made(image_zoo.LeNet), Regime.FRNPF_DI), image_zoo.LeNet.images()
    assert torch.equal(twin(x), twin(x))
    twin.train()
    assert not torch.equal(twin(x), twin(x))


@pytest.mark.parametrize("kind", [image_zoo.LeNet, image_zoo.Vgg, image_zoo.Residual, image_zoo.Dense])
def test_wider_values_keep_the_gates_and_the_path_kernel(kind):
    model, x = image_zoo.made(kind), kind.images()
    twin = gl.to_dgn(model, Regime.FRNPF_DI)
    wide = gl.widen_values(twin, 3)
    assert wide(x).shape == model(x).shape
    assert torch.equal(twin(x), model(x))
    assert sum(p.numel() for p in wide.value_parameters()) > 4 * sum(p.numel() for p in twin.value_parameters())
    for narrow, kept in zip(twin.feature_parameters(), wide.feature_parameters(), strict=True):
        assert torch.equal(narrow, kept)
        assert not kept.requires_grad
    torch.testing.assert_close(gl.neural_path_kernel(wide, x), gl.neural_path_kernel(model, x), rtol=1e-10, atol=0)


def test_wider_dense_network():
    dgn, x = gl.models.DeepGatedNetwork([4, 5, 6, 2]), torch.randn(7, 4)
    wide = gl.widen_values(dgn, 4)
    assert wide.padding == 4
    torch.testing.assert_close(gl.neural_path_kernel(wide, x), gl.neural_path_kernel(dgn, x), rtol=1e-12, atol=0)


@pytest.mark.parametrize("regime", [Regime.FRNPF_DI, Regime.FRNPF_II])
def test_training_a_twin_by_hand_is_training_the_value_network_alone(regime):
    """A gradient step on the twin moves the output by −η K^V e, with the tangent kernel of the value parameters."""
    model = gl.models.mlp([4, 16, 16, 1], bias=True)
    twin, x, y = gl.to_dgn(model, regime), torch.randn(5, 4), torch.randn(5, 1)
    before = twin(x).detach()
    kernel = gl.neural_tangent_kernel(twin, x, wrt=twin.value_parameters())
    step = 1e-6
    (0.5 * (twin(x) - y).square().sum()).backward()
    with torch.no_grad():
        for parameter in twin.value_parameters():
            parameter.sub_(step * parameter.grad)
    moved = (twin(x) - before) / step
    torch.testing.assert_close(moved, -kernel @ (before - y), rtol=1e-4, atol=1e-4)


class Branches(nn.Module):
    def __init__(self, act):
        super().__init__()
        self.first, self.second, self.act = nn.Linear(4, 4), nn.Linear(4, 4), act

    def forward(self, x):
        return self.second(torch.relu(self.act(self.first(x))))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        h = self.first(x)
        h = h * h
        return self.second(F.relu(h))


class Choice(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)

    def forward(self, x):
        return torch.relu(self.first(x)) if x.sum() > 0 else x


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Branches(nn.Tanh()), r"module 'act' \(Tanh\) at test_convert.py:\d+ `return self.second"),
        (Branches(nn.Softsign()), r"module 'act' \(Softsign\)"),
        (Branches(nn.Softmax(dim=1)), r"module 'act' \(Softmax\)"),
        (Branches(nn.LayerNorm(4)), r"module 'act' \(LayerNorm\)"),
        (Branches(nn.GroupNorm(2, 4)), r"module 'act' \(GroupNorm\)"),
        (Branches(nn.Threshold(0.5, 0.0)), r"module 'act' \(Threshold\)"),
        (zoo.Tied(), r"same weight as module 'layer' \(Linear\)"),
        (Attention(), r"(?s)mul in the model's forward at test_convert.py:\d+ `h = h \* h.*data by data"),
        (Choice(), "must not depend on the data"),
        (nn.Linear(3, 2), "no gate"),
        (gl.models.DeepGatedNetwork([3, 4, 1]), "decoupled already"),
    ],
)
@pytest.mark.parametrize("convert", [lambda m: gl.to_dgn(m, Regime.DNPFL), gl.to_dlgn, gl.to_dln])
def test_operations_that_are_neither_gates_nor_linear_are_refused_with_name_and_place(model, message, convert):
    with pytest.raises(UnsupportedModelError, match=message):
        convert(model)


@pytest.mark.parametrize(
    "model",
    [
        nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(3, 4)), nn.ReLU(), nn.Linear(4, 1)),
        nn.Sequential(nn.Linear(3, 4), nn.PReLU(), nn.Linear(4, 1)),
        nn.Sequential(nn.Linear(3, 4), nn.PReLU(4, init=-0.4), nn.Linear(4, 1)),
    ],
    ids=["computed weights", "PReLU", "PReLU by channel"],
)
def test_computed_weights_and_learnt_slopes_convert(model):
    model, x = model.double(), torch.randn(9, 3)
    torch.testing.assert_close(gl.to_dgn(model, Regime.FRNPF_DI)(x), model(x), rtol=1e-14, atol=1e-14)
    redrawn = gl.to_dgn(model, Regime.FRNPF_II)(x)
    assert not torch.allclose(redrawn, model(x))


def test_all_refused_nodes_are_listed():
    with pytest.raises(UnsupportedModelError) as caught:
        gl.to_dln(nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.LayerNorm(4), nn.ReLU(), nn.Softsign()))
    assert "(Tanh)" in str(caught.value)
    assert "(LayerNorm)" in str(caught.value)
    assert "Softsign" not in str(caught.value)  # it stands after the last gate


def test_bad_arguments():
    model = zoo.Functional()
    with pytest.raises(InputError, match="training mode"):
        gl.to_dgn(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.ReLU()), Regime.DNPFL)
    with pytest.raises(InputError, match=r"differ at 0\.bias, "):
        gl.to_dgn(model, Regime.FLNPF, gates_from=nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 1)))
    with pytest.raises(InputError, match="does not accept gates_from"):
        gl.to_dgn(model, Regime.FRNPF_DI, gates_from=model)
    with pytest.raises(InputError, match="beta is 0"):
        gl.to_dlgn(model, beta=0)
    with pytest.raises(InputError, match="m is 0"):
        gl.widen_values(gl.to_dgn(model, Regime.DNPFL), 0)
    with pytest.raises(InputError, match="widened already"):
        gl.widen_values(gl.widen_values(gl.to_dgn(model, Regime.DNPFL), 2), 2)


def test_wrong_types_are_refused(unchecked):
    with pytest.raises(InputError, match=r"Regime.FRNPF_II"):
        gl.to_dgn(zoo.Functional(), "DNPFL")
    with pytest.raises(InputError, match="give a network like the model"):
        gl.to_dgn(zoo.Functional(), Regime.FLNPF, gates_from="net.pt")
    with pytest.raises(InputError, match="no value network"):
        gl.widen_values(zoo.Functional(), 2)


def test_grouped_values_and_skips_from_the_input_are_not_widened():
    with pytest.raises(UnsupportedModelError, match="grouped"):
        gl.widen_values(gl.to_dgn(image_zoo.made(image_zoo.Signals), Regime.FRNPF_DI), 2)

    class Skip(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.head = nn.Linear(3, 3), nn.Linear(3, 1)

        def forward(self, x):
            return self.head(x + torch.relu(self.inner(x)))

    with pytest.raises(UnsupportedModelError, match="joins a widened signal"):
        gl.widen_values(gl.to_dgn(Skip(), Regime.FRNPF_DI), 2)


def _hard_and_soft(twin, beta):
    return copy.deepcopy(twin).set_gates(SoftGate(beta))


class TestConvertedDgn(GatedModelContract):
    def make(self):
        torch.manual_seed(0)
        return gl.to_dgn(gl.models.mlp([3, 4, 4, 2], bias=True), Regime.FRNPF_II)

    def soft(self, beta):
        return _hard_and_soft(self.make(), beta)


class TestConvertedDlgn(GatedModelContract):
    def make(self):
        torch.manual_seed(0)
        return gl.to_dlgn(gl.models.mlp([3, 4, 4, 2], bias=True)).set_gates(HardGate())

    def soft(self, beta):
        return _hard_and_soft(self.make(), beta)


class TestConvertedPiecewiseConstantDlgn(TestConvertedDlgn):
    def make(self):
        torch.manual_seed(0)
        return gl.to_dlgn(gl.models.mlp([3, 4, 4, 2]), piecewise_constant=True).set_gates(HardGate())


class TestWidenedDgn(GatedModelContract):
    def make(self):
        torch.manual_seed(0)
        return gl.widen_values(gl.to_dgn(gl.models.mlp([3, 4, 3, 2]), Regime.FRNPF_II), 2)

    def soft(self, beta):
        return _hard_and_soft(self.make(), beta)


def test_a_shallow_dlgn_is_the_model_of_that_name():
    model, x = gl.models.mlp([3, 5, 4, 2], bias=True), torch.randn(6, 3)
    twin = gl.to_dlgn(model, shallow=True, generator=torch.Generator().manual_seed(0))
    same = gl.models.DeepLinearlyGatedNetwork([3, 5, 4, 2], shallow=True, value_bias=True)
    for place, layer in enumerate(("1", "3")):
        same.feature[place].load_state_dict(twin.feature.get_submodule(layer).map.state_dict())
    for place, layer in enumerate("024"):
        same.value[place].load_state_dict(twin.value.get_submodule(layer).state_dict())
    assert twin(x).equal(same(x))
    shapes = [tuple(layer.normals().shape) for layer in gl.half_spaces(twin.set_gates(HardGate())).values()]
    assert shapes == [(5, 3), (4, 3)]


def test_shallow_gates_of_images_read_the_image():
    model, x = gl.models.gconv(channels=[2, 3], dense=[4], inputs=1, outputs=2), torch.randn(3, 1, 8, 8)
    twin = gl.to_dlgn(model, shallow=True, x=x)
    assert twin(x).shape == (3, 2)
    weights = [tuple(parameter.shape) for name, parameter in twin.feature.named_parameters() if "weight" in name]
    assert weights == [(2, 1, 3, 3), (3, 1, 3, 3), (4, 64)]


def _pooled(pool_first: bool):
    middle = [nn.MaxPool2d(2), nn.ReLU()] if pool_first else [nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), *middle, nn.Flatten(), nn.Linear(36, 2)).double()


@pytest.mark.parametrize("pool_first", [False, True])
def test_every_parameter_of_a_shallow_dlgn_that_can_learn_does(pool_first):
    x = torch.randn(8, 1, 6, 6)
    twin = gl.to_dlgn(_pooled(pool_first), shallow=True, x=x)
    twin(x).square().sum().backward()
    assert all(parameter.grad is not None for parameter in twin.parameters())
    fixed = {name for name, _ in twin.named_buffers()}
    assert fixed == ({"feature.1.map.weight", "feature.1.map.bias"} if pool_first else set())


def test_a_shallow_maximum_behind_a_gate_is_where_the_gate_is_most_open():
    model, x = _pooled(pool_first=False), torch.randn(5, 1, 6, 6)
    twin = gl.to_dlgn(model, shallow=True, x=x).set_gates(HardGate())
    q, value = twin.feature.get_submodule("1")(x), twin.value.get_submodule("0")(x)
    winners = F.max_pool2d(q, 2, return_indices=True)[1].flatten(2)
    pooled = (value * (q > 0)).flatten(2).gather(2, winners)
    torch.testing.assert_close(twin(x), twin.value.get_submodule("4")(pooled.flatten(1)))
