"""What npk says about width and depth, corrected: the variance of Theorem D.1, the limit of Eq. 2, fixed random gates.

NNGP: neural network Gaussian process, the covariance of the output over random weights.

Printed statements that do not hold have their own entries (``…-printed``), beside the corrected ones.
"""

from itertools import pairwise
from math import sqrt
from typing import NamedTuple

import torch
from torch import Tensor

from gatelab.figures import Plot
from gatelab.gates import GatePattern
from gatelab.kernels import (
    infinite_width_kernels,
    infinite_width_ntk,
    neural_path_kernel,
    neural_tangent_kernel,
    overlap_kernel,
)
from gatelab.kernels.infinite_width import angle_maps, fixed_gates_ntk
from gatelab.kernels.tangent_moments import tangent_moments
from gatelab.lab.measure import (
    EXACT,
    IDENTITY,
    Mean,
    against,
    all_signs,
    identity,
    random_signs,
    relative_error,
    tangent_kernels,
    wide_preactivations,
    wide_tangent_kernels,
)
from gatelab.lab.theorem import Measurement, theorem
from gatelab.lab.verdicts import Check
from gatelab.lab.verdicts.fits import fitted_power
from gatelab.models import DeepGatedNetwork, mlp
from gatelab.models.init import Start
from gatelab.network import capture_gates
from gatelab.papers.common import agrees, at_least, line, measurement
from gatelab.papers.npk.theorems import layer_gates, problem
from gatelab.papers.npk.theorems_expectations import BEYOND_CHANCE, MONTE_CARLO, telling_dgn
from gatelab.papers.npk.theorems_gated import RELU_GATES, foreign_gates

SIGMA = 0.9  # σ = 1 would hide a wrong exponent
GROWING = ((6, 4), (8, 8), (12, 18), (16, 32), (20, 50))  # (w, d) with 4d/w² near ½, as the theorem allows
DEPTH, WIDE, NARROW = 4, 8192, 24  # of networks whose limit is sought
SIGNS_WIDE = 4096  # of networks of depth 2 with signs
DRAWS = 200  # then 3 % are ten standard errors, and the bias of order 1/w a fraction of one


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
    tiny = telling_dgn((2, 3, 2, 1), x[:, :2], generator)
    exact = tangent_moments(x[:, :2], capture_gates(tiny, x[:, :2]), SIGMA)
    kernels = tangent_kernels(tiny, x[:, :2], all_signs(_values(tiny), SIGMA))
    variance = kernels.var(dim=0, unbiased=False)
    large = DeepGatedNetwork((3, 12, 12, 12, 1), dtype=torch.float64, generator=generator)
    law = tangent_moments(x, capture_gates(large, x), 0.3)
    drawn = tangent_kernels(large, x, random_signs(_values(large), 0.3, 2000, generator))
    squares = Mean((drawn - law.mean).square())
    normal = {name: _normal(parameter, 0.3**2, generator) for name, parameter in _values(large).items()}
    of_normal = tangent_kernels(large, x, normal).var(dim=0)
    excess = (of_normal.sum() / law.variance.sum()).item()
    widths = [64, 128, 256, 512, 1024]
    order = fitted_power(widths, [open_variance(width, 4) for width in widths])
    return measurement(
        against(variance, exact.variance, "Var[K(s, s')], all sign patterns"),
        identity(f"Var[K] over all {len(kernels)} sign patterns", variance, exact.variance),
        identity("E[K] over the same", kernels.mean(dim=0), exact.mean),
        Check("Var[K] at width 12, depth 4, 2000 draws, |z|", squares.z_score(law.variance), 5.0, MONTE_CARLO),
        Check("|exponent of Var/E² in w + 1|, depth 4", abs(order + 1), 0.05, "terms of order 1/w², w = 64 … 1024"),
        at_least("Var[K] of normal weights in place of signs, over the law", excess, 1.3, SIGNS),
    )


SIGNS = "the law is that of ±σ: E[Θ⁴] = σ⁴"


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
        note=(
            f"Var/E² at (w, d): {shown}. It depends on d/w, not on d/w²: paths that share a node count. The theorem's "
            f"condition is 4d/w² ≤ 1; here it is at most {max(4 * d / w**2 for w, d in GROWING):g}."
        ),
    )


class _Wide(NamedTuple):
    """Tangent kernels of random ReLU networks of depth 4, weights of variance 2/w, c/w in the last layer.

    Attributes:
        mean: over networks of width 8192, drawn without their weights; its bias is of order 1/w.
        z: how far such draws of width 24 are from networks whose weights are drawn.
        error: of the library's tangent kernel of one of those.
    """

    mean: Mean
    z: float
    error: float

    def checks(self) -> tuple[Check, Check]:
        """Check the draws against networks with weights, and the library against autograd."""
        same = f"E[K] at width {NARROW}, drawn with and without weights, |z|"
        autograd = "K of one network against autograd, rel. error"
        return Check(same, self.z, 5.0, MONTE_CARLO), Check(autograd, self.error, IDENTITY, EXACT)


