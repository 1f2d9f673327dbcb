"""SaveJSON: the graph in NNVM's JSON form, as g.attrs["json"]."""

from __future__ import annotations

from graph.graph import Graph
from passes.registry import register_pass


@register_pass("SaveJSON", provides=("json",))
def save_json(g: Graph) -> Graph:
    """Attach the text. What it holds of big constants is up to the form; see graph/writers/nnvm.py."""
    from graph.writers.nnvm import to_json

    return g.evolve(attrs={**g.attrs, "json": to_json(g)})
