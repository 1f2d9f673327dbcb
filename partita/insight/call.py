"""The inputs of one call, as users give them."""

from __future__ import annotations

from typing import Any

from partita.accelerators.running.inputs import InputChecker
from partita.graph.graph import Graph


def call_arrays(graph: Graph, call: Any, seed: int = 0) -> list[Any]:
    """The values in the order of the graph's inputs: of a tuple in order, a dictionary by name, a single array; None: made up."""
    checker = InputChecker(graph)
    if call is None:
        return checker.made_up(seed)
    return checker.arrays(call if isinstance(call, tuple) else (call,), {})
