"""Errors in users' hooks: one message names the property, the hook and the node."""

from __future__ import annotations

import re
import warnings
from typing import Any

from partita.graph.errors import PartitaError
from partita.graph.formatting import error_in_words, in_code, in_words
from partita.graph.node import Node


class PartitionError(PartitaError):
    """A requested partition is impossible, or a hook misbehaved."""


def hook_error(property_name: str, hook: str, node: Node | str | None, cause: str, remedy: str | None = None) -> PartitionError:
    """The error for a hook of a property, at a node (or at a place in words)."""
    title = f"property {property_name!r}, hook {hook}"
    if isinstance(node, Node):
        title += f", node {node.name!r} ({node.op})"
    elif node is not None:
        title += f", {node}"
    return PartitionError(cause, where=title, remedy=remedy)


class WrongAnswer(Exception):
    """Raised inside a hook of ours for a wrong answer of a user's function; its text is the cause."""


def raised(error: Exception) -> str:
    """The cause for an exception raised by a hook."""
    if isinstance(error, WrongAnswer):
        return str(error)
    return f"it raised {error_in_words(error) if in_words(error) else type(error).__name__}"


def not_a(kind: str, answer: Any) -> str:
    """The cause for an answer of the wrong type."""
    return f"it returned {in_code(answer, 80)} ({type(answer).__name__}), not {kind}"


def warn_of_capitals(cls: type, base: type) -> None:
    """Warns of methods that only MXNet would call: `SelectInput` is `select_input` here."""
    for name in vars(cls):
        hook = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
        if name[:1].isupper() and callable(getattr(base, hook, None)):
            warnings.warn(f"nothing calls {cls.__name__}.{name}: the hook is {hook}", stacklevel=3)
