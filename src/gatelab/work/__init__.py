"""Where work is done: in this process, or on many machines."""

from gatelab.work.connection import connect, connect_dask
from gatelab.work.executor import Crew, Executor
from gatelab.work.here import Here

__all__ = ["Crew", "Executor", "Here", "connect", "connect_dask"]
