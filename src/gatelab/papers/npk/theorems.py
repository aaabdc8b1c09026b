"""The theorems of "Neural Path Features and Neural Path Kernel" (npk), measured.

d counts weight layers, w is the width, n the number of examples; all in float64. Networks are redrawn until two
examples share an open path and one of them opens another (:func:`telling`): a dead network would compare 0 with 0.
"""

from collections.abc import Iterable, Mapping
from itertools import count
from math import prod
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.func import vmap

from gatelab.figures import Plot
from gatelab.gates import GatePattern
from gatelab.kernels import neural_path_kernel, neural_tangent_kernel, overlap_kernel, spectrum, value_tangent_kernel
from gatelab.lab.measure import ErrorFlow, against, identity, moved, relative_error
from gatelab.lab.theorem import Measurement, theorem
from gatelab.lab.verdicts import Check
from gatelab.lab.verdicts.fits import fitted_power
from gatelab.models import mlp
from gatelab.network import capture_gates
from gatelab.papers.common import agrees, at_least, dots, first_suitable, line, measurement
from gatelab.paths import neural_path_features, neural_path_values
from gatelab.paths.features import path_activity, path_gradients

WIDTHS = (3, 4, 4, 1)
DEPTH = len(WIDTHS) - 1
SMALL_STEP = 1e-5  # the time of a central difference, or how far the weights move in it
TRIALS = 100  # random networks on which an inequality is tested
STEP, STEPS = 5e-3, 200  # of the flow between whose switching instants rates are measured
FINITE_DIFFERENCE = "central difference: h² curvature and rounding / h, h = 1e-5"
COUPLED = "examples share weights: each moves the others"
WHOLE = "whole numbers"


