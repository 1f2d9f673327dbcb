"""The division by the scale of a QuantizeLinear, folded into the factor of the product before it."""

from __future__ import annotations

import numpy as np

from partita.accelerators.tvm.kernels.shared.operands import only_reader
from partita.accelerators.tvm.layouts.quantized_walk import Walk
from partita.accelerators.tvm.layouts.scales import is_lossless, scaling_of
from partita.graph.node import Node
from partita.graph.types import Array


def divide(walk: Walk, node: Node, factor: Array) -> Array:
    """The factor, divided by the scale with which the result is quantized if all ops in between commute with that."""
    path, reader = [], only_reader(node[0], walk.readers)
    while reader is not None and _is_homogeneous(reader):
        path.append(reader)
        reader = only_reader(reader[0], walk.readers)
    scaling = None if reader is None or reader.op != "QuantizeLinear" else scaling_of(reader)
    if reader is None or scaling is None or not scaling.is_plain:
        return factor
    quotient = factor / np.float64(scaling.scale)
    if not is_lossless(quotient):
        return factor
    walk.divided.update(dict.fromkeys((*path, reader), float(scaling.scale)))
    return quotient.astype(np.float32)


def _is_homogeneous(node: Node) -> bool:
    """True if f(x / scale) = f(x) / scale, for a Clip once its bounds are divided too."""
    if node.domain or node.op not in ("Relu", "LeakyRelu", "Clip"):
        return False
    return node.op != "Clip" or (len(node.inputs) > 1 and all(entry.node.value is not None for entry in node.reads[1:]))
