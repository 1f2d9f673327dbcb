"""The inputs of products of quantized values, and the element-wise ops after a product or a pool, rounding included."""

from __future__ import annotations

from collections.abc import Mapping

from partita.accelerators.tvm.bodies.body import Body, shape_of
from partita.accelerators.tvm.kernels.language import Value, float32
from partita.accelerators.tvm.kernels.shared.element_access import Shape
from partita.accelerators.tvm.kernels.shared.epilogue import Epilogue, epilogue_of, folded
from partita.accelerators.tvm.kernels.shared.formulas import Formula, Numbers, formula
from partita.graph.node import Node, NodeEntry

IMAGE, WEIGHT, BEGINNING, SCALE = range(4)
"""The inputs: bytes, signed bytes, the initial sums, and the scale of the results, unless these are the sums."""


def scaled(node: Node, x: Numbers) -> Value:
    """The float that a sum represents."""
    total: Value = x[0] if len(x) <= SCALE + 1 or x[SCALE + 1] is None else x[0].cast(float32) * x[SCALE + 1]
    return total


def make_following(body: Body, root: Node, start: Formula, beside: Mapping[int, Shape] | None = None) -> Epilogue | None:
    """The epilogue of a body with results [pixels, channels]; None if one of the other ops is not element-wise. Some of them may
    compute one value for each channel, or for all, which is recomputed for each result.

    `start` computes the root's result from the sum and the root's inputs; those in `beside` have the given shapes."""
    shape, version = shape_of(root[0]), body.graph.opsets.get("", 1)
    groups = [(0, len(shape) - 1), (len(shape) - 1, len(shape))]
    others = [node for node in body.ops if node is not root]
    formulas = {node: formula(node, version) for node in others}
    values = [entry for node in others for entry in node.outputs]
    if None in formulas.values() or 0 in shape or any(folded(shape_of(entry), shape, groups) is None for entry in values):
        return None
    if any(shape_of(entry) != shape for entry in body.graph.outputs):
        return None
    if any(node.value is not None and node.value.size != 1 for node in body.graph.nodes):
        return None
    reads: list[tuple[NodeEntry | None, Shape | None]] = [
        (root.inputs[i], folded(size, shape, groups)) for i, size in (beside or {}).items()
    ]
    reads += [(entry, folded(shape_of(entry), shape, groups)) for node in others for entry in node.reads]
    return epilogue_of(body, root, start, formulas, reads, folded(shape, shape, groups) or ())
