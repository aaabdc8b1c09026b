"""The compiled blocks of the overlap against products of real-valued gates."""

from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest

from gatelab.kernels.popcount import overlap_block
from tests.references import bits

# One word and several, an even and an odd number of them, on and beside the borders of words.
WIDTHS = [[1], [63], [64], [65], [128], [191], [1000], [5, 64, 130], [512, 1, 70, 512]]
SIDES = [(1, 1), (1, 17), (3, 1), (17, 3), (33, 65)]


def case(n, m, widths, *, share=0.5, slopes=None, dtype=np.float64, seed=0, normalise=True):
    """Random gates of two sides, the arguments of their block, and the block itself by real-valued products."""
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


@pytest.mark.parametrize("widths", WIDTHS, ids=str)
@pytest.mark.parametrize("share", [0.5, 1.0])
def test_counts_are_exact_for_every_width(widths, share):
    for n, m in SIDES:
        one = case(n, m, widths, share=share, normalise=False)
        assert np.array_equal(overlap_block(*one.inputs), one.expected)


@pytest.mark.parametrize("widths", WIDTHS, ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_leaky_gates_and_plain_ones(widths, dtype):
    for slopes in ([0.3] * len(widths), [0.01, 0.0, -1.0, 0.5][: len(widths)]):
        for n, m in SIDES:
            one = case(n, m, widths, slopes=slopes, dtype=dtype, seed=n)
            block = overlap_block(*one.inputs)
            assert block.dtype == dtype
            # Two roundings to a layer and one to each offset; what cancels (slope −1) does so at size 1.
            tolerance = 8 * len(widths) * np.finfo(dtype).eps
            np.testing.assert_allclose(block, one.expected, rtol=tolerance, atol=tolerance)


def test_offsets_are_those_of_real_valued_leaky_gates():
    one = case(17, 9, [70, 5], slopes=[0.2, -0.5])
    expected = np.ones((17, 9))
    for a, b, slope in zip(one.left, one.right, one.slopes, strict=True):
        expected *= np.where(a, 1, slope) @ np.where(b, 1, slope).T / a.shape[1]
    np.testing.assert_allclose(overlap_block(*one.inputs), expected, rtol=1e-12, atol=1e-13)


def test_single_precision_is_exact_until_the_product_is_too_large():
    one = case(17, 70, [512, 1000], normalise=False, dtype=np.float32, share=0.9)
    assert one.expected.max() < 2**24
    assert np.array_equal(overlap_block(*one.inputs), one.expected)
    one = case(17, 70, [4095, 4097, 64], normalise=False, dtype=np.float32, share=1.0)
    assert one.expected.min() > 2**24
    np.testing.assert_allclose(overlap_block(*one.inputs), one.expected, rtol=3 * 2**-24)


def test_no_examples():
    assert overlap_block(*case(0, 5, [3]).inputs).shape == (0, 5)


def test_threads_compute_parts_of_one_matrix():
    one = case(130, 140, [512, 65], normalise=False)
    rows, columns, *rest, row_offset, column_offset = one.inputs
    out = np.empty((130, 140))

    def tile(corner):
        i, j = (slice(start, start + 37) for start in corner)
        parts = [np.ascontiguousarray(part) for part in (columns[:, j], row_offset[:, i], column_offset[:, j])]
        out[i, j] = overlap_block(rows[i], parts[0], *rest, *parts[1:])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(tile, [(i, j) for i in range(0, 130, 37) for j in range(0, 140, 37)]))
    assert np.array_equal(out, one.expected)
