"""npk's theorems about random values: means and variances of tangent kernels over ±σ weights, the gates fixed.

Expectations are exact, over all sign patterns of a tiny network, and sampled over many draws of larger ones. All draws
are computed at once by plain autograd (:func:`gatelab.lab.measure.tangent_kernels`); the library's own kernels, which
take one network at a time, are compared with them on a few draws.
"""

from collections.abc import Mapping
from itertools import count
from math import sqrt
from typing import NamedTuple

import torch
from torch import Tensor
from torch.func import jacrev, vmap

from gatelab.figures import Plot
from gatelab.gates import GatePattern
from gatelab.kernels import (
    cumulative_eigenvalues,
    neural_path_kernel,
    neural_tangent_kernel,
    overlap_kernel,
    spectrum,
    value_tangent_kernel,
)
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
)
from gatelab.lab.theorem import Measurement, theorem
from gatelab.lab.verdicts import Check
from gatelab.lab.verdicts.fits import fitted_power
from gatelab.models import DeepGatedNetwork, MemorisationNetwork, mlp
from gatelab.papers.common import at_least, dots, first_suitable, line, measurement, power_law
from gatelab.papers.npk.theorems import DEPTH, problem, telling
from gatelab.papers.npk.theorems_gated import RELU_GATES, foreign_gates

SIGMA = 0.9  # of exact expectations; σ = 1 would hide a wrong exponent
DRAWS = 300  # the variance is then known to 8 %, its exponent over five sizes to 0.05
MONTE_CARLO = "within 5 standard errors of the mean, for the largest of all entries"
BEYOND_CHANCE = "more than chance would give"
AT_BOUND_RATE = "the bound falls as 1/width (σ² = 2/width); 0.15 is three standard errors of the fit"


