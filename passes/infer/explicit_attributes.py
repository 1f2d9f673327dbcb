"""Attributes made explicit that ONNX's inference misreads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from partita.graph.graph import Graph
from partita.graph.node import Node, frozen_attrs
from partita.graph.rewrite import Rewriter, map_bodies, rewrite


def with_defaults_stated(g: Graph) -> Graph:
    """The graph with attributes of some nodes changed so that inference reads them correctly.

    An STFT is one-sided by default: inference takes it for two-sided. The axes of a Squeeze are sorted:
    inference skips those that follow a larger one, below opset 11, where none is negative."""
    if not any(_plainer(node) or node.bodies for node in g.nodes):
        return g

    def visit(node: Node, rewriter: Rewriter) -> None:
        rebuilt = map_bodies(rewriter.rebuilt(node), with_defaults_stated)
        plainer = _plainer(node)
        rewriter.keep(node, rebuilt.evolve(attrs=frozen_attrs({**rebuilt.attrs, **plainer})) if plainer else rebuilt)

    return rewrite(g, visit)


def _plainer(node: Node) -> Mapping[str, Any]:
    """The attributes to change."""
    if node.domain or node.op not in ("STFT", "Squeeze"):
        return {}
    if node.op == "STFT":
        return {} if "onesided" in node.attrs else {"onesided": 1}
    axes = list(node.attrs.get("axes") or ())
    return {"axes": sorted(axes)} if axes != sorted(axes) else {}
