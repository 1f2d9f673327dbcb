"""DynamicQuantizeLSTM: an LSTM whose weights are stored as bytes."""

from __future__ import annotations

import numpy as np

from partita.graph.graph import Graph
from partita.graph.microsoft.writing import NoBody, Writing
from partita.graph.node import NodeEntry
from partita.graph.types import Array

DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}
"""How many directions an LSTM has, by name."""


def lstm(w: Writing) -> Graph:
    """DynamicQuantizeLSTM as ONNX's LSTM of the numbers that its weights stand for.

    What onnxruntime rounds to bytes at each step, the input and the state, stays as it is."""
    names = "activation_alpha activation_beta activations clip direction hidden_size input_forget"
    given = [w.input(i) if w.has(i) else None for i in range(3, 8)]
    results = w.ops("LSTM", 3, w.input(0), _weights(w, 1, 8), _weights(w, 2, 10), *given, **w.attrs(*names.split()))
    return w.done(*results)


def _weights(w: Writing, i: int, scale: int) -> NodeEntry:
    """Weights of ONNX's LSTM, which has the gates before the depth."""
    stored, directions = w.known(i), DIRECTIONS.get(str(w.attr("direction", "forward")), 0)
    if stored.ndim != 3 or len(stored) != directions:
        raise NoBody(f"its input {i} does not have a matrix for each direction", where=w.where)
    scales, points = (_for_each_gate(w, k, stored) for k in (scale, scale + 1))
    numbers = (stored.astype(np.float32) - points.astype(np.float32)) * scales
    return w.array(numbers.transpose(0, 2, 1), np.float32)


def _for_each_gate(w: Writing, i: int, stored: Array) -> Array:
    """Scales or zero points, one for each matrix or for each of its columns, as they are multiplied with the matrices."""
    array, directions = w.known(i), len(stored)
    if array.size not in (directions, directions * stored.shape[2]):
        raise NoBody(f"its input {i} is neither one number for each direction nor one for each gate", where=w.where)
    return array.reshape(directions, 1, -1)