@theorem("npk-LD.1", "Lemma D.1", "With ±σ weights E⟨φ_p, φ_p'⟩ = 0 for p ≠ p', and ⟨φ_p, φ_p⟩ = d σ^{2(d−1)} always")
def path_gradients_are_orthogonal(seed: int) -> Measurement:
    """The expectation is exact: all sign patterns of a tiny network."""
    model = mlp((2, 2, 2, 1), dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    weights = all_signs(dict(model.named_parameters()), SIGMA)
    kernels = vmap(_value_kernel)(weights)
    own = []
    for pattern in _SAMPLED:
        model.load_state_dict({name: tensor[pattern] for name, tensor in weights.items()})
        own.append(value_tangent_kernel(model))
    mean = Mean(kernels)
    predicted = DEPTH * SIGMA ** (2 * (DEPTH - 1)) * torch.eye(mean.mean.shape[0], dtype=torch.float64)
    spread = mean.variance.diagonal().max().sqrt().item()
    off_diagonal = min(kernel.abs().fill_diagonal_(0).max().item() for kernel in own)
    return measurement(
        against(mean.mean, predicted, "E⟨φ_p, φ_p'⟩"),
        identity(f"E[𝒱] over all {mean.count} sign patterns", mean.mean, predicted),
        identity(f"𝒱 at {len(own)} of them against autograd", torch.stack(own), kernels[list(_SAMPLED)]),
        Check("spread of ⟨φ_p, φ_p⟩ over patterns", spread, 1e-10, "it does not depend on the signs"),
        at_least("largest |⟨φ_p, φ_p'⟩|, p ≠ p', at one of them", off_diagonal, 0.5, "only the mean is zero"),
    )


_SAMPLED = (0, 341, 614, 1023)  # sign patterns at which the library's kernel is compared: both extremes, two mixed ones


def _value_kernel(weights: dict[str, Tensor]) -> Tensor:
    """𝒱 of a bias-free chain: inner products of the gradients of its path values."""

    def values(weights: dict[str, Tensor]) -> Tensor:
        first, *others = weights.values()
        paths = first.T
        for weight in others:
            paths = (paths.unsqueeze(-1) * weight.T).flatten(0, 1)
        return paths[:, 0]

    gradients = torch.cat([part.flatten(1) for part in jacrev(values)(weights).values()], dim=1)
    return gradients @ gradients.T


def _values(model: DeepGatedNetwork) -> dict[str, Tensor]:
    """The parameters of the value network, by their names in the whole."""
    return {f"value.{name}": parameter for name, parameter in model.value.named_parameters()}


def _library_error(model: DeepGatedNetwork, x: Tensor, weights: Mapping[str, Tensor], kernels: Tensor) -> float:
    """How far the library's tangent kernel of the first and the last draw is from autograd's."""
    errors = []
    for draw in (0, -1):
        model.load_state_dict({name: tensor[draw] for name, tensor in weights.items()}, strict=False)
        errors.append(relative_error(neural_tangent_kernel(model, x, wrt=model.value), kernels[draw]))
    return max(errors)


def _limit(model: DeepGatedNetwork, x: Tensor, sigma: float) -> Tensor:
    """What the theorem predicts, d σ^{2(d−1)} H."""
    return DEPTH * sigma ** (2 * (DEPTH - 1)) * neural_path_kernel(model, x, normalise=False)


class _Draws(NamedTuple):
    """Tangent kernels over random signs of the values: what is compared at one size.

    Attributes:
        z: of E[K] against the limit.
        foreign: of E[K] against the limit of other gates.
        variance: of K(s, s'), relative to the mean diagonal squared.
        error: of the library's tangent kernel.
    """

    z: float
    foreign: float
    variance: float
    error: float


def _sampled(
    model: DeepGatedNetwork, x: Tensor, sigma: float, limit: Tensor, foreign: Tensor, generator: torch.Generator
) -> _Draws:
    """Draw the signs of the values; ``foreign`` is the limit that other gates would give."""
    weights = random_signs(_values(model), sigma, DRAWS, generator)
    kernels = tangent_kernels(model, x, weights)
    mean = Mean(kernels)
    variance = (mean.variance / limit.diagonal().mean() ** 2).mean().item()
    return _Draws(mean.z_score(limit), mean.z_score(foreign), variance, _library_error(model, x, weights, kernels))


def _over_sizes(
    first: list[Check],
    label: str,
    sizes: list[int],
    which: str,
    draws: list[_Draws],
    worst: float = 0.0,
) -> Measurement:
    """Check the mean, the decay of the variance, and the library; ``worst`` is the library's error elsewhere."""
    z_scores, foreign, variances, errors = zip(*draws, strict=True)
    y_label = "variance of K(s, s'), relative to its mean diagonal squared"
    decay = fitted_power(sizes, variances)
    return measurement(
        power_law(label, y_label, sizes, variances, -1, "1 / size"),
        *first,
        Check(f"E[K] {which}, {DRAWS} draws, |z|", max(z_scores), 5.0, MONTE_CARLO),
        Check(f"exponent of Var[K] in {label[-1]}", decay, -0.85, AT_BOUND_RATE),
        Check("K of some draws against autograd, rel. error", max(worst, *errors), IDENTITY, EXACT),
        at_least("|z| of E[K] against H of other gates, the least", min(foreign), 6.0, BEYOND_CHANCE),
    )


def telling_dgn(widths: tuple[int, ...], x: Tensor, generator: torch.Generator) -> DeepGatedNetwork:
    """A deep gated network with random gates that tell examples apart."""
    drawn = (DeepGatedNetwork(widths, dtype=torch.float64, generator=generator) for _ in count())
    return first_suitable(drawn, lambda model: telling(model.feature_parameters(), x), "a DGN that is telling")


@theorem("npk-5.1", "Theorems 5.1, D.1", "With fixed gates and ±σ values E[K] = d σ^{2(d−1)} H; its variance is O(1/w)")
def expected_tangent_kernel(seed: int) -> Measurement:
    """Exactly on a tiny network; by Monte Carlo over widths."""
    generator, x, _ = problem(seed)
    plane = x[:, :2]
    tiny = telling_dgn((2, 2, 2, 1), plane, generator)
    weights = all_signs(_values(tiny), SIGMA)
    kernels = tangent_kernels(tiny, plane, weights)
    worst, exact = _library_error(tiny, plane, weights, kernels), Mean(kernels)
    first = [
        identity(f"E[K] over all {exact.count} sign patterns", exact.mean, _limit(tiny, plane, SIGMA)),
        at_least("rel. error of K at one of them", relative_error(kernels[0], exact.mean), 0.01, "K varies; E[K] is H"),
    ]
    widths, draws = [16, 32, 64, 128, 256], []
    for width in widths:
        model, other = (telling_dgn((3, width, width, 1), x, generator) for _ in range(2))
        sigma = sqrt(2 / width)
        draws.append(_sampled(model, x, sigma, _limit(model, x, sigma), _limit(other, x, sigma), generator))
    return _over_sizes(first, "width w", widths, "at widths 16 … 256", draws, worst)


@theorem("npk-C.1", "Corollary C.1", "Padding the gates m times, σ → σ/√m, leaves d σ^{2(d−1)} H; K tends to it with m")
def padding(seed: int) -> Measurement:
    """A value network m times as wide as the feature network."""
    generator, x, _ = problem(seed)
    width, sigma = 8, sqrt(2 / 8)
    narrow, other = (telling_dgn((3, width, width, 1), x, generator) for _ in range(2))
    limit, others = (_limit(model, x, sigma) for model in (narrow, other))
    paddings, padded_limits, draws, foreign = [1, 2, 4, 8, 16], [], [], 0
    for m in paddings:
        model = DeepGatedNetwork((3, width, width, 1), padding=m, dtype=torch.float64, generator=generator)
        model.feature.load_state_dict(narrow.feature.state_dict())
        padded_limits.append(_limit(model, x, sigma / sqrt(m)))
        draws.append(_sampled(model, x, sigma / sqrt(m), limit, others, generator))
        foreign += foreign_gates(model, x)
    stacked = torch.stack(padded_limits)
    first = identity("d σ_m^{2(d−1)} H^(m) against d σ^{2(d−1)} H", stacked, limit.expand_as(stacked))
    return _over_sizes(
        [first, Check(RELU_GATES, foreign, 0, "the same bits")], "padding m", paddings, "for m = 1 … 16", draws
    )


@theorem("npk-E", "Appendix E", "A memorisation network's E[K₀]/d has eigenvalues 1 + (n−1)μ^{d−1} and 1 − μ^{d−1}")
def memorisation_spectrum(seed: int) -> Measurement:
    """The closed form against an eigensolver, and the matrix against networks: their gates, and their own kernels."""
    generator = torch.Generator().manual_seed(seed)
    n, mu, width, depths = 200, 0.6, 25, (2, 4, 6, 8, 12, 16, 20)
    worst, worst_sum, ideal = 0.0, 0.0, []
    for depth in depths:
        common = mu ** (depth - 1)
        expected = torch.full((n, n), common, dtype=torch.float64).fill_diagonal_(1)
        closed = torch.full((n,), 1 - common, dtype=torch.float64)
        closed[-1] = 1 + (n - 1) * common
        worst = max(worst, relative_error(spectrum(expected), closed))
        worst_sum = max(worst_sum, relative_error(cumulative_eigenvalues(expected), closed.cumsum(0)))
        ideal.append(line(f"ideal, d = {depth}", range(1, n + 1), closed.cumsum(0)))
    depth, entries, drawn = 4, [], []
    for _ in range(100):
        network = MemorisationNetwork(LOOKUPS, width, depth, mu, dtype=torch.float64, generator=generator)
        kernels = _lookup_kernels(network)
        entries.append(torch.stack([_diagonal_and_rest(kernel) for kernel in kernels]))
        drawn.append(kernels[0])
    predicted = torch.tensor([1.0, mu ** (depth - 1)], dtype=torch.float64).expand(2, 2)
    sampled = Mean.of(entries)
    # Rows: gates of the networks, their own kernels; columns: diagonal, other entries.
    one_more = ((sampled.mean - mu**depth) / sampled.error)[:, 1].abs().min().item()
    label = f"E over signs, one draw of gates, w = {width}, d = {depth}"
    cumulative, half = cumulative_eigenvalues(drawn[0]), LOOKUPS // 2
    shown = dots(label, range(1, LOOKUPS + 1), cumulative)
    share = cumulative[half - 1].item() / (half * (1 - mu ** (depth - 1)))
    return measurement(
        Plot("index, smallest eigenvalue first", "cumulative eigenvalues of E[K₀]/d", (*ideal, shown)),
        Check("eigenvalues, d = 2 … 20, rel. error", worst, 1e-10, "an eigensolver's float64 rounding"),
        Check("their cumulative sums, rel. error", worst_sum, 1e-10, "an eigensolver's float64 rounding"),
        Check("diagonal and other entries, 100 networks, |z|", sampled.z_score(predicted), 5.0, MONTE_CARLO),
        at_least("|z| of other entries against μ^d, one layer more", one_more, 6.0, BEYOND_CHANCE),
        Check(
            "one draw of gates: the smaller half of its eigenvalues, over the ideal half", share, 0.8, "width is finite"
        ),
        note=(
            f"for one draw of the gates at w = {width}, d = {depth} the smaller half of the eigenvalues adds up to "
            f"{share:.0%} of the ideal sum: width limits useful depth."
        ),
    )


LOOKUPS = 40  # values in each of the networks that are drawn


def _lookup_kernels(network: MemorisationNetwork) -> tuple[Tensor, Tensor]:
    """E[K₀]/d over signs for the network's own gates and σ, d σ^{2(d−1)} Λ₀; and its own K₀/d, by autograd."""
    depth, sigma = len(network.value), next(network.parameters()).detach().abs().max().item()
    pattern = GatePattern({str(layer): gates > 0 for layer, gates in enumerate(network.gates)}, torch.float64)
    expected = sigma ** (2 * (depth - 1)) * overlap_kernel(pattern, normalise=False)
    index = torch.arange(network.gates.shape[1])
    parameters = {name: weight.detach()[None] for name, weight in network.named_parameters()}
    return expected, tangent_kernels(network, index, parameters)[0] / depth


def _diagonal_and_rest(kernel: Tensor) -> Tensor:
    """Return the mean of the diagonal and the mean of the other entries."""
    n = len(kernel)
    return torch.stack([kernel.diagonal().mean(), (kernel.sum() - kernel.trace()) / (n * n - n)])
