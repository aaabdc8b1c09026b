"""Models as graphs of operations: the only place that knows what torch's operations do to paths."""

from gatelab.network.capture import capture_gates
from gatelab.network.network import Network, read

__all__ = ["Network", "capture_gates", "read"]