def _wide(x: Tensor, last_layer: float, generator: torch.Generator) -> _Wide:
    parts = [wide_tangent_kernels(x, DEPTH, WIDE, last_layer, 20, generator) for _ in range(DRAWS // 20)]
    model = mlp((x.shape[1], *[NARROW] * (DEPTH - 1), 1), dtype=torch.float64, generator=generator)
    *others, last = dict(model.named_parameters()).items()
    # Normal weights: with few inputs, signs in the first layer would not have a normal limit.
    weights = {name: _normal(p, 2 / NARROW, generator) for name, p in others}
    weights[last[0]] = _normal(last[1], last_layer / NARROW, generator)
    real = tangent_kernels(model, x, weights)
    drawn = wide_tangent_kernels(x, DEPTH, NARROW, last_layer, len(real), generator)
    model.load_state_dict({name: tensor[0] for name, tensor in weights.items()})
    error = relative_error(neural_tangent_kernel(model, x), real[0])
    return _Wide(Mean(torch.cat(parts)), Mean(real).z_score_between(Mean(drawn)), error)


def _normal(parameter: Tensor, variance: float, generator: torch.Generator) -> Tensor:
    """Draw 500 normal tensors of this shape."""
    return sqrt(variance) * torch.randn(500, *parameter.shape, generator=generator, dtype=parameter.dtype)


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
    "With normal weights of variance 2/w, in the last layer 1/w, K tends to K^(d), half of tangent plus NNGP kernel",
)
def infinite_width(seed: int) -> Measurement:
    """Compare the closed recursion with numerical integration, and its combination with wide networks."""
    generator, x, _ = problem(seed, n=4)
    kernels, (nngp, ntk) = infinite_width_kernels(x, depth=DEPTH), _integrated_recursion(x, DEPTH)
    limit, tangent = (infinite_width_ntk(x, depth=DEPTH, last_layer=c) for c in (1.0, 2.0))
    wide = _wide(x, 1.0, generator)
    integrated = "midpoint rule with 200,000 angles; jumps of the steps cost 1e-5"
    return measurement(
        against(wide.mean.mean, limit, f"K, width {WIDE}"),
        Check("Σ^(d) against integration, rel. error", relative_error(kernels.nngp, nngp), 1e-6, integrated),
        Check("K̃^(d) against integration, rel. error", relative_error(kernels.ntk, ntk), 2e-4, integrated),
        agrees("K^(d) against (K̃^(d) + Σ^(d)) / 2, integrated", limit, (ntk + nngp) / 2, 2e-4, integrated),
        Check(f"E[K] at width {WIDE} against K^(d), {DRAWS} draws, |z|", wide.mean.z_score(limit), 5.0, MONTE_CARLO),
        *wide.checks(),
        *_nearby("K^(d)", wide.mean, limit),
        at_least("|z| of E[K] against K̃^(d)", wide.mean.z_score(tangent), 6.0, BEYOND_CHANCE),
    )


def _nearby(name: str, mean: Mean, limit: Tensor, share: float = 0.03) -> list[Check]:
    """Check that a limit too large or too small by this share, 3 % unless told, would not pass."""
    scores = {factor: mean.z_score(factor * limit) for factor in (1 - share, 1 + share)}
    return [at_least(f"|z| against {factor:g} {name}", z, 6.0, BEYOND_CHANCE) for factor, z in scores.items()]


@theorem(
    "npk-Eq2-printed",
    '"K → K^(d)" as printed',
    "With normal weights of variance 2/w in every layer, the variance of npk's own start, K tends to K̃^(d), not K^(d)",
)
def printed_limit(seed: int) -> Measurement:
    """Compare wide networks with both kernels, whose ratio is not constant; and signs with a limit of their own."""
    generator, x, _ = problem(seed, n=4)
    limit, printed = (infinite_width_ntk(x, depth=DEPTH, last_layer=c) for c in (2.0, 1.0))
    wide = _wide(x, 2.0, generator)
    ratios = limit / printed
    axes, signs = torch.eye(2, dtype=torch.float64), _signs_on_axes(generator)
    normal = infinite_width_ntk(axes, depth=2, last_layer=2.0)[0, 1]
    return measurement(
        against(wide.mean.mean, printed, f"K, width {WIDE}, against Eq. 2"),
        Check(f"E[K] at width {WIDE} against K̃^(d), {DRAWS} draws, |z|", wide.mean.z_score(limit), 5.0, MONTE_CARLO),
        *wide.checks(),
        *_nearby("K̃^(d)", wide.mean, limit),
        Check("E[K(e₁, e₂)] of ±σ weights, depth 2, against ½, |z|", signs.z_score(axes[0, 0] / 2), 5.0, MONTE_CARLO),
        at_least("|z| of the same against K̃^(2)", signs.z_score(normal), 6.0, "signs have a limit of their own"),
        at_least("|z| of E[K] against K^(d)", wide.mean.z_score(printed), 6.0, BEYOND_CHANCE),
        at_least("range of K̃^(d) / K^(d) over pairs", (ratios.max() - ratios.min()).item(), 0.05, "no constant factor"),
        note=(
            f"K̃^(d) / K^(d) lies between {ratios.min():.2f} and {ratios.max():.2f} here. npk's own start has signs ±σ "
            "of that variance. With few inputs a first layer of signs has no normal limit: for x = e₁, x' = e₂ and "
            f"depth 2 K tends to ½, and K̃^(2) is {normal:.3f}."
        ),
    )


def _signs_on_axes(generator: torch.Generator) -> Mean:
    """K(e₁, e₂) of networks of depth 2 with all weights ±√(2/w): (2/w) × the units that are open for both."""
    model = mlp((2, SIGNS_WIDE, 1), dtype=torch.float64)
    weights = random_signs(dict(model.named_parameters()), sqrt(2 / SIGNS_WIDE), 40, generator)
    return Mean(tangent_kernels(model, torch.eye(2, dtype=torch.float64), weights)[:, 0, 1])


@theorem(
    "npk-5.1-limit",
    "Theorem 5.1 at infinite width",
    "With fixed gates from normal weights K^V tends to d Σ ⊙ Π κ₀(θ_l), θ_l the angles in the network of the gates",
)
def fixed_gates_limit(seed: int) -> Measurement:
    """E[K^V] over values is exact for given gates, d (2/w)^{d−1} H (npk-5.1), so only the gates are drawn."""
    generator, x, _ = problem(seed, n=4)
    wide = Mean.of(_kernel_of_gates(x, generator) for _ in range(DRAWS))
    # Normal weights: with few inputs, uniform ones in the first layer would have another limit.
    options = {"start": Start.KAIMING, "dtype": torch.float64, "generator": generator}
    networks = [DeepGatedNetwork((3, *[128] * (DEPTH - 1), 1), **options) for _ in range(40)]
    factor = DEPTH * (2 / 128) ** (DEPTH - 1)
    path_kernels = [neural_path_kernel(model, x, normalise=False) for model in networks]
    narrow = Mean.of(factor * kernel for kernel in path_kernels)
    opened = [gates.double() for gates in layer_gates(networks[0].feature_parameters(), x)]
    written = (x @ x.T) * torch.stack([gates @ gates.T for gates in opened]).prod(dim=0)
    limit, relu = fixed_gates_ntk(x, depth=DEPTH), infinite_width_ntk(x, depth=DEPTH, last_layer=2.0)
    *_, (_, last) = angle_maps(x, x, DEPTH - 1)
    (_, first), *_ = angle_maps(x, x, 1)
    linear = DEPTH * (x @ x.T) * first ** (DEPTH - 1)  # linear features keep their angle
    return measurement(
        against(wide.mean, limit, f"E[K^V] over values, width {WIDE}"),
        Check(f"E[K^V] at width {WIDE} against the limit, {DRAWS} draws, |z|", wide.z_score(limit), 5.0, MONTE_CARLO),
        Check("E[K^V] at width 128, 40 DGNs, |z|", narrow.z_score(limit), 5.0, MONTE_CARLO),
        identity("H of a DGN against gates written out", path_kernels[0], written),
        Check(RELU_GATES, foreign_gates(networks[0], x), 0, "the same bits"),
        identity("diagonal against d ‖x‖²", limit.diagonal(), DEPTH * x.square().sum(dim=1)),
        *_nearby("the limit", wide, limit),
        *_nearby("the limit, DGNs", narrow, limit, 0.2),
        at_least("|z| against the limit without its last κ₀", wide.z_score(limit / last), 6.0, BEYOND_CHANCE),
        at_least("|z| against linear features' limit", wide.z_score(linear), 6.0, "angles would stay"),
        at_least("|z| against the ReLU network's K̃^(d)", wide.z_score(relu), 6.0, "another kernel"),
    )


def _kernel_of_gates(x: Tensor, generator: torch.Generator) -> Tensor:
    """Return d (2/w)^{d−1} H of the gates of one random ReLU network of width 8192."""
    layers = wide_preactivations(x, DEPTH - 1, WIDE, 1, generator)
    gates = GatePattern({str(layer): q[0] > 0 for layer, q in enumerate(layers)}, torch.float64)
    return DEPTH * 2 ** (DEPTH - 1) * (x @ x.T) * overlap_kernel(gates)
