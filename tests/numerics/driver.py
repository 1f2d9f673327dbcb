"""The smallest interpreter of a ModelProto over `partita.graph.numerics`: nodes in order, bodies closed over their scope."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from partita.graph.numerics import evaluate

Scope = dict[str, Any]


def run_model(model: onnx.ModelProto, inputs: Sequence[Any]) -> list[Any]:
    """The model's outputs for inputs given by position."""
    opsets = {entry.domain: entry.version for entry in model.opset_import}
    opsets.setdefault("", max(opsets.values()))
    given = {value.name: x for value, x in zip(model.graph.input, inputs)}
    return _run_graph(model.graph, given, opsets)


def from_proto(value: Any, kind: onnx.TypeProto | None = None) -> Any:
    """A test's datum as `evaluate` wants it: arrays, lists, or None."""
    if isinstance(value, (list, tuple)):
        return [from_proto(item) for item in value]
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    if isinstance(value, onnx.SequenceProto):
        return numpy_helper.to_list(value)
    if isinstance(value, onnx.OptionalProto):
        return numpy_helper.to_optional(value)
    return value if value is None else np.asarray(value)


def _run_graph(graph: onnx.GraphProto, scope: Scope, opsets: Mapping[str, int]) -> list[Any]:
    scope = {**scope, "": None}
    scope |= {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    for node in graph.node:
        attrs = {attribute.name: _attribute(attribute, scope, opsets) for attribute in node.attribute}
        results = evaluate(
            node.op_type,
            [scope[name] for name in node.input],
            attrs,
            domain=node.domain,
            version=opsets[node.domain],
            n_outputs=len(node.output),
        )
        scope |= {name: value for name, value in zip(node.output, results) if name}
    return [scope[value.name] for value in graph.output]


def _attribute(attribute: onnx.AttributeProto, scope: Scope, opsets: Mapping[str, int]) -> Any:
    if attribute.type == onnx.AttributeProto.GRAPH:
        return _Body(attribute.g, scope, opsets)
    if attribute.type == onnx.AttributeProto.TENSOR:
        return numpy_helper.to_array(attribute.t)
    return helper.get_attribute_value(attribute)


class _Body:
    """A nested graph as a function of its formal inputs."""

    def __init__(self, graph: onnx.GraphProto, scope: Scope, opsets: Mapping[str, int]) -> None:
        self.graph, self.scope, self.opsets = graph, scope, opsets
        self.output_types = [_tensor_type(value.type.tensor_type) for value in graph.output]

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        named = {value.name: x for value, x in zip(self.graph.input, inputs)}
        return _run_graph(self.graph, {**self.scope, **named}, self.opsets)


def _tensor_type(kind: onnx.TypeProto.Tensor) -> tuple[np.dtype, tuple[int, ...]] | None:
    if not kind.elem_type:
        return None
    return helper.tensor_dtype_to_np_dtype(kind.elem_type), tuple(d.dim_value for d in kind.shape.dim)
