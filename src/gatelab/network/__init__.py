"""Models as graphs of operations: the only place that knows what torch's operations do to paths."""

from gatelab.network.network import Network, read

__all__ = ["Network", "read"]
