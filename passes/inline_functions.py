"""InlineFunctions: put the bodies of calls in the place of the calls."""

from __future__ import annotations

from partita.graph.graph import Graph
from partita.graph.inline import inline_calls
from partita.passes.registry import REQUESTS, register_pass


@register_pass("InlineFunctions", keeps=REQUESTS)
def inline_functions(g: Graph) -> Graph:
    """Every call, those inside bodies too, replaced by what it calls."""
    return inline_calls(g)
