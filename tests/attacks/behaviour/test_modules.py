"""Modules that hide their operations, and every activation of torch.nn: right, or refused by name."""

import copy
import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.modules import activation as activations
from torch.utils.checkpoint import checkpoint

import gatelab as gl
from gatelab.errors import GatelabError
from tests.attacks.calls import CALLS, answer, right_or_refused
from tests.attacks.fuzz.checks import equal
from tests.attacks.fuzz.reference import tangent_kernel
from tests.attacks.models.cases import forward_of
from tests.attacks.outcomes import SilentlyWrongError

pytestmark = pytest.mark.attack("returns, branches, activations")

PIECEWISE = {"ReLU", "LeakyReLU", "ReLU6", "Hardtanh"}
ATTENTION = {"MultiheadAttention"}
ACTIVATIONS = sorted(
    name
    for name in activations.__all__
    if name not in ATTENTION and name not in PIECEWISE and isinstance(getattr(activations, name), type)
)
# Value times gate; that of a PReLU is one of its slopes.
GATES = {"CELU", "ELU", "GELU", "GLU", "Hardswish", "Mish", "PReLU", "SELU", "SiLU", "Softplus"}
NEEDS = {"Threshold": (0.5, 0.1), "GLU": (1,), "Softmax": (1,), "Softmin": (1,), "LogSoftmax": (1,)}


def made(name: str) -> nn.Module:
    """The activation; one that needs arguments gets some that make it no ReLU."""
    return getattr(nn, name)(*NEEDS.get(name, ())).eval()


def around(name: str) -> tuple[nn.Module, torch.Tensor]:
    """The activation before a ReLU, and examples."""
    torch.manual_seed(0)
    if name == "Softmax2d":
        images = nn.Sequential(nn.Conv2d(1, 2, 2), nn.Softmax2d(), nn.ReLU(), nn.Flatten(), nn.Linear(8, 1))
        return images, torch.randn(3, 1, 3, 3)
    width = 2 if name == "GLU" else 4
    dense = nn.Sequential(nn.Linear(3, 4), made(name), nn.Linear(width, 4), nn.ReLU(), nn.Linear(4, 2))
    return dense.eval(), torch.randn(4, 3)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation_before_a_gate_is_one_itself_or_is_refused_by_name(name):
    if name in GATES:
        model, x = around(name)
        equal(gl.to_dgn(model, gl.Regime.FRNPF_DI)(x), model(x), f"the twin of {name}")
        return
    with pytest.raises(GatelabError) as refused:
        gl.capture_gates(*around(name))
    told = str(refused.value).lower().replace("_", "").replace(" ", "")
    if name.lower() not in told:
        raise SilentlyWrongError(f"{name} is refused without its name: {refused.value}")


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_tangent_kernel_with_an_activation(name):
    model, x = around(name)
    equal(gl.neural_tangent_kernel(model, x), tangent_kernel(model, x), "the tangent kernel")


