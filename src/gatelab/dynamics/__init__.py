"""Networks in time: what their gates and kernels do while they train, and learning curves in closed form."""

from gatelab.dynamics.gate_search import (
    GateChoice,
    angle_half_spaces,
    exhaustive_gates,
    greedy_gates,
    kmeans_cells,
    learnt_half_spaces,
    random_half_spaces,
    random_tiling,
    rank_gates,
)
from gatelab.dynamics.gated_flow import GatedLinearFlow
from gatelab.dynamics.least_loss import (
    gate_objective,
    minimum_loss,
    minimum_loss_balanced,
    printed_gate_objective,
)
from gatelab.dynamics.linear_flow import CirculantFlow, DenseFlow, LinearFlow
from gatelab.dynamics.localisation import (
    GaborFit,
    LocationMatch,
    fit_gabor,
    gate_agreement,
    inverse_participation_ratio,
    match_location,
    open_gates,
    participation,
    peak,
    sign_flip_rate,
    site_distance,
)
from gatelab.dynamics.moments import (
    ClassMoments,
    GatedMoments,
    class_moments_of,
    estimate_moments,
    exact_class_moments,
    exact_moments,
    gated_inputs,
    moments_of,
)
from gatelab.dynamics.pathways import ContextMoments, PathwayFlow, context_moments
from gatelab.dynamics.piecewise import PiecewiseFlow, SelfGatedFlow, self_gated_flow
from gatelab.dynamics.race import NeuralRace, Runner
from gatelab.dynamics.tracker import GateTracker, Record

__all__ = [
    "CirculantFlow",
    "ClassMoments",
    "ContextMoments",
    "DenseFlow",
    "GaborFit",
    "GateChoice",
    "GateTracker",
    "GatedLinearFlow",
    "GatedMoments",
    "LinearFlow",
    "LocationMatch",
    "NeuralRace",
    "PathwayFlow",
    "PiecewiseFlow",
    "Record",
    "Runner",
    "SelfGatedFlow",
    "angle_half_spaces",
    "class_moments_of",
    "context_moments",
    "estimate_moments",
    "exact_class_moments",
    "exact_moments",
    "exhaustive_gates",
    "fit_gabor",
    "gate_agreement",
    "gate_objective",
    "gated_inputs",
    "greedy_gates",
    "inverse_participation_ratio",
    "kmeans_cells",
    "learnt_half_spaces",
    "match_location",
    "minimum_loss",
    "minimum_loss_balanced",
    "moments_of",
    "open_gates",
    "participation",
    "peak",
    "printed_gate_objective",
    "random_half_spaces",
    "random_tiling",
    "rank_gates",
    "self_gated_flow",
    "sign_flip_rate",
    "site_distance",
]
