"""A kernel on disk as an array and as blocks: all its axes, no tile read that is not needed, none twice."""

import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
import torch

from gatelab.errors import InputError
from gatelab.kernels import kernel_ridge, open_kernel, top_eigenpairs
from gatelab.kernels.disk.layout import Layout
from gatelab.kernels.disk.store import KernelStore
from gatelab.kernels.solve.blocks import DenseKernel, kernel_part
from gatelab.kernels.solve.nystroem import nystroem_factor
from gatelab.kernels.solve.products import kernel_times

N, SIZE = 23, 4  # six tiles a side, the last of three rows


def keep(path, entries, *, symmetric):
    """A store of these entries."""
    layout = Layout(tuple(entries.shape[:2]), tuple(entries.shape[2:]), entries.dtype, symmetric, SIZE)
    store = KernelStore.create(path, layout, {"kind": "test", "dtype": "float64"})
    for row, column in layout.tiles(1):
        block = entries[layout.span(0, row), layout.span(1, column)].numpy()
        store.add_to_ledger((row, column), store.write((row, column), block))
    return open_kernel(path)


@pytest.fixture
def reads(monkeypatch):
    """How often each tile was read."""
    counted, read = Counter(), KernelStore.read

    def counting(store, tile):
        counted[tile] += 1
        return read(store, tile)

    monkeypatch.setattr(KernelStore, "read", counting)
    return counted


def gram(n=N):
    x = torch.randint(-9, 10, (n, 5)).double()  # whole numbers: the kernel is symmetric to the last bit
    return x @ x.T


def full(n=N, k=3):
    """A kernel of all pairs of outputs: (i, a) with (j, b)."""
    x = torch.randint(-9, 10, (n, k, 7)).double()
    return torch.einsum("iad,jbd->ijab", x, x)


def tiles_of(*spans):
    return {(row, column) for rows, columns in spans for row in rows for column in columns}


@pytest.mark.parametrize("symmetric", [True, False])
def test_all_axes_are_axes(symmetric, tmp_path):
    entries = full()
    stored = keep(tmp_path / "K.zarr", entries, symmetric=symmetric)
    dense = entries.numpy()
    assert stored.shape == dense.shape
    assert stored.ndim == dense.ndim
    keys = (
        (0, 1, 0, 0),
        (2, 9, 1, 2),
        (20, slice(3, 7), slice(None), 1),
        (slice(None), 5, -1),
        (3, ..., 2),
        ...,
        (slice(1, 9), [4], slice(1, None)),
    )
    for key in keys:
        np.testing.assert_array_equal(stored[key], dense[key], strict=True)
    np.testing.assert_array_equal(stored[[3, 20], [1, 2], [0, 2], [1]], dense[np.ix_([3, 20], [1, 2], [0, 2], [1])])
    np.testing.assert_array_equal(np.asarray(stored), dense)
    np.testing.assert_array_equal(stored.to_dask()[3:9, 2, 1].compute(), dense[3:9, 2, 1])
    assert "23 × 23 × 3 × 3" in repr(stored)
    for key, message in {
        (0, 0, 0, 0, 0): r"5 indices .* 4 axes",
        (..., 0, ...): "more than one ellipsis",
        (0, 0, 3): "3 does not name outputs of a kernel with 3",
        (0, 0, None): "None does not name outputs",
    }.items():
        with pytest.raises(InputError, match=message):
            stored[key]


@pytest.mark.parametrize("zero", [torch.tensor(2), np.array(2), np.int64(2)])
def test_an_index_without_axes_drops_its_axis(zero, tmp_path):
    entries = gram()
    stored = keep(tmp_path / "K.zarr", entries, symmetric=True)
    assert stored[zero].shape == (N,)
    assert stored[:, zero].shape == (N,)
    assert stored[zero, zero] == entries[2, 2].item()
    assert stored[np.array([2])].shape == (1, N)
    assert stored.rows(int(zero)).shape == (1, N)
    with pytest.raises(InputError, match="True does not name rows"):
        keep(tmp_path / "one.zarr", entries[:1, :1], symmetric=True)[True]


def test_an_array_without_a_copy_cannot_be(tmp_path):
    entries = gram()
    stored = keep(tmp_path / "K.zarr", entries, symmetric=True)
    with pytest.raises(ValueError, match="copy"):
        np.asarray(stored, copy=False)
    for copy in (None, True):
        np.testing.assert_array_equal(np.array(stored, copy=copy), entries.numpy())
    assert np.asarray(stored, dtype=np.float32).dtype == np.float32


@pytest.mark.parametrize(
    "use",
    [
        lambda kernel: kernel_times(kernel, torch.ones(N, 1)),
        lambda kernel: kernel_ridge(kernel, torch.ones(N), 1.0),
        lambda kernel: nystroem_factor(kernel, 3),
        lambda kernel: top_eigenpairs(kernel, 1),
        lambda kernel: kernel_part(kernel, slice(0, 3), slice(0, 3)),
    ],
    ids=["product", "ridge", "nystroem", "spectrum", "part"],
)
def test_kernels_of_pairs_of_outputs_are_refused(use, tmp_path):
    kernel = keep(tmp_path / "K.zarr", full(), symmetric=True)
    with pytest.raises(InputError, match=r'23 × 23 × 3 × 3; .* needs rows and columns only.*outputs="trace"'):
        use(kernel)


