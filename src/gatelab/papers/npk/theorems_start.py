"""Small statements of npk that others rest on: dependent initialisation, deep linear networks, ν.

FRNPF: fixed random neural path features; (DI) and (II): dependent and independent initialisation.
"""

import torch

from gatelab.convert import Regime, to_dgn
from gatelab.figures import Plot
from gatelab.gates import GatePattern
from gatelab.kernels import (
    label_complexity,
    neural_path_kernel,
    neural_tangent_kernel,
    overlap_kernel,
    value_tangent_kernel,
)
from gatelab.lab.measure import against, all_signs, identity, relative_error, tangent_kernels
from gatelab.lab.theorem import Measurement, theorem
from gatelab.lab.verdicts import Check
from gatelab.models import dln, mlp
from gatelab.network import capture_gates
from gatelab.papers.common import at_least, dots, measurement
from gatelab.papers.npk.theorems import DEPTH, WIDTHS, features_of_nodes, problem, random_network


@theorem(
    "npk-DI",
    "Dependent initialisation",
    "At the start FRNPF (DI), gates and values from the same weights, has the ReLU network's tangent kernel",
)
def dependent_initialisation(seed: int) -> Measurement:
    """K^V of the gated twin against K of the network; independent gates give another kernel."""
    model, x, _ = random_network(seed)
    generator, own = torch.Generator().manual_seed(seed), neural_tangent_kernel(model, x)
    weights = {name: weight.detach()[None] for name, weight in model.named_parameters()}
    twins = {regime: to_dgn(model, regime, generator=generator) for regime in (Regime.FRNPF_DI, Regime.FRNPF_II)}
    kernels = {regime: neural_tangent_kernel(twin, x, wrt=twin.value) for regime, twin in twins.items()}
    other = relative_error(kernels[Regime.FRNPF_II], own)
    return measurement(
        against(kernels[Regime.FRNPF_DI], own, "K(s, s')"),
        identity("K^V of FRNPF (DI) against K of ReLU", kernels[Regime.FRNPF_DI], own),
        identity("K of ReLU against autograd", own, tangent_kernels(model, x, weights)[0]),
        at_least("rel. distance of FRNPF (II)", other, 0.05, "independent gates open other paths"),
    )


@theorem(
    "npk-DLN",
    "Deep linear networks",
    "Without gates Λ = w^{d−1}: E[K] = d σ^{2(d−1)} w^{d−1} Σ over ±σ values, and K = Φᵀ𝒱Φ with φ = x on every path",
)
def deep_linear_network(seed: int) -> Measurement:
    """A path is open for every input, so its feature is the input at its first node."""
    gated, x, _ = random_network(seed)
    width, sigma, generator = WIDTHS[1], 0.9, torch.Generator().manual_seed(seed)
    model, tiny = (dln(widths, dtype=torch.float64, generator=generator) for widths in (WIDTHS, (3, 2, 2, 1)))
    with torch.no_grad():
        for own, shared in zip(model.parameters(), gated.parameters(), strict=True):
            own.copy_(shared)
    bits = torch.ones(len(x), width, dtype=torch.bool)
    overlap = overlap_kernel(GatePattern({"1": bits, "2": bits}, torch.float64), normalise=False)
    features = features_of_nodes(x)
    explicit = (
        features @ value_tangent_kernel(gated) @ features.T
    )  # 𝒱 is independent of gates: the same for both networks
    kernels = tangent_kernels(tiny, x, all_signs(dict(tiny.named_parameters()), sigma))
    predicted = DEPTH * sigma ** (2 * (DEPTH - 1)) * 2 ** (DEPTH - 1) * (x @ x.T)
    gates_open = overlap_kernel(capture_gates(gated, x), normalise=False).mean().item()
    return measurement(
        against(kernels.mean(dim=0), predicted, "E[K(s, s')], all sign patterns"),
        identity("Λ against w^{d−1}", overlap, torch.full_like(overlap, width ** (DEPTH - 1))),
        identity("K against Φᵀ𝒱Φ", neural_tangent_kernel(model, x), explicit),
        identity(f"E[K] over all {len(kernels)} sign patterns", kernels.mean(dim=0), predicted),
        at_least("w^{d−1} − the mean Λ of a ReLU network", width ** (DEPTH - 1) - gates_open, 1, "gates close"),
    )


@theorem("npk-nu", "Section 6, ν", "ν = yᵀĤ⁻¹y = Σ (uᵢᵀy)²/ρ̂ᵢ: small if labels lie in the kernel's large directions")
def label_complexity_by_solving(seed: int) -> Measurement:
    """The sum over eigenvectors, which the library computes, against a linear system; and what makes ν small."""
    generator, x, target = problem(seed)
    kernel = neural_path_kernel(mlp((3, 16, 16, 1), dtype=torch.float64, generator=generator), x)
    kernel = kernel + 1e-3 * kernel.diagonal().mean() * torch.eye(len(x), dtype=torch.float64)
    scaled = kernel / kernel.trace()
    solved = (target @ torch.linalg.solve(scaled, target)).item()
    found = label_complexity(kernel, target)
    rates, vectors = torch.linalg.eigh(scaled)
    by_direction = [label_complexity(kernel, vector) for vector in vectors.T]
    inverse = 1 / rates
    worst = relative_error(torch.tensor(by_direction, dtype=torch.float64), inverse)
    return measurement(
        Plot("1/ρ̂ᵢ", "ν of uᵢ", (dots("each eigenvector", inverse, by_direction),), diagonal="equal", log=True),
        Check("ν against a linear system, rel. error", abs(found / solved - 1), 1e-7, "condition number × rounding"),
        Check("ν of an eigenvector against 1/ρ̂, rel. error", worst, 1e-7, "condition number × rounding"),
        at_least("ν of the last eigenvector over that of the first", by_direction[0] / by_direction[-1], 2, "ρ̂₁/ρ̂ₙ"),
    )
