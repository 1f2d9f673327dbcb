"""The graph: nodes, values, types, ops, the text form, readers and writers, pictures."""

from graph import half_imported  # noqa: F401  the first import: forks wait for those of other threads from here on
from graph.build import call, constant, op, variable
from graph.errors import (
    GraphError,
    MissingDependency,
    PartitaError,
    PassError,
    ReadError,
    TypeMismatch,
    UnknownOp,
    WriteError,
)
from graph.graph import DEFAULT_OPSET, Graph
from graph.index import GraphIndex
from graph.node import Node, NodeEntry
from graph.ops import register_op, unregister_op
from graph.types import MapType, OptionalType, SequenceType, SparseTensorType, TensorType, Type

__all__ = [
    "DEFAULT_OPSET",
    "Graph",
    "GraphError",
    "GraphIndex",
    "MapType",
    "MissingDependency",
    "Node",
    "NodeEntry",
    "OptionalType",
    "PartitaError",
    "PassError",
    "ReadError",
    "SequenceType",
    "SparseTensorType",
    "TensorType",
    "Type",
    "TypeMismatch",
    "UnknownOp",
    "WriteError",
    "call",
    "constant",
    "op",
    "register_op",
    "unregister_op",
    "variable",
]
