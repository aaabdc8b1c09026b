"""The theorems of "Neural Path Features and Neural Path Kernel" (npk), measured.

d counts weight layers, w is the width, n the number of examples; all in float64.
"""

from collections.abc import Iterator
from math import sqrt
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gatelab.figures import Curve, Plot
from gatelab.gates import GatePattern, SoftGate, capture_gates
from gatelab.kernels import (
    cumulative_eigenvalues,
    neural_path_kernel,
    neural_tangent_kernel,
    overlap_kernel,
    spectrum,
    value_tangent_kernel,
)
from gatelab.lab.measure import (
    ErrorFlow,
    Mean,
    against,
    fitted_power,
    identity,
    over_all_signs,
    relative_error,
)
from gatelab.lab.theorem import Measurement, theorem
from gatelab.lab.verdicts import Check
from gatelab.models import DeepGatedNetwork, mlp
from gatelab.models.init import bernoulli_
from gatelab.paths import neural_path_features, neural_path_values, path_gradients
from gatelab.paths.features import path_activity

WIDTHS = (3, 4, 4, 1)
DEPTH = len(WIDTHS) - 1
SMALL_STEP = 1e-5
FINITE_DIFFERENCE = "central difference: h² curvature and rounding / h, h = 1e-5"
MONTE_CARLO = "within 5 standard errors of the mean, for the largest of all entries"
AT_BOUND_RATE = "the bound falls as 1/width (σ² = 2/width); 0.15 is three standard errors of the fit"


def _problem(seed: int, n: int = 5) -> tuple[torch.Generator, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, WIDTHS[0], generator=generator, dtype=torch.float64)
    target = torch.randn(n, generator=generator, dtype=torch.float64)
    return generator, x, target


def _network(seed: int) -> tuple[nn.Module, Tensor, Tensor]:
    generator, x, target = _problem(seed)
    return mlp(WIDTHS, dtype=torch.float64, generator=generator), x, target


@theorem("npk-1.1", "Proposition 1.1", "Under gradient flow the error moves as ė = −K e, K the tangent kernel")
def error_dynamics(seed: int) -> Measurement:
    """One small step of gradient descent against the tangent kernel."""
    model, x, target = _network(seed)
    flow = ErrorFlow(model, x, target)
    predicted = -neural_tangent_kernel(model, x) @ flow.error(flow.parameters)
    measured = flow.error_rate(SMALL_STEP)
    steps = [1e-3, 1e-4, 1e-5, 1e-6]
    errors = [relative_error(flow.descent_rate(step), predicted) for step in steps]
    order = fitted_power(steps, errors)
    return Measurement(
        (
            Check("ė against −K e, rel. error", relative_error(measured, predicted), 1e-7, FINITE_DIFFERENCE),
            Check("|order in the step of descent − 1|", abs(order - 1), 0.05, "forward difference: first order"),
        ),
        Plot(
            "step size of gradient descent",
            "relative error of −K e",
            (Curve("one step of descent", tuple(steps), tuple(errors), line=True),),
            log=True,
        ),
    )


@theorem("npk-2.1", "Proposition 2.1", "The output is the inner product of path features and values, ŷ = ⟨φ, v⟩")
def output_is_inner_product(seed: int) -> Measurement:
    """All paths listed, against the forward pass."""
    model, x, _ = _network(seed)
    inner_product = neural_path_features(model, x) @ neural_path_values(model)
    output = model(x).detach()
    return Measurement((identity("⟨φ, v⟩ against ŷ", inner_product, output),), against(inner_product, output, "ŷ"))


@theorem("npk-L2.1", "Lemma 2.1", "The path kernel is H = ΦᵀΦ = Σ ⊙ Λ: input Gram matrix times overlap")
def path_kernel_is_hadamard_product(seed: int) -> Measurement:
    """Explicit features against packed gates."""
    model, x, _ = _network(seed)
    features = neural_path_features(model, x)
    explicit, structured = features @ features.T, neural_path_kernel(model, x, normalise=False)
    return Measurement(
        (identity("Σ ⊙ Λ against ΦᵀΦ", structured, explicit),), against(structured, explicit, "H(s, s')")
    )


