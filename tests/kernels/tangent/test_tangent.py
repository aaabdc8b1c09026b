import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import gatelab as gl
from gatelab.errors import InputError, UnsupportedModelError
from gatelab.gates import SoftGate
from gatelab.kernels import tiles as tiles_module
from gatelab.models import DeepGatedNetwork, mlp
from tests import zoo
from tests.contracts.gated_model import snapshot
from tests.references import explicit

MODELS = {
    "mlp": (lambda: mlp([5, 4, 3], bias=True), (5,)),
    "mlp without bias": (lambda: mlp([5, 4, 4, 1]), (5,)),
    "functional": (zoo.Functional, (5,)),
    "residual, in place": (zoo.Residual, (5,)),
    "tied weights": (zoo.Tied, (5,)),
    "loose parameters": (zoo.LooseParameters, (5,)),
    "cnn": (zoo.cnn, (4, 8, 8)),
    "wide cnn": (lambda: nn.Sequential(nn.Conv2d(20, 30, 3), nn.ReLU(), nn.Flatten(), nn.Linear(120, 2)), (20, 4, 4)),
    "conv padding by name": (
        lambda: nn.Sequential(nn.Conv2d(4, 3, 3, padding="same"), nn.ReLU(), nn.Flatten(), nn.Linear(48, 2)),
        (4, 4, 4),
    ),
    "conv1d": (lambda: nn.Sequential(nn.Conv1d(4, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 2)), (4, 6)),
    "tokens": (zoo.Tokens, (6, 3)),
    "tokens, sequence first": (lambda: zoo.Tokens(examples_first=False), (5, 3)),
    "attention": (lambda: nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval(), (3, 4)),
    "dgn": (lambda: DeepGatedNetwork([5, 4, 3, 2], gate=SoftGate(4.0)), (5,)),
}


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10 * b.abs().max().item())


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # the reference's own, on attention
@pytest.mark.parametrize("name", MODELS)
def test_agrees_with_dense_jacobians(name):
    make, shape = MODELS[name]
    model, x = make(), torch.randn(5, *shape)
    full = explicit.tangent_kernel(model, x)
    close(gl.neural_tangent_kernel(model, x, outputs="full"), full)
    close(gl.neural_tangent_kernel(model, x), full.diagonal(dim1=2, dim2=3).sum(-1))
    close(gl.neural_tangent_kernel(model, x, outputs=0), full[:, :, 0, 0])
    close(gl.neural_tangent_kernel(model, x[:2], x[2:], outputs="full"), full[:2, 2:])
    close(gl.neural_tangent_kernel(model, x, batch_size=2, outputs="full"), full)
    for names in ([list(dict(model.named_parameters()))[-1]], list(dict(model.named_parameters()))[:2]):
        close(
            gl.neural_tangent_kernel(model, x, wrt=names, outputs="full"),
            explicit.tangent_kernel(model, x, names=names),
        )


@settings(deadline=None, max_examples=15)
@given(
    widths=st.lists(st.integers(1, 9), min_size=2, max_size=5),
    n=st.integers(1, 6),
    bias=st.booleans(),
    scale=st.sampled_from([1e-2, 1.0, 1e2]),
)
def test_any_dense_network(widths, n, bias, scale):
    model, x = mlp(widths, bias=bias), scale * torch.randn(n, widths[0])
    kernel = gl.neural_tangent_kernel(model, x)
    torch.testing.assert_close(
        kernel, explicit.tangent_kernel(model, x).diagonal(dim1=2, dim2=3).sum(-1), rtol=1e-9, atol=1e-12 * scale**2
    )
    assert torch.linalg.eigvalsh(kernel)[0] >= -1e-10 * kernel.trace()


def test_tiles_agree_with_the_whole(monkeypatch):
    model, x = mlp([5, 9, 9, 3], bias=True), torch.randn(17, 5)
    whole = gl.neural_tangent_kernel(model, x), gl.neural_tangent_kernel(model, x, outputs="full")
    assert (whole[1] - whole[1].transpose(2, 3)).abs().max() > 1e-3 * whole[
        1
    ].abs().max()  # else a tile could be mirrored wrongly
    monkeypatch.setattr(tiles_module, "TILE", 5)
    close(gl.neural_tangent_kernel(model, x), whole[0])
    close(gl.neural_tangent_kernel(model, x, outputs="full"), whole[1])


def test_position_grams_and_formed_gradients_agree():
    from gatelab.kernels.tangent.factors import ExplicitFactor, PositionFactor, layer_factor

    inputs, signals = torch.randn(3, 2, 4, 5), torch.randn(3, 2, 2, 4, 6)
    gradients = torch.einsum("nkgpo,ngpi->nkgoi", signals, inputs).flatten(2)
    everything = slice(0, 3)
    for form in (PositionFactor(inputs, signals), ExplicitFactor(gradients)):
        trace, full = torch.ones(3, 3), torch.ones(3, 3, 2, 2)
        form.add_trace(trace, form, everything, everything)
        form.add_full(full, form, everything, everything)
        close(trace, 1 + torch.einsum("nkp,mkp->nm", gradients, gradients))
        close(full, 1 + torch.einsum("nkp,mlp->nmkl", gradients, gradients))
    few, many = torch.randn(2, 1, 2, 300), torch.randn(2, 1, 400, 3)
    assert isinstance(layer_factor(few, torch.randn(2, 1, 1, 2, 300), bias=False, pairs_per_example=9), PositionFactor)
    assert isinstance(layer_factor(many, torch.randn(2, 1, 1, 400, 3), bias=False, pairs_per_example=9), ExplicitFactor)


