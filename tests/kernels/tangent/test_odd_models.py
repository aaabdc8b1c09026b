"""Models whose gradients a watch over operations does not see, or sees wrongly: the check must find them out."""

import copy
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd.function import once_differentiable

import gatelab as gl
from gatelab.errors import InputError, UnsupportedModelError
from tests.contracts.gated_model import snapshot
from tests.references import explicit


class Two(nn.Module):
    def __init__(self, forward):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 2)
        self._forward = forward

    def forward(self, x):
        return self._forward(self, x)


class OldStyle(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return F.linear(x, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        return gradient @ weight, gradient.T @ x


def inner_derivative(model, x):
    with torch.enable_grad():
        x = x.requires_grad_()
        return torch.autograd.grad(model.b(torch.tanh(model.a(x))).sum(), x, create_graph=True)[0]


def routed(model, x):
    out = torch.zeros(x.shape[0], 4, dtype=x.dtype)
    mask = x[:, 0] > 0
    out[mask] = model.a(x[mask])
    return model.b(out)


def overwritten(model, x):
    y = model.a(x)
    x.data.mul_(2)
    return model.b(torch.relu(y))


ODD = {
    "vmap inside": lambda m, x: torch.vmap(lambda z: m.b(torch.relu(m.a(z))))(x),
    "custom autograd function": lambda m, x: m.b(torch.relu(OldStyle.apply(x, m.a.weight))),
    "derivative inside": inner_derivative,
    "constant row, broadcast": lambda m, x: m.b(torch.relu(m.a(x) + m.a(torch.zeros(1, 4, dtype=x.dtype)))),
    "examples on the second axis": lambda m, x: m.b(torch.relu(m.a(x[None])))[0],
    "routing": routed,
    "input overwritten behind autograd's back": overwritten,
    "squeezed output": lambda m, x: m.b(torch.relu(m.a(x)))[:, 0].squeeze(),
}


def by_autograd(model, x):
    """Sum over outputs of plain per-example gradients."""
    rows = []
    for example in x:
        answer = model(example.clone().unsqueeze(0)).reshape(-1)
        grads = [torch.autograd.grad(y, list(model.parameters()), retain_graph=True, materialize_grads=True,
                                     allow_unused=True) for y in answer]  # fmt: skip
        rows.append(torch.stack([torch.cat([g.flatten() for g in row]) for row in grads]).flatten())
    return torch.stack(rows) @ torch.stack(rows).T


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("batch_size", [None, 2])
def test_odd_models_get_the_true_kernel(name, batch_size):
    model, x = Two(ODD[name]), torch.randn(5, 4)
    expected = by_autograd(model, x)
    torch.testing.assert_close(
        gl.neural_tangent_kernel(model, x, batch_size=batch_size), expected, rtol=1e-9, atol=1e-9
    )


def test_a_model_that_takes_one_example_at_a_time():
    model, x = Two(lambda m, x: m.b(torch.relu(m.a(x.reshape(1, 4))))), torch.randn(3, 4)
    torch.testing.assert_close(gl.neural_tangent_kernel(model, x, batch_size=1), by_autograd(model, x))
    with pytest.raises(InputError, match=r"does not run on 2 examples at once: .*; pass batch_size=1"):
        gl.neural_tangent_kernel(model, x)


MIXING = {
    "running sum over examples": lambda m, x: m.b(torch.relu(m.a(x.cumsum(0)))),
    "difference to the first": lambda m, x: m.b(torch.relu(m.a(x - x[:1]))),
}


@pytest.mark.parametrize("name", MIXING)
def test_dependence_on_earlier_examples_is_found(name):
    with pytest.raises(UnsupportedModelError, match="example 0 different answers alone and among others"):
        gl.neural_tangent_kernel(Two(MIXING[name]), torch.randn(5, 4))


def test_recurrent_network_with_time_first_is_refused():
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.LSTM(4, 3)  # takes (time, n, features), is given (n, time, features)

        def forward(self, x):
            return self.rnn(x)[0][:, -1]

    with pytest.raises(UnsupportedModelError, match="different answers alone and among others"):
        gl.neural_tangent_kernel(Recurrent(), torch.randn(5, 3, 4))


def test_old_weight_norm_leaves_the_module_as_it_was():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = Two(lambda m, x: m.b(torch.relu(m.a(x))))
        model.a = nn.utils.weight_norm(model.a)
    x = torch.randn(3, 4)
    model(x)
    expected = by_autograd(model, x)
    model.a.weight = model.a.weight.detach()
    torch.testing.assert_close(gl.neural_tangent_kernel(model, x), expected, rtol=1e-9, atol=1e-9)
    copy.deepcopy(model)


def test_backward_hooks_of_the_user_do_not_run():
    model, x, calls = Two(lambda m, x: m.b(torch.relu(m.a(x)))), torch.randn(3, 4), []
    expected = gl.neural_tangent_kernel(model, x)
    model.a.register_full_backward_hook(lambda *_: calls.append(1))
    before = snapshot(model)
    assert torch.equal(gl.neural_tangent_kernel(model, x), expected)
    assert not calls
    assert snapshot(model) == before


def test_tied_names_and_parameters_select():
    model, x = Two(lambda m, x: m.b(torch.relu(m.a(x)))), torch.randn(3, 4)
    model.c = model.b
    by_first = gl.neural_tangent_kernel(model, x, wrt="b.weight")
    assert torch.equal(gl.neural_tangent_kernel(model, x, wrt="c.weight"), by_first)
    assert torch.equal(gl.neural_tangent_kernel(model, x, wrt=model.b.weight), by_first)


def test_examples_of_different_shape_are_refused():
    with pytest.raises(InputError, match="x has examples of shape"):
        gl.neural_tangent_kernel(nn.Linear(4, 1), torch.randn(3, 2, 4), torch.randn(3, 1, 4))


def test_a_kernel_never_carries_a_graph():
    net = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 1))
    x = torch.randn(3, 4, requires_grad=True)
    for kernel in (gl.neural_tangent_kernel(net, x), gl.neural_path_kernel(net, x), gl.infinite_width_ntk(x, depth=2)):
        assert not kernel.requires_grad


class Cast(nn.Module):
    """A network whose answer has another dtype; ``flip`` shows its first layer other rows than the examples."""

    def __init__(self, dtype, *, flip=False):
        super().__init__()
        self.a, self.b, self.dtype, self.flip = nn.Linear(20, 256), nn.Linear(256, 3), dtype, flip

    def forward(self, x):
        turn = (lambda t: t.flip(0)) if self.flip else (lambda t: t)
        return self.b(turn(self.a(turn(x)).relu())).to(self.dtype)


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_the_dtype_of_the_answer_does_not_decide_what_is_right(dtype, flip, single_precision):
    model, x = Cast(dtype, flip=flip), torch.randn(30, 20)
    plain = copy.deepcopy(model)
    plain.dtype = torch.float32
    expected = explicit.tangent_kernel(plain.double(), x.double()).diagonal(dim1=2, dim2=3).sum(-1).float()
    kernel = gl.neural_tangent_kernel(model, x)
    torch.testing.assert_close(kernel, expected, rtol=1e-4, atol=1e-4 * expected.abs().max().item())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_dependence_on_others_is_seen_in_any_dtype(dtype, single_precision):
    class Centred(Cast):
        def forward(self, x):
            return (self.a(x) - self.a(x).mean(0)).to(dtype)

    model = Centred(dtype)
    with pytest.raises(UnsupportedModelError, match="different answers alone and among others"):
        gl.neural_tangent_kernel(model, torch.randn(6, 20))
