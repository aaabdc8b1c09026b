"""Networks in time: what their gates and kernels do while they train."""

from gatelab.dynamics.tracker import GateTracker, Record

__all__ = ["GateTracker", "Record"]
