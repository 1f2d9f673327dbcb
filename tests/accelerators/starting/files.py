"""Small ONNX files that onnxruntime may have as they stand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

WEIGHTS = np.random.default_rng(0).standard_normal((4, 3, 3, 3), np.float32)
X = np.random.default_rng(1).standard_normal((1, 3, 6, 6), np.float32)


def value(name: str, sizes: Sequence[Any], kind: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, sizes)


def model(nodes: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[Any], initializers: Sequence[Any] = ()) -> Any:
    graph = helper.make_graph(nodes, "net", inputs, outputs, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def convolution(batch: int | str = 1, **attributes: Any) -> Any:
    """A convolution with a Relu behind it."""
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], **attributes), helper.make_node("Relu", ["c"], ["y"])]
    return model(nodes, [value("x", [batch, 3, 6, 6])], [value("y", [batch, 4, 4, 4])], [numpy_helper.from_array(WEIGHTS, "w")])
