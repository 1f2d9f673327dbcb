"""Inputs of one call, in the forms that users give them."""

from __future__ import annotations

from typing import Any

from partita.accelerators.running.inputs import InputChecker
from partita.graph.graph import Graph


def call_arrays(graph: Graph, call: Any, seed: int = 0) -> list[Any]:
    """Input values in the graph's order, from a tuple in order, a dictionary by name, or a single array; random for None."""
    checker = InputChecker(graph)
    if call is None:
        return checker.made_up(seed)
    return checker.arrays(call if isinstance(call, tuple) else (call,), {})
