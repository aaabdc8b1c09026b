"""Teacher and student on a hierarchy of receptive fields (the paper "hierarchy").

A teacher computes the label of an input through discrete variables z_α, one for each region of the input, from small
regions to large ones. A locally connected ReLU student learns the labels. The package shows training from the
teacher's side: gradient descent reformulated on z, the conditions under which the reformulation is exact, batch norm
as a projection, what a network can express, and whether nodes come to represent single factors or events.

Rules for teachers are in ``gatelab.hierarchy.rules``, input distributions in ``gatelab.hierarchy.inputs``.
"""

from gatelab.hierarchy.diagnosing import diagnose
from gatelab.hierarchy.disentangle import nearest_disentangled
from gatelab.hierarchy.events import counted_events, exact_events, given_events
from gatelab.hierarchy.exactness import conditions
from gatelab.hierarchy.expressive_power import expressibility
from gatelab.hierarchy.field_builders import fields_of, image_fields, string_fields
from gatelab.hierarchy.fields import ReceptiveFields
from gatelab.hierarchy.marginals import observe_student
from gatelab.hierarchy.network_teacher import teacher_from
from gatelab.hierarchy.projection_report import batchnorm_projection_report
from gatelab.hierarchy.projection_tracker import ProjectionTracker
from gatelab.hierarchy.refine import full_information, refined
from gatelab.hierarchy.reformulation import reformulate
from gatelab.hierarchy.scores import disentanglement_score, selectivity
from gatelab.hierarchy.student import LocalNetwork, NodeOptions, Norm, student_for
from gatelab.hierarchy.teacher import Teacher
from gatelab.hierarchy.top_loss import TopLoss
from gatelab.hierarchy.trainers import GradientTrainer, ReformulatedTrainer

__all__ = [
    "GradientTrainer",
    "LocalNetwork",
    "NodeOptions",
    "Norm",
    "ProjectionTracker",
    "ReceptiveFields",
    "ReformulatedTrainer",
    "Teacher",
    "TopLoss",
    "batchnorm_projection_report",
    "conditions",
    "counted_events",
    "diagnose",
    "disentanglement_score",
    "exact_events",
    "expressibility",
    "fields_of",
    "full_information",
    "given_events",
    "image_fields",
    "nearest_disentangled",
    "observe_student",
    "refined",
    "reformulate",
    "selectivity",
    "string_fields",
    "student_for",
    "teacher_from",
]
