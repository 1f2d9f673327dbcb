"""Control dependencies that cross the border of a call: a note on the node keeps, by name, what it came after.

A call that is made of nodes takes over their control dependencies as a whole, which is more than each of them had. The note says
what each had, so that inlining gives exactly that back, over however many levels of calls."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from partita.graph.build import is_made_call
from partita.graph.node import Node

AFTER = "partita.after"
"""The metadata key of the note."""


def noted_after(node: Node) -> Mapping[str, str]:
    """The node's metadata with the note. One that is there already stays: it tells how the node stood before the first call."""
    return node.metadata if AFTER in node.metadata else _with_note(node.metadata, [other.name for other in node.after])


def names_after(node: Node) -> list[str]:
    """The names of the nodes that this one came after before it was put into calls, by its note or else by its control
    dependencies.
    """
    note = node.metadata.get(AFTER)
    return [other.name for other in node.after] if note is None else json.loads(note)


def without_note(node: Node) -> Mapping[str, str]:
    """The node's metadata without the note."""
    return {key: text for key, text in node.metadata.items() if key != AFTER}


def note_out_of_call(node: Node, call: Node, renamed: Mapping[str, str]) -> Mapping[str, str]:
    """The metadata, with the note, of a node that comes out of a call, whose body's nodes are `renamed`.

    What a function's call came after, each node of the function came after; the nodes of a call that a partition made
    have notes of their own that say it."""
    names = [renamed.get(name, name) for name in names_after(node)]
    if AFTER not in node.metadata or not is_made_call(call):
        names += names_after(call)
    return _with_note(node.metadata, list(dict.fromkeys(names)))


def _with_note(metadata: Mapping[str, str], names: Iterable[str]) -> Mapping[str, str]:
    return {**metadata, AFTER: json.dumps(list(names))}