def problem(seed: int, n: int = 5) -> tuple[torch.Generator, Tensor, Tensor]:
    """Random inputs and targets, and the generator that drew them."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, WIDTHS[0], generator=generator, dtype=torch.float64)
    target = torch.randn(n, generator=generator, dtype=torch.float64)
    return generator, x, target


def random_network(seed: int, smooth_for: float | None = None) -> tuple[nn.Module, Tensor, Tensor]:
    """A random ReLU network that is :func:`telling` on its examples; the examples; targets.

    No gate switches within one step of descent of size ``smooth_for``.
    """
    generator, x, target = problem(seed)

    def suitable(model: nn.Module) -> bool:
        smooth = smooth_for is None or not _switches(ErrorFlow(model, x, target), x, smooth_for)
        return smooth and telling(list(model.parameters())[:-1], x)

    drawn = (mlp(WIDTHS, dtype=torch.float64, generator=generator) for _ in count())
    return first_suitable(drawn, suitable, TELLING), x, target


TELLING = "a network whose gates tell examples apart and, if asked for, stay within a step of descent"


def telling(hidden: Iterable[Tensor], x: Tensor) -> bool:
    """Whether two examples share an open path and one of them opens another; ``hidden`` are the weights before gates.

    Otherwise φ, ŷ, H or K are zero, or gates make no difference between examples, and nothing would be compared.
    """
    layers = [gates.double() for gates in layer_gates(hidden, x)]
    common = torch.stack([gates @ gates.T for gates in layers]).prod(dim=0)
    return bool(((common > 0) & (common < common.diagonal()[:, None])).any())


@theorem("npk-1.1", "Proposition 1.1", "Under gradient flow ė = −K e wherever no gate switches, K the tangent kernel")
def error_dynamics(seed: int) -> Measurement:
    """Compare one small step of gradient descent with the tangent kernel, at a point where no gate switches.

    ReLU networks have no derivative where a gate switches: networks are redrawn until the largest step switches none.
    """
    steps = [1e-3, 1e-4, 1e-5, 1e-6]
    model, x, target = random_network(seed, smooth_for=steps[0])
    flow = ErrorFlow(model, x, target)
    kernel, error = neural_tangent_kernel(model, x), flow.error(flow.parameters)
    predicted, alone = -kernel @ error, -kernel.diagonal() * error
    measured = flow.error_rate(SMALL_STEP)
    errors = [relative_error(flow.descent_rate(step), predicted) for step in steps]
    order = fitted_power(steps, errors)
    descent = line("one step of descent", steps, errors)
    return measurement(
        Plot("step size of gradient descent", "relative error of −K e", (descent,), log=True),
        agrees("ė against −K e", measured, predicted, 1e-7, FINITE_DIFFERENCE),
        Check("|order in the step of descent − 1|", abs(order - 1), 0.05, "forward difference: first order"),
        at_least("rel. error of −K(s, s) e(s), the diagonal alone", relative_error(alone, measured), 0.01, COUPLED),
    )


def _switches(flow: ErrorFlow, x: Tensor, step: float) -> bool:
    """Whether one step of descent, forwards or backwards, switches a gate."""
    velocity = flow.velocity(flow.parameters)
    here, *there = (relu_gates(moved(flow.parameters, velocity, h), x) for h in (0, step, -step))
    return not all(torch.equal(here, gates) for gates in there)


@theorem("npk-2.1", "Proposition 2.1", "The output is the inner product of path features and values, ŷ = ⟨φ, v⟩")
def output_is_inner_product(seed: int) -> Measurement:
    """Compare a list of all paths with the forward pass."""
    model, x, _ = random_network(seed)
    features, values, output = neural_path_features(model, x), neural_path_values(model), model(x).detach()
    foreign = features_of_nodes(x) * path_activity(model, x).roll(1, 0)
    return measurement(
        against(features @ values, output, "ŷ"),
        identity("⟨φ, v⟩ against ŷ", features @ values, output),
        at_least(
            "rel. error of ⟨φ, v⟩ with another example's gates",
            relative_error(foreign @ values, output),
            0.01,
            "each example opens its own paths",
        ),
    )


def features_of_nodes(x: Tensor) -> Float[Tensor, "n paths"]:
    """Return φ with all gates open: x at the node where a path starts; paths are numbered by it first."""
    return x.repeat_interleave(prod(WIDTHS[1:]), dim=1)


@theorem("npk-L2.1", "Lemma 2.1", "The path kernel is H = ΦᵀΦ = Σ ⊙ Λ: input Gram matrix times overlap")
def path_kernel_is_hadamard_product(seed: int) -> Measurement:
    """Compare explicit features with packed gates."""
    model, x, _ = random_network(seed)
    features = neural_path_features(model, x)
    structured, listed = neural_path_kernel(model, x, normalise=False), features @ features.T
    without_gates = features_of_nodes(x) @ features_of_nodes(x).T
    # Lists and bits are captured by the same function; these gates are written out.
    overlaps = [gates.double() @ gates.double().T for gates in layer_gates(list(model.parameters())[:-1], x)]
    return measurement(
        against(structured, listed, "H(s, s')"),
        identity("Σ ⊙ Λ against ΦᵀΦ", structured, listed),
        identity("Σ ⊙ Λ against gates written out", structured, torch.stack([x @ x.T, *overlaps]).prod(dim=0)),
        at_least("rel. error of H without gates", relative_error(without_gates, listed), 0.1, "Λ counts open paths"),
    )


@theorem("npk-3.1", "Proposition 3.1", "The tangent kernel is K = Φᵀ 𝒱 Φ, 𝒱 the value tangent kernel")
def tangent_kernel_through_values(seed: int) -> Measurement:
    """Compare explicit paths with back-propagation."""
    model, x, _ = random_network(seed)
    features = neural_path_features(model, x)
    kernel, values = neural_tangent_kernel(model, x), value_tangent_kernel(model)
    explicit = features @ values @ features.T
    apart = features @ values.diagonal().diag() @ features.T
    return measurement(
        against(kernel, explicit, "K(s, s')"),
        identity("K against Φᵀ𝒱Φ", kernel, explicit),
        at_least(
            "rel. error of K with 𝒱's diagonal alone",
            relative_error(apart, kernel),
            0.01,
            "paths that share weights have gradients that are not orthogonal",
        ),
    )


@theorem("npk-3.2", "Proposition 3.2", "Between switching instants Φ stays, v̇(p) = ⟨φ_p, Θ̇⟩ and ė = −Φᵀ𝒱_tΦ e")
def dynamics_between_switches(seed: int) -> Measurement:
    """Follow the gradient flow of four networks; measure rates by small steps that do not straddle a switch."""
    problems = [random_network(1000 * seed + trial) for trial in range(4)]
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
    return torch.cat(layer_gates(list(weights.values())[:-1], x), dim=1)


def layer_gates(hidden: Iterable[Tensor], x: Tensor) -> list[Bool[Tensor, "n w"]]:
    """Return the gates of each layer of a bias-free ReLU network from its weights without those of the last layer."""
    found = []
    for weight in hidden:
        q = x @ weight.T
        found.append(q > 0)
        x = torch.relu(q)
    return found


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
    left, right, typical, proof_fails = [], [], [], 0
    for trial in range(TRIALS):
        generator, x, _ = problem(1000 * seed + trial, n=4)
        model = mlp((3, 5, 4, 1), dtype=torch.float64, generator=generator)
        features = neural_path_features(model, x)
        path_kernel = features @ features.T
        eigenvalues, vectors = torch.linalg.eigh(neural_tangent_kernel(model, x))
        smallest = spectrum(path_kernel)[0].clamp(min=0)
        left.append(eigenvalues[0].clamp(min=0).item())
        rates = spectrum(value_tangent_kernel(model))
        right.append((smallest * rates[-1]).item())
        typical.append((smallest * rates.mean()).item())
        bottom = vectors[:, 0]
        proof_fails += int((bottom @ path_kernel @ bottom > smallest * (1 + 1e-9) + 1e-12).item())
    excess = max(a - b for a, b in zip(left, right, strict=True)) / max(right)
    # The bound is tight: both sides are equal for equal weights and one example that opens all gates.
    alike = mlp((1, 3, 2, 1), dtype=torch.float64)
    for weight in alike.parameters():
        torch.nn.init.constant_(weight, 0.8)
    one = torch.ones(1, 1, dtype=torch.float64)
    bound = neural_path_features(alike, one).square().sum() * spectrum(value_tangent_kernel(alike))[-1]
    beyond = sum(a > b * (1 + 1e-6) + 1e-9 for a, b in zip(left, typical, strict=True))
    networks = dots(f"{TRIALS} random networks", right, left)
    return measurement(
        Plot("ρ_min(H) ρ_max(𝒱)", "ρ_min(K)", (networks,), diagonal="both sides equal"),
        Check("largest excess of the left side, relative", excess, 1e-10, "an inequality: float64 rounding only"),
        identity("equal weights, one example: both sides", neural_tangent_kernel(alike, one).sum(), bound),
        at_least("networks with ρ_min(K) above ρ_min(H) × 𝒱's mean eigenvalue", beyond, 1, "the bound needs ρ_max(𝒱)"),
        at_least("networks in which the printed proof's step fails", proof_fails, 1, "the step is not the statement"),
        note=(
            f"the printed proof needs ‖Φx'‖² ≤ ρ_min(H) at K's bottom eigenvector x'; this fails in {proof_fails} of "
            f"{TRIALS} networks. Taking x' = the bottom eigenvector of H proves the claim."
        ),
    )


@theorem("npk-C.2", "Definition C.2", "Counting common open paths equals multiplying common open units: Λ = Π_l τ_l")
def overlap_is_product(seed: int) -> Measurement:
    """Compare listed paths with packed gates, and with gates written out; open one layer at a time."""
    model, x, _ = random_network(seed)
    activity, pattern = path_activity(model, x).double(), capture_gates(model, x)
    counted = activity @ activity.T / WIDTHS[0]
    multiplied = overlap_kernel(pattern, normalise=False)
    written = torch.stack([g.double() @ g.double().T for g in layer_gates(list(model.parameters())[:-1], x)])
    changes = []
    for opened in pattern.layers:
        bits = {name: pattern[name] | (name == opened) for name in pattern.layers}
        without = overlap_kernel(GatePattern(bits, torch.float64), normalise=False)
        changes.append((without - counted).abs().max().item())
    return measurement(
        against(multiplied, counted, "Λ(s, s')"),
        Check("|Π τ_l − |A(s,s')| / d_in|", (multiplied - counted).abs().max().item(), 0.0, WHOLE),
        Check("|Π τ_l − Π Σ G G'|, gates written out", (multiplied - written.prod(0)).abs().max().item(), 0.0, WHOLE),
        at_least(
            "|Π τ_l − |A(s,s')| / d_in| with a layer open, the least", min(changes), 1, "every layer closes paths"
        ),
    )
