"""DynamicQuantizeLSTM: an LSTM whose weights are stored as bytes."""

from __future__ import annotations

import numpy as np

from partita.graph.body_builder import BodyBuilder, NoBody
from partita.graph.graph import Graph
from partita.graph.node import NodeEntry
from partita.graph.types import Array

DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}
"""Number of directions of an LSTM, by the attribute's value."""


def lstm(b: BodyBuilder) -> Graph:
    """DynamicQuantizeLSTM as ONNX's LSTM with dequantized weights.

    The input and the state, which onnxruntime quantizes at each step, stay in float."""
    names = "activation_alpha activation_beta activations clip direction hidden_size input_forget"
    given = [b.optional(i) for i in range(3, 8)]
    results = b.ops("LSTM", 3, b.input(0), _weights(b, 1, 8), _weights(b, 2, 10), *given, **b.attrs(*names.split()))
    return b.done(*results)


def _weights(b: BodyBuilder, i: int, scale: int) -> NodeEntry:
    """The dequantized weights in the layout of ONNX's LSTM, with the gates before the depth."""
    stored, directions = b.value(i), DIRECTIONS.get(str(b.attr("direction", "forward")), 0)
    if stored.ndim != 3 or len(stored) != directions:
        raise NoBody(f"its input {i} does not have a matrix for each direction", where=b.where)
    scales, points = (_for_each_gate(b, k, stored) for k in (scale, scale + 1))
    numbers = (stored.astype(np.float32) - points.astype(np.float32)) * scales
    return b.constant(numbers.transpose(0, 2, 1), np.float32)


def _for_each_gate(b: BodyBuilder, i: int, stored: Array) -> Array:
    """Scales or zero points, per matrix or per column, in a shape that broadcasts to the matrices."""
    array, directions = b.value(i), len(stored)
    if array.size not in (directions, directions * stored.shape[2]):
        raise NoBody(f"its input {i} is neither one number for each direction nor one for each gate", where=b.where)
    return array.reshape(directions, 1, -1)
