"""Numba is imported on first use, and every kernel works without it."""

import subprocess
import sys

from gatelab.kernels.compiled import compiled

SCRIPT = """
import sys
import torch
import gatelab as gl, gatelab.kernels
assert "numba" not in sys.modules, "importing gatelab.kernels must not import Numba"

sys.modules["numba"] = None  # an import of it fails from now on
gates = torch.rand(9, 130, generator=torch.Generator().manual_seed(0)) < 0.5
kernel = gl.overlap_kernel(gl.GatePattern({"a": gates, "b": gates[:, :7]}), normalise=False)
real = gates.double()
assert torch.equal(kernel, (real @ real.T) * (real[:, :7] @ real[:, :7].T))
gconv = gl.models.gconv(channels=(4, 5), dense=(3,))
assert torch.isfinite(gl.neural_path_kernel(gconv, torch.randn(2, 3, 6, 6))).all()
"""


def test_numba_is_neither_imported_early_nor_needed():
    subprocess.run([sys.executable, "-c", SCRIPT], check=True, timeout=300)


def test_a_module_that_needs_something_missing_is_none():
    assert compiled("gatelab.kernels.popcount").overlap_block is not None
    assert compiled("gatelab.kernels.no_such_module") is None