@theorem("npk-3.1", "Proposition 3.1", "The tangent kernel is K = Φᵀ 𝒱 Φ, 𝒱 the value tangent kernel")
def tangent_kernel_through_values(seed: int) -> Measurement:
    """Explicit paths against back-propagation."""
    model, x, _ = _network(seed)
    features = neural_path_features(model, x)
    explicit = features @ value_tangent_kernel(model) @ features.T
    structured = neural_tangent_kernel(model, x)
    return Measurement((identity("K against Φᵀ𝒱Φ", structured, explicit),), against(structured, explicit, "K(s, s')"))


@theorem("npk-3.2", "Proposition 3.2", "Between switching instants Φ stays, v̇(p) = ⟨φ_p, Θ̇⟩ and ė = −Φᵀ𝒱_tΦ e")
def dynamics_between_switches(seed: int) -> Measurement:
    """Gradient flow of four networks; rates by small steps of the flow that do not straddle a switch."""
    runs = [_between_switches(1000 * seed + trial) for trial in range(4)]
    measured, predicted = torch.cat([run.measured for run in runs]), torch.cat([run.predicted for run in runs])
    switches, undone = sum(run.switches for run in runs), sum(run.undone for run in runs)
    return Measurement(
        (
            Check("ė against −Φᵀ𝒱Φ e, rel. error", relative_error(measured, predicted), 1e-6, FINITE_DIFFERENCE),
            Check("v̇ against ⟨φ_p, Θ̇⟩, rel. error", max(run.value_error for run in runs), 1e-6, FINITE_DIFFERENCE),
            Check("−(switching instants met)", -switches, -1, "with no switch the claim would not be tested"),
        ),
        against(measured, predicted, "ė(s) between switching instants"),
        (
            f"{switches} switching instants were seen on steps of 5e-3, {undone} of them undone by the next step: "
            "there the flow slides along the boundary of a gate, both sides pushing towards it, the true instants "
            "accumulate, and Definition 3.3's sequence of intervals ends.",
        ),
    )


class _Run(NamedTuple):
    """Rates of the error, measured and predicted; the worst error of value rates; switches; those undone at once."""

    measured: Tensor
    predicted: Tensor
    value_error: float
    switches: int
    undone: int


