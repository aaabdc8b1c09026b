"""Forwards that depend on values, on chance or on the other examples: refused, or right for every example."""

import random
from itertools import product

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import gatelab as gl
from tests.attacks.calls import CALLS, answer, right_or_refused, same
from tests.attacks.models.cases import forward_of
from tests.attacks.outcomes import SilentlyWrongError, refusal

pytestmark = pytest.mark.attack("returns, branches, activations")


def network(before=lambda x: x, between=lambda h: h):
    """Two gates with something before them and something between them."""
    torch.manual_seed(0)
    return forward_of(
        lambda m, x: m.head(F.relu(m.second(between(F.relu(m.first(before(x))))))),
        first=nn.Linear(3, 4),
        second=nn.Linear(4, 4),
        head=nn.Linear(4, 2),
    )


def _mixed_axes(h):
    return h.view(-1, 2, 4).mean(1, keepdim=True).expand(-1, 2, 4).reshape(-1, 4)


# Example s is changed by the others: no kernel over examples, and gates that are not its own.
MIXING = {
    "the batch mean is subtracted": lambda h: h - h.mean(0),
    "a share of the batch mean is subtracted": lambda h: h - 0.5 * h.mean(0, keepdim=True),
    "a thousandth of the batch mean is added": lambda h: h + 1e-3 * h.mean(0),
    "a thousandth of the neighbour is added": lambda h: h + 1e-3 * h.roll(1, 0),
    "1e-12 of the batch mean is added": lambda h: h + 1e-12 * h.mean(0),
    "1e-12 of the largest is added": lambda h: h + 1e-12 * h.amax(0),
    "1e-12 of the first example is added": lambda h: h + 1e-12 * h[:1],
    "1e-12 of the examples in reverse order is added": lambda h: h + 1e-12 * h.flip(0),
    "1e-12 of a Gram matrix is added": lambda h: h + 1e-12 * (h @ h.T @ h),
    "divided by the norm of the batch": lambda h: h / h.norm(),
    "divided by the largest entry": lambda h: h / h.abs().max(),
    "a softmax over the batch": lambda h: F.softmax(h, 0),
    "examples in reverse order": lambda h: h.flip(0),
    "examples rolled": lambda h: h.roll(1, 0),
    "a running sum over examples": lambda h: h.cumsum(0),
    "sorted over examples": lambda h: h.sort(0).values,
    "pairs of examples averaged": _mixed_axes,
    "a batch norm of the batch": lambda h: F.batch_norm(h, None, None, training=True),
    "an instance norm over the batch": lambda h: F.instance_norm(h.T[None])[0].T,
    "a Gram matrix of the batch": lambda h: h @ h.T @ h,
    "the first example added to all": lambda h: h + h[:1],
    "the last example added to the first": lambda h: torch.cat([h[:1] + h[-1:], h[1:]]),
    "a sum through einsum": lambda h: torch.einsum("nw,mw->nw", h, h),
    "the number of examples as a factor": lambda h: h * (1 + len(h)),
}


@pytest.mark.parametrize(("how", "name"), list(product(MIXING, ["neural_path_kernel", "neural_tangent_kernel"])))
def test_mixed_examples_have_no_kernel(how, name):
    refusal(lambda: CALLS[name](network(between=MIXING[how]), torch.randn(4, 3)))


@pytest.mark.parametrize("how", MIXING)
def test_gates_of_mixed_examples(how):
    """The gates of one example alone are those that it has among others, or the model is refused."""
    model, x = network(between=MIXING[how]), torch.randn(4, 3)
    ours = answer(lambda: CALLS["capture_gates"](model, x))
    for s in range(4) if ours is not None else ():
        alone = answer(lambda s=s: CALLS["capture_gates"](model, x[s : s + 1]))
        if alone is not None and not same([gates[s : s + 1] for gates in ours], alone):
            raise SilentlyWrongError(f"example {s} has other gates alone")


def _backwards(h):
    return h[torch.arange(len(h) - 1, -1, -1)]


MOVING = {  # and back again
    "reversed": (lambda h: h.flip(0), lambda h: h.flip(0)),
    "rolled": (lambda h: h.roll(1, 0), lambda h: h.roll(-1, 0)),
    "reversed by an index": (_backwards, _backwards),
}


@pytest.mark.parametrize("name", ["capture_gates", "neural_path_kernel"])
@pytest.mark.parametrize("how", MOVING)
def test_examples_that_are_elsewhere_inside(how, name):
    """Every answer is that of its own example, but the gates inside are those of another one."""
    there, back = MOVING[how]

    class Moving(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))

        def forward(self, x):
            return back(self.body(there(x)))

    assert "other examples" in refusal(lambda: CALLS[name](Moving(), torch.randn(4, 3)))


@pytest.mark.parametrize("how", MIXING)
def test_twin_of_mixed_examples(how):
    model, x = network(between=MIXING[how]), torch.randn(4, 3)
    ours = answer(lambda: CALLS["to_dgn"](model, x))
    if ours is not None and not same(ours, model(x)):
        raise SilentlyWrongError("the twin is not the model")


