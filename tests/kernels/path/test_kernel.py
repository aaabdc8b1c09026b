import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.func import functional_call, vmap

import gatelab as gl
from gatelab.errors import InputError, UnsupportedModelError
from gatelab.models import DeepGatedNetwork, mlp
from gatelab.models.init import bernoulli_
from tests import zoo
from tests.contracts.gated_model import snapshot


@settings(deadline=None, max_examples=10)
@given(widths=st.lists(st.integers(1, 5), min_size=3, max_size=5), seed=st.integers(0, 99))
def test_is_the_gram_matrix_of_listed_features(widths, seed):
    generator = torch.Generator().manual_seed(seed)
    model = mlp(widths, generator=generator)
    x = torch.randn(4, widths[0], generator=generator)
    features = gl.neural_path_features(model, x)
    kernel = gl.neural_path_kernel(model, x, normalise=False)
    torch.testing.assert_close(kernel, features @ features.T, rtol=1e-10, atol=1e-12)
    scale = torch.tensor(widths[1:-1]).prod()
    torch.testing.assert_close(gl.neural_path_kernel(model, x), kernel / scale, rtol=1e-12, atol=1e-14)


def test_is_the_expectation_over_random_values():
    """E_v[ŷ ŷ'] with the gates held: the definition that needs no path."""
    generator = torch.Generator().manual_seed(5)
    model = DeepGatedNetwork([3, 6, 7, 1], generator=generator)
    x = torch.randn(4, 3, generator=generator)
    fan_ins = dict(zip((f"value.{layer}.weight" for layer in range(3)), (1, 6, 7), strict=True))
    values = {
        name: bernoulli_(torch.empty(4000, *model.get_parameter(name).shape), fan_in**-0.5, generator)
        for name, fan_in in fan_ins.items()
    }
    with torch.no_grad():
        y = vmap(lambda weights: functional_call(model, weights, (x,)))(values)
    draws = y @ y.mT
    error = draws.std(dim=0) / len(draws) ** 0.5
    assert ((draws.mean(dim=0) - gl.neural_path_kernel(model, x)).abs() / error).max() < 5


def test_rectangular_and_batched():
    model, x, y = zoo.Functional(), torch.randn(7, 5), torch.randn(3, 5)
    whole = gl.neural_path_kernel(model, torch.cat([x, y]))
    torch.testing.assert_close(gl.neural_path_kernel(model, x, y, batch_size=2), whole[:7, 7:])
    torch.testing.assert_close(gl.neural_path_kernel(model, x, batch_size=3), whole[:7, :7])


def test_what_belongs_to_the_values_passes():
    plain = mlp([4, 6, 1], bias=True)
    dressed = nn.Sequential(
        nn.Flatten(), plain[0], nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(), nn.Identity(), plain[2]
    ).eval()
    x = torch.randn(5, 2, 2)
    torch.testing.assert_close(gl.neural_path_kernel(dressed, x), gl.neural_path_kernel(plain, x.flatten(1)))


class Unused(zoo.Functional):
    def forward(self, x):
        torch.tanh(self.first(x))
        return super().forward(x)


def test_operations_that_do_not_reach_the_output_do_not_matter():
    model = Unused()
    x = torch.randn(3, 5)
    torch.manual_seed(0)
    assert gl.neural_path_kernel(model, x).shape == (3, 3)


@pytest.mark.parametrize(
    ("model", "shape", "message"),
    [
        (zoo.Tied(), (5,), r"module 'layer' \(Linear\).* uses the same weight"),
        (nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 1)), (5,), r"module '1' \(Tanh\)"),
        (nn.Linear(5, 4), (5,), "no gates found"),
        (nn.Sequential(nn.Linear(5, 4), nn.Flatten(), nn.ReLU(), nn.Linear(12, 2)), (3, 5), "shared over positions"),
    ],
)
def test_what_has_no_rule_is_refused_by_name(model, shape, message):
    with pytest.raises(UnsupportedModelError, match=message):
        gl.neural_path_kernel(model.double(), torch.randn(2, *shape))


def test_shapes_must_match():
    with pytest.raises(InputError, match=r"x has examples of shape \(5,\), y of shape \(4,\)"):
        gl.neural_path_kernel(zoo.Functional(), torch.randn(2, 5), torch.randn(2, 4))


def test_weight_layers_with_no_gate_between_count_their_units():
    net = nn.Sequential(*(nn.Linear(a, b, bias=False) for a, b in ((4, 5), (5, 6))), nn.ReLU(),
                        *(nn.Linear(a, b, bias=False) for a, b in ((6, 7), (7, 1))))  # fmt: skip
    x = torch.randn(3, 4)
    gates = gl.capture_gates(net, x)["2"].double()
    expected = (x @ x.T) * 5 * (gates @ gates.T) * 7
    torch.testing.assert_close(gl.neural_path_kernel(net, x, normalise=False), expected)
    torch.testing.assert_close(gl.neural_path_kernel(net, x), expected / (5 * 6 * 7))


class TwoHeads(zoo.Functional):
    def forward(self, x):
        return super().forward(x), self.last(torch.relu(self.second(torch.relu(self.first(x)))))


def test_several_outputs_are_refused():
    with pytest.raises(UnsupportedModelError, match="one tensor"):
        gl.neural_path_kernel(TwoHeads(), torch.randn(2, 5))
    with pytest.raises(UnsupportedModelError, match="one tensor"):
        gl.neural_path_values(TwoHeads())


def test_what_hooks_do_counts():
    net, x = mlp([3, 4, 1]), torch.randn(2, 3)
    plain = gl.neural_path_kernel(net, x)
    net[1].register_forward_hook(lambda _module, _inputs, output: output * 3)
    torch.testing.assert_close(gl.neural_path_kernel(net, x), 9 * plain)


def test_overflow_through_the_input_is_an_error_too():
    net = mlp([1, *[64] * 3, 1])
    for layer in net[::2]:
        nn.init.ones_(layer.weight)
    x = torch.full((1, 1), 1e152)
    with pytest.raises(gl.errors.PathCountOverflowError):
        gl.neural_path_kernel(net, x, normalise=False)


def test_computed_weights_have_a_path_kernel_but_no_listed_paths():
    net, x = mlp([3, 4, 1]), torch.randn(2, 3)
    plain = gl.neural_path_kernel(net, x)
    nn.utils.parametrizations.weight_norm(net[0])  # the same weights, computed: the same gates
    torch.testing.assert_close(gl.neural_path_kernel(net, x), plain)
    with pytest.raises(UnsupportedModelError, match=r"its weight is not a parameter"):
        gl.neural_path_features(net, x)


def test_tracing_leaves_no_trace():
    class Sticky(zoo.Functional):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))
            self.seen = None

        def forward(self, x):
            self.calls += 1
            torch.rand(1)
            self.seen = super().forward(x)
            return self.seen

    model, x = Sticky(), torch.randn(2, 5)
    before, names = snapshot(model), set(vars(model))
    gl.neural_path_kernel(model, x)
    gl.neural_path_values(model)
    gl.top_paths(model, x[0], 2)
    assert snapshot(model) == before
    assert set(vars(model)) == names
    assert model.seen is None
