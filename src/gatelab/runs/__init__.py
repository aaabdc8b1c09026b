"""Runs: directories that remember, and the engine that fills them."""

from gatelab.durable import write_durably, write_json
from gatelab.runs.cells import Cell, Context, Reporter, Work
from gatelab.runs.directory import Run, runs_in
from gatelab.runs.engine import execute
from gatelab.runs.journal import Journal, Result

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
