"""Where work is done: in this process, or on many machines."""

from gatelab.executors.base import Crew, Executor
from gatelab.executors.connect import connect, connect_dask
from gatelab.executors.here import Here

__all__ = ["Crew", "Executor", "Here", "connect", "connect_dask"]
