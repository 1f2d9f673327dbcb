"""What ONNX's inference does not know or misreads is said plainly in the nodes that it is shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from partita.graph.graph import Graph
from partita.graph.node import Node, frozen_attrs
from partita.graph.rewrite import Rewriter, map_bodies, rewrite


def with_defaults_stated(g: Graph) -> Graph:
    """The graph with the attributes of some nodes as the inference reads them rightly.

    An STFT that does not say otherwise is one-sided: inference takes it for two-sided. The axes of a Squeeze are in order:
    inference overlooks those that stand behind a larger one, below opset 11, where none is counted from the end."""
    if not any(_plainer(node) or node.bodies for node in g.nodes):
        return g

    def visit(node: Node, rewriter: Rewriter) -> None:
        rebuilt = map_bodies(rewriter.rebuilt(node), with_defaults_stated)
        plainer = _plainer(node)
        rewriter.keep(node, rebuilt.evolve(attrs=frozen_attrs({**rebuilt.attrs, **plainer})) if plainer else rebuilt)

    return rewrite(g, visit)


def _plainer(node: Node) -> Mapping[str, Any]:
    """The attributes to be said otherwise."""
    if node.domain or node.op not in ("STFT", "Squeeze"):
        return {}
    if node.op == "STFT":
        return {} if "onesided" in node.attrs else {"onesided": 1}
    axes = list(node.attrs.get("axes") or ())
    return {"axes": sorted(axes)} if axes != sorted(axes) else {}
