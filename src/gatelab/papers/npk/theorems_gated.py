"""Proposition 4.1 of npk in full: how weights, features, values and errors of a deep gated network move.

Rates are central differences over the time in which the weights move by 1e-5, however fast they move.
"""

from dataclasses import dataclass
from itertools import count

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.func import jacrev

from gatelab.gates import HardGate, SoftGate
from gatelab.gates.functions import GateFunction
from gatelab.kernels import neural_tangent_kernel, value_tangent_kernel
from gatelab.lab.measure import ErrorFlow, against, identity, moved, relative_error
from gatelab.lab.theorem import Measurement, theorem
from gatelab.lab.verdicts import Check
from gatelab.models import DeepGatedNetwork
from gatelab.network import capture_gates
from gatelab.papers.common import agrees, at_least, first_suitable, measurement
from gatelab.papers.npk.theorems import FINITE_DIFFERENCE, SMALL_STEP, WIDTHS, layer_gates, problem, telling
from gatelab.paths import neural_path_features, neural_path_values

BETA = 8.0
BEYOND_TOLERANCE = "K^F acts: a hundred times the tolerance of the sum"


@theorem("npk-4.1", "Proposition 4.1", "In a DGN ė = −K^V e with fixed gates, ė = −(K^V + K^F) e with learnt ones")
def gated_dynamics(seed: int) -> Measurement:
    """Use soft gates, so that gradients reach the feature network."""
    model, x, target = _dgn(seed, SoftGate(BETA))
    value_kernel = neural_tangent_kernel(model, x, wrt=model.value)
    feature_kernel = neural_tangent_kernel(model, x, wrt=model.feature)
    fixed, learnt = ErrorFlow(model, x, target, moving=model.value), ErrorFlow(model, x, target)
    error = fixed.error(fixed.parameters).detach()
    rates = [(fixed.error_rate(fixed.time_to_move(SMALL_STEP)), -value_kernel @ error)]
    both = -(value_kernel + feature_kernel) @ error
    rates.append((learnt.error_rate(learnt.time_to_move(SMALL_STEP)), both))
    hard, *_ = _dgn(seed, HardGate())
    through_hard_gates = neural_tangent_kernel(hard, x, wrt=hard.feature).abs().max().item()
    measured, predicted = (torch.cat(side) for side in zip(*rates, strict=True))
    return measurement(
        against(measured, predicted, "ė(s), both modes"),
        agrees("FNPF: ė against −K^V e", *rates[0], 1e-6, FINITE_DIFFERENCE),
        agrees("DNPFL: ė against −(K^V + K^F) e", *rates[1], 1e-6, FINITE_DIFFERENCE),
        identity("K against K^V + K^F", neural_tangent_kernel(model, x), value_kernel + feature_kernel),
        Check("K^F through hard gates", through_hard_gates, 0.0, "no gradient passes a step function"),
        Check(RELU_GATES, foreign_gates(hard, x), 0, "the same bits"),
        at_least("DNPFL: rel. error of −K^V e", relative_error(rates[0][1], rates[1][0]), 1e-4, BEYOND_TOLERANCE),
    )


RELU_GATES = "gates that differ from those of a ReLU network with the feature weights"


def foreign_gates(model: DeepGatedNetwork, x: Tensor) -> int:
    """Count the gates in which a DGN differs from a ReLU network with its feature weights."""
    weights: list[Tensor] = [weight.detach() for weight in model.feature_parameters()]
    relu, pattern = torch.cat(layer_gates(weights, x), dim=1), capture_gates(model, x)
    # A padded network repeats the gates of each layer.
    own = [pattern[name][:, : len(weight)] for name, weight in zip(pattern.layers, weights, strict=True)]
    return int((torch.cat(own, dim=1) != relu).sum())


def _linear_gates(weights: list[Tensor], x: Tensor) -> Bool[Tensor, "n units"]:
    """Return the gates of a feature network without its ReLUs."""
    found = []
    for weight in weights:
        x = x @ weight.T
        found.append(x > 0)
    return torch.cat(found, dim=1)


@dataclass(frozen=True)
class _Rates:
    """How path features and values change along the flow of a deep gated network.

    Attributes:
        features: Φ at this moment.
        feature_rate: Φ̇, by a central difference along the flow.
        value_rate: v̇, likewise.
        value_prediction: −𝒱 Φᵀ e.
        feature_prediction: ⟨∇φ_s(p), Θ̇ᶠ⟩, with the gradient of φ written out.
    """

    features: Float[Tensor, "n paths"]
    feature_rate: Float[Tensor, "n paths"]
    value_rate: Float[Tensor, " paths"]
    value_prediction: Float[Tensor, " paths"]
    feature_prediction: Float[Tensor, "n paths"]


