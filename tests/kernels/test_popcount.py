"""The compiled blocks of the overlap against products of real-valued gates, with and without the table look-up."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest

from gatelab.kernels import nibbles
from gatelab.kernels.popcount import overlap_block
from tests.references import bits

# One word and several, on and beside their borders; 252 units are what a byte of the look-up holds.
WIDTHS = [[1], [3], [63], [64], [65], [128], [191], [252], [253], [256], [512], [1000], [5, 64, 130], [512, 1, 70, 512]]
SIDES = [(1, 1), (1, 17), (3, 1), (17, 3), (33, 64), (64, 65), (70, 129)]


@pytest.fixture(params=["tables", "popcount"], autouse=True)
def way(request, monkeypatch):
    """Both ways to count; the first only where the CPU has it."""
    if request.param == "tables" and not nibbles.supported():
        pytest.skip("needs AVX2")
    monkeypatch.setattr(nibbles, "supported", lambda: request.param == "tables")
    return request.param


def case(n, m, widths, *, share=0.5, slopes=None, dtype=np.float64, seed=0, normalise=True):
    """Random gates of two sides and the arguments of their block."""
    random = np.random.default_rng(seed)
    left, right = ([random.random((size, width)) < share for width in widths] for size in (n, m))
    slopes = np.array(slopes or [0.0] * len(widths))
    unit = 1 / np.array(widths) if normalise else np.ones(len(widths))
    offsets = [
        np.stack([unit[k] * (a * (1 - a) * side[k].sum(1) + a * a * widths[k] / 2) for k, a in enumerate(slopes)])
        for side in (left, right)
    ]
    (rows, starts), (others, _) = bits.packed(left), bits.packed(right)
    scale = (1 - slopes) ** 2 * unit
    expected = bits.overlap(left, right, scale, *offsets)
    offsets = [offset.astype(dtype) for offset in offsets]
    inputs = (rows, np.ascontiguousarray(others.T), starts, scale.astype(dtype), slopes == 0, *offsets)
    return SimpleNamespace(left=left, right=right, slopes=slopes, inputs=inputs, expected=expected)


def block(inputs, dtype=np.float64) -> np.ndarray:
    out = np.full((inputs[0].shape[0], inputs[1].shape[1]), np.nan, dtype)
    overlap_block(*inputs, out)
    return out


@pytest.mark.parametrize("widths", WIDTHS, ids=str)
@pytest.mark.parametrize("share", [0.5, 0.97, 1.0])
def test_counts_are_exact_for_every_width(widths, share):
    for n, m in SIDES:
        one = case(n, m, widths, share=share, normalise=False)
        assert np.array_equal(block(one.inputs), one.expected)


@pytest.mark.parametrize("widths", WIDTHS, ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_leaky_gates_and_plain_ones(widths, dtype):
    for slopes in ([0.0] * len(widths), [0.3] * len(widths), [0.01, 0.0, -1.0, 0.5][: len(widths)]):
        for n, m in SIDES:
            one = case(n, m, widths, slopes=slopes, dtype=dtype, seed=n)
            # Two roundings to a layer and one to each offset; what cancels (slope −1) does so at size 1.
            tolerance = 8 * len(widths) * np.finfo(dtype).eps
            np.testing.assert_allclose(block(one.inputs, dtype), one.expected, rtol=tolerance, atol=tolerance)


def test_offsets_are_those_of_real_valued_leaky_gates():
    one = case(17, 9, [70, 5], slopes=[0.2, -0.5])
    expected = np.ones((17, 9))
    for a, b, slope in zip(one.left, one.right, one.slopes, strict=True):
        expected *= np.where(a, 1, slope) @ np.where(b, 1, slope).T / a.shape[1]
    np.testing.assert_allclose(block(one.inputs), expected, rtol=1e-12, atol=1e-13)


def test_single_precision_is_exact_until_the_product_is_too_large():
    one = case(17, 70, [512, 1000], normalise=False, dtype=np.float32, share=0.9)
    assert one.expected.max() < 2**24
    assert np.array_equal(block(one.inputs, np.float32), one.expected)
    one = case(17, 70, [4095, 4097, 64], normalise=False, dtype=np.float32, share=1.0)
    assert one.expected.min() > 2**24
    np.testing.assert_allclose(block(one.inputs, np.float32), one.expected, rtol=3 * 2**-24)


@pytest.mark.parametrize("words", [nibbles.MOST_WORDS, nibbles.MOST_WORDS + 1])
def test_widest_layer_of_the_tables_and_one_wider(words):
    one = case(3, 2, [64 * words, 7], share=1.0, normalise=False)
    assert np.array_equal(block(one.inputs), one.expected)


def test_blocks_larger_than_the_codes_of_one_go(monkeypatch):
    one = case(200, 150, [130, 64], normalise=False)
    whole = block(one.inputs)
    monkeypatch.setattr(nibbles, "_CODES", 1)
    assert np.array_equal(block(one.inputs), whole)
    assert np.array_equal(whole, one.expected)


def test_parts_of_larger_arrays():
    one = case(17, 70, [130, 64], slopes=[0.3, 0.0])
    rows, columns, starts, scale, plain, row_offset, column_offset = one.inputs
    i, j = slice(3, 16), slice(5, 69)
    parts = rows[i], columns[:, j], starts, scale, plain, row_offset[:, i], column_offset[:, j]
    out = np.full((17, 70), 7.0)
    overlap_block(*parts, out[i, j])
    np.testing.assert_allclose(out[i, j], one.expected[i, j], rtol=1e-14)
    out[i, j] = 7
    assert (out == 7).all(), "written beside the block"
    turned = np.empty((70, 17))
    overlap_block(rows, np.asfortranarray(columns), *one.inputs[2:], turned.T)
    np.testing.assert_allclose(turned.T, one.expected, rtol=1e-14)


def test_nothing_to_compute():
    one = case(0, 5, [3])
    assert block(one.inputs).shape == (0, 5)


def test_threads_on_parts_of_one_matrix():
    one = case(130, 140, [512, 65], normalise=False)
    rows, columns, *rest, row_offset, column_offset = one.inputs
    out = np.empty((130, 140))

    def tile(corner):
        i, j = (slice(start, start + 37) for start in corner)
        overlap_block(rows[i], columns[:, j], *rest, row_offset[:, i], column_offset[:, j], out[i, j])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(tile, [(i, j) for i in range(0, 130, 37) for j in range(0, 140, 37)]))
    assert np.array_equal(out, one.expected)


SCRIPT = """
import sys
{before}
import torch
from gatelab.gates import GatePattern
from gatelab.kernels import overlap
gates = torch.rand(9, 130, generator=torch.Generator().manual_seed(0)) < 0.5
kernel = overlap.overlap_kernel(GatePattern({{"a": gates, "b": gates[:, :7]}}), normalise=False)
real = gates.double()
assert torch.equal(kernel, (real @ real.T) * (real[:, :7] @ real[:, :7].T))
{after}
"""


@pytest.mark.parametrize(
    ("before", "after", "environment"),
    [
        ("sys.modules['numba'] = None", "assert overlap.overlap_block is None", {}),
        ("", "from gatelab.kernels import nibbles; assert not nibbles.supported()", {"NUMBA_CPU_NAME": "generic"}),
    ],
    ids=["without Numba", "for a CPU without AVX2"],
)
def test_elsewhere(before, after, environment, way):
    if way == "tables":
        pytest.skip("a new process chooses for itself")
    script = SCRIPT.format(before=before, after=after)
    subprocess.run([sys.executable, "-c", script], check=True, env={**os.environ, **environment}, timeout=300)
