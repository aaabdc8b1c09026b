"""Remarks of the paper: random weights, batch norm in linear networks, parents that disentangle."""

from dataclasses import replace

import torch
from torch import Tensor

from gatelab.figures import Plot
from gatelab.hierarchy import LocalNetwork, NodeOptions, Norm, Teacher, exact_events, reformulate, string_fields
from gatelab.hierarchy.disentangle import factor_marginals, nearest_disentangled
from gatelab.hierarchy.events import Events
from gatelab.hierarchy.expressive_power import best_linear
from gatelab.hierarchy.parents import disentangling_weights
from gatelab.hierarchy.random_rank import random_activations
from gatelab.hierarchy.rules import joint
from gatelab.lab.measure import EXACT, IDENTITY, identity
from gatelab.lab.theorem import Measurement, theorem
from gatelab.lab.verdicts import Check
from gatelab.papers.common import at_least, dots, line, measurement
from gatelab.papers.hierarchy.theorems_factors import known_distances


@theorem(
    "hierarchy-6-batchnorm",
    "Theorem 6 with batch norm",
    "The linear bound m − rank survives batch norm, which scales and shifts columns; a ReLU escapes it",
)
def linear_bound_with_batch_norm(seed: int) -> Measurement:
    """Draw deep linear networks with batch norm in every region: F_ω stays in the span of linear networks."""
    generator = torch.Generator().manual_seed(seed)
    events = exact_events(Teacher(string_fields(4, [2], [1]), joint))
    occurring = events.priors["top"] > 0
    span = best_linear(events)  # the projection onto what linear networks can express
    identity_matrix = torch.eye(len(span), dtype=torch.float64)[occurring]
    bound = float((span - torch.eye(len(span), dtype=torch.float64))[occurring][:, occurring].square().sum())
    outside: dict[str, list[float]] = {"linear": [], "linear, batch norm": [], "ReLU, batch norm": []}
    losses, moments, prior = [], [], events.priors["top"][occurring]
    for _ in range(10):
        for name, found in outside.items():
            hidden = NodeOptions(relu="ReLU" in name, norm=Norm.AFTER_LINEAR if "norm" in name else Norm.NONE, eps=1e-9)
            top = NodeOptions(relu=False, norm=hidden.norm, eps=1e-9)
            network = LocalNetwork(
                events.fields, 8, len(span), hidden=hidden, top=top, dtype=torch.float64, generator=generator
            )
            f = reformulate(network, _with_identity(events)).activations["top"][occurring]
            found.append(((f - span[occurring][:, occurring] @ f).norm() / f.norm()).item())
            if name == "linear, batch norm":
                moments += [float((prior @ f).abs().max()), float((prior @ f.square() - 1).abs().max())]
                # The best loss that a layer above could reach with these outputs and any weights and biases.
                basis = torch.cat([f, torch.ones(len(f), 1, dtype=torch.float64)], dim=1)
                rest = identity_matrix - basis @ torch.linalg.pinv(basis, rtol=1e-9) @ identity_matrix
                losses.append(rest[:, occurring].square().sum().item())
    curves = tuple(dots(name, range(10), values) for name, values in outside.items())
    largest = max(*outside["linear"], *outside["linear, batch norm"])
    return measurement(
        Plot("draw", "share of F_ω that no linear network reaches", curves),
        Check("linear, with and without batch norm: share outside", largest, IDENTITY, EXACT),
        Check("linear, batch norm: mean and variance − 1 of F_ω", max(moments), 1e-4, "ε = 1e-9 beside the variance"),
        Check("bound − least loss with batch norm", bound - min(losses), 1e-8, "the bound holds"),
        at_least("ReLU with batch norm: share outside", min(outside["ReLU, batch norm"]), 0.05, "what a ReLU adds"),
    )


def _with_identity(events: Events) -> Events:
    return replace(events, targets=torch.eye(len(events.priors["top"]), dtype=torch.float64))


