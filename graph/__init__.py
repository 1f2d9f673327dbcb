"""The graph: nodes, values, types, ops, the text form, readers and writers, pictures.

Names are imported on first use: most of these modules need not be loaded to run a model from a file."""

from typing import TYPE_CHECKING

from partita.graph import fork_guard  # noqa: F401  the first import: forks wait for those of other threads from here on
from partita.graph.cached_property import lazily

if TYPE_CHECKING:
    from partita.graph.build import call, constant, op, variable
    from partita.graph.errors import (
        GraphError,
        MissingDependency,
        PartitaError,
        PassError,
        ReadError,
        TypeMismatch,
        UnknownOp,
        WriteError,
    )
    from partita.graph.graph import DEFAULT_OPSET, Graph, GraphIndex
    from partita.graph.node import Node, NodeEntry
    from partita.graph.ops import register_op, unregister_op
    from partita.graph.types import MapType, OptionalType, SequenceType, SparseTensorType, TensorType, Type

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
    "DEFAULT_OPSET": "partita.graph.graph",
    "Graph": "partita.graph.graph",
    "GraphError": "partita.graph.errors",
    "GraphIndex": "partita.graph.graph",
    "MapType": "partita.graph.types",
    "MissingDependency": "partita.graph.errors",
    "Node": "partita.graph.node",
    "NodeEntry": "partita.graph.node",
    "OptionalType": "partita.graph.types",
    "PartitaError": "partita.graph.errors",
    "PassError": "partita.graph.errors",
    "ReadError": "partita.graph.errors",
    "SequenceType": "partita.graph.types",
    "SparseTensorType": "partita.graph.types",
    "TensorType": "partita.graph.types",
    "Type": "partita.graph.types",
    "TypeMismatch": "partita.graph.errors",
    "UnknownOp": "partita.graph.errors",
    "WriteError": "partita.graph.errors",
    "call": "partita.graph.build",
    "constant": "partita.graph.build",
    "op": "partita.graph.build",
    "register_op": "partita.graph.ops",
    "unregister_op": "partita.graph.ops",
    "variable": "partita.graph.build",
})
