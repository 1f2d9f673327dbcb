"""Partita decides which accelerator runs which part of a neural network, and compiles it.

    import partita as pt
    g = pt.load("zoo:resnet50")
    g = pt.apply_pass(g, "Default")
"""

from partita._house import check_house

check_house()

from typing import TYPE_CHECKING, Any  # noqa: E402  the check must come before what it checks

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

if TYPE_CHECKING:
    from accelerators import (
        Accelerator,
        AcceleratorError,
        AcceleratorUnavailable,
        CompiledModel,
        CompiledSubgraph,
        CompileError,
        InputError,
        NotSupported,
        Placement,
        Profile,
        ProfileRow,
        RunError,
        UnknownDevice,
        UnknownKey,
        compile,
        devices,
        query,
        register_accelerator,
        unregister_accelerator,
    )

__version__ = "0.1.0"

__all__ = [
    "ANY",
    "Accelerator",
    "AcceleratorError",
    "AcceleratorUnavailable",
    "CONST",
    "CompileError",
    "CompiledModel",
    "CompiledSubgraph",
    "ContainOpSelector",
    "Graph",
    "GraphError",
    "InputError",
    "MapType",
    "MissingDependency",
    "Node",
    "NodeEntry",
    "NotSupported",
    "OptionalType",
    "PartitaError",
    "PartitionReport",
    "PassError",
    "Pattern",
    "PatternProperty",
    "Placement",
    "Plan",
    "Profile",
    "ProfileRow",
    "ReadError",
    "RunError",
    "SequenceType",
    "SparseTensorType",
    "SubgraphProperty",
    "SubgraphSelector",
    "TensorType",
    "TypeMismatch",
    "UnknownDevice",
    "UnknownKey",
    "UnknownOp",
    "WriteError",
    "apply_pass",
    "call",
    "compile",
    "constant",
    "devices",
    "from_torch",
    "list_backends",
    "list_passes",
    "load",
    "op",
    "optimize",
    "optimize_for",
    "parse",
    "plan",
    "query",
    "register_accelerator",
    "register_op",
    "register_pass",
    "register_pipeline",
    "register_property",
    "save",
    "unregister_accelerator",
    "unregister_op",
    "unregister_pass",
    "unregister_property",
    "variable",
    "verify",
]


def __getattr__(name: str) -> Any:
    """The names that accelerators/ gives, imported when first asked for: partitioning alone needs none of them."""
    if name in __all__:
        import accelerators

        value = globals()[name] = getattr(accelerators, name)
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
