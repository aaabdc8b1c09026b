"""Probabilities between neighbouring summarisation variables: P_αβ, P^b_αβ, Λ_α (hierarchy, Table 3)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gatelab.errors import InputError
from gatelab.hierarchy.codes import ENUMERATION_LIMIT
from gatelab.hierarchy.fields import ReceptiveFields
from gatelab.hierarchy.teacher import Teacher

# Larger matrices are kept sparse: they have at most as many entries as there are inputs.
DENSE_LIMIT = 2**18
_ROW_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Events:
    """The distribution of a teacher's variables, as far as training sees it.

    Rows of values that never occur are zero.

    Attributes:
        fields: the hierarchy.
        priors: region → P(z_α), the diagonal of Λ_α.
        matrices: (parent α, child β) → P_αβ = P(z_β | z_α), m_α × m_β, dense or sparse.
        targets: what the student's top nodes should say for each value at the top.
        samples: how many inputs were counted; None if the numbers are exact.
    """

    fields: ReceptiveFields
    priors: dict[str, Float[Tensor, " _"]]
    matrices: dict[tuple[str, str], Tensor]
    targets: Float[Tensor, "m k"]
    samples: int | None = None

    def matrix(self, parent: str, child: str) -> Tensor:
        """P_αβ = P(z_β | z_α), m_α × m_β."""
        if (parent, child) not in self.matrices:
            raise InputError(f"'{parent}' is no parent of '{child}'; its children are {self.fields.children(parent)}")
        return self.matrices[parent, child]

    def backward(self, parent: str, child: str) -> Tensor:
        """P^b_αβ = P(z_α | z_β), m_α × m_β, by Bayes: Λ_β (P^b)ᵀ = Pᵀ Λ_α."""
        matrix = self.matrix(parent, child)
        rows, columns = self.priors[parent], self.priors[child]
        inverse = torch.where(columns > 0, 1 / columns, 0)
        if not matrix.is_sparse:
            return rows.unsqueeze(1) * matrix * inverse
        index = matrix.indices()
        return _sparse(index, matrix.values() * rows[index[0]] * inverse[index[1]], matrix.shape)

    def error(self, parent: str, child: str) -> Tensor:
        """Standard error of each entry of P_αβ: √(P (1 − P) / count of z_α); 0 where exact."""
        matrix = self.matrix(parent, child)
        dense = matrix.to_dense() if matrix.is_sparse else matrix
        if self.samples is None:
            return torch.zeros_like(dense)
        counts = (self.samples * self.priors[parent]).unsqueeze(1)
        return (dense * (1 - dense) / counts.clamp(min=1)).clamp(min=0).sqrt()

    def count(self, region: str) -> Float[Tensor, " m"]:
        """How often each value of z_α was seen."""
        if self.samples is None:
            raise InputError("these probabilities are exact, nothing was counted; use priors")
        return self.priors[region] * self.samples

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> "Events":
        """The same on another device or in another precision."""
        return replace(
            self,
            priors={region: prior.to(device=device, dtype=dtype) for region, prior in self.priors.items()},
            matrices={edge: matrix.to(device=device, dtype=dtype) for edge, matrix in self.matrices.items()},
            targets=self.targets.to(device=device, dtype=dtype),
        )


def exact_events(teacher: Teacher, limit: int = ENUMERATION_LIMIT) -> Events:
    """The probabilities by visiting every input.

    Raises:
        SupportTooLargeError: more than ``limit`` inputs; the message names the sampling alternative.
    """
    x, probability = teacher.inputs.support(limit)
    return _events(teacher, x, probability, None)


def counted_events(teacher: Teacher, x: Int[Tensor, "n d"]) -> Events:
    """The probabilities estimated by counting over a sample, or a batch (hierarchy, Section 3: P̃)."""
    weights = torch.full((len(x),), 1 / max(1, len(x)), dtype=torch.float64, device=x.device)
    return _events(teacher, x, weights, len(x))


def given_events(
    fields: ReceptiveFields,
    top_prior: Float[Tensor, " m"],
    matrices: Mapping[tuple[str, str], Float[Tensor, "_ _"]],
    targets: Float[Tensor, "m k"] | None = None,
) -> Events:
    """The probabilities as specified, (parent, child) → P(z_β | z_α); priors follow from the top.

    Targets are the identity by default: every value at the top a class of its own.

    Raises:
        InputError: rows that do not sum to one, sizes that do not fit, or parents that disagree about a child.
    """
    if set(matrices) != set(fields.edges):
        raise InputError(
            f"matrices are given for {sorted(matrices)}; the hierarchy has the edges {sorted(fields.edges)}"
        )
    _check_rows(f"the prior of '{fields.top}'", top_prior.unsqueeze(0))
    priors = {fields.top: top_prior}
    for parent in reversed(fields.inner):
        for child in fields.children(parent):
            matrix = matrices[parent, child]
            _check_rows(f"P of ('{parent}', '{child}')", matrix)
            if len(matrix) != len(priors[parent]):
                raise InputError(
                    f"P of ('{parent}', '{child}') has {len(matrix)} rows, but '{parent}' takes "
                    f"{len(priors[parent])} values"
                )
            prior = priors[parent] @ matrix
            known = priors.setdefault(child, prior)
            if known.shape != prior.shape or not torch.allclose(known, prior, atol=_ROW_TOLERANCE):
                raise InputError(
                    f"the parents of '{child}' disagree about its probabilities: {known.tolist()} and, from "
                    f"'{parent}', {prior.tolist()}; a joint distribution has one marginal"
                )
    if targets is None:
        targets = torch.eye(len(top_prior), dtype=top_prior.dtype, device=top_prior.device)
    return Events(fields, priors, dict(matrices), targets)


def times(matrix: Tensor, values: Float[Tensor, "k w"]) -> Float[Tensor, "m w"]:
    """P F. Torch's own sparse product sorts and converts on every call; few columns make that the larger part."""
    if not matrix.is_sparse:
        return matrix @ values
    (rows, columns), entries = matrix.indices(), matrix.values()
    return _scattered(rows, entries, values.index_select(0, columns), matrix.shape[0])


