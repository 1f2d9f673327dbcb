"""Optional arguments of users' functions: a hook gets one more argument if it declares it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from partita.graph.graph import Graph
from partita.graph.node import Node

BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)

Filter = Callable[..., Iterable[Node]]
"""A selector's `filter`: a function of the candidates, or of the graph and the candidates."""


def takes(function: Callable[..., Any], name: str) -> bool:
    """True if the function has a parameter of this name. (`**rest` does not count: it may be passed on to another function.)"""
    return any(p.name == name and p.kind in BY_NAME for p in _parameters(function))


def call_filter(function: Filter, graph: Graph | None, candidates: list[Node]) -> Iterable[Node]:
    """Calls a `filter`. One that requires two arguments gets the graph first, as in MXNet; one with a further parameter `graph`
    gets it by name."""
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
    except (TypeError, ValueError):  # a C function without a signature
        return []
