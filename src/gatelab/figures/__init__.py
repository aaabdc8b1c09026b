"""Figures: the facts first, then the drawing."""

from gatelab.figures.drawing import draw, save_figure
from gatelab.figures.facts import Curve, Heatmap, Panels, Plot, Shapes

__all__ = ["Curve", "Heatmap", "Panels", "Plot", "Shapes", "draw", "save_figure"]