class Step(torch.autograd.Function):
    """A ReLU with a derivative of one everywhere."""

    @staticmethod
    def forward(ctx, q):
        return q.clamp(min=0)

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def scripted(what):
    """A TorchScript function or module, which capture cannot look into."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.script(what)


def _by_numpy(q):
    return torch.from_numpy(q.detach().numpy().clip(min=0))


def _by_vmap(q):
    return torch.func.vmap(torch.relu)(q)


def _autocast(q):
    with torch.autocast("cpu", enabled=False):
        return torch.relu(q)


def _no_grad(q):
    with torch.no_grad():
        return torch.relu(q)


def _inference(q):
    with torch.inference_mode():
        h = torch.relu(q.detach())
    return h.clone()


HIDDEN = {
    "a custom autograd function": Step.apply,
    "a scripted function": scripted(F.relu),
    "a NumPy detour": _by_numpy,
    "a NumPy detour on a side branch": lambda q: torch.relu(q) + _by_numpy(q),
    "a vmap": _by_vmap,
    "a vmap on a side branch": lambda q: torch.relu(q) + _by_vmap(q),
    "a checkpoint": lambda q: checkpoint(torch.relu, q, use_reentrant=False),
    "a numpy scalar as a factor": lambda q: torch.relu(q) * np.float64(2.0),
    "a list of tensors": lambda q: torch.stack([torch.relu(part) for part in q.unbind(1)], 1),
    "aten's own operation": torch.ops.aten.relu,
    "aten's threshold": lambda q: torch.ops.aten.threshold(q, 0.0, 0.0),
    "a functional call": lambda q: torch.func.functional_call(nn.ReLU(), {}, (q,)),
    "autocast": _autocast,
    "no_grad": _no_grad,
    "inference mode": _inference,
    "a deep copy": lambda q: copy.copy(torch.relu(q)),
}


PLAIN = {
    "a numpy scalar as a factor": lambda q: 2 * torch.relu(q),
    "a NumPy detour on a side branch": lambda q: torch.relu(q) + torch.relu(q),
    "a vmap on a side branch": lambda q: torch.relu(q) + torch.relu(q),
}


def hiding(gate) -> nn.Module:
    """Two gates, the first of them hidden."""
    torch.manual_seed(0)
    return forward_of(
        lambda m, x: m.head(F.relu(m.second(gate(m.first(x))))),
        first=nn.Linear(3, 4),
        second=nn.Linear(4, 4),
        head=nn.Linear(4, 2),
    )


@pytest.mark.parametrize("name", ["neural_path_kernel", "to_dgn", "top_paths"])
@pytest.mark.parametrize("how", HIDDEN)
def test_hidden_gate(how, name):
    right_or_refused(name, hiding(HIDDEN[how]), hiding(PLAIN.get(how, torch.relu)), torch.randn(4, 3))


@pytest.mark.parametrize("how", HIDDEN)
def test_gates_of_a_hidden_gate(how):
    """All gates, or a refusal: never the second gate alone."""
    gates = answer(lambda: CALLS["capture_gates"](hiding(HIDDEN[how]), torch.randn(4, 3)))
    if gates is not None and sum(gate[0].numel() for gate in gates) < 8:
        raise SilentlyWrongError(f"{len(gates)} gates, without the hidden one")


@pytest.mark.parametrize("how", [how for how in HIDDEN if "inference" not in how])
def test_tangent_kernel_of_a_hidden_gate(how):
    model, x = hiding(HIDDEN[how]), torch.randn(4, 3)
    ours = answer(lambda: gl.neural_tangent_kernel(model, x))
    if ours is not None:
        equal(ours, tangent_kernel(model, x), "the tangent kernel")


def _quantised() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(3, 4)).float(), {nn.Linear})


LAYERS = {
    "a scripted part": lambda: nn.Sequential(scripted(nn.Sequential(nn.Linear(3, 4), nn.ReLU())), nn.Linear(4, 1)),
    "a quantised part": lambda: nn.Sequential(_quantised(), nn.ReLU(), nn.Linear(4, 1)),
    "an LSTM": lambda: forward_of(
        lambda m, x: m.head(F.relu(m.lstm(x[:, None])[0][:, -1])),
        lstm=nn.LSTM(3, 4, batch_first=True),
        head=nn.Linear(4, 1),
    ),
    "a recurrent layer of ReLUs": lambda: forward_of(
        lambda m, x: m.head(m.rnn(x[:, None])[0][:, -1]),
        rnn=nn.RNN(3, 4, nonlinearity="relu", batch_first=True),
        head=nn.Linear(4, 1),
    ),
    "attention": lambda: forward_of(
        lambda m, x: F.relu(m.attention(x[:, None], x[:, None], x[:, None])[0][:, 0]),
        attention=nn.MultiheadAttention(3, 1, batch_first=True),
    ),
    "a bilinear layer": lambda: forward_of(lambda m, x: F.relu(m.layer(x, x)), layer=nn.Bilinear(3, 3, 4)),
    "a lazy layer": lambda: nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.Linear(4, 1)),
    "group norm": lambda: nn.Sequential(nn.Linear(3, 4), nn.GroupNorm(2, 4), nn.ReLU(), nn.Linear(4, 1)),
    "RMS norm": lambda: nn.Sequential(nn.Linear(3, 4), nn.RMSNorm(4), nn.ReLU(), nn.Linear(4, 1)),
    "a cosine similarity": lambda: forward_of(
        lambda m, x: F.relu(F.cosine_similarity(m.a(x)[:, None], m.a.weight, -1)), a=nn.Linear(3, 3)
    ),
    "no gate at all": lambda: nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1)),
    "no weights at all": lambda: nn.Sequential(nn.ReLU()),
    "nothing": nn.Sequential,
    "a forward that is missing": nn.Module,
    "a forward of two inputs": lambda: nn.Bilinear(3, 3, 2),
    "a forward that raises": lambda: forward_of(lambda m, x: (_ for _ in ()).throw(KeyError("a user's mistake"))),
    "a function": lambda: torch.relu,
    "a class": lambda: nn.ReLU,
    "a list of layers": lambda: nn.ModuleList([nn.Linear(3, 4), nn.ReLU()]),
}
# A user's own mistake inside forward is the user's error, and no answer.
OWN_ERRORS = {
    "a forward that raises": KeyError,
    "a forward that is missing": NotImplementedError,
    "a list of layers": NotImplementedError,
}


@pytest.mark.parametrize("name", ["capture_gates", "neural_path_kernel", "neural_tangent_kernel", "to_dgn"])
@pytest.mark.parametrize("what", LAYERS)
def test_layer(what, name):
    torch.manual_seed(0)
    model, x = LAYERS[what](), torch.randn(4, 3)
    if what in ("a scripted part", "a quantised part"):
        model, x = model.float(), x.float()
    try:
        ours = answer(lambda: CALLS[name](model, x))
    except AssertionError as error:
        if isinstance(error.__cause__, OWN_ERRORS.get(what, ())):
            return
        raise
    if ours is None:
        return
    if name == "to_dgn":
        equal(ours, model(x), "the twin")
    elif name == "neural_tangent_kernel":
        expected = tangent_kernel(model, x) if list(model.parameters()) else torch.zeros(4, 4)
        equal(ours, expected, "the tangent kernel")
    elif what not in ("no weights at all", "a recurrent layer of ReLUs"):
        raise SilentlyWrongError(f"answered {ours!r:.200}")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # torch.compile warns about itself
@pytest.mark.parametrize("name", ["capture_gates", "neural_path_kernel", "neural_tangent_kernel", "to_dgn"])
def test_compiled_part(name):
    torch.manual_seed(0)
    part, head = nn.Sequential(nn.Linear(3, 4), nn.ReLU()), nn.Linear(4, 1)
    compiled = nn.Sequential(torch.compile(part, backend="eager"), head)
    right_or_refused(name, compiled, nn.Sequential(part, head), torch.randn(4, 3))
