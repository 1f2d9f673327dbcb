"""The default pipeline."""

from __future__ import annotations

from typing import Any

from partita.graph.graph import Graph
from partita.passes.manager import apply_pass
from partita.passes.registry import register_pipeline

DEFAULT = (
    "InferShape",
    "FoldConstants",
    "SimplifyIdentities",
    "FoldBatchNorm",
    "MergeCommon",
    "EliminateDead",
    "InferType",
)

register_pipeline("Default", DEFAULT)


def optimize(g: Graph, **options: Any) -> Graph:
    """The graph after the default pipeline; options as for `apply_pass`."""
    return apply_pass(g, "Default", **options)
