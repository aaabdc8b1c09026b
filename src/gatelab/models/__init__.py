"""The networks of the papers, each a plain ``nn.Module``, and the node gates of gated deep linear networks."""

from gatelab.models.dgn import DeepGatedNetwork, DeepLinearlyGatedNetwork
from gatelab.models.feedforward import dln, gconv, halfspace_cnn, mlp, vconv
from gatelab.models.gdln import GatedDeepLinearNetwork, MeanReadoutNetwork, PathwayNetwork
from gatelab.models.init import Start
from gatelab.models.memorisation import MemorisationNetwork
from gatelab.models.node_gates import CellGates, ChosenGates, FunctionGates, HalfSpaceGates, OpenGates
from gatelab.models.playground import from_playground
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
    "Start",
    "dln",
    "from_playground",
    "gconv",
    "halfspace_cnn",
    "mlp",
    "resnet",
    "vconv",
]
