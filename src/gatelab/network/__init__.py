"""Models as graphs of operations, and fully connected networks as chains of layers."""

from gatelab.network.chain import DenseChain, dense_chain
from gatelab.network.tracing import gate_names, trace

__all__ = ["DenseChain", "dense_chain", "gate_names", "trace"]
