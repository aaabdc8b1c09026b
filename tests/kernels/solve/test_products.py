"""K V from blocks is K V, to float64 rounding, whatever is kept and however it is read."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from gatelab.errors import InputError
from gatelab.kernels.solve import products
from gatelab.kernels.solve.blocks import DenseKernel, kernel_part
from gatelab.kernels.solve.products import kernel_times


@dataclass(frozen=True)
class Counted(DenseKernel):
    """Notes which blocks were asked for; above the diagonal it holds nothing worth reading."""

    asked: tuple = ()

    def blocks(self, rows: slice | None = None, columns: slice | None = None) -> Iterator[tuple[slice, slice, Tensor]]:
        for i, j, block in super().blocks(rows, columns):
            object.__setattr__(self, "asked", (*self.asked, (i.start, j.start)))
            yield i, j, block


def gram(n, d, dtype=torch.float64):
    x = torch.randn(n, d)
    return (x @ x.T).to(dtype)


@pytest.mark.parametrize(("n", "size"), [(12, 4), (13, 4), (5, 8), (300, 7), (1, 1)])
@pytest.mark.parametrize("columns", [1, 10])
def test_symmetric_products_need_the_lower_blocks_only(n, size, columns):
    entries = gram(n, 6)
    lower = Counted(entries.tril(), True, size)  # within diagonal blocks everything is kept
    for start in range(0, n, size):
        lower.entries[start : start + size, start : start + size] = entries[start : start + size, start : start + size]
    V = torch.randn(n, columns)
    torch.testing.assert_close(kernel_times(lower, V), entries @ V, rtol=1e-12, atol=1e-12)
    assert len(lower.asked) == len(set(lower.asked)), "one pass reads each block once"


def test_blocks_taller_than_a_panel():
    entries, V = gram(700, 9), torch.randn(700, 3)
    torch.testing.assert_close(kernel_times(DenseKernel(entries, True, 600), V), entries @ V, rtol=1e-12, atol=1e-11)


def test_blocks_are_multiplied_in_as_many_threads_as_torch_has(monkeypatch):
    """Each waits for the other, with one thread of its own; what comes out does not depend on how many there are."""
    kernel, V = DenseKernel(gram(40, 6), True, 4), torch.randn(40, 3)
    alone, inside = kernel_times(kernel, V), []
    meeting, multiply = threading.Barrier(2, timeout=30), products._products

    def meet(*args, **kwargs):
        if len(inside) < 2:
            inside.append(torch.get_num_threads())
            meeting.wait()
        return multiply(*args, **kwargs)

    monkeypatch.setattr(products, "_products", meet)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        assert torch.equal(kernel_times(kernel, V), alone)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert inside == [1, 1]


def test_an_error_leaves_no_thread_behind():
    entries = gram(40, 6)
    entries[30, 3] = float("nan")
    kept, before = [], threading.active_count()
    for _ in range(3):
        with pytest.raises(InputError, match="row 30, column 3") as caught:
            kernel_times(DenseKernel(entries, True, 4), torch.randn(40, 2))
        kept.append(caught.value)  # as a notebook keeps the last ones
    assert threading.active_count() == before


def test_products_lie_as_any_tensor_does(unchecked):
    for dtype in (torch.float32, torch.float64):
        assert kernel_times(DenseKernel(gram(9, 6), True, 4), torch.randn(9, 3, dtype=dtype)).is_contiguous()
    with pytest.raises(InputError, match=r"dtype torch.int64; .* floating-point"):
        kernel_times(DenseKernel(gram(9, 6), True, 4), torch.ones(9, 3, dtype=torch.long))


@pytest.mark.parametrize(("n", "m"), [(10, 7), (7, 10), (9, 9)])
def test_rectangular_products(n, m):
    entries, V = torch.randn(n, m), torch.randn(m, 3)
    torch.testing.assert_close(kernel_times(DenseKernel(entries, False, 4), V), entries @ V, rtol=1e-12, atol=1e-12)


def test_float32_kernels_lose_nothing_in_sums():
    entries = (gram(2000, 30).abs() + 1).float()
    V = torch.randn(2000, 2)
    exact = entries.double() @ V
    mine = kernel_times(DenseKernel(entries, True, 512), V)
    naive = (entries @ V.float()).double()

    def error(product):
        return ((product - exact).norm() / exact.norm()).item()

    # Float64 rounding in another order; float32 sums of 2000 terms that cancel are a million times worse.
    assert error(mine) < 1e-13
    assert error(naive) > 1e-8
    single = kernel_times(DenseKernel(entries, True, 512), V.float())
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), entries.double() @ V.float().double(), rtol=1e-6, atol=0.05)


@pytest.mark.parametrize(("n", "m", "size"), [(3, 5, 8), (700, 521, 600), (5, 1030, 2048)])
@pytest.mark.parametrize("with_numba", [True, False])
def test_float32_blocks_of_all_shapes(monkeypatch, n, m, size, with_numba):
    """Rows that are no multiple of four, columns of more than one chunk; with compiled loops and without."""
    if not with_numba:
        monkeypatch.setattr(products, "compiled", lambda _module: None)
    entries, V = torch.randn(n, m, dtype=torch.float32), torch.randn(m, 3)
    torch.testing.assert_close(kernel_times(DenseKernel(entries, False, size), V), entries.double() @ V)
    square = entries[: min(n, m), : min(n, m)]
    square, V = square + square.T, V[: min(n, m)]
    lower = DenseKernel(square, True, max(2, size // 4))
    torch.testing.assert_close(kernel_times(lower, V), square.double() @ V, rtol=1e-12, atol=1e-11)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("place", [(2, 1), (11, 3), (12, 12), (290, 280)])
def test_a_bad_entry_is_named_with_its_place(bad, place):
    entries = gram(300, 4, torch.float32)
    entries[place] = bad
    with pytest.raises(InputError, match=rf"is {bad} at row {place[0]}, column {place[1]} \(1 such"):
        kernel_times(DenseKernel(entries, True, 8), torch.zeros(300, 1))


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("V", "message"),
    [(torch.ones(4, 1), "V has 4 rows; it needs 3"), (torch.full((3, 1), float("nan")), "V holds NaN")],
)
def test_vectors_that_do_not_fit(V, message):
    with pytest.raises(InputError, match=message):
        kernel_times(DenseKernel(torch.eye(3), True), V)


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize(
    ("rows", "columns"),
    [
        (slice(0, 9), slice(0, 9)),
        (slice(9, 23), slice(0, 9)),
        (slice(0, 9), slice(9, 23)),
        (slice(3, 17), slice(8, 20)),
        (slice(5, 21), slice(5, 21)),
        (slice(None), slice(-3, None)),
    ],
)
def test_parts_of_kernels(symmetric, rows, columns):
    entries = gram(23, 5)
    part = kernel_part(DenseKernel(entries, symmetric, 4), rows, columns)
    expected = entries[rows, columns]
    assert part.shape == tuple(expected.shape)
    assert part.symmetric == (symmetric and rows == columns)
    V = torch.randn(expected.shape[1], 2)
    torch.testing.assert_close(kernel_times(part, V), expected @ V, rtol=1e-12, atol=1e-12)
    covered = torch.zeros(expected.shape)
    for i, j, block in part.blocks():
        torch.testing.assert_close(block, expected[i, j])
        covered[i, j] += 1
    kept = covered if not part.symmetric else covered + covered.T - covered * torch.eye(len(covered))
    assert (kept > 0).all()
    assert (covered <= 1).all()
    torch.testing.assert_close(part.rows([1, 0]), expected[[1, 0]])
    if rows == columns:
        torch.testing.assert_close(part.diagonal(), expected.diagonal())
    else:
        with pytest.raises(InputError, match="no diagonal"):
            part.diagonal()


def test_empty_parts_are_refused():
    with pytest.raises(InputError, match="columns are"):
        kernel_part(DenseKernel(torch.eye(3), True), slice(0, 2), slice(3, 5))
