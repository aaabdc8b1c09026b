"""Kernel ridge regression and classification with a kernel that need not fit in memory."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from gatelab.errors import InputError, NotConvergedWarning
from gatelab.kernels.solve.blocks import BlockedKernel
from gatelab.kernels.solve.conjugate_gradients import BlockSearch
from gatelab.kernels.solve.nystroem import checked_diagonal, nystroem_factor
from gatelab.kernels.solve.products import check_symmetric, kernel_times

# Told after every pass: steps so far, and the largest residual among those that are not done.
Watch = Callable[[int, float], None]


@dataclass(frozen=True)
class RidgeFit:
    r"""A solved ridge regression: :math:`f(x) = \sum_i k(x, x_i)\, \alpha_i`.

    Attributes:
        dual: α, in float64, with a column for each target.
        ridge: λ, relative to the kernel's mean diagonal.
        shift: λ times the mean diagonal, what was added to the diagonal.
        iterations: steps of conjugate gradients, each a pass over the kernel.
        residuals: ‖Y − (K + shift) α‖ / ‖Y‖ for each target, of this α, not of the recurrence.
        tolerance: what the residuals were to reach.
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

    def predict(self, cross: BlockedKernel) -> Float[Tensor, "m k"]:
        """The answers to m examples, from their kernel with the n that were fitted, (m, n); one pass over it."""
        if cross.shape[1] != self.dual.shape[0]:
            raise InputError(
                f"the kernel is {cross.shape[0]} × {cross.shape[1]}, but {self.dual.shape[0]} examples were fitted; "
                "give that of the new examples (rows) with the fitted ones (columns)"
            )
        return kernel_times(cross, self.dual)

    def classes(self, cross: BlockedKernel) -> Int64[Tensor, " m"]:
        """The target with the largest answer, for targets that are one-hot, centred or not."""
        if self.dual.shape[1] < 2:
            raise InputError("the fit has one target, so that there is no largest; take the sign of predict(...)")
        return self.predict(cross).argmax(dim=1)


def kernel_ridge(
    kernel: BlockedKernel,
    targets: Float[Tensor, " n *k"],
    ridge: float,
    *,
    preconditioner_rank: int | None = None,
    tolerance: float = 1e-6,
    max_iterations: int = 200,
    start: Float[Tensor, "n k"] | None = None,
    watch: Watch | None = None,
    generator: torch.Generator | None = None,
) -> RidgeFit:
    r"""Ridge regression with a kernel, by block conjugate gradients: one pass over the kernel for each step.

    .. math:: (K + \lambda\, \bar k\, I)\, \alpha = Y, \qquad \bar k = \mathrm{trace}(K) / n

    The ridge λ is relative to the mean diagonal, so that it means the same for a kernel and for a multiple of it.

    Preconditioned by K̂ + (λ k̄ + t) I, with K̂ a Nyström approximation from sampled rows
    (:func:`gatelab.kernels.nystroem_factor`) and t = trace(K − K̂) / n, the mean of what it leaves out. As K̂ ⪯ K, the
    condition number of the preconditioned system is at most 1 + ‖K − K̂‖ / (λ k̄). Without t the bound is the same, but
    a kernel with many middling eigenvalues and a small ridge, a path kernel say, takes twice the steps.

    Why this preconditioner: a Gaussian sketch of the same rank takes as many steps on path kernels, and fewer only
    where its rank exceeds the kernel's, but it costs ``rank`` products with K, a hundred steps' work for rank 1000 and
    ten targets, where rows cost a read. EigenPro corrects Richardson's iteration with the top of the same rows'
    spectrum; that takes about the square of the steps.

    Memory: the rows twice, 2 · rank · n entries while they are factored and once later (n = 60,000, rank 1000, float32:
    480 and 240 MB), five n × k matrices in float64, and a few blocks. A solve starts anew when it is interrupted,
    unless ``start`` is given; at n = 60,000 a step is a pass over 7.2 GB.

    Args:
        kernel: symmetric, positive semi-definite.
        targets: (n,) or (n, k); for classes, ``one_hot(labels, classes).double() - 1 / classes``.
        ridge: λ > 0, relative to the mean diagonal. A float32 kernel is positive semi-definite only to about √n · 1e-7
            of it; smaller ridges may be refused in the course of the solve.
        preconditioner_rank: rows of the Nyström approximation; 0 for none. By default a tenth of n, at most 1000.
        tolerance: for ‖Y − (K + λ k̄) α‖ / ‖Y‖, each target.
        max_iterations: steps after which to stop and warn.
        start: a first α, ``fit.dual`` of a solve that stopped early or had another ridge.
        watch: told after each pass.
        generator: for the rows that are drawn; torch's global one if None.

    Raises:
        InputError: shapes that do not fit, no positive ridge, NaN in the targets or in the kernel (with its place), or
            a kernel that is not positive semi-definite.

    Warns:
        NotConvergedWarning: a residual is above the tolerance; the fit says which.

    Example:
        >>> from gatelab.kernels import DenseKernel
        >>> kernel = DenseKernel(torch.tensor([[2.0, 1.0], [1.0, 2.0]]), symmetric=True)
        >>> fit = kernel_ridge(kernel, torch.tensor([1.0, 0.0]), 0.5)  # (K + 0.5 · 2 I) α = y
        >>> [round(number, 9) for number in fit.dual.flatten().tolist()]
        [0.375, -0.125]
        >>> fit.converged, fit.shift
        (True, 1.0)
    """
    return _solve(kernel, targets, [ridge], preconditioner_rank, tolerance, max_iterations, start, watch, generator)[0]