def _between_switches(seed: int) -> _Run:
    model, x, target = _network(seed)
    flow, step, count = ErrorFlow(model, x, target), 5e-3, 200

    def at(parameters: dict[str, Tensor]) -> nn.Module:
        model.load_state_dict(parameters)
        return model

    trajectory = [flow.parameters]
    for _ in range(count - 1):
        trajectory.append(flow.stages(trajectory[-1], step)[-1])
    gates = [capture_gates(at(parameters), x) for parameters in trajectory]
    switches = [t for t in range(1, count) if gates[t] != gates[t - 1]]
    undone = sum(t + 1 < count and gates[t + 1] == gates[t - 1] for t in switches)
    measured, predicted, value_error = [], [], 0.0
    for start, end in zip([0, *switches], [*switches, count], strict=True):
        features = neural_path_features(at(trajectory[start]), x)  # Φ at T_i serves the whole interval
        for t in sorted({start, (start + end) // 2}):
            now = trajectory[t]
            behind, ahead = (flow.stages(now, h) for h in (-SMALL_STEP, SMALL_STEP))
            if any(capture_gates(at(parameters), x) != gates[t] for parameters in (*behind, *ahead)):
                continue
            before, after = behind[-1], ahead[-1]
            value_change = neural_path_values(at(after)) - neural_path_values(at(before))
            velocity = torch.cat([v.flatten() for v in flow.velocity(now).values()])
            value_rate = path_gradients(at(now))[:, 0] @ velocity
            value_error = max(value_error, relative_error(value_change[:, 0] / (2 * SMALL_STEP), value_rate))
            measured.append((flow.error(after) - flow.error(before)) / (2 * SMALL_STEP))
            predicted.append(-features @ value_tangent_kernel(at(now)) @ features.T @ flow.error(now))
    return _Run(torch.cat(measured), torch.cat(predicted), value_error, len(switches), undone)


@theorem("npk-3.3", "Proposition 3.3", "ρ_min(K) ≤ ρ_min(H) ρ_max(𝒱): a bad path kernel makes a bad tangent kernel")
def conditioning(seed: int) -> Measurement:
    """Many random networks; also the step of the printed proof that is not true."""
    left, right, proof_fails = [], [], 0
    for trial in range(100):
        generator, x, _ = _problem(1000 * seed + trial, n=4)
        model = mlp((3, 5, 4, 1), dtype=torch.float64, generator=generator)
        features = neural_path_features(model, x)
        path_kernel = features @ features.T
        eigenvalues, vectors = torch.linalg.eigh(neural_tangent_kernel(model, x))
        smallest = spectrum(path_kernel)[0].clamp(min=0)
        left.append(eigenvalues[0].clamp(min=0).item())
        right.append((smallest * spectrum(value_tangent_kernel(model))[-1]).item())
        bottom = vectors[:, 0]
        proof_fails += int((bottom @ path_kernel @ bottom > smallest * (1 + 1e-9) + 1e-12).item())
    excess = max(a - b for a, b in zip(left, right, strict=True)) / max(right)
    return Measurement(
        (Check("largest excess of the left side, relative", excess, 1e-10, "an inequality: float64 rounding only"),),
        Plot(
            "ρ_min(H) ρ_max(𝒱)",
            "ρ_min(K)",
            (Curve("100 random networks", tuple(right), tuple(left)),),
            diagonal="both sides equal",
        ),
        (
            f"the printed proof needs ‖Φx'‖² ≤ ρ_min(H) at K's bottom eigenvector x'; this fails in {proof_fails} of "
            "100 networks. Taking x' = the bottom eigenvector of H proves the claim.",
        ),
    )


@theorem("npk-4.1", "Proposition 4.1", "In a DGN ė = −K^V e with fixed gates, ė = −(K^V + K^F) e with learnt ones")
def gated_dynamics(seed: int) -> Measurement:
    """Soft gates, so that gradients reach the feature network."""
    generator, x, target = _problem(seed)
    model = DeepGatedNetwork(WIDTHS, gate=SoftGate(beta=8.0), dtype=torch.float64, generator=generator)
    value_kernel = neural_tangent_kernel(model, x, wrt=model.value)
    feature_kernel = neural_tangent_kernel(model, x, wrt=model.feature)
    fixed, learnt = ErrorFlow(model, x, target, moving=model.value), ErrorFlow(model, x, target)
    error = fixed.error(fixed.parameters).detach()
    rates = [(fixed.error_rate(SMALL_STEP), -value_kernel @ error)]
    rates.append((learnt.error_rate(SMALL_STEP), -(value_kernel + feature_kernel) @ error))
    hard = DeepGatedNetwork(WIDTHS, dtype=torch.float64, generator=generator)
    through_hard_gates = neural_tangent_kernel(hard, x, wrt=hard.feature).abs().max().item()
    measured, predicted = (torch.cat(side) for side in zip(*rates, strict=True))
    return Measurement(
        (
            Check("FNPF: ė against −K^V e, rel. error", relative_error(*rates[0]), 1e-6, FINITE_DIFFERENCE),
            Check("DNPFL: ė against −(K^V + K^F) e, rel. error", relative_error(*rates[1]), 1e-6, FINITE_DIFFERENCE),
            identity("K against K^V + K^F", neural_tangent_kernel(model, x), value_kernel + feature_kernel),
            Check("K^F through hard gates", through_hard_gates, 0.0, "no gradient passes a step function"),
        ),
        against(measured, predicted, "ė(s), both modes"),
    )


@theorem("npk-LD.1", "Lemma D.1", "With ±σ weights E⟨φ_p, φ_p'⟩ = 0 for p ≠ p', and ⟨φ_p, φ_p⟩ = d σ^{2(d−1)} always")
def path_gradients_are_orthogonal(seed: int) -> Measurement:
    """The expectation is exact: all sign patterns of a tiny network."""
    widths = (2, 2, 2, 1)
    depth, sigma = len(widths) - 1, 0.9  # σ = 1 would hide a wrong exponent
    model = mlp(widths, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    mean = over_all_signs(model, sigma, lambda: value_tangent_kernel(model))
    predicted = depth * sigma ** (2 * (depth - 1)) * torch.eye(mean.mean.shape[0], dtype=torch.float64)
    spread = mean.variance.diagonal().max().sqrt().item()
    return Measurement(
        (
            identity(f"E[𝒱] over all {mean.count} sign patterns", mean.mean, predicted),
            Check("spread of ⟨φ_p, φ_p⟩ over patterns", spread, 1e-10, "it does not depend on the signs"),
        ),
        against(mean.mean, predicted, "E⟨φ_p, φ_p'⟩"),
    )


def _value_draws(
    model: DeepGatedNetwork, x: Tensor, sigma: float, draws: int, generator: torch.Generator
) -> Iterator[Float[Tensor, "n n"]]:
    """Tangent kernels of the value network for independent ±σ weights, the gates fixed."""
    for _ in range(draws):
        for weight in model.value.parameters():
            bernoulli_(weight, sigma, generator)
        yield neural_tangent_kernel(model, x, wrt=model.value)


@theorem("npk-5.1", "Theorems 5.1, D.1", "With fixed gates and ±σ values E[K] = d σ^{2(d−1)} H; its variance is O(1/w)")
def expected_tangent_kernel(seed: int) -> Measurement:
    """Exactly on a tiny network; by Monte Carlo over widths."""
    generator, x, _ = _problem(seed)
    tiny, plane = DeepGatedNetwork((2, 2, 2, 1), dtype=torch.float64, generator=generator), x[:, :2]
    sigma = 0.9
    exact = over_all_signs(tiny.value, sigma, lambda: neural_tangent_kernel(tiny, plane, wrt=tiny.value))
    predicted = DEPTH * sigma ** (2 * (DEPTH - 1)) * neural_path_kernel(tiny, plane, normalise=False)

    widths, draws = [16, 32, 64, 128, 256], 300
    z_scores, variances = [], []
    for width in widths:
        model = DeepGatedNetwork((3, width, width, 1), dtype=torch.float64, generator=generator)
        sigma = sqrt(2 / width)
        mean = Mean.of(_value_draws(model, x, sigma, draws, generator))
        limit = DEPTH * sigma ** (2 * (DEPTH - 1)) * neural_path_kernel(model, x, normalise=False)
        z_scores.append(mean.z_score(limit))
        variances.append((mean.variance / limit.diagonal().mean() ** 2).mean().item())
    return Measurement(
        (
            identity(f"E[K] over all {exact.count} sign patterns", exact.mean, predicted),
            Check(f"E[K] at widths 16 … 256, {draws} draws, |z|", max(z_scores), 5.0, MONTE_CARLO),
            Check("exponent of Var[K] in w", fitted_power(widths, variances), -0.85, AT_BOUND_RATE),
        ),
        _variance_plot("width w", widths, variances),
    )


def _variance_plot(label: str, sizes: list[int], variances: list[float]) -> Plot:
    sizes_ = tuple(map(float, sizes))
    bound = tuple(variances[0] * sizes[0] / size for size in sizes)
    order = fitted_power(sizes, variances)
    curves = (
        Curve(f"measured, exponent {order:.2f}", sizes_, tuple(variances)),
        Curve("1 / size", sizes_, bound, line=True),
    )
    return Plot(label, "variance of K(s, s'), relative to its mean diagonal squared", curves, log=True)


@theorem("npk-C.1", "Corollary C.1", "Padding the gates m times, σ → σ/√m, leaves d σ^{2(d−1)} H; K tends to it with m")
def padding(seed: int) -> Measurement:
    """A value network m times as wide as the feature network."""
    generator, x, _ = _problem(seed)
    width, sigma, draws = 8, sqrt(2 / 8), 300
    paddings = [1, 2, 4, 8, 16]
    narrow = DeepGatedNetwork((3, width, width, 1), dtype=torch.float64, generator=generator)
    limit = DEPTH * sigma ** (2 * (DEPTH - 1)) * neural_path_kernel(narrow, x, normalise=False)
    padded_limits, z_scores, variances = [], [], []
    for m in paddings:
        model = DeepGatedNetwork((3, width, width, 1), padding=m, dtype=torch.float64, generator=generator)
        model.feature.load_state_dict(narrow.feature.state_dict())
        padded_sigma = sigma / sqrt(m)
        path_kernel = neural_path_kernel(model, x, normalise=False)
        padded_limits.append(DEPTH * padded_sigma ** (2 * (DEPTH - 1)) * path_kernel)
        mean = Mean.of(_value_draws(model, x, padded_sigma, draws, generator))
        z_scores.append(mean.z_score(limit))
        variances.append((mean.variance / limit.diagonal().mean() ** 2).mean().item())
    stacked = torch.stack(padded_limits)
    return Measurement(
        (
            identity("d σ_m^{2(d−1)} H^(m) against d σ^{2(d−1)} H", stacked, limit.expand_as(stacked)),
            Check(f"E[K] for m = 1 … 16, {draws} draws, |z|", max(z_scores), 5.0, MONTE_CARLO),
            Check("exponent of Var[K] in m", fitted_power(paddings, variances), -0.85, AT_BOUND_RATE),
        ),
        _variance_plot("padding m", paddings, variances),
    )


@theorem("npk-C.2", "Definition C.2", "Counting common open paths equals multiplying common open units: Λ = Π_l τ_l")
def overlap_is_product(seed: int) -> Measurement:
    """Listed paths against packed gates."""
    model, x, _ = _network(seed)
    activity = path_activity(model, x).double()
    counted = activity @ activity.T / WIDTHS[0]
    multiplied = overlap_kernel(capture_gates(model, x), normalise=False)
    return Measurement(
        (Check("|Π τ_l − |A(s,s')| / d_in|", (multiplied - counted).abs().max().item(), 0.0, "whole numbers"),),
        against(multiplied, counted, "Λ(s, s')"),
    )


@theorem("npk-E", "Appendix E", "A memorisation network's E[K₀]/d has eigenvalues 1 + (n−1)μ^{d−1} and 1 − μ^{d−1}")
def memorisation_spectrum(seed: int) -> Measurement:
    """The closed form against an eigensolver, and the matrix against sampled gates."""
    generator = torch.Generator().manual_seed(seed)
    n, mu, width, depths = 200, 0.5, 25, (2, 4, 6, 8, 12, 16, 20)
    worst, ideal = 0.0, []
    for depth in depths:
        common = mu ** (depth - 1)
        expected = torch.full((n, n), common, dtype=torch.float64).fill_diagonal_(1)
        closed = torch.full((n,), 1 - common, dtype=torch.float64)
        closed[-1] = 1 + (n - 1) * common
        worst = max(worst, relative_error(spectrum(expected), closed))
        ideal.append(Curve(f"ideal, d = {depth}", tuple(range(1, n + 1)), tuple(closed.cumsum(0).tolist()), line=True))
    depth = 4
    samples = [_sampled_lookup_kernel(n, width, depth, mu, generator) for _ in range(200)]
    entries = Mean.of(torch.stack([k.diagonal().mean(), (k.sum() - k.trace()) / (n * n - n)]) for k in samples)
    predicted = torch.tensor([1.0, mu ** (depth - 1)], dtype=torch.float64)
    drawn = tuple(cumulative_eigenvalues(samples[0]).tolist())
    return Measurement(
        (
            Check("eigenvalues, d = 2 … 20, rel. error", worst, 1e-10, "an eigensolver's float64 rounding"),
            Check("E of diagonal and other entries, 200 draws, |z|", entries.z_score(predicted), 5.0, MONTE_CARLO),
        ),
        Plot(
            "index, smallest eigenvalue first",
            "cumulative eigenvalues of E[K₀]/d",
            (*ideal, Curve(f"one draw, w = {width}, d = {depth}", tuple(range(1, n + 1)), drawn)),
        ),
        (f"one draw of the gates at w = {width}, d = {depth} lies below the ideal line: width limits useful depth.",),
    )


def _sampled_lookup_kernel(n: int, width: int, depth: int, mu: float, generator: torch.Generator) -> Tensor:
    """E_v[K₀]/d = σ^{2(d−1)} Λ₀ for one draw of Ber(μ) gates, σ² = 1/(μw)."""
    gates = {
        str(layer): torch.rand(n, width, generator=generator, dtype=torch.float64) < mu for layer in range(depth - 1)
    }
    sigma_squared = 1 / (mu * width)
    return sigma_squared ** (depth - 1) * overlap_kernel(GatePattern(gates, torch.float64), normalise=False)
