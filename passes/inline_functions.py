"""InlineFunctions: inlines calls."""

from __future__ import annotations

from partita.graph.graph import Graph
from partita.graph.inline import inline_calls
from partita.passes.registry import REQUESTS, register_pass


@register_pass("InlineFunctions", keeps=REQUESTS)
def inline_functions(g: Graph) -> Graph:
    """Inlines every call, including those inside bodies."""
    return inline_calls(g)
