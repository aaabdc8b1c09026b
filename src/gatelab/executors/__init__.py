"""Where work is done: in this process, or on many machines."""

from gatelab.executors.base import Executor
from gatelab.executors.here import Here

__all__ = ["Executor", "Here"]
