"""Models as graphs of operations."""

from gatelab.graph.chain import DenseChain, DenseLayer, dense_chain
from gatelab.graph.nodes import dense_parameters, describe, module_path, node_operation, parameter, weight_parameters
from gatelab.graph.trace import gate_names, is_shape, trace, value_chain, value_sources

__all__ = [
    "DenseChain",
    "DenseLayer",
    "dense_chain",
    "dense_parameters",
    "describe",
    "gate_names",
    "is_shape",
    "module_path",
    "node_operation",
    "parameter",
    "trace",
    "value_chain",
    "value_sources",
    "weight_parameters",
]
