"""Models as graphs of operations."""

from gatelab.network.chain import DenseChain, DenseLayer, dense_chain
from gatelab.network.linear import OVERWRITING, data_nodes, is_linear_module, is_linear_operation
from gatelab.network.nodes import (
    ancestors,
    dense_parameters,
    describe,
    holds_node,
    is_shape,
    max_pooling,
    module_path,
    node_operation,
    parameter,
    weight_parameters,
)
from gatelab.network.tracing import gate_names, trace, value_chain, value_sources
from gatelab.network.writes import writes_in_place

__all__ = [
    "OVERWRITING",
    "DenseChain",
    "DenseLayer",
    "ancestors",
    "data_nodes",
    "dense_chain",
    "dense_parameters",
    "describe",
    "gate_names",
    "holds_node",
    "is_linear_module",
    "is_linear_operation",
    "is_shape",
    "max_pooling",
    "module_path",
    "node_operation",
    "parameter",
    "trace",
    "value_chain",
    "value_sources",
    "weight_parameters",
    "writes_in_place",
]
