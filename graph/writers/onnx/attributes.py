"""Converts Python values to AttributeProtos."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from partita.graph.errors import WriteError
from partita.graph.node import Body
from partita.graph.protos import write_type
from partita.graph.sparse import SparseTensor
from partita.graph.types import Type
from partita.graph.writers.onnx.tensors import ExternalFile, write_tensor

NUMBERS = {
    "FLOAT": 1, "INT": 2, "STRING": 3, "TENSOR": 4, "GRAPH": 5, "FLOATS": 6, "INTS": 7, "STRINGS": 8, "TENSORS": 9,
    "SPARSE_TENSOR": 11, "SPARSE_TENSORS": 12, "TYPE_PROTO": 13, "TYPE_PROTOS": 14,
}
"""The number of each kind of attribute."""

_MANY = {"SPARSE_TENSORS": "sparse_tensors", "TENSORS": "tensors", "TYPE_PROTOS": "type_protos"}


def write_attribute(
    proto: Any,
    name: str,
    value: Any,
    kind: str | None,
    where: str,
    write_body: Callable[[Any, Any], None],
    aside: ExternalFile | None,
) -> None:
    """Fills an AttributeProto; `kind` is the kind in the op's schema, or None."""
    kind = kind or _kind(value, name, where)
    proto.name = name
    proto.type = NUMBERS[kind]
    try:
        _fill(proto, value, kind, write_body, aside)
    except (TypeError, ValueError, AttributeError):
        raise WriteError(f"the attribute {name!r} must be {kind}, not {value!r:.80}", where=where) from None


def _fill(proto: Any, value: Any, kind: str, write_body: Callable[[Any, Any], None], aside: ExternalFile | None) -> None:
    if kind == "INT":
        proto.i = value
    elif kind == "INTS":
        proto.ints.extend(value)
    elif kind == "FLOAT":
        proto.f = value
    elif kind == "FLOATS":
        proto.floats.extend(value)
    elif kind == "STRING":
        proto.s = _bytes(value)
    elif kind == "STRINGS":
        proto.strings.extend([_bytes(item) for item in value])
    elif kind == "GRAPH":
        write_body(proto.g, value)
    elif kind == "TENSOR":
        write_tensor(proto.t, value, aside=aside)
    elif kind == "SPARSE_TENSOR":
        _write_sparse(proto.sparse_tensor, value)
    elif kind == "TYPE_PROTO":
        proto.tp.SetInParent()
        write_type(proto.tp, value)
    else:
        writers: dict[str, Callable[[Any, Any], None]]
        writers = {"TENSORS": write_tensor, "SPARSE_TENSORS": _write_sparse, "TYPE_PROTOS": write_type}
        for item in value:
            writers[kind](getattr(proto, _MANY[kind]).add(), item)


def _write_sparse(proto: Any, value: SparseTensor) -> None:
    write_tensor(proto.values, value.values)
    write_tensor(proto.indices, value.indices)
    proto.dims.extend(value.shape)


def _kind(value: Any, name: str, where: str) -> str:
    """The kind of a value without a schema."""
    if isinstance(value, (list, tuple)):
        if not value:
            return "INTS"
        kinds = {_kind(item, name, where) for item in value}
        kind = "FLOAT" if kinds == {"INT", "FLOAT"} else kinds.pop()
        if not kinds or kind == "FLOAT":
            return f"{kind}S"
    elif isinstance(value, (bool, int, np.integer)):
        return "INT"
    elif isinstance(value, (float, np.floating)):
        return "FLOAT"
    elif isinstance(value, (str, bytes)):
        return "STRING"
    elif isinstance(value, np.ndarray):
        return "TENSOR"
    elif isinstance(value, Body):
        return "GRAPH"
    elif isinstance(value, SparseTensor):
        return "SPARSE_TENSOR"
    elif isinstance(value, Type):
        return "TYPE_PROTO"
    raise WriteError(f"ONNX has no attribute for {name!r}: {value!r:.80}", where=where)


def _bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode()
