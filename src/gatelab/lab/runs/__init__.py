"""Runs: directories that remember, and the engine that fills them."""

from gatelab.lab.runs.cells import Cell, Context, Reporter, Work
from gatelab.lab.runs.directory import Run, runs_in
from gatelab.lab.runs.engine import execute
from gatelab.lab.runs.journal import Journal, Result
from gatelab.work.files import write_durably, write_json

__all__ = [
    "Cell",
    "Context",
    "Journal",
    "Reporter",
    "Result",
    "Run",
    "Work",
    "execute",
    "runs_in",
    "write_durably",
    "write_json",
]
