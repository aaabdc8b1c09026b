"""Networks in time: gates and kernels during training, and learning curves in closed form."""

from gatelab.dynamics.callbacks import lightning_callback, tensorboard_listener
from gatelab.dynamics.gate_search import exhaustive_gates, greedy_gates
from gatelab.dynamics.gated_flow import GatedLinearFlow
from gatelab.dynamics.localisation import fit_gabor, inverse_participation_ratio, match_location, sign_flip_rate
from gatelab.dynamics.moments import GatedMoments, estimate_moments, exact_moments, minimum_loss, moments_of
from gatelab.dynamics.pathways import PathwayFlow, context_moments
from gatelab.dynamics.piecewise import PiecewiseFlow, self_gated_flow
from gatelab.dynamics.race import NeuralRace
from gatelab.dynamics.tracker import GateTracker, Kernels

__all__ = [
    "GateTracker",
    "GatedLinearFlow",
    "GatedMoments",
    "Kernels",
    "NeuralRace",
    "PathwayFlow",
    "PiecewiseFlow",
    "context_moments",
    "estimate_moments",
    "exact_moments",
    "exhaustive_gates",
    "fit_gabor",
    "greedy_gates",
    "inverse_participation_ratio",
    "lightning_callback",
    "match_location",
    "minimum_loss",
    "moments_of",
    "self_gated_flow",
    "sign_flip_rate",
    "tensorboard_listener",
]
