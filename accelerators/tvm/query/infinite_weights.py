"""Constant weights with NaN or infinities for which TVM's kernels would deviate from ONNX."""

from __future__ import annotations

import numpy as np

from partita.graph.node import Node

WEIGHTED = frozenset(("ConvTranspose",))
"""Ops that are checked."""


def beyond_numbers(node: Node) -> str | None:
    """Reason to refuse the node: a constant weight is NaN or infinite."""
    if node.op not in WEIGHTED or node.domain:
        return None
    weights = node.inputs[1].node.value if len(node.inputs) > 1 and node.inputs[1] is not None else None
    if weights is None or np.isfinite(weights.astype(np.float32)).all():
        return None
    return "TVM also multiplies the weights with zeros that it puts between the data, and one of them is NaN or infinite"
