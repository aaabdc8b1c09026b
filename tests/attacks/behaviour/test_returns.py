"""What a forward may return: an answer is that of the plain network, or there is none."""

from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from itertools import product

import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

import gatelab as gl
from tests.attacks.calls import CALLS, answer, right_or_refused, same
from tests.attacks.outcomes import SilentlyWrongError

pytestmark = pytest.mark.attack("returns, branches, activations")

Pair = namedtuple("Pair", "logits hidden")


@dataclass
class Answer:
    """A user's own class."""

    logits: Tensor


class Returning(nn.Module):
    """Two dense layers; ``how`` makes the returned value of the output and the hidden layer."""

    def __init__(self, how):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.head = nn.Linear(3, 4), nn.Linear(4, 2)
        self.how = how

    def forward(self, x):
        hidden = torch.relu(self.first(x))
        return self.how(self.head(hidden), hidden)


RETURNS = {
    "a tuple of one": lambda y, _h: (y,),
    "a tuple with the hidden layer": lambda y, h: (y, h),
    "a list": lambda y, _h: [y],
    "a dict": lambda y, _h: {"logits": y},
    "an ordered dict of two": lambda y, h: OrderedDict(logits=y, hidden=h),
    "a named tuple": Pair,
    "an object": lambda y, _h: Answer(y),
    "None": lambda _y, _h: None,
    "a tuple with None": lambda y, _h: (y, None),
    "a string": lambda _y, _h: "logits",
    "a Python number": lambda y, _h: float(y.detach().sum()),
    "the sum over the batch": lambda y, _h: y.sum(),
    "the mean over the batch": lambda y, _h: y.mean(0),
    "examples on the last axis": lambda y, _h: y.T,
    "examples repeated": lambda y, _h: torch.cat([y, y]),
    "the first example": lambda y, _h: y[:1],
    "a NumPy array": lambda y, _h: y.detach().numpy(),
    "a class": lambda y, _h: y.argmax(1),
    "a comparison": lambda y, _h: y > 0,
    "a sparse tensor": lambda y, _h: y.to_sparse(),
    "half precision": lambda y, _h: y.half(),
    "complex numbers": lambda y, _h: torch.complex(y, y),
    "a generator": lambda y, _h: (part for part in [y]),
    "nothing that depends on x": lambda y, _h: torch.zeros(len(y), 2),
}


@pytest.mark.parametrize(
    ("what", "name"), list(product(RETURNS, ["capture_gates", "neural_path_kernel", "top_paths", "activation_region"]))
)
def test_return(what, name):
    right_or_refused(name, Returning(RETURNS[what]), Returning(lambda y, _h: y), torch.randn(4, 3))


@pytest.mark.parametrize("what", RETURNS)
def test_twin_returns_the_same(what):
    """A twin that computes exactly what the model returns is right, whatever that is."""
    model, x = Returning(RETURNS[what]), torch.randn(4, 3)
    ours = answer(lambda: CALLS["to_dgn"](model, x))
    if ours is not None and not same(dense(ours), dense(model(x))):
        raise SilentlyWrongError(f"the twin returned {ours!r:.200}")


def dense(returned):
    """The returned value, comparable."""
    tensors = [returned] if isinstance(returned, Tensor) else tree_leaves(returned)
    return [torch.view_as_real(t) if t.is_complex() else t.to_dense() for t in tensors if isinstance(t, Tensor)]


@pytest.mark.parametrize("what", [what for what in RETURNS if what != "nothing that depends on x"])
def test_tangent_kernel_of_a_return(what):
    """A tensor (n, …) of numbers has a tangent kernel; nothing else has."""
    right_or_refused("neural_tangent_kernel", Returning(RETURNS[what]), Returning(lambda y, _h: y), torch.randn(4, 3))


def test_tangent_kernel_of_a_constant():
    assert not gl.neural_tangent_kernel(Returning(RETURNS["nothing that depends on x"]), torch.randn(4, 3)).any()


@pytest.mark.parametrize("name", CALLS)
def test_last_axis_squeezed(name):
    """(n,) instead of (n, 1) is an ordinary output."""
    torch.manual_seed(1)
    body = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))

    class Squeezed(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = body

        def forward(self, x):
            return self.body(x).squeeze(-1)

    x = torch.randn(4, 3)
    if name in ("to_dgn", "read"):
        right_or_refused(name, Squeezed(), Squeezed(), x)
    else:
        right_or_refused(name, Squeezed(), body, x)
