"""The graph: nodes, values, types, ops, the text form, readers and writers, pictures.

Names are imported when they are first asked for, since a model of a file answers before most of this is there."""

from typing import TYPE_CHECKING

from graph import half_imported  # noqa: F401  the first import: forks wait for those of other threads from here on
from graph.lazily import lazily

if TYPE_CHECKING:
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

__getattr__ = lazily(__name__, {
    "DEFAULT_OPSET": "graph.graph",
    "Graph": "graph.graph",
    "GraphError": "graph.errors",
    "GraphIndex": "graph.index",
    "MapType": "graph.types",
    "MissingDependency": "graph.errors",
    "Node": "graph.node",
    "NodeEntry": "graph.node",
    "OptionalType": "graph.types",
    "PartitaError": "graph.errors",
    "PassError": "graph.errors",
    "ReadError": "graph.errors",
    "SequenceType": "graph.types",
    "SparseTensorType": "graph.types",
    "TensorType": "graph.types",
    "Type": "graph.types",
    "TypeMismatch": "graph.errors",
    "UnknownOp": "graph.errors",
    "WriteError": "graph.errors",
    "call": "graph.build",
    "constant": "graph.build",
    "op": "graph.build",
    "register_op": "graph.ops",
    "unregister_op": "graph.ops",
    "variable": "graph.build",
})
