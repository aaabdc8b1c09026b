"""Every theorem of the papers as something that can be run and can fail."""

from gatelab.figures import Curve, Plot
from gatelab.theorems._figure import render, save
from gatelab.theorems._registry import Theorem, all_theorems, find, theorem
from gatelab.theorems._result import Check, Measurement, TheoremResult, Verdict

__all__ = [
    "Check",
    "Curve",
    "Measurement",
    "Plot",
    "Theorem",
    "TheoremResult",
    "Verdict",
    "all_theorems",
    "find",
    "render",
    "save",
    "theorem",
]
