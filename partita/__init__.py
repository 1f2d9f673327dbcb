"""Partita decides which accelerator runs which part of a neural network, and compiles it.

    import partita as pt
    g = pt.load("zoo:resnet50")
    g = pt.apply_pass(g, "Default")
"""

from partita._house import check_house

check_house()

from graph import (  # noqa: E402  the check must come before what it checks
    Graph,
    GraphError,
    MapType,
    MissingDependency,
    Node,
    NodeEntry,
    OptionalType,
    PartitaError,
    PassError,
    ReadError,
    SequenceType,
    SparseTensorType,
    TensorType,
    TypeMismatch,
    UnknownOp,
    WriteError,
    call,
    constant,
    op,
    register_op,
    unregister_op,
    variable,
)
from graph.readers import load  # noqa: E402
from graph.readers.torch import from_torch  # noqa: E402
from graph.text import parse  # noqa: E402
from graph.verify import verify  # noqa: E402
from graph.writers import save  # noqa: E402
from passes import apply_pass, register_pass  # noqa: E402

__version__ = "0.1.0"

__all__ = [
    "Graph",
    "GraphError",
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
    "TypeMismatch",
    "UnknownOp",
    "WriteError",
    "apply_pass",
    "call",
    "constant",
    "from_torch",
    "load",
    "op",
    "parse",
    "register_op",
    "register_pass",
    "save",
    "unregister_op",
    "variable",
    "verify",
]
