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
    "partita.graph.build": "call constant op variable",
    "partita.graph.errors": "GraphError MissingDependency PartitaError PassError ReadError TypeMismatch UnknownOp WriteError",
    "partita.graph.graph": "DEFAULT_OPSET Graph GraphIndex",
    "partita.graph.node": "Node NodeEntry",
    "partita.graph.ops": "register_op unregister_op",
    "partita.graph.types": "MapType OptionalType SequenceType SparseTensorType TensorType Type",
})
