"""What npk says about width and depth, corrected: the variance of Theorem D.1, the limit of Eq. 2, fixed random gates.

NNGP: neural network Gaussian process, the covariance of the output over random weights.

Printed statements that do not hold have their own entries (``…-printed``), beside the corrected ones.
"""

from itertools import pairwise
from math import sqrt

import torch
from torch import Tensor, nn

from gatelab.figures import Plot
from gatelab.gates import GatePattern
from gatelab.kernels import infinite_width_kernels, infinite_width_ntk, neural_tangent_kernel
from gatelab.kernels.infinite_width import angle_maps, fixed_gates_ntk
from gatelab.kernels.tangent_moments import tangent_moments
from gatelab.lab.measure import Mean, against, all_signs, identity, random_signs, relative_error, tangent_kernels
from gatelab.lab.theorem import Measurement, theorem
from gatelab.lab.verdicts import Check
from gatelab.lab.verdicts.fits import fitted_power
from gatelab.models import DeepGatedNetwork, mlp
from gatelab.models.init import bernoulli_
from gatelab.network import capture_gates
from gatelab.papers.common import at_least, line, measurement
from gatelab.papers.npk.theorems import problem

SIGMA = 0.9  # σ = 1 would hide a wrong exponent
GROWING = ((6, 4), (8, 8), (12, 18), (16, 32), (20, 50))  # (w, d) with 4d/w² near ½, as the theorem allows
NARROW, DRAWS = 96, 150  # networks of this width and of twice it; their extrapolation has no error of order 1/w
MONTE_CARLO = "within 5 standard errors, for the largest of all entries"


def open_variance(width: int, depth: int) -> float:
    """Var[K]/E[K]² of one example x = 1 with all gates open; it does not depend on σ."""
    gates = GatePattern({str(layer): torch.ones(1, width, dtype=torch.bool) for layer in range(depth - 1)})
    moments = tangent_moments(torch.ones(1, 1, dtype=torch.float64), gates, sqrt(1 / width))
    return (moments.variance / moments.mean**2).item()


@theorem(
    "npk-D.1",
    "Theorem D.1, corrected",
    "Var[K] over ±σ values follows from four sums per layer; at fixed depth it falls as 1/w",
)
def variance_law(seed: int) -> Measurement:
    """All sign patterns of a tiny network, and a sample of a larger one; paths that meet at a node count."""
    generator, x, _ = problem(seed)
    tiny = DeepGatedNetwork((2, 3, 2, 1), dtype=torch.float64, generator=generator)
    while not _some_paths_open(tiny, x[:, :2]):
        tiny = DeepGatedNetwork((2, 3, 2, 1), dtype=torch.float64, generator=generator)
    exact = tangent_moments(x[:, :2], capture_gates(tiny, x[:, :2]), SIGMA)
    kernels = tangent_kernels(tiny, x[:, :2], all_signs(_values(tiny), SIGMA))
    variance = kernels.var(dim=0, unbiased=False)
    large = DeepGatedNetwork((3, 12, 12, 12, 1), dtype=torch.float64, generator=generator)
    law = tangent_moments(x, capture_gates(large, x), 0.3)
    drawn = tangent_kernels(large, x, random_signs(_values(large), 0.3, 2000, generator))
    squares = Mean((drawn - law.mean).square())
    widths = [64, 128, 256, 512, 1024]
    order = fitted_power(widths, [open_variance(width, 4) for width in widths])
    return measurement(
        against(variance, exact.variance, "Var[K(s, s')], all sign patterns"),
        identity(f"Var[K] over all {len(kernels)} sign patterns", variance, exact.variance),
        identity("E[K] over the same", kernels.mean(dim=0), exact.mean),
        Check("Var[K] at width 12, depth 4, 2000 draws, |z|", squares.z_score(law.variance), 5.0, MONTE_CARLO),
        Check("|exponent of Var/E² in w + 1|, depth 4", abs(order + 1), 0.05, "terms of order 1/w², w = 64 … 1024"),
    )


def _some_paths_open(model: DeepGatedNetwork, x: Tensor) -> bool:
    """Whether some pair of examples shares an open path; otherwise all variances are zero."""
    return bool((tangent_moments(x, capture_gates(model, x), SIGMA).variance > 0).any())


