"""Theorems 6 and 7: what ReLU and linear networks can express."""

from itertools import pairwise

import torch
from jaxtyping import Bool, Float
from scipy.spatial import ConvexHull
from torch import Tensor

from gatelab.figures import Plot
from gatelab.hierarchy import (
    LocalNetwork,
    Teacher,
    exact_events,
    expressibility,
    given_events,
    reformulate,
    string_fields,
)
from gatelab.hierarchy.events import Events
from gatelab.hierarchy.expressive_power import expressive_network, vertices
from gatelab.hierarchy.rules import joint
from gatelab.lab.measure import EXACT, IDENTITY, identity
from gatelab.lab.theorem import Measurement, theorem
from gatelab.lab.verdicts import Check
from gatelab.papers.common import at_least, dots, line, measurement


def _round(rows: int, columns: int, generator: torch.Generator) -> Float[Tensor, "m n"]:
    """Draw distributions on a sphere around the uniform one: every row is a vertex."""
    directions = torch.randn(rows, columns, generator=generator, dtype=torch.float64)
    directions -= directions.mean(dim=1, keepdim=True)
    directions /= directions.norm(dim=1, keepdim=True)
    return 1 / columns + directions / columns / 1.01


def _qhull_vertices(matrix: Float[Tensor, "m n"]) -> Bool[Tensor, " m"]:
    """Find the vertices by the whole convex hull, inside the plane that the (different) rows span."""
    centred = matrix - matrix.mean(dim=0)
    _, lengths, axes = torch.linalg.svd(centred, full_matrices=False)
    flat = centred @ axes[lengths > 1e-9 * lengths[0]].T
    return torch.zeros(len(matrix), dtype=torch.bool).index_fill_(0, torch.tensor(ConvexHull(flat).vertices).long(), 1)


@theorem(
    "hierarchy-6",
    "Theorem 6",
    "If P is all-vert, ReLU networks reach zero loss; linear ones keep m − rank, exponential in the region's size",
)
def expressible(seed: int) -> Measurement:
    """Construct networks for a random deep hierarchy with every P all-vert, and for one region over d bits."""
    generator = torch.Generator().manual_seed(seed)
    fields = string_fields(4, [2])
    edges = {(p, c): _round(14 if p == "top" else 7, 3 if c[0] == "x" else 7, generator) for p, c in fields.edges}
    events = given_events(fields, torch.full((14,), 1 / 14, dtype=torch.float64), edges)
    deep, network = expressibility(events, values=3), expressive_network(events, values=3)
    rebuilt = _loss(network, events)
    with torch.no_grad():
        for weight in network.weights.values():
            weight.mul_(1.01)
    spoilt = _loss(network, events)
    inside = sum(int((~vertices(matrix)).sum()) for matrix in edges.values())
    sizes = [2, 3, 4, 5, 6]
    found = [expressibility(exact_events(Teacher(string_fields(d, []), joint))) for d in sizes]
    formula = [2.0**d - d - 1 for d in sizes]
    linear = torch.tensor([case.linear for case in found], dtype=torch.float64)
    excess = [abs(case.linear - case.bound) / case.events for case in (deep, *found)]
    worst = max(case.relu for case in (deep, *found))
    growth = min(b / a for a, b in pairwise(linear.tolist()))
    curves = (
        dots("best linear network", sizes, linear),
        line("2^d − d − 1", sizes, formula),
        dots("constructed ReLU network", sizes, [case.relu for case in found]),
    )
    return measurement(
        Plot("bits d under one region", "‖F_ω − I‖²", curves),
        Check("deep hierarchy: rows of P that are not vertices", inside, 0, "the theorem's assumption"),
        Check("‖F_ω − I‖² of the constructed ReLU networks", worst, IDENTITY, "a linear programme's rounding"),
        Check(
            "deep hierarchy: ‖F_ω − I‖² of the network, run here", rebuilt, IDENTITY, "a linear programme's rounding"
        ),
        at_least("the same with weights × 1.01", spoilt, 1e-4, "the loss sees a wrong weight"),
        Check("best linear loss against m − rank (Eckart–Young), rel.", max(excess), IDENTITY, EXACT),
        identity("best linear loss on d bits against 2^d − d − 1", linear, torch.tensor(formula).double()),
        at_least("deep hierarchy: linear loss", deep.linear, 0.5, "m ≤ rank would show nothing"),
        at_least("growth of the linear loss per bit", growth, 2.0, "exponential: each bit at least doubles it"),
        note=(
            "on d bits each P_αβ alone is not all-vert (its rows repeat); the rows of all children side by side are, "
            "and that is enough."
        ),
    )


def _loss(network: LocalNetwork, events: Events) -> float:
    """Return ‖F_ω − I‖²."""
    output = reformulate(network, events).activations["top"]
    return (output - torch.eye(len(output), dtype=output.dtype)).square().sum().item()


@theorem("hierarchy-7", "Theorem 7", "If F has full row rank, P F has the vertices of P; so P F is all-vert iff P is")
def vertices_survive(seed: int) -> Measurement:
    """Draw P with rows inside the hull of others, and F; compare linear programmes with each other and with Qhull."""
    generator = torch.Generator().manual_seed(seed)
    disagreements = against_qhull = 0
    counts: dict[str, list[float]] = {"P": [], "P F, F of full row rank": [], "P F, F of rank one": []}
    for _ in range(10):
        corners = _round(5, 4, generator)
        mixed = torch.softmax(torch.randn(3, 5, generator=generator, dtype=torch.float64), dim=1) @ corners
        matrix = torch.cat([corners, mixed])
        f, thin = (torch.randn(4, width, generator=generator, dtype=torch.float64) for width in (6, 1))
        before, after = vertices(matrix), vertices(matrix @ f)
        disagreements += int((before != after).sum())
        against_qhull += int((before != _qhull_vertices(matrix)).sum() + (after != _qhull_vertices(matrix @ f)).sum())
        found = (before.sum(), after.sum(), vertices(matrix @ thin).sum())
        for values, count in zip(counts.values(), found, strict=True):
            values.append(float(count))
    total, _, thin_total = (int(sum(values)) for values in counts.values())
    lost = total - thin_total
    curves = tuple(dots(name, range(1, 11), values) for name, values in counts.items())
    return measurement(
        Plot("draw", "rows that are vertices", curves),
        Check("rows that are a vertex of only one of P and P F", disagreements, 0, "the theorem's statement"),
        Check("disagreements with Qhull", against_qhull, 0, "two ways to find vertices"),
        Check("|vertices − 50|", abs(total - 50), 0, "five of eight rows are vertices by construction"),
        at_least("F of rank one: vertices lost", lost, 30, "(2) needs the rank: two ends of a line remain of five"),
    )
