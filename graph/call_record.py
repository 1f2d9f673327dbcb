"""The record of a call in an ONNX file: the properties of a Partita call that a model-local function does not express."""

from __future__ import annotations

import json
from typing import Any

import attrs


@attrs.frozen(slots=True)
class BodyRecord:
    """The body of a call."""

    name: str
    """The body's name."""
    inputs: int
    """Number of the function's inputs that are the body's; the rest are constants."""
    constants: tuple[tuple[str, str] | None, ...] = ()
    """Names of node and value of each of these constants; None for one that only a call inside the body uses."""
    outputs: tuple[tuple[str, str, int], ...] = ()
    """Per output of the body: its name, its kind ("output" of the function, "input" or "constant"), and its position."""
    names: tuple[str, ...] | None = None
    """The names inside the body, if its function was shared with a body that has other names."""
    metadata: tuple[tuple[str, str], ...] = ()
    """The body's metadata."""
    order: tuple[int, ...] | None = None
    """Positions of the inputs and these constants among the body's nodes, if they are not first."""


@attrs.frozen(slots=True)
class CallRecord:
    """The record of one call."""

    op: str
    """The node's op."""
    domain: str
    """The node's domain."""
    outputs: tuple[tuple[str, str], ...]
    """Per output of the call: its name, and its name in the file (empty if it has none there)."""
    body: BodyRecord
    """The body."""

    def to_json(self) -> str:
        """The record as JSON text."""
        return json.dumps(attrs.astuple(self), separators=(",", ":"))


def record_from_json(data: Any) -> CallRecord | None:
    """The record in parsed JSON; None if it is not one that our writer wrote."""
    try:
        op, domain, outputs, (name, inputs, constants, body_outputs, names, metadata, order) = data
        body = BodyRecord(
            _text(name),
            _count(inputs),
            tuple([None if item is None else (_text(item[0]), _text(item[1])) for item in constants]),
            tuple([(_text(own), _text(kind), _count(which)) for own, kind, which in body_outputs]),
            None if names is None else tuple(map(_text, names)),
            tuple([(_text(key), _text(value)) for key, value in metadata]),
            None if order is None else tuple(map(_count, order)),
        )
        record = CallRecord(_text(op), _text(domain), tuple([(_text(own), _text(file)) for own, file in outputs]), body)
    except (TypeError, ValueError, IndexError, KeyError):
        return None
    return record if len(record.outputs) == len(body.outputs) else None


def _count(value: Any) -> int:
    if not isinstance(value, int) or value < 0:
        raise ValueError(value)
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(value)
    return value