def _counted(h, most):
    for _ in range(most):
        h = h * 0.5
    return h


# Which way is taken depends on the values: the path that was recorded need not be the path of another example.
BRANCHES = {
    "a branch on the sum": lambda h: h if h.sum() > 0 else -h,
    "a branch on one example": lambda h: h * 2 if h[0, 0] > 0.1 else h,
    "a loop until small": lambda h: _counted(h, int(h.abs().max() * 4)),
    "a branch through item": lambda h: h + 1 if h.mean().item() > 0 else h,
    "a branch through numpy": lambda h: h if h.detach().numpy().sum() > 0 else -h,
    "a branch through tolist": lambda h: h if h.tolist()[0][0] > 0 else 2 * h,
    "a branch on any": lambda h: h if (h > 0.5).any() else 3 * h,
    "a branch by a Python max": lambda h: max((h, -h), key=lambda part: float(part.detach().sum())),
    "a branch by bool and int": lambda h: h * (2 if bool(int(h.detach().sum()) % 2) else 1),
    "the largest columns": lambda h: h.index_select(1, h.detach().sum(0).argsort()),
    "the columns that are open": lambda h: F.pad(h[:, h.detach().sum(0) > 0], (0, 9))[:, :4],
    "rows chosen by value": lambda h: torch.where((h.sum(1) > 1)[:, None], h, 2 * h),
}


@pytest.mark.parametrize(
    ("how", "name"), list(product(BRANCHES, ["neural_path_kernel", "top_paths", "activation_region"]))
)
def test_branch_on_values(how, name):
    refusal(lambda: CALLS[name](network(between=BRANCHES[how]), torch.randn(4, 3)))


@pytest.mark.parametrize("how", BRANCHES)
def test_twin_of_a_branch(how):
    """On other inputs than it was made with."""
    model, x = network(between=BRANCHES[how]), torch.randn(4, 3)
    twin = answer(lambda: gl.to_dgn(model, gl.Regime.FRNPF_DI, x=x))
    for scale in (1.0, -1.0, 5.0, 0.01) if twin is not None else ():
        if not same(twin(scale * x), model(scale * x)):
            raise SilentlyWrongError(f"the twin is not the model at {scale} x")


def _asserted(h):
    assert h.ndim == 2
    return h


HARMLESS = {
    "an assertion about values": _asserted,
    "a branch on the shape": lambda h: h if h.shape[1] == 4 else -h,
    "a branch on the type": lambda h: h.double() if h.dtype == torch.float64 else h,
    "a loop over a constant": lambda h: _counted(h, 3),
    "a format string": lambda h: (f"{h.shape}", h)[1],
    "the length of the batch": lambda h: h.view(len(h), 4),
}


@pytest.mark.parametrize(("how", "name"), list(product(HARMLESS, ["neural_path_kernel", "to_dgn"])))
def test_branch_without_values(how, name):
    model, plain = (
        network(between=HARMLESS[how]),
        network(between=(lambda h: _counted(h, 3)) if "loop" in how else lambda h: h),
    )
    right_or_refused(name, model, plain, torch.randn(4, 3))


RANDOM = {
    "torch.rand": lambda h: h + torch.rand(4),
    "torch.randn_like": lambda h: h + torch.randn_like(h),
    "functional dropout": lambda h: F.dropout(h, 0.5, training=True),
    "a bernoulli mask": lambda h: h * torch.bernoulli(torch.full((4, 99), 0.5)).mean(1),
    "a permutation": lambda h: h[:, torch.randperm(4)],
    "a uniform fill": lambda h: h + torch.empty(4).uniform_(),
    "python's random": lambda h: h * (1 + random.random()),
    "numpy's random": lambda h: h * (1 + float(np.random.rand())),  # noqa: NPY002
    "rrelu in training": lambda h: F.rrelu(h - 1, 0.1, 0.9, training=True),
    "gumbel softmax": lambda h: h * F.gumbel_softmax(h, hard=True),
}


@pytest.mark.parametrize(("how", "name"), list(product(RANDOM, ["neural_path_kernel", "neural_tangent_kernel"])))
def test_random_network(how, name):
    refusal(lambda: CALLS[name](network(between=RANDOM[how]), torch.randn(4, 3)))


def test_counter_in_forward():
    """A forward that behaves differently at every call."""

    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.head, self.calls = nn.Linear(3, 4), nn.Linear(4, 1), 0

        def forward(self, x):
            self.calls += 1
            return self.head(torch.relu(self.calls * self.layer(x) - 1))

    refusal(lambda: gl.neural_tangent_kernel(Counting(), torch.randn(4, 3)))


@pytest.mark.parametrize("name", ["capture_gates", "neural_path_kernel", "neural_tangent_kernel"])
def test_examples_on_the_second_axis(name):
    """A sequence-first model: what looks like examples are positions."""
    torch.manual_seed(0)
    model = forward_of(lambda m, x: m.head(F.relu(m.first(x)).mean(0)), first=nn.Linear(3, 4), head=nn.Linear(4, 1))
    refusal(lambda: CALLS[name](model, torch.randn(5, 2, 3)))
