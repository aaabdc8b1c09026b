"""The Nyström approximation: a kernel's large directions from some of its rows, and a preconditioner made from it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from gatelab.errors import InputError
from gatelab.kernels.solve.blocks import BlockedKernel
from gatelab.kernels.solve.products import bad_entry, check_symmetric

# Examples whose part of the factor is widened to float64 at a time: few enough for the cache, and for the allocator to
# reuse the same memory. Widening all at once would spend most of the time on fresh pages.
_CHUNK = 256


@dataclass(frozen=True)
class NystroemFactor:
    r"""F with :math:`F F^\top = \hat K \preceq K`, the part of the kernel that some examples determine."""

    factor: Float[Tensor, "n r"]  # F, in the kernel's dtype
    gram: Float[Tensor, "r r"]  # Fᵀ F, in float64
    landmarks: Int64[Tensor, " r"]  # these examples
    remainder: float  # trace(K − K̂) / n, the mean eigenvalue of what they leave out

    def inverse(self, shift: float) -> Callable[[Tensor], Tensor]:
        r"""Return a function that applies the inverse of F Fᵀ + shift · I, through a system of the factor's rank.

        .. math:: (F F^\top + \mu I)^{-1} r = \left(r - F (F^\top F + \mu I)^{-1} F^\top r\right) / \mu

        It computes in float64, even for a factor in float32. It then inverts the matrix of the rounded factor, which is
        exactly symmetric and positive definite: a slightly different preconditioner, but an exact one.
        """
        small = torch.linalg.cholesky(self.gram + shift * torch.eye(len(self.gram)).to(self.gram))

        def apply(vectors: Tensor) -> Tensor:
            seen = torch.zeros(len(self.gram), vectors.shape[1], dtype=torch.float64, device=vectors.device)
            for some in _chunks(len(vectors)):
                seen += self.factor[some].double().T @ vectors[some]
            seen = torch.cholesky_solve(seen, small)
            answer = vectors.clone()
            for some in _chunks(len(vectors)):
                answer[some] -= self.factor[some].double() @ seen
            return answer.div_(shift)

        return apply


def nystroem_factor(kernel: BlockedKernel, rank: int, *, generator: torch.Generator | None = None) -> NystroemFactor:
    r"""Approximate a positive semi-definite kernel from ``rank`` of its rows.

    .. math:: \hat K = C W^{-1} C^\top = F F^\top, \qquad F = C L^{-\top}, \quad L L^\top = W

    C holds the columns of the landmarks and W the block of the landmarks with themselves. Landmarks are drawn without
    repetition, each with a probability proportional to its diagonal entry. The smallest multiple of the identity that
    rounding demands is added to W; K̂ ⪯ K still holds. O(rank² n) and one call of ``kernel.rows``.

    A Gaussian sketch of the same rank would cost ``rank`` products with K, as much as a hundred steps of conjugate
    gradients for rank 1000 and ten targets, and saves no steps on path kernels; rows cost only a read.

    Args:
        kernel: symmetric, positive semi-definite.
        rank: the number of landmarks; at most n are drawn.
        generator: draws them; torch's global one if None.

    Raises:
        InputError: the kernel is not symmetric, holds NaN, or is not positive semi-definite to its precision.

    Example:
        >>> from gatelab.kernels.solve.blocks import DenseKernel
        >>> factor = nystroem_factor(DenseKernel(torch.tensor([[4.0, 2.0], [2.0, 5.0]]), symmetric=True), 2)
        >>> (factor.factor @ factor.factor.T).round(decimals=3).tolist()
        [[4.0, 2.0], [2.0, 5.0]]
    """
    n = check_symmetric(kernel, "a Nyström approximation")
    if rank < 1:
        raise InputError(f"rank is {rank}; an approximation needs at least one landmark")
    diagonal = checked_diagonal(kernel)
    landmarks = _landmarks(diagonal, min(rank, n), generator).to(diagonal.device)
    rows = kernel.rows(landmarks)
    if not bool(torch.isfinite(rows.sum(dim=1)).all()):  # a sum may also overflow, so check the entries
        _refuse_bad_rows(rows, landmarks)
    lower = _cholesky(rows[:, landmarks].double(), torch.finfo(kernel.dtype).eps)
    factor, gram = rows.new_empty(n, len(landmarks)), torch.zeros_like(lower)
    for some in _chunks(n):
        factor[some] = torch.linalg.solve_triangular(lower, rows[:, some].double(), upper=False).T
        gram += factor[some].double().T @ factor[some].double()  # of the rounded factor
    # Rounding may leave the two traces in the wrong order when nothing remains.
    remainder = max(0.0, (diagonal.sum() - gram.trace()).item() / n)
    return NystroemFactor(factor, gram, landmarks, remainder)


def checked_diagonal(kernel: BlockedKernel) -> Float[Tensor, " n"]:
    """Return the diagonal; refuse one that is impossible for a non-zero positive semi-definite kernel."""
    diagonal = kernel.diagonal().double()
    bad = (~(torch.isfinite(diagonal) & (diagonal >= 0))).nonzero()
    if len(bad):
        raise InputError(
            f"the kernel's diagonal entry {bad[0].item()} is {diagonal[bad[0]].item()} ({len(bad)} like it); "
            "a positive semi-definite kernel has finite entries there, none negative: recompute it"
        )
    if diagonal.max() == 0:
        raise InputError("the kernel's diagonal is zero everywhere: a positive semi-definite kernel is then zero")
    return diagonal


def _landmarks(diagonal: Tensor, rank: int, generator: torch.Generator | None) -> Int64[Tensor, " r"]:
    """Draw examples, in ascending order: a store is then read from one end to the other."""
    weights = diagonal.cpu()
    rank = min(rank, int((weights > 0).sum()))  # an example without a diagonal entry has a row of zeros
    return torch.multinomial(weights, rank, generator=generator).sort().values


def _refuse_bad_rows(rows: Tensor, landmarks: Tensor) -> None:
    for row, landmark in zip(rows, landmarks.tolist(), strict=True):
        if not bool(torch.isfinite(row).all()):
            raise bad_entry(row[None], slice(landmark, landmark + 1), slice(0, len(row)))


def _cholesky(block: Tensor, precision: float) -> Tensor:
    """Factor a block whose entries are known to ``precision``, with the least shift that makes it positive definite.

    Rounding moves the eigenvalues of r × r entries by about √r · precision if it is random, and by the trace times
    precision at worst; a block that needs several times that is not positive semi-definite.
    """
    mean, size = block.diagonal().mean(), len(block)
    block = (block + block.T) / 2
    shift = size**0.5 * precision * mean
    while shift <= 16 * size * precision * mean:
        lower, failed = torch.linalg.cholesky_ex(block + shift * torch.eye(size).to(block))
        if not bool(failed):
            return lower
        shift *= 4
    least = torch.linalg.eigvalsh(block)[0].item()
    raise InputError(
        f"the kernel is not positive semi-definite: its block of {size} landmarks has the eigenvalue {least:.3g}, with "
        f"a mean diagonal of {mean.item():.3g}; ridge regression needs one that is"
    )


def _chunks(n: int) -> Iterator[slice]:
    for start in range(0, n, _CHUNK):
        yield slice(start, min(n, start + _CHUNK))
