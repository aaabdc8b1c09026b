"""Examples of every odd kind, in every function that takes a model: right, or refused with gatelab's own error."""

import warnings
from itertools import product

import numpy as np
import pytest
import torch
from torch import nn

import gatelab as gl
from tests.attacks.calls import CALLS, MORE_CALLS, answer, same
from tests.attacks.outcomes import SilentlyWrongError, refusal

pytestmark = pytest.mark.attack("inputs and arguments")

FUNCTIONS = {
    **{name: CALLS[name] for name in CALLS if name not in ("read", "count_paths")},
    "count_active_paths": MORE_CALLS["count_active_paths"],
    "neural_path_features": MORE_CALLS["neural_path_features"],
    "infinite_width_ntk": lambda _model, x: gl.infinite_width_ntk(x, depth=3),
}


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))


def clean() -> torch.Tensor:
    return torch.randn(4, 3, generator=torch.Generator().manual_seed(2))


def undecided(x: torch.Tensor) -> nn.Module:
    """The network with gates that the first example opens or closes by 1e-4: less than bfloat16 can tell."""
    model = network()
    with torch.no_grad():
        model[0].bias.copy_(1e-4 * torch.tensor([1.0, -1.0, 1.0, -1.0]) - x[0] @ model[0].weight.T)
    return model


def _spoilt(value):
    x = clean()
    x[0, 1] = value
    return x


def _nested():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.nested.nested_tensor([torch.randn(3), torch.randn(3)])


def _quantised():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.quantize_per_tensor(clean().float(), 0.1, 0, torch.qint8)


def _fake():
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode().from_tensor(clean())


def _quiet_csr():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return clean().to_sparse_csr()


WRONG = {
    "too many features": lambda: torch.randn(4, 5),
    "too few features": lambda: torch.randn(4, 2),
    "no features": lambda: torch.randn(4, 0),
    "no examples": lambda: torch.randn(0, 3),
    "a number": lambda: torch.tensor(1.0),
    "a list": lambda: clean().tolist(),
    "a NumPy array": lambda: clean().numpy(),
    "None": lambda: None,
    "a string": lambda: "x",
    "a tuple of two inputs": lambda: (clean(), clean()),
    "a dict": lambda: {"x": clean()},
    "integers": lambda: torch.ones(4, 3, dtype=torch.int64),
    "booleans": lambda: torch.ones(4, 3, dtype=torch.bool),
    "bytes": lambda: torch.ones(4, 3, dtype=torch.uint8),
    "complex numbers": lambda: clean().to(torch.complex128),
    "a sparse tensor": lambda: clean().to_sparse(),
    "a compressed sparse tensor": _quiet_csr,
    "a nested tensor": _nested,
    "a quantised tensor": _quantised,
    "a meta tensor": lambda: clean().to("meta"),
    "a fake tensor": _fake,
    "eight bits": lambda: clean().to(torch.float8_e4m3fn),
    "NaN": lambda: _spoilt(float("nan")),
    "infinity": lambda: _spoilt(float("inf")),
    "minus infinity": lambda: _spoilt(float("-inf")),
}
# Properties of x alone; they do not depend on a model.
NO_MODEL = {"too many features", "too few features"}


@pytest.mark.parametrize(("what", "name"), list(product(WRONG, FUNCTIONS)))
def test_wrong_input(what, name):
    if name == "infinite_width_ntk" and what in NO_MODEL:
        pytest.skip("any number of features is right")
    if name == "to_dgn" and what == "None":
        pytest.skip("a model may be traced without examples")
    refusal(lambda: FUNCTIONS[name](network(), WRONG[what]()))


@pytest.mark.parametrize("what", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name != "infinite_width_ntk"])
def test_other_precision_than_the_weights(what, name):
    """Refused, or answered in float64 for the rounded numbers."""
    x = clean().to(what)
    ours = answer(lambda: FUNCTIONS[name](network(), x))
    if ours is not None and not same(ours, FUNCTIONS[name](network(), x.double())):
        raise SilentlyWrongError(f"answered {ours!r:.200}")


class Marked(torch.Tensor):
    """A subclass that adds nothing."""


def _inference():
    with torch.inference_mode():
        return clean() * 1.0


VALID = {
    "requires grad": lambda: clean().requires_grad_(True),
    "with a history": lambda: clean().requires_grad_(True) * 1.0,
    "a parameter": lambda: nn.Parameter(clean()),
    "made in inference mode": _inference,
    "not contiguous": lambda: clean().T.contiguous().T,
    "every second row": lambda: clean().repeat_interleave(2, 0)[::2],
    "expanded": lambda: clean()[:1].expand(4, 3),
    "part of a larger storage": lambda: torch.cat([torch.randn(2, 3), clean()])[2:],
    "a subclass": lambda: clean().as_subclass(Marked),
    "a lazy conjugate": lambda: torch.complex(clean(), clean()).conj().real,
    "a lazy negation": lambda: -torch.complex(torch.zeros(4, 3), -clean()).conj().conj().imag * -1.0,
    "from NumPy": lambda: torch.from_numpy(np.asfortranarray(clean().numpy())),
    "read-only memory": lambda: torch.from_numpy(clean().numpy().copy()),
}


@pytest.mark.parametrize(("what", "name"), list(product(VALID, FUNCTIONS)))
def test_valid_input(what, name):
    x = VALID[what]()
    ours = FUNCTIONS[name](network(), x)
    plain = torch.tensor(x.tolist())
    if not same(ours, FUNCTIONS[name](network(), plain)):
        raise SilentlyWrongError(f"another answer than for the same numbers: {ours!r:.200}")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_inside_inference_mode(name):
    model, x = network(), clean()
    with torch.inference_mode():
        ours = answer(lambda: FUNCTIONS[name](model, x))
    if ours is not None and not same(ours, FUNCTIONS[name](network(), clean())):
        raise SilentlyWrongError("another answer in inference mode")


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name != "to_dgn"])  # a twin is the caller's to run
def test_callers_autocast(name):
    """The caller's autocast does not make float32 answers bfloat16 ones."""
    model, x = undecided(clean()).float(), clean().float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        ours = answer(lambda: FUNCTIONS[name](model, x))
    if ours is not None and not same(ours, FUNCTIONS[name](model, x), 1e-5):
        raise SilentlyWrongError(f"{ours!r:.200} with autocast, {FUNCTIONS[name](model, x)!r:.200} without")


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_callers_default_dtype(name, dtype):
    model, x = network(), clean()
    expected = FUNCTIONS[name](model, x)
    torch.set_default_dtype(dtype)
    ours = answer(lambda: FUNCTIONS[name](model, x))
    if ours is not None and not same(ours, expected):
        raise SilentlyWrongError(f"another answer with the default dtype {dtype}")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_callers_default_device(name):
    """torch.set_default_device("meta") is the caller's; gatelab's own tensors go where the model is."""
    model, x = network(), clean()
    expected = FUNCTIONS[name](model, x)
    with torch.device("meta"):
        ours = answer(lambda: FUNCTIONS[name](model, x))
    if ours is not None and not same(ours, expected):
        raise SilentlyWrongError("another answer under another default device")
