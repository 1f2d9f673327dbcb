"""Element-wise ops after a product or a pool of quantized values, rounding included."""

from __future__ import annotations

from collections.abc import Mapping

from partita.accelerators.tvm.bodies.body import Body, shape_of
from partita.accelerators.tvm.kernels.shared.epilogue import Epilogue, epilogue_of, folded
from partita.accelerators.tvm.kernels.shared.formulas import Formula, formula
from partita.accelerators.tvm.kernels.shared.shapes import Shape
from partita.graph.node import Node, NodeEntry


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
