"""Teacher and student on a hierarchy of receptive fields (the paper "hierarchy").

A teacher labels inputs through discrete variables z_α, one for each region, computed from below. A locally connected
ReLU student learns the labels. The package computes how training looks from the teacher's variables: the reformulated
passes, the conditions under which they are exact, batch norm as a projection, what can be expressed, and whether
representations come apart into factors.
"""

from gatelab.hierarchy.batchnorm import (
    batch_norm_backward,
    batch_norm_jacobian,
    projection,
    row_energy,
    standardise,
)
from gatelab.hierarchy.batchnorm_report import BatchNormProjection, batchnorm_projection_report
from gatelab.hierarchy.builders import fields_of, image_fields, string_fields
from gatelab.hierarchy.disentangle import (
    Factorisation,
    Nearest,
    disentangled,
    factor_marginals,
    factorise,
    factorised,
    nearest_disentangled,
    nearest_disentangled_gradient,
    nearest_separable,
)
from gatelab.hierarchy.events import Events, counted_events, exact_events, given_events
from gatelab.hierarchy.exactness import Conditions, EdgeConditions, NodeConditions, conditions, independence_gap
from gatelab.hierarchy.expression import (
    Expressibility,
    best_linear,
    expressibility,
    expressive_network,
    relu_weights,
)
from gatelab.hierarchy.fields import ReceptiveFields
from gatelab.hierarchy.hulls import Separation, hull_vertices, is_all_vert, separate, vert, vertices
from gatelab.hierarchy.inputs import Empirical, Independent, Inputs, MarkovChain, Uniform, discretise
from gatelab.hierarchy.marginals import Observation, observe_student
from gatelab.hierarchy.refine import full_information, refined
from gatelab.hierarchy.reformulation import Reformulated, measured_gates, own_gates, reformulate
from gatelab.hierarchy.rules import (
    Place,
    QuantisedConvolution,
    Rule,
    RuleMaker,
    function,
    grammar,
    joint,
    lookup,
    majority,
    parity,
    per_factor,
    random_table,
)
from gatelab.hierarchy.scores import (
    Matching,
    StudentScore,
    disentanglement_score,
    gradient_selectivity,
    selectivity,
)
from gatelab.hierarchy.student import LocalNetwork, Norm, State, Unit, student_for
from gatelab.hierarchy.teacher import Teacher, build_teacher
from gatelab.hierarchy.trainers import GradientTrainer, ReformulatedTrainer

__all__ = [
    "BatchNormProjection",
    "Conditions",
    "EdgeConditions",
    "Empirical",
    "Events",
    "Expressibility",
    "Factorisation",
    "GradientTrainer",
    "Independent",
    "Inputs",
    "LocalNetwork",
    "MarkovChain",
    "Matching",
    "Nearest",
    "NodeConditions",
    "Norm",
    "Observation",
    "Place",
    "QuantisedConvolution",
    "ReceptiveFields",
    "Reformulated",
    "ReformulatedTrainer",
    "Rule",
    "RuleMaker",
    "Separation",
    "State",
    "StudentScore",
    "Teacher",
    "Uniform",
    "Unit",
    "batch_norm_backward",
    "batch_norm_jacobian",
    "batchnorm_projection_report",
    "best_linear",
    "build_teacher",
    "conditions",
    "counted_events",
    "discretise",
    "disentangled",
    "disentanglement_score",
    "exact_events",
    "expressibility",
    "expressive_network",
    "factor_marginals",
    "factorise",
    "factorised",
    "fields_of",
    "full_information",
    "function",
    "given_events",
    "gradient_selectivity",
    "grammar",
    "hull_vertices",
    "image_fields",
    "independence_gap",
    "is_all_vert",
    "joint",
    "lookup",
    "majority",
    "measured_gates",
    "nearest_disentangled",
    "nearest_disentangled_gradient",
    "nearest_separable",
    "observe_student",
    "own_gates",
    "parity",
    "per_factor",
    "projection",
    "random_table",
    "refined",
    "reformulate",
    "relu_weights",
    "row_energy",
    "selectivity",
    "separate",
    "standardise",
    "string_fields",
    "student_for",
    "vert",
    "vertices",
]
