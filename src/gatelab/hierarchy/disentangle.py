r"""Disentangled activations and gradients, separable weights, factorised probabilities (hierarchy, Defs 3–5).

z_α consists of k binary factors, the first the most significant bit, so a column over the values of z_α is a tensor
with k axes of length 2. Node j stands for factor j:

.. math:: F_{\alpha,:j} = 1 \otimes … \otimes f_j \otimes … \otimes 1, \qquad
          \tilde G_{\alpha,:j} = p_1 \otimes … \otimes \tilde g_j \otimes … \otimes p_k.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import torch
from jaxtyping import Float
from torch import Tensor

from gatelab.errors import InputError
from gatelab.hierarchy.codes import n_factors


@dataclass(frozen=True)
class Nearest:
    """The nearest matrix with a structure; its distance in the Frobenius norm, also relative to the given matrix."""

    matrix: Float[Tensor, "m n"]
    distance: float
    relative: float

    @classmethod
    def of(cls, given: Tensor, nearest: Tensor) -> "Nearest":
        """Measure the distance."""
        distance, norm = (given - nearest).norm().item(), given.norm().item()
        return cls(nearest, distance, distance / norm if norm else 0.0)


def nearest_disentangled(matrix: Float[Tensor, "m k"], marginals: Float[Tensor, "k 2"] | None = None) -> Nearest:
    """Find the nearest disentangled activations F (Def. 3) or, given the factors' marginals, gradients G̃ (Def. 4).

    Args:
        matrix: F or G̃; a row for each value of z_α and a column for each of its k = log₂ m factors.
        marginals: rows p_j = [P(factor j = 0), P(factor j = 1)], for gradients; see :func:`factor_marginals`.

    Returns:
        The nearest matrix and its distance.

    Example:
        >>> nearest_disentangled(torch.tensor([[0.0, 0.0], [0.0, 2.0], [1.0, 0.0], [1.0, 2.0]])).relative
        0.0
    """
    k = n_factors(len(matrix), "z")
    if matrix.shape[1] != k:
        raise InputError(
            f"{len(matrix)} values have {k} binary factors, but there are {matrix.shape[1]} nodes; the definition "
            "requires one node per factor (disentanglement_score takes any number)"
        )
    rest = torch.ones(k, 2).to(matrix) if marginals is None else marginals.to(matrix)
    if rest.shape != (k, 2):
        raise InputError(f"marginals are {tuple(rest.shape)}; give a row [P(0), P(1)] for each of {k} factors")
    if not bool(torch.isfinite(matrix).all() and torch.isfinite(rest).all()):
        raise InputError("the matrix or the marginals hold NaN or infinite values; give finite numbers")
    columns = []
    for j in range(k):
        # Project onto {r ⊗ … ⊗ v ⊗ … ⊗ r}: v is free on the column's own axis, r = 1 or p on the others.
        tensor = matrix[:, j].reshape(*(2,) * k)
        for axis in range(k):
            if axis != j:
                r = rest[axis].view(*(2 if a == axis else 1 for a in range(k)))
                tensor = (tensor * r).sum(dim=axis, keepdim=True) * r / r.square().sum()
        columns.append(tensor.reshape(-1))
    return Nearest.of(matrix, torch.stack(columns, dim=1))


def disentangled(factors: Float[Tensor, "k 2"], marginals: Float[Tensor, "k 2"] | None = None) -> Float[Tensor, "m k"]:
    """Build the matrix with f_j in column j (Def. 3) or, given the marginals, g̃_j (Def. 4)."""
    rest = torch.ones_like(factors) if marginals is None else marginals
    k = len(factors)
    columns = [kron([factors[j] if i == j else rest[i] for i in range(k)]) for j in range(k)]
    return torch.stack(columns, dim=1)


def nearest_separable(weight: Float[Tensor, "n k"], sets: Sequence[Sequence[int]]) -> Nearest:
    """Find the nearest separable weights (Def. 5): column j keeps the rows of S_j, the rest is zero."""
    _check_sets(sets, weight.shape[0], weight.shape[1])
    mask = torch.zeros_like(weight)
    for column, rows in enumerate(sets):
        mask[list(rows), column] = 1
    return Nearest.of(weight, weight * mask)


def factorised(blocks: Sequence[Float[Tensor, "2 _"]], sets: Sequence[Sequence[int]]) -> Float[Tensor, "m n"]:
    """Build P_αβ = ⊗_i P(β[S_i] | α[i]) from its blocks, 2 × 2^|S_i| each; columns in the order of β's own factors."""
    width = sum(len(rows) for rows in sets)
    _check_sets(sets, width, len(blocks))
    for block, rows in zip(blocks, sets, strict=True):
        if block.shape != (2, 2 ** len(rows)):
            raise InputError(f"the block of S = {list(rows)} is {tuple(block.shape)}; it must be (2, {2 ** len(rows)})")
    product = kron(list(blocks))
    order = [factor for rows in sets for factor in rows]
    axes = product.view(-1, *(2,) * width).permute(0, *(1 + order.index(factor) for factor in range(width)))
    return axes.reshape(len(product), -1)


def factor_blocks(matrix: Float[Tensor, "m n"], sets: Sequence[Sequence[int]]) -> list[Float[Tensor, "2 _"]]:
    """Return the marginal blocks P(β[S_i] | α[i]) of P_αβ."""
    k, width = len(sets), matrix.shape[1].bit_length() - 1
    if matrix.shape != (2**k, 2**width):
        raise InputError(f"the matrix has shape {tuple(matrix.shape)}; {k} factors need {2**k} rows, and 2^n columns")
    _check_sets(sets, width, k)
    tensor = matrix.view(*(2,) * (k + width))
    blocks = []
    for i, rows in enumerate(sets):
        # A sum over all other factors of β, and a mean over the 2^(k − 1) values of the other factors of α.
        kept = torch.einsum(tensor, list(range(k + width)), [i, *(k + factor for factor in rows)])
        blocks.append(kept.reshape(2, -1) / 2 ** (k - 1))
    return blocks


def nearest_factorised(matrix: Float[Tensor, "m n"], sets: Sequence[Sequence[int]]) -> Nearest:
    """Return the product of P_αβ's marginal blocks; its distance is 0 if and only if P_αβ factorises."""
    return Nearest.of(matrix, factorised(factor_blocks(matrix, sets), sets))


def factor_marginals(prior: Float[Tensor, " m"]) -> Float[Tensor, "k 2"]:
    """Return a row p_j = [P(factor j = 0), P(factor j = 1)] for each binary factor."""
    return torch.stack([prior.view(2**j, 2, -1).sum(dim=(0, 2)) for j in range(n_factors(len(prior), "z"))])


def kron(tensors: Sequence[Tensor]) -> Tensor:
    """Return the tensor product a ⊗ b ⊗ … of all tensors."""
    return reduce(torch.kron, tensors)


def _check_sets(sets: Sequence[Sequence[int]], rows: int, columns: int) -> None:
    used = [row for chosen in sets for row in chosen]
    if len(sets) != columns or len(set(used)) != len(used) or not set(used) <= set(range(rows)):
        raise InputError(
            f"the sets {[list(chosen) for chosen in sets]} must be disjoint, one for each of {columns} columns, "
            f"with rows from 0 … {rows - 1}"
        )
