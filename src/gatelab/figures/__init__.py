"""Figures: the facts first, then the drawing."""

from gatelab.figures.drawing import draw, save_figure
from gatelab.figures.facts import Curve, Heatmap, Panel, Panels, Picture, Plot, Polygon, Shapes

__all__ = [
    "Curve",
    "Heatmap",
    "Panel",
    "Panels",
    "Picture",
    "Plot",
    "Polygon",
    "Shapes",
    "draw",
    "save_figure",
]
