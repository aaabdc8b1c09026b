"""Ridge regression with a kernel: in memory by one factorisation, in blocks by conjugate gradients."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from gatelab.errors import InputError, NotConvergedWarning
from gatelab.kernels.solve.blocks import BlockedKernel, DenseKernel
from gatelab.kernels.solve.conjugate_gradients import BlockSearch
from gatelab.kernels.solve.nystroem import checked_diagonal, nystroem_factor
from gatelab.kernels.solve.products import check_symmetric, kernel_times
from gatelab.kernels.spectra import symmetric_kernel

# Called after every pass with the steps so far and the largest residual of the unfinished searches.
PassObserver = Callable[[int, float], None]


@dataclass(frozen=True)
class RidgeFit:
    r"""A solved ridge regression: :math:`f(x) = \sum_i k(x, x_i)\, \alpha_i`.

    Attributes:
        dual: α, in float64, with a column for each target.
        ridge: λ, relative to the kernel's mean diagonal.
        shift: λ times the mean diagonal, which was added to the diagonal.
        iterations: steps of conjugate gradients, each a pass over the kernel; 0 for a kernel in memory.
        residuals: ‖Y − (K + shift) α‖ / ‖Y‖ for each target, computed from α itself.
        tolerance: the requested residual.
    """

    dual: Float[Tensor, "n k"]
    ridge: float
    shift: float
    iterations: int
    residuals: Float[Tensor, " k"]
    tolerance: float

    @property
    def converged(self) -> bool:
        """Whether every target's residual is within the tolerance."""
        return bool((self.residuals <= self.tolerance).all())

    def predict(self, cross: BlockedKernel | Float[Tensor, "m n"]) -> Float[Tensor, "m k"]:
        """Return the predictions for m examples from their kernel with the n fitted ones, in one pass over it."""
        if cross.shape[1] != self.dual.shape[0]:
            raise InputError(
                f"the kernel is {cross.shape[0]} × {cross.shape[1]}, but {self.dual.shape[0]} examples were fitted; "
                "give the kernel of the new examples (rows) with the fitted ones (columns)"
            )
        return kernel_times(DenseKernel(cross, False) if isinstance(cross, Tensor) else cross, self.dual)

    def classes(self, cross: BlockedKernel | Float[Tensor, "m n"]) -> Int64[Tensor, " m"]:
        """Return the target with the largest prediction, for one-hot targets, centred or not."""
        if self.dual.shape[1] < 2:
            raise InputError("the fit has only one target; use the sign of predict(...)")
        return self.predict(cross).argmax(dim=1)


def kernel_ridge(
    kernel: BlockedKernel | Float[Tensor, "n n"],
    targets: Float[Tensor, " n *k"],
    ridge: float,
    *,
    preconditioner_rank: int | None = None,
    tolerance: float = 1e-6,
    max_iterations: int = 200,
    start: Float[Tensor, "n k"] | None = None,
    watch: PassObserver | None = None,
    generator: torch.Generator | None = None,
) -> RidgeFit:
    r"""Fit targets by ridge regression with a kernel.

    .. math:: (K + \lambda\, \bar k\, I)\, \alpha = Y, \qquad \bar k = \mathrm{trace}(K) / n

    The ridge λ is relative to the mean diagonal: a multiple of the kernel gives the same predictions.

    A tensor is solved by Cholesky, in float64. A kernel in blocks is solved by block conjugate gradients, one pass over
    the kernel for each step, with the preconditioner K̂ + (λ k̄ + t) I: K̂ is a Nyström approximation from sampled rows
    (:func:`nystroem_factor`) and t = trace(K − K̂) / n the mean of what it leaves out. As K̂ ⪯ K, the preconditioned
    system's condition number is at most 1 + ‖K − K̂‖ / (λ k̄). Without t the bound is the same, but a kernel with many
    middling eigenvalues and a small ridge, such as a path kernel, takes twice the steps.

    Memory for a kernel in blocks: the sampled rows twice while they are factored and once later (n = 60,000, rank 1000,
    float32: 480 and 240 MB), five n × k matrices in float64, and a few blocks.

    Args:
        kernel: symmetric, positive semi-definite.
        targets: (n,) or (n, k); for classes, ``one_hot(labels, classes).double() - 1 / classes``.
        ridge: λ > 0, relative to the mean diagonal. A float32 kernel is positive semi-definite only to about √n · 1e-7
            of it; a smaller ridge may be refused during the solve.
        preconditioner_rank: rows of the Nyström approximation; 0 for none. By default a tenth of n, at most 1000.
            This and all later arguments are for kernels in blocks.
        tolerance: for ‖Y − (K + λ k̄) α‖ / ‖Y‖, each target.
        max_iterations: steps after which to stop and warn.
        start: a first α, ``fit.dual`` of a solve that stopped early or had another ridge.
        watch: called after each pass with the number of steps and the largest residual.
        generator: draws the sampled rows; torch's global one if None.

    Returns:
        The fit: ``fit.dual``, ``fit.predict(cross)``, ``fit.classes(cross)``, ``fit.residuals``.

    Raises:
        InputError: shapes that do not fit, no positive ridge, NaN in the targets or in the kernel (with its place), or
            a kernel that is not positive semi-definite.

    Warns:
        NotConvergedWarning: a residual is above the tolerance; see ``fit.residuals``.

    Example:
        >>> fit = kernel_ridge(torch.tensor([[2.0, 1.0], [1.0, 2.0]]), torch.tensor([1.0, 0.0]), 0.5)
        >>> fit.shift  # 0.5 of the mean diagonal
        1.0
        >>> [round(number, 9) for number in fit.dual.flatten().tolist()]
        [0.375, -0.125]
    """
    return _solve(kernel, targets, [ridge], preconditioner_rank, tolerance, max_iterations, start, watch, generator)[0]


