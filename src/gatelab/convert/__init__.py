"""Convert any ReLU model to a gated network."""

from gatelab.convert.regimes import Regime, to_dgn, to_dlgn, to_dln
from gatelab.convert.twin import GatedTwin
from gatelab.convert.widen import widen_values

__all__ = ["GatedTwin", "Regime", "to_dgn", "to_dlgn", "to_dln", "widen_values"]