def transposed_times(matrix: Tensor, values: Float[Tensor, "m w"]) -> Float[Tensor, "k w"]:
    """Pᵀ G̃."""
    if not matrix.is_sparse:
        return matrix.T @ values
    (rows, columns), entries = matrix.indices(), matrix.values()
    return _scattered(columns, entries, values.index_select(0, rows), matrix.shape[1])


def _scattered(
    index: Int[Tensor, " k"], entries: Float[Tensor, " k"], values: Float[Tensor, "k w"], size: int
) -> Float[Tensor, "m w"]:
    return values.new_zeros(size, values.shape[1]).index_add_(0, index, entries.unsqueeze(1) * values)


def _check_rows(what: str, matrix: Float[Tensor, "m k"]) -> None:
    sums = matrix.sum(dim=1)
    bad = ((sums - 1).abs() > _ROW_TOLERANCE) | (matrix < 0).any(dim=1) | sums.isnan()
    if bool(bad.any()):
        row = int(bad.nonzero()[0])
        raise InputError(
            f"{what}: row {row} sums to {sums[row].item():g} with least entry {matrix[row].min().item():g}; "
            "rows are distributions, divide each by its sum"
        )


def _events(teacher: Teacher, x: Int[Tensor, "n d"], weights: Float[Tensor, " n"], samples: int | None) -> Events:
    z = teacher(x)
    priors = {region: _sums(z[region], weights, teacher.sizes[region]) for region in teacher.fields.bottom_up}
    matrices = {}
    for parent, child in teacher.fields.edges:
        shape = (teacher.sizes[parent], teacher.sizes[child])
        inverse = torch.where(priors[parent] > 0, 1 / priors[parent], 0)
        code = z[parent] * shape[1] + z[child]
        if shape[0] * shape[1] <= DENSE_LIMIT:
            matrices[parent, child] = _sums(code, weights, shape[0] * shape[1]).view(shape) * inverse.unsqueeze(1)
        else:
            present, index = torch.unique(code, return_inverse=True)
            rows, columns = present // shape[1], present % shape[1]
            values = _sums(index, weights, len(present)) * inverse[rows]
            matrices[parent, child] = _sparse(torch.stack([rows, columns]), values, torch.Size(shape))
    return Events(teacher.fields, priors, matrices, teacher.targets.to(x.device), samples)


def _sums(codes: Int[Tensor, " n"], weights: Float[Tensor, " n"], size: int) -> Float[Tensor, " m"]:
    return torch.bincount(codes, weights, minlength=size)


def _sparse(index: Int[Tensor, "2 k"], values: Float[Tensor, " k"], shape: torch.Size) -> Tensor:
    # The indices come sorted and unique, so that nothing needs to be merged.
    return torch.sparse_coo_tensor(index, values, shape, is_coalesced=True, check_invariants=False)
