"""Which signal of a product is the gate, and what it is when it is hard."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import gatelab as gl
from gatelab.errors import UnsupportedModelError
from tests.kernels.path.test_architectures import Net


def product(join, end=lambda h: h):
    """Return a network that joins two layers, a(x) and b(x)."""
    torch.manual_seed(1)
    layers = {name: nn.Linear(4, 6) for name in "ab"}
    net = Net(lambda s, x: s.out(end(join(s.a(x), s.b(x)))), **layers, out=nn.Linear(6, 2))
    return net.double()


def gate_of(model, x):
    """Return the numbers of the one gate of a network."""
    gates = gl.capture_gates(model, x)
    (name,) = gates.layers
    assert gates.layer(name).kind.value == "factor"
    return gates[name]


# What multiplies, and the gate among it, as functions of a and b.
GATES = {
    "relu(a) * b": (lambda a, b: F.relu(a) * b, lambda a, b: F.relu(a)),
    "b * relu(a)": (lambda a, b: b * F.relu(a), lambda a, b: F.relu(a)),
    "a * relu(a)": (lambda a, b: a * F.relu(a), lambda a, b: F.relu(a)),
    "tanh(a) * b": (lambda a, b: torch.tanh(a) * b, lambda a, b: torch.tanh(a)),
    "a * (1 - sigmoid(b))": (lambda a, b: a * (1 - torch.sigmoid(b)), lambda a, b: 1 - torch.sigmoid(b)),
    "a * (sigmoid(a) * sigmoid(b))": (
        lambda a, b: a * (torch.sigmoid(a) * torch.sigmoid(b)),
        lambda a, b: torch.sigmoid(a) * torch.sigmoid(b),
    ),
    "a * (sigmoid(a) + sigmoid(b)) / 2": (
        lambda a, b: a * ((torch.sigmoid(a) + torch.sigmoid(b)) / 2),
        lambda a, b: (torch.sigmoid(a) + torch.sigmoid(b)) / 2,
    ),
}


@pytest.mark.parametrize("name", GATES)
def test_the_more_squeezed_signal_is_the_gate(name):
    join, gate = GATES[name]
    model, x = product(join), torch.randn(5, 4)
    torch.testing.assert_close(gate_of(model, x), gate(model.a(x), model.b(x)).detach())
    torch.testing.assert_close(gl.to_dgn(model, gl.Regime.FRNPF_DI, x=x)(x), model(x))


def test_a_sigmoid_gates_a_relu():
    model, x = product(lambda a, b: F.relu(a) * torch.sigmoid(b)), torch.randn(5, 4)
    assert gl.capture_gates(model, x).kind == "bits and numbers"


@pytest.mark.parametrize("join", [lambda a, b: F.relu(a) * F.relu(b), lambda a, b: a * b])
def test_equals_have_no_gate(join):
    """Neither signal is more of a gate: refused by name, unless no gate follows."""
    model, x = product(join, end=F.relu), torch.randn(5, 4)
    with pytest.raises(UnsupportedModelError, match="mul"):
        gl.capture_gates(model, x)


def _steep(activation):
    """An activation that steepens: f(βq)/β."""
    return lambda beta: lambda a, b: activation(beta * a) / beta


STEEPENING = {
    **{
        name: _steep(f)
        for name, f in {
            "SiLU": F.silu,
            "GELU": F.gelu,
            "GELU (tanh)": lambda q: F.gelu(q, approximate="tanh"),
            "Hardswish": F.hardswish,
            "Mish": F.mish,
            "ELU": F.elu,
            "SELU": F.selu,
            "CELU": lambda q: F.celu(q, 0.5),
            "Softplus": F.softplus,
        }.items()
    },
    "σ": lambda beta: lambda a, b: a * torch.sigmoid(beta * b),
    "hard sigmoid": lambda beta: lambda a, b: a * F.hardsigmoid(beta * b),
    "softmax": lambda beta: lambda a, b: a * torch.softmax(beta * b, 1),
    "1 − σ": lambda beta: lambda a, b: a * (1 - torch.sigmoid(beta * b)),
    "1 + σ": lambda beta: lambda a, b: a * (1 + torch.sigmoid(beta * b)),
    "2σ": lambda beta: lambda a, b: 2 * torch.sigmoid(beta * b) * a,
    "tanh": lambda beta: lambda a, b: a * torch.tanh(beta * b),
    "½ + ½ tanh": lambda beta: lambda a, b: a * (0.5 + torch.tanh(beta * b) / 2),
    "relu6(q + 3)/6": lambda beta: lambda a, b: a * F.relu6(beta * b + 3) / 6,
    "σσ": lambda beta: lambda a, b: a * (torch.sigmoid(beta * b) * torch.sigmoid(beta * a)),
}


# The kinds that were wrong, and one of each other sort, in the fast suite; all of them in the slow one.
OFTEN = {"SiLU", "SELU", "Softplus", "σ", "softmax", "1 + σ", "tanh", "σσ"}


@pytest.mark.parametrize(
    "name", [name if name in OFTEN else pytest.param(name, marks=pytest.mark.slow) for name in STEEPENING]
)
def test_steeper_gates_leave_no_gap(name):
    x = torch.randn(50, 4)
    gaps = [1 - gl.hardening_gap(product(STEEPENING[name](beta)), x).agreement for beta in (1.0, 1e6)]
    assert gaps[0] > 1e-3
    assert gaps[1] < 1e-6


@pytest.mark.parametrize(
    "model",
    [
        nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2)),
        nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.SiLU(), nn.Linear(6, 2)),
    ],
)
def test_what_is_no_sum_over_gated_paths_has_no_gap(model):
    """It was reported as a network whose gates are bits."""
    with pytest.raises(UnsupportedModelError):
        gl.hardening_gap(model.double(), torch.randn(5, 4))