def test_submodules_split_the_kernel():
    model, x = DeepGatedNetwork([5, 4, 3, 2], gate=SoftGate(4.0)), torch.randn(6, 5)
    parts = [gl.neural_tangent_kernel(model, x, wrt=part) for part in (model.value, model.feature)]
    close(parts[0] + parts[1], gl.neural_tangent_kernel(model, x))
    assert parts[1].abs().max() > 1e-6
    hard = DeepGatedNetwork([5, 4, 3, 2])
    assert torch.equal(gl.neural_tangent_kernel(hard, x, wrt=hard.feature), torch.zeros(6, 6))


def test_leaves_no_trace_even_when_it_raises():
    model, x = zoo.LooseParameters(), torch.randn(4, 5)
    model.layer.weight.requires_grad_(False)
    model.head.weight.grad = torch.ones_like(model.head.weight)
    before, original = snapshot(model), x.clone()
    with torch.no_grad():
        close(gl.neural_tangent_kernel(model, x, outputs="full"), explicit.tangent_kernel(model, x))
    with pytest.raises(InputError, match="does not run on one example"):
        gl.neural_tangent_kernel(model, torch.zeros(4, 6))
    assert snapshot(model) == before
    assert torch.equal(x, original)
    assert torch.equal(model.head.weight.grad, torch.ones_like(model.head.weight))


def test_inside_inference_mode():
    model, x = zoo.Functional(), torch.randn(4, 5)
    expected = gl.neural_tangent_kernel(model, x)
    with torch.inference_mode():
        close(gl.neural_tangent_kernel(model, x.clone()).clone(), expected)


def test_frozen_part_of_the_forward_has_no_gradient():
    class Frozen(zoo.Functional):
        def forward(self, x):
            with torch.no_grad():
                x = torch.relu(self.second(torch.relu(self.first(x))))
            return self.last(torch.relu(self.third(x)))

    model, x = Frozen(), torch.randn(4, 5)
    close(
        gl.neural_tangent_kernel(model, x),
        gl.neural_tangent_kernel(model, x, wrt=["third.weight", "third.bias", "last.weight", "last.bias"]),
    )


class Mixing(zoo.Functional):
    def forward(self, x):
        return super().forward(x - x.mean(0))


class Shaky(zoo.Functional):
    def forward(self, x):
        return super().forward(x + torch.randn_like(x))


class Pair(zoo.Functional):
    def forward(self, x):
        return x, super().forward(x)


class Summed(zoo.Functional):
    def forward(self, x):
        return super().forward(x).sum()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (Mixing, "different answers"),
        (Shaky, "different answers"),
        (Pair, "returned tuple"),
        (Summed, r"returned shape \(\)"),
    ],
)
def test_models_without_a_kernel_over_examples_are_refused(make, message):
    model, x = make(), torch.randn(4, 5)
    before = snapshot(model)
    with pytest.raises(UnsupportedModelError, match=message):
        gl.neural_tangent_kernel(model, x)
    assert snapshot(model) == before


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"wrt": ["frist.weight"]}, "did you mean first.weight"),
        ({"wrt": "nonsense"}, "no parameter 'nonsense'; it has first.weight"),
        ({"wrt": nn.Linear(2, 2)}, "does not belong to the model"),
        ({"outputs": 2}, "output 2 does not exist; the model has 2"),
        ({"outputs": "all"}, '"trace", "full"'),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"y": torch.zeros(0, 5)}, "y has shape"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(InputError, match=message):
        gl.neural_tangent_kernel(zoo.Functional(), torch.randn(3, 5), **options)


def test_training_mode_is_refused():
    with pytest.raises(InputError, match=r"model.eval\(\)"):
        gl.neural_tangent_kernel(zoo.cnn().train(), torch.randn(2, 4, 8, 8))


def test_value_tangent_kernel_gives_the_tangent_kernel():
    model, x = zoo.leaky(), torch.randn(5, 5)
    features = gl.neural_path_features(model, x)
    close(features @ gl.value_tangent_kernel(model) @ features.T, gl.neural_tangent_kernel(model, x))
    with pytest.raises(gl.errors.TooManyPathsError):
        gl.value_tangent_kernel(mlp([20, 20, 20, 1]))


def test_dense_layer_on_a_single_gelu_unit_has_the_right_bias_gradient():
    """A hand-checked case: y = a·gelu(w x + b) + c."""
    model = nn.Sequential(nn.Linear(1, 1), nn.GELU(), nn.Linear(1, 1))
    x = torch.tensor([[0.7]])
    q = model[0](x).requires_grad_()
    (slope,) = torch.autograd.grad(F.gelu(q).sum(), q)
    a = model[2].weight.item()
    expected = (a * slope.item()) ** 2 * (0.7**2 + 1) + F.gelu(q).item() ** 2 + 1
    assert gl.neural_tangent_kernel(model, x).item() == pytest.approx(expected, rel=1e-12)
