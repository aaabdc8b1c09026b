"""The theorems of "Neural Path Features and Neural Path Kernel" (npk), measured.

d counts weight layers, w is the width, n the number of examples; all in float64.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool
from torch import Tensor, nn
from torch.func import vmap

from gatelab.figures import Plot
from gatelab.kernels import neural_path_kernel, neural_tangent_kernel, overlap_kernel, spectrum, value_tangent_kernel
from gatelab.lab.measure import ErrorFlow, against, identity, relative_error
from gatelab.lab.theorem import Measurement, theorem
from gatelab.lab.verdicts import Check
from gatelab.lab.verdicts.fits import fitted_power
from gatelab.models import mlp
from gatelab.network import capture_gates
from gatelab.papers.common import agrees, at_least, dots, equality, line, measurement
from gatelab.paths import neural_path_features, neural_path_values
from gatelab.paths.features import path_activity, path_gradients

WIDTHS = (3, 4, 4, 1)
DEPTH = len(WIDTHS) - 1
SMALL_STEP = 1e-5
TRIALS = 100  # random networks on which an inequality is tested
STEP, STEPS = 5e-3, 200  # of the flow between whose switching instants rates are measured
FINITE_DIFFERENCE = "central difference: h² curvature and rounding / h, h = 1e-5"


def problem(seed: int, n: int = 5) -> tuple[torch.Generator, Tensor, Tensor]:
    """Random inputs and targets, and the generator that drew them."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, WIDTHS[0], generator=generator, dtype=torch.float64)
    target = torch.randn(n, generator=generator, dtype=torch.float64)
    return generator, x, target


def _network(seed: int) -> tuple[nn.Module, Tensor, Tensor]:
    generator, x, target = problem(seed)
    return mlp(WIDTHS, dtype=torch.float64, generator=generator), x, target


@theorem("npk-1.1", "Proposition 1.1", "Under gradient flow the error moves as ė = −K e, K the tangent kernel")
def error_dynamics(seed: int) -> Measurement:
    """Compare one small step of gradient descent with the tangent kernel."""
    model, x, target = _network(seed)
    flow = ErrorFlow(model, x, target)
    predicted = -neural_tangent_kernel(model, x) @ flow.error(flow.parameters)
    steps = [1e-3, 1e-4, 1e-5, 1e-6]
    errors = [relative_error(flow.descent_rate(step), predicted) for step in steps]
    order = fitted_power(steps, errors)
    descent = line("one step of descent", steps, errors)
    return measurement(
        Plot("step size of gradient descent", "relative error of −K e", (descent,), log=True),
        agrees("ė against −K e", flow.error_rate(SMALL_STEP), predicted, 1e-7, FINITE_DIFFERENCE),
        Check("|order in the step of descent − 1|", abs(order - 1), 0.05, "forward difference: first order"),
    )


@theorem("npk-2.1", "Proposition 2.1", "The output is the inner product of path features and values, ŷ = ⟨φ, v⟩")
def output_is_inner_product(seed: int) -> Measurement:
    """Compare a list of all paths with the forward pass."""
    model, x, _ = _network(seed)
    inner_product = neural_path_features(model, x) @ neural_path_values(model)
    return equality("⟨φ, v⟩ against ŷ", inner_product, model(x).detach(), "ŷ")


@theorem("npk-L2.1", "Lemma 2.1", "The path kernel is H = ΦᵀΦ = Σ ⊙ Λ: input Gram matrix times overlap")
def path_kernel_is_hadamard_product(seed: int) -> Measurement:
    """Compare explicit features with packed gates."""
    model, x, _ = _network(seed)
    features = neural_path_features(model, x)
    structured = neural_path_kernel(model, x, normalise=False)
    return equality("Σ ⊙ Λ against ΦᵀΦ", structured, features @ features.T, "H(s, s')")


@theorem("npk-3.1", "Proposition 3.1", "The tangent kernel is K = Φᵀ 𝒱 Φ, 𝒱 the value tangent kernel")
def tangent_kernel_through_values(seed: int) -> Measurement:
    """Compare explicit paths with back-propagation."""
    model, x, _ = _network(seed)
    features = neural_path_features(model, x)
    explicit = features @ value_tangent_kernel(model) @ features.T
    return equality("K against Φᵀ𝒱Φ", neural_tangent_kernel(model, x), explicit, "K(s, s')")