def _values(model: DeepGatedNetwork) -> dict[str, Tensor]:
    return {f"value.{name}": parameter for name, parameter in model.value.named_parameters()}


@theorem(
    "npk-D.1-printed",
    "Theorem D.1's bound as printed",
    "Var[K] ≤ C E² max{1/w, d/w²} holds for no C: with 4d/w² = ½ it is exceeded ever further as d grows",
)
def printed_variance_bound(seed: int) -> Measurement:
    """Compare the exact variance with the bound without its constant, for widths and depths that the theorem allows."""
    del seed  # nothing is random
    depths = [depth for _, depth in GROWING]
    variances = [open_variance(width, depth) for width, depth in GROWING]
    bounds = [max(1 / width, depth / width**2) for width, depth in GROWING]
    excess = [variance / bound for variance, bound in zip(variances, bounds, strict=True)]
    falls = min(b - a for a, b in pairwise(excess))
    curves = (line("exact", depths, variances), line("bound / C", depths, bounds))
    shown = ", ".join(f"{v:.3g} at ({w}, {d})" for (w, d), v in zip(GROWING, variances, strict=True))
    return measurement(
        Plot("depth d, with 4d/w² near ½", "Var[K]/E[K]²", curves, log=True),
        Check("Var / (E² × bound) at (6, 4)", excess[0], 2.0, "a constant of 2 is enough here"),
        at_least("Var / (E² × bound) at (20, 50)", excess[-1], 100, "and of 100 is not enough there"),
        at_least("least increase of Var / (E² × bound)", falls, 0, "from each (w, d) to the next"),
        Check("largest 4d/w²", max(4 * d / w**2 for w, d in GROWING), 1.0, "the theorem's own condition"),
        note=f"Var/E² at (w, d): {shown}. It depends on d/w, not on d/w²: paths that share a node count.",
    )


def _extrapolated(x: Tensor, depth: int, last_layer: float, generator: torch.Generator) -> Mean:
    """Tangent kernels of wide ReLU networks, weights of variance 2/w, c/w in the last layer: 2 K(2w) − K(w)."""

    def kernel(width: int) -> Tensor:
        model = mlp((x.shape[1], *[width] * (depth - 1), 1), dtype=torch.float64, generator=generator)
        *others, last = model.parameters()
        for weight in others:  # normal: with few inputs, signs in the first layer would not have a normal limit
            nn.init.normal_(weight, std=sqrt(2 / width), generator=generator)
        nn.init.normal_(last, std=sqrt(last_layer / width), generator=generator)
        return neural_tangent_kernel(model, x)

    return Mean.of(2 * kernel(2 * NARROW) - kernel(NARROW) for _ in range(DRAWS))


def _integrated_recursion(x: Tensor, depth: int) -> tuple[Tensor, Tensor]:
    """Σ^(d) and K̃^(d) of Eq. 2 with its Gaussian expectations integrated numerically, pair by pair."""
    angles = (torch.arange(200_000, dtype=torch.float64) + 0.5) * (2 * torch.pi / 200_000)
    circle = torch.stack([angles.cos(), angles.sin()])
    found = torch.zeros(2, len(x), len(x), dtype=torch.float64)
    for s, t in torch.combinations(torch.arange(len(x)), 2, with_replacement=True).tolist():
        covariance = x[[s, t]] @ x[[s, t]].T
        tangent = covariance[0, 1]
        for _ in range(depth - 1):
            # A root of the covariance; the radius has E[r²] = 2.
            rates, vectors = torch.linalg.eigh(covariance)
            q = vectors @ (rates.clamp(min=0).sqrt()[:, None] * circle)
            values = torch.relu(q)
            covariance = 4 * (values @ values.T) / len(angles)
            tangent = tangent * 2 * (q > 0).all(dim=0).double().mean() + covariance[0, 1]
        found[:, s, t] = found[:, t, s] = torch.stack([covariance[0, 1], tangent])
    return found[0], found[1]