def kernel_ridges(
    kernel: BlockedKernel | Float[Tensor, "n n"],
    targets: Float[Tensor, " n *k"],
    ridges: Sequence[float],
    *,
    preconditioner_rank: int | None = None,
    tolerance: float = 1e-6,
    max_iterations: int = 200,
    start: Float[Tensor, "n k"] | None = None,
    watch: PassObserver | None = None,
    generator: torch.Generator | None = None,
) -> tuple[RidgeFit, ...]:
    """Fit targets with several ridges, in as many passes as the slowest one needs; see :func:`kernel_ridge`.

    Choosing a ridge on held-out examples costs as many passes as its smallest ridge alone.

    Args:
        kernel: symmetric, positive semi-definite.
        targets: (n,) or (n, k).
        ridges: each positive, relative to the mean diagonal.
        preconditioner_rank: rows of the Nyström approximation, which all ridges share; 0 for none.
        tolerance: for the relative residual of each target.
        max_iterations: steps after which to stop and warn.
        start: a first α for every ridge.
        watch: called after each pass with the number of steps and the largest residual.
        generator: draws the sampled rows; torch's global one if None.

    Returns:
        A fit for each ridge, in their order.

    Example:
        >>> fits = kernel_ridges(torch.eye(2), torch.tensor([1.0, 0.0]), [1.0, 3.0])
        >>> [round(fit.dual[0].item(), 9) for fit in fits]
        [0.5, 0.25]
    """
    return _solve(kernel, targets, ridges, preconditioner_rank, tolerance, max_iterations, start, watch, generator)


def solve_in_memory(kernel: Float[Tensor, "n n"], targets: Float[Tensor, "n k"], shift: float) -> Float[Tensor, "n k"]:
    """Solve (K + shift · I) α = Y in float64; without a shift, return the least-squares α of least norm.

    Raises:
        InputError: the shift is below the rounding of the kernel.
    """
    kernel, targets = kernel.double(), targets.double()
    if shift == 0:
        return torch.linalg.pinv(kernel, hermitian=True) @ targets
    lower, failed = torch.linalg.cholesky_ex(kernel + shift * torch.eye(len(kernel)).to(kernel))
    if bool(failed):
        raise InputError(
            f"ridge {shift:g} is below the rounding of a kernel with entries up to {kernel.abs().max().item():.3g}, "
            "or the kernel is not positive semi-definite; give a larger ridge, or scale the examples down"
        )
    return torch.cholesky_solve(targets, lower)


def target_columns(targets: Tensor, n: int) -> Float[Tensor, "n k"]:
    """Return targets as columns in float64; refuse those that do not go with n examples."""
    if targets.ndim not in (1, 2) or targets.shape[0] != n or targets.numel() == 0 or not targets.is_floating_point():
        raise InputError(
            f"there are n = {n} examples, the targets have shape {tuple(targets.shape)} and dtype {targets.dtype}; "
            "give floating-point targets, (n,) or (n, k)"
        )
    columns = targets.detach().reshape(n, -1).double()
    bad = (~torch.isfinite(columns)).nonzero()
    if len(bad):
        row, column = bad[0].tolist()
        raise InputError(f"target {column} of example {row} is {columns[row, column].item()} ({len(bad)} like it)")
    return columns


