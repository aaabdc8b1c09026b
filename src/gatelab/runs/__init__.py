"""Runs: directories that remember, and the engine that fills them."""

from gatelab.durable import write_durably, write_json
from gatelab.runs.directory import Run, runs_in
from gatelab.runs.engine import Cell, Context, Reporter, Work, execute
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