def kernel_ridges(
    kernel: BlockedKernel,
    targets: Float[Tensor, " n *k"],
    ridges: Sequence[float],
    *,
    preconditioner_rank: int | None = None,
    tolerance: float = 1e-6,
    max_iterations: int = 200,
    start: Float[Tensor, "n k"] | None = None,
    watch: Watch | None = None,
    generator: torch.Generator | None = None,
) -> tuple[RidgeFit, ...]:
    """:func:`kernel_ridge` for several ridges, which share the rows that are drawn and every pass over the kernel.

    To choose a ridge on held-out examples costs as many passes as its slowest, smallest ridge alone.
    """
    return _solve(kernel, targets, ridges, preconditioner_rank, tolerance, max_iterations, start, watch, generator)


def _solve(
    kernel: BlockedKernel,
    targets: Float[Tensor, " n *k"],
    ridges: Sequence[float],
    preconditioner_rank: int | None,
    tolerance: float,
    max_iterations: int,
    start: Float[Tensor, "n k"] | None,
    watch: Watch | None,
    generator: torch.Generator | None,
) -> tuple[RidgeFit, ...]:
    """The work of both, so that a warning has as far to go to whoever called the one or the other."""
    n = check_symmetric(kernel, "ridge regression")
    columns = _columns(targets, n)
    _check_settings(ridges, tolerance, max_iterations, preconditioner_rank)
    if start is not None and start.shape != columns.shape:
        raise InputError(f"start has shape {tuple(start.shape)}, the targets make it {tuple(columns.shape)}")
    scale = checked_diagonal(kernel).mean().item()
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
        _warn_unless_converged(fit)
    return fits


def _search(kernel: BlockedKernel, searches: list[BlockSearch], limit: int, watch: Watch | None) -> None:
    """Let the searches share passes until all are finished, or have had their steps and checked where they are."""
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


def _columns(targets: Tensor, n: int) -> Float[Tensor, "n k"]:
    if targets.ndim not in (1, 2) or targets.shape[0] != n or targets.numel() == 0:
        raise InputError(f"the kernel has n = {n}, the targets have shape {tuple(targets.shape)}; give (n,) or (n, k)")
    columns = targets.detach().reshape(n, -1).double()
    bad = (~torch.isfinite(columns)).nonzero()
    if len(bad):
        row, column = bad[0].tolist()
        raise InputError(f"target {column} of example {row} is {columns[row, column].item()} ({len(bad)} like it)")
    return columns


def _check_settings(ridges: Sequence[float], tolerance: float, limit: int, rank: int | None) -> None:
    if not ridges:
        raise InputError("there are no ridges; give at least one")
    for ridge in ridges:
        if not 0 < ridge < float("inf"):
            raise InputError(
                f"ridge is {ridge}; give a positive number: without one the system is singular as soon as two examples "
                "have equal features, and a kernel that is known to rounding cannot tell"
            )
    if not 0 < tolerance < 1:
        raise InputError(f"tolerance is {tolerance}; give a number between 0 and 1")
    if limit < 1:
        raise InputError(f"max_iterations is {limit}; give at least one")
    if rank is not None and rank < 0:
        raise InputError(f"preconditioner_rank is {rank}; give 0 for none, or a number of rows")


def _warn_unless_converged(fit: RidgeFit) -> None:
    if not fit.converged:
        worst, column = fit.residuals.max(dim=0)
        warnings.warn(
            f"ridge {fit.ridge:g}: after {fit.iterations} iterations target {column.item()} has the residual "
            f"{worst.item():.2g}, above {fit.tolerance:g}; go on from start=fit.dual, or give a larger ridge, "
            "preconditioner_rank or max_iterations",
            NotConvergedWarning,
            stacklevel=4,
        )