def _solve(
    kernel: BlockedKernel | Float[Tensor, "n n"],
    targets: Float[Tensor, " n *k"],
    ridges: Sequence[float],
    preconditioner_rank: int | None,
    tolerance: float,
    max_iterations: int,
    start: Float[Tensor, "n k"] | None,
    watch: PassObserver | None,
    generator: torch.Generator | None,
) -> tuple[RidgeFit, ...]:
    """Do the work of both functions, which keeps ``stacklevel`` the same for both callers."""
    blocked = DenseKernel(kernel, symmetric=True) if isinstance(kernel, Tensor) else kernel
    n = check_symmetric(blocked, "ridge regression")
    if isinstance(kernel, Tensor):
        symmetric_kernel(kernel)
    columns = target_columns(targets, n)
    _check_settings(ridges, tolerance, max_iterations, preconditioner_rank)
    scale = checked_diagonal(blocked).mean().item()
    if isinstance(kernel, Tensor):
        return tuple(_direct_fit(kernel, columns, ridge, ridge * scale, tolerance) for ridge in ridges)
    if start is not None and start.shape != columns.shape:
        raise InputError(f"start has shape {tuple(start.shape)}, but the targets require {tuple(columns.shape)}")
    rank = min(1000, n // 10) if preconditioner_rank is None else preconditioner_rank
    factor = nystroem_factor(kernel, rank, generator=generator) if rank else None
    first = None if start is None else start.to(columns)
    searches = [
        BlockSearch(
            columns,
            ridge * scale,
            (lambda r: r) if factor is None else factor.inverse(ridge * scale + factor.remainder),
            tolerance,
            first,
        )
        for ridge in ridges
    ]
    _search(kernel, searches, max_iterations, watch)
    fits = tuple(
        RidgeFit(search.solution, ridge, ridge * scale, search.steps, search.residuals, tolerance)
        for ridge, search in zip(ridges, searches, strict=True)
    )
    for fit in fits:
        if not fit.converged:
            worst, column = fit.residuals.max(dim=0)
            warnings.warn(
                f"ridge {fit.ridge:g}: after {fit.iterations} iterations target {column.item()} has the residual "
                f"{worst.item():.2g}, above {fit.tolerance:g}; go on from start=fit.dual, or give a larger ridge, "
                "preconditioner_rank or max_iterations",
                NotConvergedWarning,
                stacklevel=3,
            )
    return fits


def _direct_fit(kernel: Tensor, columns: Tensor, ridge: float, shift: float, tolerance: float) -> RidgeFit:
    dual = solve_in_memory(kernel, columns, shift)
    rest = torch.linalg.vector_norm(columns - kernel.double() @ dual - shift * dual, dim=0)
    sizes = torch.linalg.vector_norm(columns, dim=0)
    return RidgeFit(dual, ridge, shift, 0, rest / sizes.where(sizes > 0, 1.0), tolerance)


def _search(kernel: BlockedKernel, searches: list[BlockSearch], limit: int, watch: PassObserver | None) -> None:
    """Run the searches on shared passes until each is finished, or has used its steps and checked its residual."""
    active = searches
    while active:
        wanted = [search.wanted for search in active]
        products = kernel_times(kernel, torch.cat(wanted, dim=1)).split([part.shape[1] for part in wanted], dim=1)
        given_up = [search.steps >= limit for search in active]
        for search, product in zip(active, products, strict=True):
            search.take(product)
            if search.steps >= limit:
                search.check_next()
        if watch is not None:
            watch(max(s.steps for s in searches), max(s.residuals.max().item() for s in active))
        active = [s for s, last in zip(active, given_up, strict=True) if not (s.finished or last)]


def _check_settings(ridges: Sequence[float], tolerance: float, limit: int, rank: int | None) -> None:
    if not isinstance(ridges, Sequence) or not ridges:
        raise InputError(f"ridges is {ridges!r}; give a list with at least one")
    for ridge in ridges:
        if not isinstance(ridge, int | float) or not 0 < ridge < float("inf"):
            raise InputError(
                f"ridge is {ridge!r}; give a positive number: otherwise the system is singular as soon as two "
                "examples have equal features, which rounding would hide"
            )
    if not 0 < tolerance < 1:
        raise InputError(f"tolerance is {tolerance}; give a number between 0 and 1")
    if limit < 1:
        raise InputError(f"max_iterations is {limit}; give at least 1")
    if rank is not None and (not isinstance(rank, int) or rank < 0):
        raise InputError(f"preconditioner_rank is {rank}; give 0 for none, or a whole number of rows")
