"""InlineFunctions: put the bodies of calls in the place of the calls."""

from __future__ import annotations

from graph.graph import Graph
from graph.inline import inline_calls
from passes.registry import REQUESTS, register_pass


@register_pass("InlineFunctions", keeps=REQUESTS)
def inline_functions(g: Graph) -> Graph:
    """Every call, those inside bodies too, replaced by what it calls."""
    return inline_calls(g)
