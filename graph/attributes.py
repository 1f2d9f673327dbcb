"""Attributes passed in Python, checked and converted according to an op's schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from partita.graph.errors import TypeMismatch, did_you_mean
from partita.graph.graph import DEFAULT_OPSET
from partita.graph.node import Body
from partita.graph.ops.schemas import ONNX_DOMAINS, AttrSpec, OpSpec, require_spec, spec_of
from partita.graph.types import dtype_name, numpy_dtype


def checked_attributes(
    op: str, domain: str, opset: int | None, n_inputs: int, given: Mapping[str, Any], where: str
) -> tuple[dict[str, Any], int]:
    """The attributes converted to the schema's types, and the number of outputs that follows from them.

    Attributes of an op without a schema stay as they are, except that numpy scalars become Python's."""
    spec = _spec(op, domain, opset, where)
    if spec is None:
        return {key: plain(value) for key, value in given.items()}, 1
    converted_attributes = {}
    for key, value in given.items():
        if key not in spec.attributes:
            hint = did_you_mean(key, spec.attributes) or f"It has {', '.join(sorted(spec.attributes)) or 'none'}"
            raise TypeMismatch(f"{spec.title} has no attribute {key!r}", where=where, remedy=hint)
        if value is not None:
            converted_attributes[key] = converted(spec.attributes[key], value, where)
    for attribute in spec.attributes.values():
        if attribute.required and attribute.name not in converted_attributes:
            raise TypeMismatch(f"{spec.title} needs the attribute {attribute.name!r}", where=where)
    if n_inputs and not spec.min_inputs <= n_inputs <= spec.max_inputs:  # one without inputs is still to be connected
        raise TypeMismatch(
            f"{spec.title} takes {number_range(spec.min_inputs, spec.max_inputs)} inputs, not {n_inputs}", where=where
        )
    return converted_attributes, _output_count(spec, converted_attributes)


def plain(value: Any) -> Any:
    """Numpy scalars and tuples as Python scalars and lists; anything else as it is."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    return value


def converted(spec: AttrSpec, value: Any, where: str) -> Any:
    """The value converted to the type that the schema declares."""
    value = plain(value)
    kind = spec.kind
    if spec.name in ("to", "dtype") and kind == "INT" and not isinstance(value, int):
        return _dtype_number(value)
    if kind.endswith("S") and kind != "GRAPHS":
        items = value.tolist() if isinstance(value, np.ndarray) else value
        if isinstance(items, list) and all(_fits(kind[:-1], item) for item in items):
            return [_cast(kind[:-1], item) for item in items]
    elif _fits(kind, value):
        return _cast(kind, value)
    raise TypeMismatch(f"the attribute {spec.name!r} must be {kind}, not {value!r:.80}", where=where)


def _spec(op: str, domain: str, opset: int | None, where: str) -> OpSpec | None:
    if domain in ONNX_DOMAINS:
        return require_spec(op, domain, opset or _newest(domain), where)
    return spec_of(op, domain, opset or 1)


def _newest(domain: str) -> int:
    return 1000 if domain else DEFAULT_OPSET


def _fits(kind: str, value: Any) -> bool:
    if kind == "INT":
        return isinstance(value, int)
    if kind == "FLOAT":
        return isinstance(value, (int, float))
    if kind == "STRING":
        return isinstance(value, (str, bytes))
    if kind == "TENSOR":
        return isinstance(value, (np.ndarray, int, float, list))
    if kind == "GRAPH":
        return isinstance(value, Body)
    return True


def _cast(kind: str, value: Any) -> Any:
    if kind == "INT":
        return int(value)
    if kind == "FLOAT":
        return float(value)
    if kind == "TENSOR":
        return np.asarray(value)
    return value


def _dtype_number(value: Any) -> int:
    import onnx.helper

    name = dtype_name(value)
    return 8 if name == "string" else int(onnx.helper.np_dtype_to_tensor_dtype(numpy_dtype(name)))


def _output_count(spec: OpSpec, attributes: Mapping[str, Any]) -> int:
    """Number of outputs: those of a body for If and Scan, one less for Loop, Split's parts, else the required ones."""
    bodies = [value for value in attributes.values() if isinstance(value, Body)]
    if bodies:
        count = len(bodies[0].outputs)  # type: ignore[attr-defined]
        return count - 1 if spec.op == "Loop" else count
    if spec.op == "Split":
        return attributes.get("num_outputs") or len(attributes.get("split", ())) or 1
    return max(spec.min_outputs, 1)


def number_range(low: int, high: int) -> str:
    """The number of inputs or outputs that an op takes, in words."""
    if low == high:
        return str(low)
    return f"{low} or more" if high > 10_000 else f"{low} to {high}"
