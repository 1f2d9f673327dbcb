"""How a call looks in Partita, as the ONNX file notes it: what a model-local function alone cannot say."""

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
    """How many of the function's inputs are the body's; the rest are constants."""
    constants: tuple[tuple[str, str] | None, ...] = ()
    """For each of the rest the names of the constant's node and value; None for one that only a call inside the body
    uses.
    """
    outputs: tuple[tuple[str, str, int], ...] = ()
    """For each output of the body: its own name; what it is ("output" of the function, "input" or "constant"); which one."""
    names: tuple[str, ...] | None = None
    """The names inside the body, if the function has those of another body."""
    metadata: tuple[tuple[str, str], ...] = ()
    """The body's metadata."""
    order: tuple[int, ...] | None = None
    """Where the inputs and such constants stand among the body's nodes, if not before all others."""


@attrs.frozen(slots=True)
class CallRecord:
    """One call, as its node in the file notes it."""

    op: str
    """The node's op."""
    domain: str
    """The node's domain."""
    outputs: tuple[tuple[str, str], ...]
    """For each output of the call its name, and its name in the file (empty if nothing there stands for it)."""
    body: BodyRecord
    """The body."""

    def to_json(self) -> str:
        """The record as JSON text."""
        return json.dumps(attrs.astuple(self), separators=(",", ":"))


def record_from_json(data: Any) -> CallRecord | None:
    """The record that parsed JSON holds; None if our writer did not write it."""
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
