"""Block conjugate gradients that ask for products with the matrix, so that several searches share one pass over it."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from gatelab.errors import InputError

# A direction this much smaller than the others, once all have length one, is rounding.
_NEGLIGIBLE = 1e-10


class BlockSearch:
    r"""The search for X in :math:`(K + \mu I) X = B`, all columns of B together.

    Every step takes the best X in the space of *all* residuals so far, those of the other columns included (O'Leary
    1980), which needs fewer passes over K than a search for each column. Directions are kept orthonormal, and those
    that vanish are left out (the breakdown-free form of Ji and Li 2017): one-hot targets that add up to a constant, or
    a column that has converged before the others, do no harm.

    Residuals drift from those of X in floating point. When they say that all is well, one product with X itself tells
    whether it is, and if not the search goes on from there.

    Attributes:
        solution: X so far.
        residuals: ‖B − (K + μ I) X‖ / ‖B‖ for each column, of X itself after a product with it.
        steps: products with directions so far.
        finished: whether the residuals of X itself are small enough.
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
        """What to multiply by K next."""
        return self.solution if self._checking else self._directions

    def check_next(self) -> None:
        """Ask for the product with X next, because time is up."""
        self._checking = True

    def take(self, product: Float[Tensor, "n s"]) -> None:
        """Go on with K times what was wanted.

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
        conjugate = torch.cholesky_solve(image.T @ preconditioned, lower)
        self._directions = _orthonormal(preconditioned - directions @ conjugate)
        self._checking = bool((self.residuals <= self._tolerance).all()) or self._directions.shape[1] == 0

    def _relative(self) -> Float[Tensor, " k"]:
        """A column of zeros has the solution zero, and no residual."""
        return torch.linalg.vector_norm(self._residual, dim=0) / self._sizes.where(self._sizes > 0, 1.0)

    def _not_definite(self, curvature: Tensor) -> InputError:
        least = torch.linalg.eigvalsh((curvature + curvature.T) / 2)[0].item()
        return InputError(
            f"the kernel plus {self._shift:.3g} on its diagonal is not positive definite: a direction has the "
            f"curvature {least:.3g}. Either the kernel is not positive semi-definite, or the ridge is below the "
            "rounding of its entries; give a larger ridge, or compute the kernel in float64"
        )


def _orthonormal(columns: Float[Tensor, "n k"]) -> Float[Tensor, "n s"]:
    """An orthonormal basis of the columns' span, each column of the same weight; none for zeros."""
    lengths = torch.linalg.vector_norm(columns, dim=0)
    kept = columns[:, lengths > 0] / lengths[lengths > 0]
    if kept.shape[1] == 0:
        return kept
    basis, sizes, _ = torch.linalg.svd(kept, full_matrices=False)
    return basis[:, sizes > _NEGLIGIBLE * sizes[0]]
