"""Networks with gates, each a plain nn.Module."""

from gatelab.models.convolutional import gconv, halfspace_cnn, vconv
from gatelab.models.dense import mlp
from gatelab.models.dgn import DeepGatedNetwork
from gatelab.models.dlgn import DeepLinearlyGatedNetwork, dln
from gatelab.models.from_file import factory_from_file, load_weights, seeded_network
from gatelab.models.gdln import Erf, GatedDeepLinearNetwork, MeanReadoutNetwork, PathwayNetwork
from gatelab.models.init import bernoulli_, fans, glorot_, he_, initialise
from gatelab.models.memorisation import MemorisationNetwork
from gatelab.models.node_gates import (
    CellGates,
    ChosenGates,
    CodeGates,
    FirstOpenGates,
    FunctionGates,
    HalfSpaceGates,
    JoinedGates,
    NodeGates,
    OpenGates,
    RepeatedGates,
)
from gatelab.models.residual import ResidualBlock, ResNet, resnet

__all__ = [
    "CellGates",
    "ChosenGates",
    "CodeGates",
    "DeepGatedNetwork",
    "DeepLinearlyGatedNetwork",
    "Erf",
    "FirstOpenGates",
    "FunctionGates",
    "GatedDeepLinearNetwork",
    "HalfSpaceGates",
    "JoinedGates",
    "MeanReadoutNetwork",
    "MemorisationNetwork",
    "NodeGates",
    "OpenGates",
    "PathwayNetwork",
    "RepeatedGates",
    "ResNet",
    "ResidualBlock",
    "bernoulli_",
    "dln",
    "factory_from_file",
    "fans",
    "gconv",
    "glorot_",
    "halfspace_cnn",
    "he_",
    "initialise",
    "load_weights",
    "mlp",
    "resnet",
    "seeded_network",
    "vconv",
]