@theorem(
    "hierarchy-7-random",
    "After Theorem 7",
    "Random weights make F full rank only with more nodes than events: ReLUs that never open add nothing",
)
def random_weights_and_rank(seed: int) -> Measurement:
    """Draw hidden layers over 4 bits with n = m and n = 4 m nodes, and train the layer above exactly."""
    generator = torch.Generator().manual_seed(seed)
    matrix = _rows(4)
    m, draws = len(matrix), 100
    shares, losses = {}, {}
    for factor in (1, 2, 4):
        found = [random_activations(matrix, factor * m, bias=False, generator=generator) for _ in range(draws)]
        ranks = [int(torch.linalg.matrix_rank(f)) for f in found]
        shares[factor] = sum(rank == m for rank in ranks) / draws
        losses[factor] = [(_best_loss(f), m - rank) for f, rank in zip(found, ranks, strict=True)]
    pairs = torch.tensor([pair for own in losses.values() for pair in own], dtype=torch.float64)
    linear = int(torch.linalg.matrix_rank(matrix @ torch.randn(matrix.shape[1], 4 * m, dtype=torch.float64)))
    curve = line("full row rank", [float(factor) for factor in shares], list(shares.values()))
    return measurement(
        Plot("n / m", "share of draws", (curve,)),
        Check(
            "loss of the trained top layer against m − rank",
            float((pairs[:, 0] - pairs[:, 1]).abs().max()),
            1e-8,
            EXACT,
        ),
        at_least(
            "1 − share of full rank at n = m", 1 - shares[1], 0.5, 'the paper\'s "with probability 1" is not true here'
        ),
        at_least("share of full rank at n = 4 m", shares[4], 0.9, "enough nodes open"),
        at_least("m − rank without ReLUs, n = 4 m", m - linear, 1, "the ReLU makes the rank, not the number of nodes"),
        note=f"full row rank in {shares[1]:.0%} of {draws} draws at n = m, {shares[4]:.0%} at n = 4 m.",
    )


def _rows(bits: int) -> Tensor:
    """Return the rows of all children side by side for a region whose variable is the whole string."""
    events = exact_events(Teacher(string_fields(bits, []), joint))
    return torch.cat([events.matrix("top", child) for child in events.fields.children("top")], dim=1)


def _best_loss(f: Tensor) -> float:
    """Return min over W of ‖F W − I‖²."""
    left, lengths, _ = torch.linalg.svd(f, full_matrices=False)
    basis = left[:, lengths > lengths[0] * max(f.shape) * torch.finfo(f.dtype).eps] if lengths[0] > 0 else left[:, :0]
    return (torch.eye(len(f), dtype=f.dtype) - basis @ basis.T).square().sum().item()


@theorem(
    "hierarchy-109",
    "Equation 109",
    "2^|S| − 1 parents that differ can make a back-propagated gradient disentangled; half as many cannot",
)
def parents_that_disentangle(seed: int) -> Measurement:
    """Draw a child with 2 to 4 factors and its parents, solve for the weights, and send the gradient down."""
    generator = torch.Generator().manual_seed(seed)
    checks, contrasts, points = [], [], {}
    for k in (2, 3, 4):
        enough = 2**k - 1
        prior, parents = random_parents(k, enough, generator)
        gammas = torch.rand(enough, generator=generator, dtype=torch.float64) + 0.5
        marginals = factor_marginals(prior)
        # Factor j is bit j of z_β, the first the most significant.
        ones = [prior[(torch.arange(2**k) >> (k - 1 - j)) % 2 == 1].sum() for j in range(k)]
        found = disentangling_weights(parents, gammas, marginals)
        # The gradient as back-propagation computes it: Pᵀ g̃ wᵀ, one parent after the other.
        sent = sum(
            torch.outer(p.T @ torch.tensor([-1.0, 1.0]).double() * g, w)
            for p, g, w in zip(parents, gammas, found.weights, strict=True)
        )
        half = disentangling_weights(parents[: enough // 2], gammas[: enough // 2], marginals)
        checks += [
            known_distances(k, marginals),
            identity(f"|S| = {k}: P(factor = 1) against sums of P(z_β)", marginals[:, 1], torch.stack(ones)),
            identity(f"|S| = {k}: Σ Pᵀ g̃ wᵀ against the solver", torch.as_tensor(sent), found.gradient),
            Check(f"|S| = {k}: {enough} parents, distance from disentangled, rel.",
                  nearest_disentangled(torch.as_tensor(sent), marginals).relative, 1e-8, "a linear system's rounding"),
        ]  # fmt: skip
        contrasts.append(
            at_least(f"|S| = {k}: {enough // 2} parents, distance", half.residual, 0.1, "they cannot span it")
        )
        counts = range(1, enough + 1)
        points[k] = (counts, [disentangling_weights(parents[:n], gammas[:n], marginals).residual for n in counts])
    curves = tuple(
        line(f"|S| = {k}", [n / (2**k - 1) for n in counts], [max(value, 1e-16) for value in values])
        for k, (counts, values) in points.items()
    )
    return measurement(
        Plot("parents / (2^|S| − 1)", "distance from disentangled, rel.", curves, log_y=True), *checks, *contrasts
    )


def random_parents(k: int, count: int, generator: torch.Generator) -> tuple[Tensor, list[Tensor]]:
    """Draw P(z_β) over 2^k values and parents that are noisy functions of z_β: for each P(z_β | z_α), by Bayes."""
    prior = torch.rand(2**k, generator=generator, dtype=torch.float64) + 0.2
    prior /= prior.sum()
    parents = []
    for _ in range(count):
        on = torch.rand(2**k, generator=generator, dtype=torch.float64)
        joint_probability = torch.stack([prior * (1 - on), prior * on])
        parents.append(joint_probability / joint_probability.sum(dim=1, keepdim=True))
    return prior, parents
