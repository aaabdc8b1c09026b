"""The product of a kernel in blocks with a few vectors, in one pass over the blocks."""

from contextlib import closing

import torch
from jaxtyping import Float
from torch import Tensor

from gatelab.errors import InputError
from gatelab.kernels.compiled import compiled
from gatelab.kernels.solve.blocks import BlockedKernel, matrix_shape
from gatelab.work.here import in_order, one_thread_each

# Rows of a block that are widened to float64 at a time: 128 × 2048 entries are 2 MiB, which are still in a core's cache
# when the same rows are used again, transposed.
PANEL = 128


def kernel_times(kernel: BlockedKernel, V: Float[Tensor, "m r"]) -> Float[Tensor, "n r"]:
    r"""Return K V from one pass over the blocks; each block of a symmetric kernel is used twice.

    .. math:: (K V)_i = \sum_{j \le i} K_{ij} V_j + \sum_{j > i} K_{ji}^\top V_j

    The caller's thread reads the next blocks while others are multiplied, as many at a time as torch has threads;
    products are always added in the same order. Sums are in float64 whatever the kernel's dtype, and returned in V's
    dtype; entries of float32 are widened a few rows at a time. This matters: float32 sums err by 2e-8 ‖K‖ ‖V‖, and ‖K‖
    grows like n times the mean diagonal. Already at n = 2000 conjugate gradients with a linear kernel and a ridge of
    1e-3 would stall at a residual of 4e-3.

    Args:
        kernel: n × m.
        V: m × r.

    Raises:
        InputError: shapes that do not fit, a kernel of pairs of outputs, or NaN or infinite entries, with the place of
            the first in its block.

    Example:
        >>> from gatelab.kernels.solve.blocks import DenseKernel
        >>> kernel = DenseKernel(torch.tensor([[2.0, 1.0], [1.0, 3.0]]), symmetric=True)
        >>> kernel_times(kernel, torch.tensor([[1.0], [10.0]])).tolist()
        [[12.0], [31.0]]
    """
    n, m = matrix_shape(kernel, "a product")
    if V.shape[0] != m:
        raise InputError(f"the kernel is {n} × {m}, V has {V.shape[0]} rows; it needs {m}")
    if not V.is_floating_point():
        raise InputError(f"V has dtype {V.dtype}; the product has it too, so give floating-point vectors: V.double()")
    if not bool(torch.isfinite(V).all()):
        raise InputError("V holds NaN or infinite entries; give finite vectors")
    # Vectors are rows here: a few long rows times a block take half the time of a block times a few columns.
    factor = V.detach().double().T.contiguous()
    product = torch.zeros(V.shape[1], n, dtype=torch.float64, device=V.device)

    def multiply(kept: tuple[slice, slice, Tensor]) -> tuple[Tensor, Tensor | None]:
        rows, columns, block = kept
        return _products(factor, rows, columns, block.to(V.device), twice=kernel.symmetric and rows != columns)

    threads = torch.get_num_threads()  # read it before torch is set to one thread each
    with one_thread_each(), closing(in_order(multiply, kernel.blocks(), threads)) as answers:
        for (rows, columns, _), (own, mirrored) in answers:
            product[:, rows] += own
            if mirrored is not None:
                product[:, columns] += mirrored
    return product.T.to(V.dtype).contiguous()


def _products(
    factor: Float[Tensor, "r m"], rows: slice, columns: slice, block: Tensor, *, twice: bool
) -> tuple[Float[Tensor, "r rows"], Float[Tensor, "r columns"] | None]:
    """A block times its part of V, and with ``twice`` its transpose times the mirrored part."""
    loops = compiled("gatelab.kernels.solve.panel_loops") if block.device.type == "cpu" else None
    own = factor.new_zeros(factor.shape[0], block.shape[0])
    mirrored = factor.new_zeros(factor.shape[0], block.shape[1]) if twice else None
    if block.dtype is torch.float32 and loops is not None:
        right = factor[:, columns].contiguous()
        left, other = (right, own) if mirrored is None else (factor[:, rows].contiguous(), mirrored)
        block = block if block.stride(1) == 1 else block.contiguous()
        flat = block.as_strided(((block.shape[0] - 1) * block.stride(0) + block.shape[1],), (1,))  # no copy
        loops.block_products(
            flat.numpy(), block.stride(0), *(part.numpy() for part in (right, left, own, other)), twice
        )
        if not bool(torch.isfinite(own).all()):
            raise bad_entry(block, rows, columns)
        return own, mirrored
    for start in range(0, block.shape[0], PANEL):
        panel = block[start : start + PANEL].double()
        here = slice(rows.start + start, rows.start + start + panel.shape[0])
        part = own[:, start : start + panel.shape[0]] = factor[:, columns] @ panel.T
        # NaN times anything is NaN and V is finite, so checking the small product checks the block.
        if not bool(torch.isfinite(part).all()):
            raise bad_entry(panel, here, columns)
        if mirrored is not None:
            mirrored.addmm_(factor[:, here], panel)
    return own, mirrored


def bad_entry(block: Tensor, rows: slice, columns: slice) -> InputError:
    """Return the error that names the first entry of a block that is not finite."""
    bad = (~torch.isfinite(block)).nonzero()
    if len(bad) == 0:
        return InputError(
            f"the kernel's rows {rows.start} to {rows.stop - 1} times V are larger than float64 holds; scale them down"
        )
    row, column = bad[0].tolist()
    return InputError(
        f"the kernel is {block[row, column].item()} at row {rows.start + row}, column {columns.start + column} "
        f"({len(bad)} such entries in rows {rows.start} to {rows.stop - 1}, columns {columns.start} to "
        f"{columns.stop - 1}); recompute that block: a block that was never written also holds NaN"
    )


def check_symmetric(kernel: BlockedKernel, purpose: str) -> int:
    """Return the number of examples of a square, symmetric kernel; refuse any other."""
    n, m = matrix_shape(kernel, purpose)
    if n != m or n == 0:
        raise InputError(f"the kernel is {n} × {m}; {purpose} needs the kernel of examples with themselves, n × n")
    if not kernel.symmetric:
        raise InputError(
            f"the kernel is {n} × {m} but not stored as a symmetric one; {purpose} needs the symmetric kernel of one "
            "set of examples with itself"
        )
    return n
