"""The op vocabulary: ONNX's schemas, and the ops that users declare."""

from partita.graph.ops.custom import register_op, unregister_op
from partita.graph.ops.schemas import AttrSpec, CustomOp, OpSpec, ParamSpec, custom_op, is_random, require_spec, spec_of

__all__ = [
    "AttrSpec",
    "CustomOp",
    "OpSpec",
    "ParamSpec",
    "custom_op",
    "is_random",
    "register_op",
    "require_spec",
    "spec_of",
    "unregister_op",
]
