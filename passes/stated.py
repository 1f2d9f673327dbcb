"""Defaults that ONNX's inference does not know, said in the nodes that it is shown."""

from __future__ import annotations

from graph.graph import Graph
from graph.node import Node, frozen_attrs
from graph.rewrite import Rewriter, map_bodies, rewrite


def with_defaults_stated(g: Graph) -> Graph:
    """The graph whose STFT nodes say that they are one-sided unless they say otherwise: inference takes them for two-sided."""
    if not any(_is_silent(node) or node.bodies for node in g.nodes):
        return g

    def visit(node: Node, rewriter: Rewriter) -> None:
        rebuilt = map_bodies(rewriter.rebuilt(node), with_defaults_stated)
        rewriter.keep(node, rebuilt.evolve(attrs=frozen_attrs({**rebuilt.attrs, "onesided": 1})) if _is_silent(node) else rebuilt)

    return rewrite(g, visit)


def _is_silent(node: Node) -> bool:
    return node.op == "STFT" and not node.domain and "onesided" not in node.attrs