def _rates(model: DeepGatedNetwork, x: Tensor, target: Tensor, *, fixed: bool) -> _Rates:
    """Move the network a little along its flow, with fixed features (FNPF) or decoupled feature learning (DNPFL)."""
    flow = ErrorFlow(model, x, target, moving=model.value if fixed else None)
    velocity, error = flow.velocity(flow.parameters), flow.error(flow.parameters).detach()
    start = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    features, seen = neural_path_features(model, x), []
    prediction = -value_tangent_kernel(model) @ features.T @ error
    time = flow.time_to_move(SMALL_STEP)
    for step in (time, -time):
        model.load_state_dict({**start, **moved(flow.parameters, velocity, step)})
        seen.append((neural_path_features(model, x), neural_path_values(model)[:, 0]))
    model.load_state_dict(start)
    (ahead, values_ahead), (behind, values_behind) = seen
    turning = [velocity.get(name, torch.zeros_like(start[name])) for name in start if name.startswith("feature")]
    weights = [start[name] for name in start if name.startswith("feature")]
    gradients = jacrev(lambda *own: written_features(own, x, model.gate), tuple(range(len(weights))))(*weights)
    return _Rates(
        features,
        (ahead - behind) / (2 * time),
        (values_ahead - values_behind) / (2 * time),
        prediction,
        torch.stack([(g * rate).flatten(2).sum(2) for g, rate in zip(gradients, turning, strict=True)]).sum(0),
    )


def written_features(weights: tuple[Tensor, ...], x: Tensor, gate: GateFunction) -> Float[Tensor, "n paths"]:
    """Path features of a DGN, written out: φ(p) = x(i₀) G(q₁)(i₁) G(q₂)(i₂), q from a ReLU network."""
    features, hidden = x, x
    for weight in weights:
        q = hidden @ weight.T
        features = (features.unsqueeze(-1) * gate(q).unsqueeze(1)).flatten(1)
        hidden = torch.relu(q)
    return features


def _dgn(seed: int, gate: GateFunction) -> tuple[DeepGatedNetwork, Tensor, Tensor]:
    """A DGN whose gates tell examples apart, and differ from those of a linear feature network."""
    generator, x, target = problem(seed)

    def suitable(model: DeepGatedNetwork) -> bool:
        weights: list[Tensor] = [weight.detach() for weight in model.feature_parameters()]
        nonlinear = not torch.equal(torch.cat(layer_gates(weights, x), dim=1), _linear_gates(weights, x))
        return nonlinear and telling(weights, x)

    drawn = (DeepGatedNetwork(WIDTHS, gate=gate, dtype=torch.float64, generator=generator) for _ in count())
    return first_suitable(drawn, suitable, "a DGN that is telling and has no linear network's gates"), x, target


@theorem("npk-4.1-values", "Proposition 4.1, NPV", "In a DGN the path values move as v̇ = −𝒱 Φᵀ e, in both modes")
def value_dynamics(seed: int) -> Measurement:
    """List all paths along the flow, with soft and with hard gates."""
    sides, checks = [], []
    for name, gate in (("soft", SoftGate(BETA)), ("hard", HardGate())):
        model, x, target = _dgn(seed, gate)
        for mode in ("FNPF", "DNPFL"):
            rates = _rates(model, x, target, fixed=mode == "FNPF")
            sides.append((rates.value_rate, rates.value_prediction))
            what = f"{mode}, {name} gates: v̇ against −𝒱Φᵀe"
            checks.append(agrees(what, rates.value_rate, rates.value_prediction, 1e-6, FINITE_DIFFERENCE))
    model, x, target = _dgn(seed, SoftGate(BETA))
    hard = neural_path_features(model, x, gates="hard")
    flow = ErrorFlow(model, x, target)
    with_bits = -value_tangent_kernel(model) @ hard.T @ flow.error(flow.parameters).detach()
    measured, predicted = (torch.cat(side) for side in zip(*sides, strict=True))
    return measurement(
        against(measured, predicted, "v̇(p), both modes, soft and hard gates"),
        *checks,
        at_least(
            "soft gates: relative error if bits stand in for them",
            relative_error(with_bits, sides[0][0]),
            0.01,
            "the gates of the statement are those that the network computes",
        ),
    )


@theorem("npk-4.1-features", "Proposition 4.1, NPF", "φ̇ = 0 with fixed features; with learnt ones φ̇ = ⟨∇φ, Θ̇ᶠ⟩")
def feature_dynamics(seed: int) -> Measurement:
    """Compare all paths listed along the flow with the gradient of the features, written out."""
    model, x, target = _dgn(seed, SoftGate(BETA))
    fixed, learnt = (_rates(model, x, target, fixed=mode) for mode in (True, False))
    weights: tuple[Tensor, ...] = tuple(weight.detach() for weight in model.feature_parameters())
    stiff, *_ = _dgn(seed, HardGate())
    hard = _rates(stiff, x, target, fixed=False)
    return measurement(
        against(learnt.feature_rate.flatten(), learnt.feature_prediction.flatten(), "φ̇(s, p), DNPFL"),
        identity("φ against x Π G(q), written out", learnt.features, written_features(weights, x, model.gate)),
        agrees(
            "DNPFL: φ̇ against ⟨∇φ, Θ̇ᶠ⟩",
            learnt.feature_rate.flatten(),
            learnt.feature_prediction.flatten(),
            1e-6,
            FINITE_DIFFERENCE,
        ),
        Check("FNPF: largest |φ̇|", fixed.feature_rate.abs().max().item(), 0.0, "the features do not move"),
        Check("DNPFL through hard gates: largest |φ̇|", hard.feature_rate.abs().max().item(), 0.0, "no gradient passes"),
        at_least("DNPFL: largest |φ̇|", learnt.feature_rate.abs().max().item(), 1e-3, "soft features do move"),
    )
