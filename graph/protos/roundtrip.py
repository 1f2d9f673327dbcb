"""Notes of Partita's writer in a file, from which reading restores the same graph."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from partita.graph.errors import ReadError
from partita.graph.node import Node

PRODUCER = "partita"
"""The producer in files that Partita writes."""

MODEL_FIELDS = {
    "onnx.producer_name": "producer_name",
    "onnx.producer_version": "producer_version",
    "onnx.model_domain": "domain",
    "onnx.model_doc": "doc_string",
}
"""Metadata keys of the graph for the model's own fields."""

DOC = "onnx.doc"
"""Metadata key of the doc string of a model, graph or node."""

INPUT = "onnx.input"
"""Metadata key of a constant's position among the file's inputs, if it is one of them."""

AFFINITY = "partita.affinity"
"""On a node or initializer: its affinity."""

NAMES = "partita.names"
"""On a node: the names of its outputs, if they differ in the file."""

NAME = "partita.name"
"""On an initializer or input: its name, if it differs in the file."""

OUTPUT = "partita.output"
"""On an Identity: it only renames a value, as ONNX requires, and is dropped by the reader."""

CAPTURES = "partita.captures"
"""On a node with bodies: the captured values, if the bodies alone do not determine them."""

CALL = "partita.call"
"""On a call: the `CallRecord` of the call and its body."""

HOISTED = "partita.hoisted"
"""On an initializer: it belongs to the bodies of calls."""

INFERRED = "partita.inferred"
"""On an output: its type was inferred, and not set in the graph."""

ORDER = "partita.order"
"""On a graph: positions of its inputs and initializers among its nodes, if they are not first."""

ALL = frozenset((AFFINITY, NAMES, NAME, OUTPUT, CAPTURES, CALL, HOISTED, ORDER))
"""All of these keys."""


@attrs.frozen(slots=True)
class Captures:
    """The captured values of a node with bodies."""

    outer: tuple[str, ...]
    """Their outer names in the file."""
    inner: Mapping[str, list[str]]
    """Per body the names of the variables for them."""

    def to_json(self) -> str:
        """The captures as text."""
        return json.dumps({"outer": self.outer, "inner": self.inner}, separators=(",", ":"))


def captures(text: str, where: str) -> Captures:
    """The captures, parsed from text.

    A value that was captured twice is captured once, because a file does not distinguish its two readers."""
    data = load_json(text, CAPTURES, where)
    if not isinstance(data, dict) or not isinstance(data.get("inner"), dict):
        raise damaged(CAPTURES, where)
    lists = [data.get("outer"), *data["inner"].values()]
    if not all(is_name_list(names) and len(names) == len(lists[0]) for names in lists):
        raise damaged(CAPTURES, where)
    outer = lists[0]
    positions = sorted({name: i for i, name in reversed(list(enumerate(outer)))}.values())
    inner = {body: [names[i] for i in positions] for body, names in data["inner"].items()}
    return Captures(tuple([outer[i] for i in positions]), inner)


def to_json(items: Sequence[str] | Sequence[int]) -> str:
    """Names or integers as text."""
    return json.dumps(list(items), separators=(",", ":"))


def name_list(text: str, count: int, where: str) -> list[str]:
    """The `count` names in the text; raises for anything else."""
    names = load_json(text, NAMES, where)
    if not is_name_list(names) or len(names) != count:
        raise damaged(NAMES, where)
    return names  # type: ignore[no-any-return]


def order(noted: Mapping[str, str]) -> list[int] | None:
    """The order noted on a graph; None if there is none or it is malformed."""
    try:
        positions = json.loads(noted.get(ORDER, "null"))
    except (ValueError, RecursionError):
        return None
    return positions if isinstance(positions, list) and all(isinstance(item, int) for item in positions) else None


def is_name_list(value: Any) -> bool:
    """True for a list of strings."""
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def load_json(text: str, key: str, where: str) -> Any:
    """The JSON that the writer stored under this key."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise damaged(key, where) from None


def damaged(key: str, where: str) -> ReadError:
    """The error for a note that is not as the writer left it."""
    return ReadError(
        f"the note {key!r} does not fit the file", where=where, remedy="Another program changed the file; remove the note"
    )


def own_name(proto: Any) -> str | None:
    """The name noted on an output, or None."""
    return next((item.value for item in proto.metadata_props if item.key == NAME), None)


def is_inferred(proto: Any) -> bool:
    """True if the type was not set in the graph."""
    return any(item.key == INFERRED for item in proto.metadata_props)


def check_unique(nodes: Iterable[Node], where: str) -> None:
    """Raises if noted names clash with others."""
    seen: set[str] = set()
    for node in nodes:
        for name in node.output_names:
            if name and name in seen:
                raise ReadError(f"the value {name!r} is defined twice by what {NAMES!r} notes", where=where)
            seen.add(name)
