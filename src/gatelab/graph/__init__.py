"""Models as graphs of operations."""

from gatelab.graph.chain import DenseChain, DenseLayer, dense_chain
from gatelab.graph.trace import (
    dense_parameters,
    describe,
    gate_names,
    module_path,
    node_operation,
    parameter,
    trace,
    value_chain,
    value_sources,
)

__all__ = [
    "DenseChain",
    "DenseLayer",
    "dense_chain",
    "dense_parameters",
    "describe",
    "gate_names",
    "module_path",
    "node_operation",
    "parameter",
    "trace",
    "value_chain",
    "value_sources",
]
