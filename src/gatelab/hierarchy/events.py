"""Probabilities between the variables of neighbouring regions: P_αβ, P^b_αβ, Λ_α (hierarchy, Table 3)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gatelab.errors import InputError
from gatelab.hierarchy.codes import ENUMERATION_LIMIT, decode
from gatelab.hierarchy.fields import ReceptiveFields
from gatelab.hierarchy.inputs import ROW_TOLERANCE, check_distributions
from gatelab.hierarchy.teacher import Teacher

# Larger matrices are kept sparse: they have at most as many entries as there are inputs.
DENSE_LIMIT = 2**18


@dataclass(frozen=True)
class Events:
    """The part of the distribution of a teacher's variables that training sees.

    ``priors`` are P(z_α), the diagonals of Λ_α; ``matrices`` are P_αβ = P(z_β | z_α), m_α × m_β, dense or sparse, with
    rows of zeros for values that never occur. ``targets`` are the target outputs of the student's top nodes for each
    value at the top. ``samples`` is how many inputs were counted; None if the numbers are exact.
    """

    fields: ReceptiveFields
    priors: dict[str, Float[Tensor, " _"]]
    matrices: dict[tuple[str, str], Tensor]
    targets: Float[Tensor, "m k"]
    samples: int | None = None

    def matrix(self, parent: str, child: str) -> Tensor:
        """Return P_αβ = P(z_β | z_α), m_α × m_β."""
        if (parent, child) not in self.matrices:
            raise InputError(f"'{child}' is not a child of '{parent}', which has {self.fields.children(parent)}")
        return self.matrices[parent, child]

    def backward(self, parent: str, child: str) -> Tensor:
        """Return P^b_αβ = P(z_α | z_β), m_α × m_β, by Bayes: Λ_β (P^b)ᵀ = Pᵀ Λ_α."""
        matrix = self.matrix(parent, child)
        rows, columns = self.priors[parent], self.priors[child]
        inverse = torch.where(columns > 0, 1 / columns, 0)
        if not matrix.is_sparse:
            return rows.unsqueeze(1) * matrix * inverse
        index = matrix.indices()
        return _sparse(index, matrix.values() * rows[index[0]] * inverse[index[1]], matrix.shape)

    def error(self, parent: str, child: str) -> Tensor:
        """Return the standard error of each entry of P_αβ, √(P (1 − P) / count of z_α); 0 if P_αβ is exact."""
        matrix = self.matrix(parent, child).to_dense()
        if self.samples is None:
            return torch.zeros_like(matrix)
        counts = (self.samples * self.priors[parent]).unsqueeze(1)
        return (matrix * (1 - matrix) / counts.clamp(min=1)).clamp(min=0).sqrt()

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> "Events":
        """Return a copy on another device or in another precision."""
        return replace(
            self,
            priors={region: prior.to(device=device, dtype=dtype) for region, prior in self.priors.items()},
            matrices={edge: matrix.to(device=device, dtype=dtype) for edge, matrix in self.matrices.items()},
            targets=self.targets.to(device=device, dtype=dtype),
        )


def exact_events(teacher: Teacher, limit: int = ENUMERATION_LIMIT) -> Events:
    """Compute the probabilities by visiting every input.

    Args:
        teacher: rules and input distribution.
        limit: the largest number of inputs to visit.

    Returns:
        Exact probabilities, in float64.

    Raises:
        SupportTooLargeError: there are more than ``limit`` inputs; :func:`counted_events` estimates from a sample.

    Example:
        >>> from gatelab.hierarchy import rules, string_fields
        >>> exact_events(Teacher(string_fields(2, []), rules.parity)).matrix("top", "x0").tolist()
        [[0.5, 0.5], [0.5, 0.5]]
    """
    x, probability = teacher.inputs.support(limit)
    return _events(teacher, x, probability, None)


def counted_events(teacher: Teacher, x: Int[Tensor, "n d"]) -> Events:
    """Estimate the probabilities by counting over a sample or a batch (hierarchy, Section 3: P̃).

    Args:
        teacher: rules; its input distribution is not used.
        x: the sample.

    Returns:
        Relative frequencies, with ``samples`` set to n.

    Example:
        >>> from gatelab.hierarchy import rules, string_fields
        >>> x = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 0]])
        >>> counted_events(Teacher(string_fields(2, []), rules.parity), x).priors["top"].tolist()
        [0.25, 0.75]
    """
    weights = torch.full((len(x),), 1 / max(1, len(x)), dtype=torch.float64, device=x.device)
    return _events(teacher, x, weights, len(x))


def given_events(
    fields: ReceptiveFields,
    top_prior: Float[Tensor, " m"],
    matrices: Mapping[tuple[str, str], Float[Tensor, "_ _"]],
    targets: Float[Tensor, "m k"] | None = None,
) -> Events:
    """Build events from given probabilities; the priors below the top follow from them.

    Args:
        fields: the hierarchy.
        top_prior: P(z_ω).
        matrices: (parent, child) → P(z_β | z_α), one for each edge of the hierarchy.
        targets: a row for each value of z_ω; by default the identity, a class for each value.

    Returns:
        The probabilities.

    Example:
        >>> from gatelab.hierarchy import string_fields
        >>> p = torch.tensor([[1.0, 0.0], [0.5, 0.5]])
        >>> matrices = {("top", "x0"): p, ("top", "x1"): p}
        >>> given_events(string_fields(2, []), torch.tensor([0.5, 0.5]), matrices).priors["x0"].tolist()
        [0.75, 0.25]
    """
    if set(matrices) != set(fields.edges):
        raise InputError(
            f"matrices are given for {sorted(matrices)}; the hierarchy has the edges {sorted(fields.edges)}"
        )
    check_distributions(f"the prior of '{fields.top}'", top_prior.unsqueeze(0))
    precision = reduce(torch.promote_types, (matrix.dtype for matrix in matrices.values()), top_prior.dtype)
    top_prior = top_prior.to(precision)
    matrices = {edge: matrix.to(precision) for edge, matrix in matrices.items()}
    priors = {fields.top: top_prior}
    for parent in reversed(fields.inner):
        for child in fields.children(parent):
            matrix, place = matrices[parent, child], f"P of ('{parent}', '{child}')"
            check_distributions(place, matrix)
            if len(matrix) != len(priors[parent]):
                raise InputError(f"{place} has {len(matrix)} rows, but '{parent}' takes {len(priors[parent])} values")
            prior = priors[parent] @ matrix
            known = priors.setdefault(child, prior)
            if known.shape != prior.shape or not torch.allclose(known, prior, atol=ROW_TOLERANCE):
                raise InputError(
                    f"the parents of '{child}' disagree about its probabilities: {known.tolist()} and, from "
                    f"'{parent}', {prior.tolist()}; a joint distribution has one marginal"
                )
    if targets is not None and (targets.ndim != 2 or len(targets) != len(top_prior)):
        raise InputError(
            f"targets are {tuple(targets.shape)}; give a row for each of {len(top_prior)} values at the top"
        )
    if targets is None:
        targets = torch.eye(len(top_prior), dtype=top_prior.dtype, device=top_prior.device)
    return Events(fields, priors, dict(matrices), targets)


def sampled_inputs(
    events: Events, n: int, *, values: int = 2, generator: torch.Generator | None = None
) -> tuple[Int[Tensor, "n d"], dict[str, Int[Tensor, " n"]]]:
    """Draw inputs from given probabilities, from the top down: z_ω, then each region's variable given its parent's.

    Where a region has several parents, their matrices do not say how it depends on all of them together, so the regions
    must form a tree.

    Args:
        events: probabilities, for example from :func:`given_events`.
        n: number of inputs.
        values: number of values that a position takes.
        generator: the source of random numbers.

    Returns:
        The inputs, and region → its variable at each input.

    Example:
        >>> from gatelab.hierarchy import string_fields
        >>> p = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> events = given_events(string_fields(2, []), torch.tensor([0.5, 0.5]), {("top", "x0"): p, ("top", "x1"): p})
        >>> x, z = sampled_inputs(events, 5)
        >>> bool((x == z["top"].unsqueeze(1)).all())
        True
    """
    fields = events.fields
    several = [region for region in fields.bottom_up if len(fields.parents(region)) > 1]
    if several:
        raise InputError(
            f"region '{several[0]}' has {len(fields.parents(several[0]))} parents, and P(z_β | z_α) for each of them "
            "does not determine a joint distribution; use disjoint regions, or sample a Teacher's inputs"
        )
    z = {fields.top: torch.multinomial(events.priors[fields.top], n, replacement=True, generator=generator)}
    for parent in reversed(fields.inner):
        for child in fields.children(parent):
            rows = events.matrix(parent, child).to_dense()[z[parent]]
            z[child] = torch.multinomial(rows, 1, generator=generator)[:, 0]
    x = torch.zeros(n, fields.n_positions, dtype=torch.int64, device=z[fields.top].device)
    for leaf in fields.leaves:
        positions = fields.positions(leaf)
        if len(events.priors[leaf]) != values ** len(positions):
            raise InputError(
                f"leaf '{leaf}' takes {len(events.priors[leaf])} values; {len(positions)} positions with {values} "
                f"values each take {values ** len(positions)}: set values="
            )
        x[:, list(positions)] = decode(z[leaf], (values,) * len(positions))
    return x, z


def times(matrix: Tensor, values: Float[Tensor, "k w"], *, transposed: bool = False) -> Float[Tensor, "m w"]:
    """Return P F, or Pᵀ G̃."""
    if not matrix.is_sparse:
        return (matrix.T if transposed else matrix) @ values
    # Torch's sparse product sorts and converts on every call; with few columns that would take most of the time.
    rows, columns = matrix.indices().flip(0) if transposed else matrix.indices()
    terms = matrix.values().unsqueeze(1) * values.index_select(0, columns)
    height = matrix.shape[1 if transposed else 0]
    return values.new_zeros(height, values.shape[1]).index_add_(0, rows, terms)


def _events(teacher: Teacher, x: Int[Tensor, "n d"], weights: Float[Tensor, " n"], samples: int | None) -> Events:
    return count_events(teacher.fields, teacher.sizes, teacher(x), weights, teacher.targets.to(x.device), samples)


def count_events(
    fields: ReceptiveFields,
    sizes: Mapping[str, int],
    z: Mapping[str, Int[Tensor, " n"]],
    weights: Float[Tensor, " n"],
    targets: Float[Tensor, "m k"],
    samples: int | None,
    dense: int | None = None,
) -> Events:
    """Add up the weights of inputs with each pair of values, edge by edge.

    Args:
        fields: the regions.
        sizes: region → m_α.
        z: region → z_α at each input.
        weights: of the inputs; they sum to one.
        targets: a row for each value of z_ω.
        samples: how many inputs were drawn; None if these are all.
        dense: matrices with more entries are kept sparse.

    Returns:
        The probabilities.
    """
    dense = DENSE_LIMIT if dense is None else dense
    priors = {region: torch.bincount(z[region], weights, sizes[region]) for region in fields.bottom_up}
    matrices = {}
    for parent, child in fields.edges:
        m, k = sizes[parent], sizes[child]
        inverse = torch.where(priors[parent] > 0, 1 / priors[parent], 0)
        code = z[parent] * k + z[child]
        if m * k <= dense:
            matrices[parent, child] = torch.bincount(code, weights, m * k).view(m, k) * inverse.unsqueeze(1)
        else:
            present, index = torch.unique(code, return_inverse=True)
            rows, columns = present // k, present % k
            values = torch.bincount(index, weights) * inverse[rows]
            matrices[parent, child] = _sparse(torch.stack([rows, columns]), values, torch.Size((m, k)))
    return Events(fields, priors, matrices, targets, samples)


def _sparse(index: Int[Tensor, "2 k"], values: Float[Tensor, " k"], shape: torch.Size) -> Tensor:
    # The indices are sorted and unique already, so nothing needs to be merged.
    return torch.sparse_coo_tensor(index, values, shape, is_coalesced=True, check_invariants=False)