@theorem("npk-3.2", "Proposition 3.2", "Between switching instants Φ stays, v̇(p) = ⟨φ_p, Θ̇⟩ and ė = −Φᵀ𝒱_tΦ e")
def dynamics_between_switches(seed: int) -> Measurement:
    """Follow the gradient flow of four networks; measure rates by small steps that do not straddle a switch."""
    problems = [_network(1000 * seed + trial) for trial in range(4)]
    model = problems[0][0]
    x, target = torch.stack([x for _, x, _ in problems]), torch.stack([y for _, _, y in problems])
    trajectory = _trajectory([dict(problem[0].named_parameters()) for problem in problems], model, x, target)
    gates = vmap(vmap(relu_gates), (0, None))(trajectory, x)  # (steps, networks, n, units)
    moments, switches, undone = [], 0, 0
    for network in range(len(problems)):
        own = gates[:, network]
        changed = (own[1:] != own[:-1]).flatten(1).any(dim=1)
        instants = [t + 1 for t in changed.nonzero()[:, 0].tolist()]
        switches += len(instants)
        undone += sum(t + 1 < STEPS and torch.equal(own[t + 1], own[t - 1]) for t in instants)
        for start, end in zip([0, *instants], [*instants, STEPS], strict=True):
            moments += [_Moment(network, start, t) for t in sorted({start, (start + end) // 2})]
    measured, predicted, value_error = _rates(model, x, target, trajectory, gates, moments)
    return measurement(
        against(measured, predicted, "ė(s) between switching instants"),
        agrees("ė against −Φᵀ𝒱Φ e", measured, predicted, 1e-6, FINITE_DIFFERENCE),
        Check("v̇ against ⟨φ_p, Θ̇⟩, rel. error", value_error, 1e-6, FINITE_DIFFERENCE),
        at_least("switching instants met", switches, 1, "with no switch the claim would not be tested"),
        note=(
            f"{switches} switching instants were seen on steps of {STEP:g}, {undone} of them undone by the next step: "
            "there the flow slides along the boundary of a gate, both sides pushing towards it, the true instants "
            "accumulate, and Definition 3.3's sequence of intervals ends."
        ),
    )


class _Moment(NamedTuple):
    """A step of a network's trajectory at which rates are measured, and the start of its interval."""

    network: int
    start: int
    step: int


def _trajectory(networks: list[dict[str, Tensor]], model: nn.Module, x: Tensor, target: Tensor) -> dict[str, Tensor]:
    """Parameters of all networks along the flow: (steps, networks, …)."""

    def advance(parameters: dict[str, Tensor], x: Tensor, target: Tensor) -> dict[str, Tensor]:
        return ErrorFlow(model, x, target).stages(parameters, STEP)[-1]

    steps = [{name: torch.stack([one[name].detach() for one in networks]) for name in networks[0]}]
    while len(steps) < STEPS:
        steps.append(vmap(advance)(steps[-1], x, target))
    return {name: torch.stack([step[name] for step in steps]) for name in steps[0]}


def relu_gates(weights: Mapping[Any, Tensor], x: Tensor) -> Bool[Tensor, "n units"]:
    """Return the gates of a bias-free chain from its weights; capturing them at all steps would take seconds."""
    q, *found = x @ next(iter(weights.values())).T, torch.empty(len(x), 0, dtype=torch.bool)
    for weight in list(weights.values())[1:]:
        found.append(q > 0)
        q = torch.relu(q) @ weight.T
    return torch.cat(found, dim=1)


def _rates(
    model: nn.Module, x: Tensor, target: Tensor, trajectory: dict[str, Tensor], gates: Tensor, moments: list[_Moment]
) -> tuple[Tensor, Tensor, float]:
    """Rates of the errors at some moments, measured and predicted, and the worst relative error of value rates."""

    def around(now: dict[str, Tensor], x: Tensor, target: Tensor, gates: Tensor) -> tuple[Any, ...]:
        flow = ErrorFlow(model, x, target)
        behind, ahead = (flow.stages(now, h) for h in (-SMALL_STEP, SMALL_STEP))
        same = torch.stack([(relu_gates(point, x) == gates).all() for point in (*behind, *ahead)]).all()
        rate = (flow.error(ahead[-1]) - flow.error(behind[-1])) / (2 * SMALL_STEP)
        return same, rate, flow.error(now), flow.velocity(now), behind[-1], ahead[-1]

    networks, steps = torch.tensor([m.network for m in moments]), torch.tensor([m.step for m in moments])
    points = {name: tensor[steps, networks] for name, tensor in trajectory.items()}
    same, rate, error, velocity, before, after = vmap(around)(
        points, x[networks], target[networks], gates[steps, networks]
    )

    def at(parameters: dict[str, Tensor], *place: int) -> nn.Module:
        model.load_state_dict({name: tensor[place] for name, tensor in parameters.items()})
        return model

    predicted, value_error, features, interval = [], 0.0, torch.empty(0), None
    kept = same.nonzero()[:, 0].tolist()  # no gate switches within the small steps
    for place in kept:
        network, start, _ = moments[place]
        if (network, start) != interval:  # Φ at T_i serves the whole interval
            interval, features = (network, start), neural_path_features(at(trajectory, start, network), x[network])
        change = neural_path_values(at(after, place)) - neural_path_values(at(before, place))
        now = at(points, place)
        rates = path_gradients(now)[:, 0] @ torch.cat([v[place].flatten() for v in velocity.values()])
        value_error = max(value_error, relative_error(change[:, 0] / (2 * SMALL_STEP), rates))
        predicted.append(-features @ value_tangent_kernel(now) @ features.T @ error[place])
    return rate[kept].flatten(), torch.cat(predicted), value_error


@theorem("npk-3.3", "Proposition 3.3", "ρ_min(K) ≤ ρ_min(H) ρ_max(𝒱): a bad path kernel makes a bad tangent kernel")
def conditioning(seed: int) -> Measurement:
    """Test many random networks, and the step of the printed proof that is false."""
    left, right, proof_fails = [], [], 0
    for trial in range(TRIALS):
        generator, x, _ = problem(1000 * seed + trial, n=4)
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
    # The bound is tight: both sides are equal for equal weights and one example that opens all gates.
    alike = mlp((1, 3, 2, 1), dtype=torch.float64)
    for weight in alike.parameters():
        torch.nn.init.constant_(weight, 0.8)
    one = torch.ones(1, 1, dtype=torch.float64)
    bound = neural_path_features(alike, one).square().sum() * spectrum(value_tangent_kernel(alike))[-1]
    networks = dots(f"{TRIALS} random networks", right, left)
    return measurement(
        Plot("ρ_min(H) ρ_max(𝒱)", "ρ_min(K)", (networks,), diagonal="both sides equal"),
        Check("largest excess of the left side, relative", excess, 1e-10, "an inequality: float64 rounding only"),
        identity("equal weights, one example: both sides", neural_tangent_kernel(alike, one).sum(), bound),
        note=(
            f"the printed proof needs ‖Φx'‖² ≤ ρ_min(H) at K's bottom eigenvector x'; this fails in {proof_fails} of "
            f"{TRIALS} networks. Taking x' = the bottom eigenvector of H proves the claim."
        ),
    )


@theorem("npk-C.2", "Definition C.2", "Counting common open paths equals multiplying common open units: Λ = Π_l τ_l")
def overlap_is_product(seed: int) -> Measurement:
    """Compare listed paths with packed gates."""
    model, x, _ = _network(seed)
    activity = path_activity(model, x).double()
    counted = activity @ activity.T / WIDTHS[0]
    multiplied = overlap_kernel(capture_gates(model, x), normalise=False)
    return measurement(
        against(multiplied, counted, "Λ(s, s')"),
        Check("|Π τ_l − |A(s,s')| / d_in|", (multiplied - counted).abs().max().item(), 0.0, "whole numbers"),
    )
