"""Copies a graph's attributes, and checks that they can be pickled."""

from __future__ import annotations

import copy
import copyreg
import sys
from collections.abc import Mapping
from types import BuiltinFunctionType, FunctionType
from typing import Any

import numpy as np

from partita.graph.errors import GraphError, PartitaError
from partita.graph.node import Body, Memo, Node, NodeEntry

PLAIN = (int, float, complex, str, bytes, type(None), np.ndarray, np.generic, np.dtype, Body, Node, NodeEntry)
"""Types whose values can always be pickled."""


def copied_attributes(attributes: Mapping[str, Any], memo: Memo, graph: str) -> dict[str, Any]:
    """Copies of a graph's attributes."""
    copies = {}
    for key, value in attributes.items():
        try:
            copies[key] = copy.deepcopy(value, memo)
        except Exception as error:
            raise _refused(f"copied: {error}", key, graph) from error
    return copies


def check_attributes(attributes: Mapping[str, Any], graph: str) -> None:
    """Raises if an attribute cannot be pickled. Unlike the pickler's error, this one names the attribute."""
    for key, value in attributes.items():
        reason = _why_not(value)
        if reason is not None:
            raise _refused(f"pickled: {reason}", key, graph)


def _refused(what: str, key: str, graph: str) -> GraphError:
    remedy = f"Leave it out: g.evolve(attrs={{k: v for k, v in g.attrs.items() if k != {key!r}}}); nodes and types are plain data"
    return GraphError(f"the attribute {key!r} cannot be {what}", where=f"graph {graph!r}", remedy=remedy)


def _why_not(value: Any) -> str | None:
    """The reason why the value cannot be pickled, or None. Visits the same parts of the value as a pickler."""
    waiting, kept, seen = [value], [], set()
    while waiting:
        part = waiting.pop()
        if isinstance(part, PLAIN) or id(part) in seen:
            continue
        seen.add(id(part))
        kept.append(part)  # so that no id is reused
        if isinstance(part, Mapping) and type(part) is dict:
            waiting += [*part.keys(), *part.values()]
        elif type(part) in (list, tuple, set, frozenset):
            waiting += part
        elif isinstance(part, (FunctionType, BuiltinFunctionType, type)):
            if not _is_importable(part):
                return f"{part!r} is not a function or class that can be imported by its name"
        else:
            try:
                reduced = copyreg.dispatch_table.get(type(part), lambda one: one.__reduce_ex__(4))(part)
            except (TypeError, ValueError, AttributeError, RuntimeError, PartitaError) as error:
                return f"{type(part).__name__}: {error}"
            if not isinstance(reduced, str):
                waiting += [list(piece) if hasattr(piece, "__next__") else piece for piece in reduced]
    return None


def _is_importable(value: Any) -> bool:
    target: Any = sys.modules.get(getattr(value, "__module__", None) or "builtins")
    for name in value.__qualname__.split("."):
        target = getattr(target, name, None)
    return target is value or isinstance(getattr(value, "__self__", None), type)
