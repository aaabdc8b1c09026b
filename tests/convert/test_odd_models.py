"""Coding styles that a graph may misread: the twin is exact, or the model is refused."""

import copy
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import gatelab as gl
from gatelab import Regime
from gatelab.errors import InputError, UnsupportedModelError


class Net(nn.Module):
    """Three dense layers and a forward function from the test."""

    def __init__(self, forward, **parts):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 6)
        self.p = nn.Parameter(torch.randn(6))
        self.w = nn.Parameter(torch.randn(6, 6) / 3)
        self.register_buffer("held", torch.randn(6))
        for name, part in parts.items():
            self.add_module(name, part)
        self._forward = forward

    def forward(self, x):
        return self._forward(self, x)


def augmented(s, x):
    h = s.a(x)
    other = h
    h += 1.0
    return s.b(F.relu(h) + other)


def augmented_in_a_helper(s, x):
    def shift(t):
        t -= 0.3
        t *= 2

    h = s.a(x)
    shift(h)
    return s.b(F.relu(h))


def tensor_constant(s, x):
    return s.b(F.relu(s.a(x)) * torch.tensor(0.5) + s.held * 2)


def keywords(s, x):
    h = F.relu(input=s.a(input=x))
    return s.b(torch.add(input=torch.clamp(min=0, input=h - 0.1), other=s.p))


def size_arithmetic(s, x):
    n = x.size(0)
    n += 0
    return s.b(F.relu(s.a(x)).view(n, -1))


def gate_of_a_parameter(s, x):
    return s.b(F.relu(s.a(x)) * F.relu(s.held))


def two_names_for_one_gate(s, x):
    return s.b(s.relu(s.relu_call2(s.relu(s.a(x)) - 0.2)))


class NamedRelu(nn.Module):
    def forward(self, x):
        return F.relu(x)


def named_like_its_function(s, x):
    return s.b(F.relu(s.c(s.relu(s.a(x))) - 0.1))


def own_dropout_and_functional(s, x):
    return s.b(F.dropout(s.dropout(F.relu(s.a(x))), 0.9, s.training))


def logical_head(s, x):
    y = s.b(F.relu(s.a(x)))
    return y * ((y > 0) & (y < 1))


EXACT = [
    Net(augmented),
    Net(augmented_in_a_helper),
    Net(tensor_constant),
    Net(keywords),
    Net(size_arithmetic),
    Net(gate_of_a_parameter),
    Net(two_names_for_one_gate, relu=nn.ReLU(), relu_call2=nn.LeakyReLU(0.3)),
    Net(named_like_its_function, relu=NamedRelu()),
    Net(own_dropout_and_functional, dropout=nn.Linear(6, 6)),
    Net(logical_head),
    nn.Sequential(nn.Linear(6, 6), nn.ModuleDict({"in": nn.ReLU()})["in"], nn.Linear(6, 6)),
]


@pytest.mark.parametrize(
    "model", EXACT, ids=lambda model: getattr(getattr(model, "_forward", None), "__name__", "other")
)
def test_exact(model):
    model, x = model.double().eval(), torch.randn(5, 6)
    twin = gl.to_dgn(model, Regime.FRNPF_DI)
    assert torch.equal(twin(x), model(x))
    assert torch.equal(copy.deepcopy(twin)(x), model(x))


