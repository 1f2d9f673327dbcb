"""What Partita's writer notes in a file so that reading it gives the same graph again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from partita.graph.errors import ReadError
from partita.graph.node import Node

DOC = "onnx.doc"
"""Where the graph's metadata keep the doc string of a model, graph or node."""

INPUT = "onnx.input"
"""Where a constant's metadata keep its position among the file's inputs, if it stands there too."""

AFFINITY = "partita.affinity"
"""On a node or initializer: its affinity."""

NAMES = "partita.names"
"""On a node: the names of its outputs, where the file has to use others."""

NAME = "partita.name"
"""On an initializer or input: its name, where the file has to use another."""

OUTPUT = "partita.output"
"""On an Identity: it only gives a value another name, for ONNX's sake."""
"""On an Identity: it only gives a graph output a name of its own."""

CAPTURES = "partita.captures"
"""On a node with bodies: the captured values, where the bodies alone do not tell."""

CALL = "partita.call"
"""On a call: how the call and its body look in Partita."""

HOISTED = "partita.hoisted"
"""On an initializer: it belongs to the bodies of calls."""

INFERRED = "partita.inferred"
"""On an output: the graph did not say its type."""

ORDER = "partita.order"
"""On a graph: where its inputs and initializers stand among its nodes, if not before all others."""

ALL = frozenset((AFFINITY, NAMES, NAME, OUTPUT, CAPTURES, CALL, HOISTED, ORDER))
"""The keys of all that."""


@attrs.frozen(slots=True)
class Captures:
    """The captured values of a node with bodies."""

    outer: tuple[str, ...]
    """Their names in the file, outside."""
    inner: Mapping[str, list[str]]
    """For each body the names of the variables that stand for them."""

    def to_json(self) -> str:
        """The captures as text."""
        return json.dumps({"outer": self.outer, "inner": self.inner}, separators=(",", ":"))


def captures(text: str, where: str) -> Captures:
    """The captures, read from text.

    A value that was captured twice is captured once, because a file does not tell its two readers apart.
    """
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
    """Names or numbers as text."""
    return json.dumps(list(items), separators=(",", ":"))


def name_list(text: str, count: int, where: str) -> list[str]:
    """The `count` names that the text holds; None if it holds anything else."""
    names = load_json(text, NAMES, where)
    if not is_name_list(names) or len(names) != count:
        raise damaged(NAMES, where)
    return names  # type: ignore[no-any-return]


def order(noted: Mapping[str, str]) -> list[int] | None:
    """The order that is noted on a graph; None if no order is noted or it cannot be read."""
    try:
        positions = json.loads(noted.get(ORDER, "null"))
    except (ValueError, RecursionError):
        return None
    return positions if isinstance(positions, list) and all(isinstance(item, int) for item in positions) else None


def is_name_list(value: Any) -> bool:
    """Is the value a list of strings?"""
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def load_json(text: str, key: str, where: str) -> Any:
    """JSON that the writer left under this key."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise damaged(key, where) from None


def damaged(key: str, where: str) -> ReadError:
    """The note under this key is not as the writer left it."""
    return ReadError(
        f"the note {key!r} does not fit the file", where=where, remedy="Another program changed the file; remove the note"
    )


def own_name(proto: Any) -> str | None:
    """The name noted on an output, if one is."""
    return next((item.value for item in proto.metadata_props if item.key == NAME), None)


def is_inferred(proto: Any) -> bool:
    """Is the type one that the graph did not say?"""
    return any(item.key == INFERRED for item in proto.metadata_props)


def check_unique(nodes: Iterable[Node], where: str) -> None:
    """Names that were noted may not clash with others."""
    seen: set[str] = set()
    for node in nodes:
        for name in node.output_names:
            if name and name in seen:
                raise ReadError(f"the value {name!r} is defined twice by what {NAMES!r} notes", where=where)
            seen.add(name)
