"""SaveJSON: writes the graph in NNVM's JSON form to g.attrs["json"]."""

from __future__ import annotations

from partita.graph.graph import Graph
from partita.graph.writers.nnvm import to_nnvm_json
from partita.passes.registry import register_pass


@register_pass("SaveJSON", provides=("json",))
def save_json(g: Graph) -> Graph:
    """Attaches the graph's JSON text."""
    return g.evolve(attrs={**g.attrs, "json": to_nnvm_json(g)})
