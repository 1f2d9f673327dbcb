"""Control dependencies across the border of a call: a note on each node lists, by name, the nodes that it came after.

A call takes over the control dependencies of all its nodes, so each of them would get more than it had. Inlining restores
the dependencies from the notes, over any number of levels of calls."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from partita.graph.build import is_made_call
from partita.graph.node import Node

AFTER = "partita.after"
"""The metadata key of the note."""


def noted_after(node: Node) -> Mapping[str, str]:
    """The node's metadata with the note. An existing note stays: it describes the node before the first call."""
    return node.metadata if AFTER in node.metadata else _with_note(node.metadata, [other.name for other in node.after])


def names_after(node: Node) -> list[str]:
    """Names of the nodes that this one came after before it was put into calls: from its note, or its control dependencies."""
    note = node.metadata.get(AFTER)
    return [other.name for other in node.after] if note is None else json.loads(note)


def without_note(node: Node) -> Mapping[str, str]:
    """The node's metadata without the note."""
    return {key: text for key, text in node.metadata.items() if key != AFTER}


def note_out_of_call(node: Node, call: Node, renamed: Mapping[str, str]) -> Mapping[str, str]:
    """The metadata, with the note, of a node that is inlined from a call, whose body's nodes are `renamed`.

    All nodes of a function inherit what the function's call came after; nodes of a call that a partition made have notes
    of their own."""
    names = [renamed.get(name, name) for name in names_after(node)]
    if AFTER not in node.metadata or not is_made_call(call):
        names += names_after(call)
    return _with_note(node.metadata, list(dict.fromkeys(names)))


def _with_note(metadata: Mapping[str, str], names: Iterable[str]) -> Mapping[str, str]:
    return {**metadata, AFTER: json.dumps(list(names))}