@theorem(
    "npk-Eq2",
    "Eq. (2)",
    "With variance 2/w, and 1/w in the last layer, K tends to K^(d), half the sum of tangent and NNGP kernel",
)
def infinite_width(seed: int) -> Measurement:
    """Compare the closed recursion with numerical integration, and its combination with wide networks."""
    generator, x, _ = problem(seed, n=4)
    depth = 4
    kernels, (nngp, ntk) = infinite_width_kernels(x, depth=depth), _integrated_recursion(x, depth)
    limit = infinite_width_ntk(x, depth=depth)
    wide = _extrapolated(x, depth, 1.0, generator)
    integrated = "midpoint rule with 200,000 angles; jumps of the steps cost 1e-5"
    return measurement(
        against(wide.mean, limit, f"K, widths {NARROW} and {2 * NARROW}"),
        Check("Σ^(d) against integration, rel. error", relative_error(kernels.nngp, nngp), 1e-6, integrated),
        Check("K̃^(d) against integration, rel. error", relative_error(kernels.ntk, ntk), 2e-4, integrated),
        Check(f"E[K] against K^(d), {DRAWS} draws, |z|", wide.z_score(limit), 5.0, MONTE_CARLO),
    )


@theorem(
    "npk-Eq2-printed",
    '"K → K^(d)" as printed',
    "With variance 2/w in every layer, npk's own start, K does not tend to K^(d) but to the tangent kernel K̃^(d)",
)
def printed_limit(seed: int) -> Measurement:
    """Compare wide networks with both kernels; their ratio to Eq. 2 is neither one nor constant."""
    generator, x, _ = problem(seed, n=4)
    depth = 4
    limit, printed = (infinite_width_ntk(x, depth=depth, last_layer=c) for c in (2.0, 1.0))
    wide = _extrapolated(x, depth, 2.0, generator)
    ratios = limit / printed
    return measurement(
        against(wide.mean, printed, f"K, widths {NARROW} and {2 * NARROW}, against Eq. 2"),
        Check(f"E[K] against K̃^(d), {DRAWS} draws, |z|", wide.z_score(limit), 5.0, MONTE_CARLO),
        at_least("|z| of E[K] against K^(d)", wide.z_score(printed), 6.0, "more than chance would give"),
        at_least("range of K̃^(d) / K^(d) over pairs", (ratios.max() - ratios.min()).item(), 0.05, "no constant factor"),
        note=f"K̃^(d) / K^(d) lies between {ratios.min():.2f} and {ratios.max():.2f} here.",
    )


@theorem(
    "npk-5.1-limit",
    "Theorem 5.1 at infinite width",
    "With fixed random gates K^V tends to d Σ ⊙ Π κ₀(θ_l), θ_l the angles in the network that makes the gates",
)
def fixed_gates_limit(seed: int) -> Measurement:
    """Gates and values of wide deep gated networks, both random; a linear feature network has another limit."""
    generator, x, _ = problem(seed, n=4)
    depth, draws = 4, 40

    def kernel(width: int) -> Tensor:
        model = DeepGatedNetwork((3, *[width] * (depth - 1), 1), dtype=torch.float64, generator=generator)
        for weight in model.value_parameters():
            bernoulli_(weight, sqrt(2 / width), generator)
        for weight in model.feature_parameters():
            nn.init.normal_(weight, generator=generator)
        return neural_tangent_kernel(model, x, wrt=model.value)

    wide = Mean.of(2 * kernel(2 * NARROW) - kernel(NARROW) for _ in range(draws))
    limit, relu = fixed_gates_ntk(x, depth=depth), infinite_width_ntk(x, depth=depth, last_layer=2.0)
    (_, first), *_ = angle_maps(x, x, 1)
    linear = depth * (x @ x.T) * first ** (depth - 1)  # linear features keep their angle
    return measurement(
        against(wide.mean, limit, f"K^V, widths {NARROW} and {2 * NARROW}"),
        Check(f"E[K^V] against the limit, {draws} draws, |z|", wide.z_score(limit), 5.0, MONTE_CARLO),
        identity("diagonal against d ‖x‖²", limit.diagonal(), depth * x.square().sum(dim=1)),
        at_least("largest |ratio − 1| to linear features' limit", _ratio(linear, limit), 0.02, "angles would stay"),
        at_least("largest |ratio − 1| to the ReLU network's K̃^(d)", _ratio(relu, limit), 0.05, "another kernel"),
    )


def _ratio(kernel: Tensor, other: Tensor) -> float:
    return (kernel / other - 1).abs().max().item()
