"""Results of n² entries that do not fit: refused with the size and the way to the disk, before anything is computed."""

import json
import subprocess
import sys

import pytest

from tests.attacks.outcomes import RawError, SilentlyWrongError

pytestmark = pytest.mark.attack("inputs and arguments")

# 10¹⁰ entries take 40 GB. The process may have 8 GB: a call that tries fails, and the machine goes on.
SCRIPT = """
import json, resource
import torch
from torch import nn
import gatelab as gl
from gatelab.errors import GatelabError
from gatelab.kernels import OverlapKernel, PathKernel, compute, infinite_width_kernels

resource.setrlimit(resource.RLIMIT_AS, (8 * 2**30,) * 2)
model, x = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), torch.randn(100_000, 3)
gates = gl.GatePattern({"a": torch.ones(100_000, 4, dtype=torch.bool)})
calls = {
    "neural_path_kernel": lambda: gl.neural_path_kernel(model, x),
    "neural_tangent_kernel": lambda: gl.neural_tangent_kernel(model, x),
    "overlap_kernel": lambda: gl.overlap_kernel(gates),
    "infinite_width_ntk": lambda: gl.infinite_width_ntk(x, depth=3),
    "infinite_width_kernels": lambda: infinite_width_kernels(x, depth=3),
    "compute(PathKernel)": lambda: compute(PathKernel(model), x),
    "compute(OverlapKernel)": lambda: compute(OverlapKernel(model), x),
}
for name, call in calls.items():
    try:
        call()
        outcome = ("answered", "")
    except GatelabError as error:
        outcome = ("refused", str(error))
    except BaseException as error:
        outcome = ("raw", f"{type(error).__name__}: {error}"[:300])
    print(json.dumps([name, *outcome]), flush=True)
"""
NAMES = (
    "neural_path_kernel",
    "neural_tangent_kernel",
    "overlap_kernel",
    "infinite_width_ntk",
    "infinite_width_kernels",
    "compute(PathKernel)",
    "compute(OverlapKernel)",
)


@pytest.fixture(scope="module")
def outcomes():
    run = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=280, check=False)
    return {name: rest for name, *rest in map(json.loads, run.stdout.splitlines())}


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_hundred_thousand_examples(name, outcomes):
    kind, message = outcomes.get(name, ("raw", "the process ended before this call"))
    if kind == "raw":
        raise RawError(message)
    if kind == "answered":
        raise SilentlyWrongError("40 GB in 8 GB")
    assert "GB" in message or "GiB" in message, message
    assert "store=" in message or "disk" in message or "compute" in message, message
