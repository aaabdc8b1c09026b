"""The networks of the papers, each a plain ``nn.Module``, and the node gates of gated deep linear networks."""

from gatelab.models.convolutional import gconv, halfspace_cnn, vconv
from gatelab.models.dense import mlp
from gatelab.models.dgn import DeepGatedNetwork
from gatelab.models.dlgn import DeepLinearlyGatedNetwork, dln
from gatelab.models.gdln import GatedDeepLinearNetwork, MeanReadoutNetwork, PathwayNetwork
from gatelab.models.memorisation import MemorisationNetwork
from gatelab.models.node_gates import CellGates, ChosenGates, FunctionGates, HalfSpaceGates, OpenGates
from gatelab.models.residual import resnet

__all__ = [
    "CellGates",
    "ChosenGates",
    "DeepGatedNetwork",
    "DeepLinearlyGatedNetwork",
    "FunctionGates",
    "GatedDeepLinearNetwork",
    "HalfSpaceGates",
    "MeanReadoutNetwork",
    "MemorisationNetwork",
    "OpenGates",
    "PathwayNetwork",
    "dln",
    "gconv",
    "halfspace_cnn",
    "mlp",
    "resnet",
    "vconv",
]
