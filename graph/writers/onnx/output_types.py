"""Types of a model's outputs, which ONNX requires."""

from __future__ import annotations

from typing import Any

from partita.graph.graph import Graph
from partita.graph.nested import graphs_in
from partita.graph.node import Node
from partita.graph.ops.onnx_crashes import is_fragile, unsound
from partita.graph.readers.onnx import roundtrip

SHOWN = 1024
"""Maximum bytes of a constant that is passed to ONNX's inference."""


def complete_outputs(graph: Graph, model: Any) -> None:
    """Infers missing types of outputs by ONNX.

    A type that ONNX cannot infer (of an engine's own op, or of one that crashes ONNX) remains open. The reader ignores
    inferred types, so that the graph is read back as it was.
    """
    missing = [item for item in model.graph.output if not item.HasField("type")]
    if not missing or any(_would_crash(node) for inner in graphs_in(graph) for node in inner.nodes):
        return
    from onnx.shape_inference import InferenceError, infer_shapes

    from partita.graph.writers.onnx.model import to_model  # upward: ONNX infers types in a model alone

    try:
        inferred = infer_shapes(to_model(graph, elide_constants_above=SHOWN, drop_control=True))
    except InferenceError:
        return
    types = {item.name: item.type for item in inferred.graph.output if item.HasField("type")}
    for item in missing:
        if item.name in types:
            item.type.CopyFrom(types[item.name])
            item.metadata_props.add(key=roundtrip.INFERRED)
            model.ir_version = max(model.ir_version, 10)


def _would_crash(node: Node) -> bool:
    return unsound(node) is not None or (is_fragile(node) and (not node.reads or any(entry.type is None for entry in node.reads)))
