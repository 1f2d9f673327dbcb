"""Labels of a loss that name no class: in ONNX's own body those below zero would count from the end, as other indices do."""

from __future__ import annotations

from typing import Any

import numpy as np

from partita.graph.build import constant, op
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.graph.rewrite import Rewriter, rewrite
from partita.graph.types import TensorType, numpy_dtype

LOSSES = frozenset(("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"))

NO_CLASS = np.iinfo(np.int32).max
"""Stands for each such label: an index outside of every number of classes, which is an error while it runs."""


def with_classes_alone(body: Graph, labels: Node, loss: Node) -> Graph:
    """The body of the loss; its input of labels has another one for those below zero, save for the one to be ignored."""
    data_type = loss.inputs[1].type if loss.inputs[1] is not None else None
    dtype = numpy_dtype(data_type.dtype) if isinstance(data_type, TensorType) else np.dtype(np.int64)
    ignored = loss.attrs.get("ignore_index")

    def visit(node: Node, rewriter: Rewriter) -> None:
        rewriter.keep(node)
        if node is labels:
            rewriter.replace(node[0], _told_apart(node[0], dtype, ignored, body.opsets.get("", 1)))

    return rewrite(body, visit)


def _told_apart(labels: NodeEntry, dtype: np.dtype[Any], ignored: int | None, version: int) -> NodeEntry:
    zero, outside = (constant(np.array(number, dtype)) for number in (0, NO_CLASS))
    wrong = op("Less", labels, zero, opset=version)
    if ignored is not None and ignored < 0:
        kept = op("Equal", labels, constant(np.array(ignored, dtype)), opset=version)
        wrong = op("And", wrong, op("Not", kept, opset=version), opset=version)
    return op("Where", wrong, outside, labels, opset=version)[0]