def test_module_names_that_are_python_keywords():
    class Keywords(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleDict({"in": nn.Linear(6, 6), "class": nn.Linear(6, 6)})

        def forward(self, x):
            return self.layers["class"](F.relu(self.layers["in"](x)))

    model, x = Keywords(), torch.randn(5, 6)
    twin = gl.to_dgn(model, Regime.FRNPF_DI)
    assert "value.layers.class.weight" in twin.state_dict()
    assert torch.equal(twin(x), model(x))


def written_through(alias):
    def forward(s, x):
        h = F.relu(s.a(x)) - 0.2
        alias(h).mul_(3)
        return s.b(F.relu(s.c(h)))

    return forward


def into_out(s, x):
    h = s.a(x)
    torch.add(h, 1.0, out=h)
    return s.b(F.relu(h))


def into_a_parameter(s, x):
    s.w.data.clamp_(min=0)
    return s.b(F.relu(F.linear(x, s.w)))


def into_a_buffer(s, x):
    h = s.a(x)
    s.held.copy_(h.mean(0))
    return s.b(F.relu(h - s.held))


def tied_by_transpose(s, x):
    return F.linear(F.relu(s.a(x)), s.a.weight.t())


def filled(s, x):
    return s.b(F.relu(torch.zeros_like(x).copy_(s.a(x))))


REFUSED = [
    *(Net(written_through(alias)) for alias in (lambda h: h.T,)),
    *(Net(forward) for forward in (into_out, into_a_parameter, into_a_buffer, tied_by_transpose)),
]
FOLLOWED = [
    *(
        Net(written_through(alias))
        for alias in (lambda h: h.data, lambda h: +h, lambda h: h.view(-1), lambda h: h[:, 2:])
    ),
    Net(written_through(lambda h: h.tensor_split(2, 1)[0])),
    Net(filled),
]


@pytest.mark.parametrize("model", FOLLOWED, ids=range(len(FOLLOWED)))
def test_writes_are_followed(model):
    model, x = model.double(), torch.randn(7, 6)
    assert torch.equal(gl.to_dgn(model, Regime.FRNPF_DI)(x), model(x))


def test_a_parameter_is_not_overwritten():
    model = Net(into_a_parameter)
    before = model.w.detach().clone()
    with pytest.raises(UnsupportedModelError, match="writes into a parameter"):
        gl.read(model, torch.randn(3, 6))
    assert torch.equal(model.w, before)


@pytest.mark.parametrize("model", REFUSED, ids=range(len(REFUSED)))
def test_refused(model):
    with pytest.raises(UnsupportedModelError):
        gl.to_dgn(model, Regime.FRNPF_DI)


def test_starred_input_is_read():
    class Starred(Net):
        def forward(self, *xs):
            return self.b(F.relu(self.a(xs[0])))

    model, x = Starred(None), torch.randn(5, 6)
    assert torch.equal(gl.to_dgn(model, Regime.FRNPF_DI)(x), model(x))


def test_functional_dropout_with_training_false_never_drops():
    model, x = Net(lambda s, x: s.b(F.dropout(F.relu(s.a(x)), 0.5, False))), torch.randn(5, 6)
    assert torch.equal(gl.to_dgn(model.train(), Regime.FRNPF_DI)(x), model(x))


def test_parameters_outside_layers_are_not_redrawn():
    model = Net(lambda s, x: s.b(F.relu(s.a(x) * s.w[0].exp())))
    assert gl.to_dgn(model, Regime.FRNPF_DI) is not None
    assert gl.to_dgn(model, Regime.FRNPF_II, gates_from=Net(model._forward)) is not None
    for convert in (lambda: gl.to_dgn(model, Regime.FRNPF_II), lambda: gl.to_dlgn(model)):
        with pytest.raises(
            UnsupportedModelError, match="w: no initialiser is known for parameters that are not weights"
        ):
            convert()
    with pytest.raises(UnsupportedModelError, match="w are not weights of Linear"):
        gl.path_features(model, torch.randn(2, 6), 4)


def test_nonlinear_operations_between_last_gate_and_last_layer():
    model, x = Net(lambda s, x: s.c(torch.tanh(s.b(F.relu(s.a(x)))))), torch.randn(5, 6)
    assert torch.equal(gl.to_dgn(model, Regime.FRNPF_DI)(x), model(x))
    for refused in (lambda: gl.to_dln(model), lambda: gl.to_dlgn(model), lambda: gl.path_features(model, x, 4)):
        with pytest.raises(UnsupportedModelError, match="tanh in the model's forward"):
            refused()


@pytest.mark.parametrize(
    "forward",
    [
        lambda s, x: s.b((h := F.relu(s.a(x))) + h),
        lambda s, x: s.b(torch.add(s.held, F.relu(s.a(x)), alpha=3.0)),
        lambda s, x: s.b(torch.rsub(F.relu(s.a(x)), 0.5)),
        lambda s, x: s.b(F.relu(F.linear(x, s.c.weight, s.held))),
        lambda s, x: s.b(F.relu(s.a(x))).squeeze(-1),
        lambda s, x: s.b(F.relu(s.a(x)))[:, 0],
    ],
)
def test_path_features_of_odd_sums_and_ends(forward):
    """Compare with the twin's own output over random sign weights."""
    model, x = Net(forward), torch.randn(4, 6)
    twin = gl.to_dgn(model, Regime.FRNPF_DI).requires_grad_(False)
    weights = dict(twin.value.named_parameters())
    first, last = next(w for w in weights.values() if w.ndim > 1), weights["b.weight"]
    products = []
    for seed in range(200):
        generator = torch.Generator().manual_seed(seed)
        gl.models.init.bernoulli_(first, 1.0, generator)
        gl.models.init.bernoulli_(last, 6**-0.5, generator)
        leaf = x.clone().requires_grad_()
        y = twin(leaf)
        (slope,) = torch.autograd.grad((y[:, 0] if y.ndim > 1 else y).sum(), leaf)
        part = (leaf * slope).detach().sum(1)
        products.append(torch.outer(part, part))
    reference = torch.stack(products)
    # A few wide draws, since each call converts the model; their scatter is the error of the estimate.
    draws = [gl.path_features(model, x, 1500, torch.Generator().manual_seed(seed)) for seed in range(5)]
    estimates = torch.stack([features @ features.T for features in draws])
    error = (estimates.var(0) / len(estimates) + reference.var(0) / len(reference)).sqrt()
    assert ((estimates.mean(0) - reference.mean(0)).abs() / error).max() < 5


def test_deep_networks_are_pickled_and_infinities_are_stopped():
    blocks = [layer for _ in range(100) for layer in (nn.Linear(3, 3), nn.ReLU())]
    model, x = nn.Sequential(*blocks, nn.Linear(3, 1)), torch.randn(2, 3)
    twin = gl.to_dgn(model, Regime.FRNPF_DI)
    assert torch.equal(pickle.loads(pickle.dumps(twin))(x), model(x))
    huge, shallow = torch.full((1, 3), 1e308), nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
    nn.init.constant_(shallow[0].weight, -3.0)
    assert torch.equal(gl.to_dgn(shallow, Regime.FRNPF_DI)(huge), shallow(huge))


def test_twins_of_frozen_models_can_be_trained():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)).requires_grad_(False)
    twin = gl.to_dgn(model, Regime.FRNPF_DI)
    assert all(parameter.requires_grad for parameter in twin.value_parameters())
    assert not any(parameter.requires_grad for parameter in twin.feature_parameters())


