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
from partition import (  # noqa: E402
    ANY,
    CONST,
    ContainOpSelector,
    PartitionReport,
    Pattern,
    PatternProperty,
    Plan,
    SubgraphProperty,
    SubgraphSelector,
    list_backends,
    optimize_for,
    plan,
    register_property,
    unregister_property,
)
from passes import apply_pass, list_passes, optimize, register_pass, register_pipeline, unregister_pass  # noqa: E402

__version__ = "0.1.0"

__all__ = [
    "ANY",
    "CONST",
    "ContainOpSelector",
    "Graph",
    "GraphError",
    "MapType",
    "MissingDependency",
    "Node",
    "NodeEntry",
    "OptionalType",
    "PartitaError",
    "PartitionReport",
    "PassError",
    "Pattern",
    "PatternProperty",
    "Plan",
    "ReadError",
    "SequenceType",
    "SparseTensorType",
    "SubgraphProperty",
    "SubgraphSelector",
    "TensorType",
    "TypeMismatch",
    "UnknownOp",
    "WriteError",
    "apply_pass",
    "call",
    "constant",
    "from_torch",
    "list_backends",
    "list_passes",
    "load",
    "op",
    "optimize",
    "optimize_for",
    "parse",
    "plan",
    "register_op",
    "register_pass",
    "register_pipeline",
    "register_property",
    "save",
    "unregister_op",
    "unregister_pass",
    "unregister_property",
    "variable",
    "verify",
]
