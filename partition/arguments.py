"""What a user's function takes: a hook may name one more argument than it needs, and gets it then."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from partita.graph.graph import Graph
from partita.graph.node import Node

BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)

Filter = Callable[..., Iterable[Node]]
"""A selector's `filter`: of the candidates alone, or of the graph and the candidates."""


def takes(function: Callable[..., Any], name: str) -> bool:
    """Has the function a parameter of this name? (`**rest` is none: what goes there is handed on to who knows whom.)"""
    return any(p.name == name and p.kind in BY_NAME for p in _parameters(function))


def call_filter(function: Filter, graph: Graph | None, candidates: list[Node]) -> Iterable[Node]:
    """Call a `filter`. One that needs two arguments gets the graph first, as in MXNet; one with a further parameter `graph` gets
    it by name."""
    parameters = _parameters(function)
    needed = [p.name for p in parameters if p.kind in BY_POSITION and p.default is p.empty]
    if len(needed) == 2 and needed[1] != "graph":
        return function(graph, candidates)
    if takes(function, "graph"):
        return function(candidates, graph=graph)
    return function(candidates)


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # a function of C that does not say
        return []
