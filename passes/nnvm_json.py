"""SaveJSON and LoadJSON: a graph in NNVM's JSON form, in `g.attrs["json"]`."""

from __future__ import annotations

from partita.graph.errors import PassError
from partita.graph.graph import Graph
from partita.graph.readers.nnvm import from_nnvm_json
from partita.graph.writers.nnvm import to_nnvm_json
from partita.passes.registry import register_pass


@register_pass("LoadJSON")
def load_json(g: Graph, *, json: str | None = None) -> Graph:
    """The graph in the text `json`, or in g.attrs["json"]; as in NNVM, the given graph only carries the text."""
    text = g.attrs.get("json") if json is None else json
    if not isinstance(text, str):
        raise PassError(
            "there is no JSON text to load", remedy='Give json=..., or set g.attrs["json"] (SaveJSON does)'
        )
    return from_nnvm_json(text)


@register_pass("SaveJSON", provides=("json",))
def save_json(g: Graph) -> Graph:
    """Attaches the graph's JSON text."""
    return g.evolve(attrs={**g.attrs, "json": to_nnvm_json(g)})
