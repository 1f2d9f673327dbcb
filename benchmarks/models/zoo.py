"""The zoo's models at any batch: the files say 1, in their inputs and in the shapes that they reshape to."""

from __future__ import annotations

import numpy as np

import partita as pt
from partita.graph.rewrite import Rewriter
from partita.graph.types import TensorType


def zoo_model(name: str, batch: int | str) -> pt.Graph:
    """The model for `batch` images at once; any number of them where it is a symbol."""
    graph = pt.load(f"zoo:{name}")
    if batch == 1:
        return graph
    rewriter = Rewriter(graph)
    shapes = {node.inputs[1].node for node in graph.nodes if node.op == "Reshape" and node.inputs[1] is not None}
    for node in graph.nodes:
        if node.is_variable:
            (kind,) = node.output_types
            assert isinstance(kind, TensorType) and kind.shape is not None
            rewriter.keep(node, node.evolve(output_types=(TensorType(kind.dtype, (batch, *kind.shape[1:])),)))
        elif node in shapes:
            assert node.value is not None and node.value[0] == 1
            rewriter.keep(node, node.evolve(value=np.array([batch if isinstance(batch, int) else -1, *node.value[1:]], np.int64)))
        else:
            rewriter.keep(node, rewriter.rebuilt(node, output_types=(None,) * len(node.output_types)) if node.is_op else None)
    return pt.apply_pass(rewriter.finish(), "InferShape")
