"""Figures as plain facts, and the engine that draws them."""

from gatelab.figures.drawing import draw, save_figure
from gatelab.figures.facts import Curve, Heatmap, Panels, Plot, Shapes

__all__ = ["Curve", "Heatmap", "Panels", "Plot", "Shapes", "draw", "save_figure"]