@pytest.mark.parametrize(
    ("rows", "columns", "symmetric", "needed"),
    [
        (slice(4, 8), slice(4, 8), True, {(1, 1)}),
        (slice(8, 12), slice(4, 8), True, {(2, 1)}),
        (slice(4, 8), slice(8, 12), True, {(2, 1)}),  # kept below the diagonal
        (slice(5, 6), slice(9, 15), True, {(2, 1), (3, 1)}),
        (slice(0, 18), slice(0, 18), True, {(i, j) for i in range(5) for j in range(i + 1)}),
        (slice(18, 23), slice(0, 18), True, tiles_of(((4, 5), range(5)))),
        (slice(4, 8), slice(8, 12), False, {(1, 2)}),
        (slice(0, 18), slice(0, 18), False, tiles_of((range(5), range(5)))),
    ],
)
def test_a_part_reads_the_tiles_it_needs(rows, columns, symmetric, needed, tmp_path, reads):
    entries = gram()
    part = kernel_part(keep(tmp_path / "K.zarr", entries, symmetric=symmetric), rows, columns)
    V = torch.randn(part.shape[1], 2)
    torch.testing.assert_close(kernel_times(part, V), entries[rows, columns] @ V)
    assert reads == dict.fromkeys(needed, 1)
    reads.clear()
    torch.testing.assert_close(part.rows(slice(None)), entries[rows, columns])
    assert reads == dict.fromkeys(needed, 1)


def test_a_part_of_a_part_reads_the_tiles_it_needs(tmp_path, reads):
    entries = gram()
    outer = kernel_part(keep(tmp_path / "K.zarr", entries, symmetric=True), slice(2, 20), slice(2, 20))
    inner = kernel_part(outer, slice(3, 6), slice(10, 14))
    torch.testing.assert_close(kernel_times(inner, torch.eye(4)), entries[5:8, 12:16])
    assert reads == {(3, 1): 1}


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("kind", ["dense", "stored", "part"])
@pytest.mark.parametrize(
    ("rows", "columns"), [(slice(5, 9), slice(0, 6)), (slice(0, 6), slice(10, 11)), (None, slice(3, 4)), (None, None)]
)
def test_blocks_of_a_range_are_those_that_meet_it(kind, symmetric, rows, columns, tmp_path):
    entries = gram()
    kernel = {
        "dense": lambda: DenseKernel(entries, symmetric, SIZE),
        "stored": lambda: keep(tmp_path / "K.zarr", entries, symmetric=symmetric),
        "part": lambda: kernel_part(DenseKernel(entries, symmetric, SIZE), slice(1, N), slice(1, N)),
    }[kind]()
    here = torch.zeros(kernel.shape, dtype=torch.bool)
    here[rows or slice(None), columns or slice(None)] = True
    wanted = here | here.T if symmetric else here
    expected = [(i, j) for i, j, _ in kernel.blocks() if wanted[i, j].any()]
    found = list(kernel.blocks(rows, columns))
    assert [(i, j) for i, j, _ in found] == expected
    dense = kernel.rows(slice(None))
    for i, j, block in found:
        torch.testing.assert_close(block, dense[i, j])


def test_ranges_in_steps_are_refused():
    with pytest.raises(InputError, match="rows are"):
        next(DenseKernel(gram(), True, SIZE).blocks(slice(0, 9, 2)))


@pytest.mark.parametrize("which", [slice(None), [0, 22, 9, 9, 5], slice(4, 8)])
@pytest.mark.parametrize("outputs", [False, True])
def test_rows_read_each_tile_once(which, outputs, tmp_path, reads):
    entries = full() if outputs else gram()
    stored = keep(tmp_path / "K.zarr", entries, symmetric=True)
    torch.testing.assert_close(stored.rows(which), entries[which])
    tiles = {row // SIZE for row in torch.arange(N)[which].tolist()}
    assert reads == dict.fromkeys(((max(a, b), min(a, b)) for a in tiles for b in range(6)), 1)


def test_loops_and_the_meshes_of_other_libraries(tmp_path):
    entries = gram()
    stored = keep(tmp_path / "K.zarr", entries, symmetric=True)
    rows = list(stored)
    assert len(rows) == N
    np.testing.assert_array_equal(np.stack(rows), entries.numpy())
    some, others = np.array([3, 1, 22]), np.array([0, 9])
    np.testing.assert_array_equal(stored[np.ix_(some, others)], entries.numpy()[np.ix_(some, others)])
    with pytest.raises(IndexError, match=r".{,70}… does not name rows of a kernel with 23"):
        stored[np.arange(500)]


SCRIPT = """
import torch, warnings
from gatelab.kernels import kernel_ridge, kernel_ridges, top_eigenpairs
from gatelab.kernels.solve.blocks import DenseKernel
kernel = DenseKernel(torch.diag(torch.arange(1.0, 40.0)), True)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    kernel_ridge(kernel, torch.ones(39), 1e-3, max_iterations=1)  # here
    kernel_ridges(kernel, torch.ones(39), [1e-3], max_iterations=1)  # here
    top_eigenpairs(kernel, 1, oversampling=0, max_iterations=1)  # here
print(*(warning.lineno if warning.filename == __file__ else warning.filename for warning in caught))
"""


def test_warnings_point_to_who_called(tmp_path):
    # In a process of its own: the checks of shapes in these tests put frames of theirs between caller and library.
    file = tmp_path / "script.py"
    file.write_text(SCRIPT)
    told = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, check=True).stdout.split()
    assert told == [str(number) for number, line in enumerate(SCRIPT.splitlines(), 1) if "# here" in line]