def test_modules_with_names_that_a_converted_network_uses():
    model = Net(lambda s, x: s.run(F.relu(s.a(x))), run=nn.Linear(6, 6))
    x = torch.randn(3, 6)
    assert torch.equal(gl.to_dgn(model, Regime.FRNPF_DI)(x), model(x))
    assert gl.path_features(model, x, 5).shape == (3, 5)
    with pytest.raises(UnsupportedModelError, match="part named 'run'"):
        gl.to_dln(model)


def test_sizes_must_be_whole_numbers(unchecked):
    model = Net(augmented)
    with pytest.raises(InputError, match="whole numbers"):
        gl.path_features(model, torch.randn(2, 6), 2.5)
    with pytest.raises(InputError, match=r"m is 2\.5"):
        gl.widen_values(gl.to_dgn(model, Regime.FRNPF_DI), 2.5)
    with pytest.raises(InputError, match="beta is '8'"):
        gl.to_dlgn(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), "8")


def test_means_over_channels_are_not_widened():
    model = Net(lambda s, x: s.c(F.relu(s.b((h := s.a(x)) - h.mean(-1, keepdim=True)))))
    with pytest.raises(UnsupportedModelError, match="no known wider form"):
        gl.widen_values(gl.to_dgn(model, Regime.FRNPF_DI), 2)


def test_half_precision_takes_the_slow_way():
    model = gl.models.gconv(channels=(3,), dense=(4,)).to(torch.bfloat16)
    kernel = gl.neural_path_kernel(model, torch.randn(3, 3, 4, 4).to(torch.bfloat16))
    assert kernel.dtype == torch.bfloat16
    assert bool(torch.isfinite(kernel).all())


class Sliced(nn.Module):
    """Two layers whose weights are slices of one parameter, one of them masked."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(7, 4))
        self.register_buffer("mask", torch.ones(3, 4).tril())

    def forward(self, x):
        h = torch.relu(nn.functional.linear(x, self.weight[:4]))
        return nn.functional.linear(h, self.weight[4:] * self.mask)


def test_parameters_that_make_weights_are_redrawn():
    model, x = Sliced(), torch.randn(5, 4)
    twin = gl.to_dlgn(model, generator=torch.Generator().manual_seed(0))
    assert not torch.equal(twin.feature.weight, model.weight)
    assert torch.equal(twin.value.weight, model.weight)
    assert torch.equal(gl.to_dgn(model, gl.Regime.FRNPF_DI)(x), model(x))
    model.scale = nn.Parameter(torch.ones(4))
    model.forward = lambda x: Sliced.forward(model, x * model.scale.exp())
    with pytest.raises(UnsupportedModelError, match="scale: no initialiser is known"):
        gl.to_dlgn(model, x=x)
