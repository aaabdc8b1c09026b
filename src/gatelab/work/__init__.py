"""Where work is done: in this process, or on many machines."""

from gatelab.work.connection import connect
from gatelab.work.here import Here

__all__ = ["Here", "connect"]
