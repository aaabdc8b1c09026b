"""Runs: directories that record what is finished, and the engine that fills them."""

from gatelab.lab.runs.cells import Cell, Context, Result
from gatelab.lab.runs.directory import Run, runs_in
from gatelab.lab.runs.engine import execute

__all__ = ["Cell", "Context", "Result", "Run", "execute", "runs_in"]
