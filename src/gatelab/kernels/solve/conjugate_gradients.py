"""Block conjugate gradients. A search asks for products with the matrix, so that several can share one pass."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from gatelab.errors import InputError

# After columns are scaled to unit length, a direction smaller than the largest by this factor is rounding.
_NEGLIGIBLE = 1e-10


class BlockSearch:
    r"""The search for X in :math:`(K + \mu I) X = B`, all columns of B together.

    Every step takes the best X in the space of *all* residuals so far, including those of the other columns (O'Leary
    1980). This needs fewer passes over K than a search for each column. Directions are kept orthonormal, and vanishing
    ones are dropped (the breakdown-free form of Ji and Li 2017), so one-hot targets that add up to a constant, or a
    column that converges before the others, do no harm.

    In floating point the updated residuals drift away from the true residuals of X. When they are small enough, one
    product with X gives the true ones; if these are too large, the search restarts from X.

    Attributes:
        solution: X so far.
        residuals: ‖B − (K + μ I) X‖ / ‖B‖ for each column; exact after a product with X.
        steps: products with directions so far.
        finished: whether the exact residuals are small enough.
    """

    def __init__(
        self,
        targets: Float[Tensor, "n k"],
        shift: float,
        precondition: Callable[[Tensor], Tensor],
        tolerance: float,
        start: Float[Tensor, "n k"] | None = None,
    ):
        self._targets, self._shift, self._precondition, self._tolerance = targets, shift, precondition, tolerance
        self._sizes = torch.linalg.vector_norm(targets, dim=0)
        self.solution = torch.zeros_like(targets) if start is None else start.clone()
        self.steps = 0
        self.finished = False
        self._residual = targets.clone()
        self.residuals = self._relative()
        self._directions = _orthonormal(precondition(self._residual))
        self._checking = start is not None or self._directions.shape[1] == 0

    @property
    def wanted(self) -> Float[Tensor, "n s"]:
        """The vectors to multiply by K next."""
        return self.solution if self._checking else self._directions

    def check_next(self) -> None:
        """Make X the next vector to multiply, because the steps are used up."""
        self._checking = True

    def take(self, product: Float[Tensor, "n s"]) -> None:
        """Continue with K times :attr:`wanted`.

        Raises:
            InputError: K + μ I is not positive definite.
        """
        if self._checking:
            self._check(product + self._shift * self.solution)
        else:
            self._step(product + self._shift * self._directions)

    def _check(self, image: Tensor) -> None:
        self._residual = self._targets - image
        self.residuals = self._relative()
        self.finished = bool((self.residuals <= self._tolerance).all())
        self._checking = False
        if not self.finished:
            self._directions = _orthonormal(self._precondition(self._residual))

    def _step(self, image: Tensor) -> None:
        directions = self._directions
        curvature = directions.T @ image
        lower, failed = torch.linalg.cholesky_ex((curvature + curvature.T) / 2)
        if bool(failed):
            raise self._not_definite(curvature)
        lengths = torch.cholesky_solve(directions.T @ self._residual, lower)
        self.solution += directions @ lengths
        self._residual -= image @ lengths
        self.residuals = self._relative()
        self.steps += 1
        preconditioned = self._precondition(self._residual)
        # Only the latest directions must be projected out: in exact arithmetic earlier ones are conjugate already.
        conjugate = torch.cholesky_solve(image.T @ preconditioned, lower)
        self._directions = _orthonormal(preconditioned - directions @ conjugate)
        self._checking = bool((self.residuals <= self._tolerance).all()) or self._directions.shape[1] == 0

    def _relative(self) -> Float[Tensor, " k"]:
        """Residuals relative to the targets; a column of zeros has none."""
        return torch.linalg.vector_norm(self._residual, dim=0) / self._sizes.where(self._sizes > 0, 1.0)

    def _not_definite(self, curvature: Tensor) -> InputError:
        least = torch.linalg.eigvalsh((curvature + curvature.T) / 2)[0].item()
        return InputError(
            f"the kernel plus {self._shift:.3g} on its diagonal is not positive definite: a direction has the "
            f"curvature {least:.3g}. Either the kernel is not positive semi-definite, or the ridge is below the "
            "rounding of its entries; give a larger ridge, or compute the kernel in float64"
        )


def _orthonormal(columns: Float[Tensor, "n k"]) -> Float[Tensor, "n s"]:
    """An orthonormal basis of the span of the columns, each scaled to length one; empty for zeros."""
    lengths = torch.linalg.vector_norm(columns, dim=0)
    kept = columns[:, lengths > 0] / lengths[lengths > 0]
    if kept.shape[1] == 0:
        return kept
    basis, sizes, _ = torch.linalg.svd(kept, full_matrices=False)
    return basis[:, sizes > _NEGLIGIBLE * sizes[0]]
