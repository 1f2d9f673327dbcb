"""The inputs of products of quantized values, and the scaling of their sums."""

from __future__ import annotations

from partita.accelerators.tvm.kernels.language import Value, float32
from partita.accelerators.tvm.kernels.shared.formulas import Numbers
from partita.graph.node import Node

IMAGE, WEIGHT, BEGINNING, SCALE = range(4)
"""The inputs: bytes, signed bytes, the initial sums, and the scale of the results, unless these are the sums."""


def scaled(node: Node, x: Numbers) -> Value:
    """The float that a sum represents."""
    total: Value = x[0] if len(x) <= SCALE + 1 or x[SCALE + 1] is None else x[0].cast(float32) * x[SCALE + 1]
    return total
