"""Any ReLU model as a gated network."""

from gatelab.convert.regimes import Regime, to_dgn, to_dlgn, to_dln
from gatelab.convert.twin import GatedTwin, GraphNetwork
from gatelab.convert.values import Halves, ValueLayer, halves
from gatelab.convert.widen import widen_values

__all__ = [
    "GatedTwin",
    "GraphNetwork",
    "Halves",
    "Regime",
    "ValueLayer",
    "halves",
    "to_dgn",
    "to_dlgn",
    "to_dln",
    "widen_values",
]
