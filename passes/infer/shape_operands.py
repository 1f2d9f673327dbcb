"""Values that determine the sizes of an op's results, and whether such a value follows from the sizes of the inputs."""

from __future__ import annotations

from collections.abc import Container, Mapping

from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.graph.ops import is_random
from partita.graph.ops.traits import ops, traits

MOST_STEPS = 64
"""Maximum number of ops that are traced back from a value."""

SHAPED_BY: Mapping[str, tuple[int, ...]] = {
    "AffineGrid": (1,), "BlackmanWindow": (0,), "CenterCropPad": (1,), "Col2Im": (1, 2), "ConstantOfShape": (0,), "CumSum": (1,),
    "DFT": (1, 2), "Expand": (1,), "HammingWindow": (0,), "HannWindow": (0,), "MaxUnpool": (2,), "MelWeightMatrix": (0, 1),
    "OneHot": (1,), "Pad": (1, 3), "Range": (0, 1, 2), "Reshape": (1,), "Resize": (1, 2, 3), "STFT": (1, 3),
    "Slice": (1, 2, 3, 4), "Split": (1,), "Squeeze": (1,), "Tile": (1,), "TopK": (1,), "Trilu": (1,), "Unsqueeze": (1,),
    "Upsample": (1,),
}
"""Per op the inputs whose values a kernel needs at compile time."""

INDEXED: Mapping[str, int] = {
    "Gather": 1, "GatherElements": 1, "GatherND": 1, "ScatterElements": 1, "Scatter": 1, "ScatterND": 1,
    "MaxUnpool": 1, "RoiAlign": 2,
}
"""Per op the position of the input that holds indices."""


def deciding(node: Node) -> list[NodeEntry]:
    """The inputs whose values determine the sizes of the op's results."""
    if node.domain:
        return []
    op = node.op or ""
    slots = (1,) if op.startswith("Reduce") else SHAPED_BY.get(op, ())
    read = [node.inputs[slot] for slot in slots if slot < len(node.inputs)]
    return [entry for entry in read if entry is not None]


def deciding_inputs(body: Graph) -> list[Node]:
    """The graph's inputs whose values determine sizes, directly or through its ops."""
    wanted: set[NodeEntry] = set()
    for node in reversed(body.nodes):
        if node.is_op:
            wanted.update(deciding(node))
            if not is_measure(node) and not wanted.isdisjoint(node.outputs):
                wanted.update(node.reads)
    return [node for node in body.inputs if node[0] in wanted]


def is_measure(node: Node) -> bool:
    """True if the node's result holds sizes of its operand."""
    return node.op in ops("size") and not node.domain


def may_be_settled(node: Node) -> bool:
    """True if an op's results follow from those of its operands alone, in a time that is known beforehand."""
    return node.is_op and not node.bodies and not is_random(node) and "endless" not in traits(str(node.op), node.domain)


def is_settled_by(node: Node, settled: Container[NodeEntry]) -> bool:
    """True if the node's results follow from sizes and constants alone, given the values before it that do."""
    if node.value is not None or is_measure(node):
        return True
    return all(entry in settled for entry in node.inputs if entry is not None) and may_be_settled(node)


def follows_from_sizes(value: NodeEntry | None) -> bool:
    """True if the value is computed from constants and sizes alone. Any other value may contradict the sizes in a file, and
    the op that reads it then fails at run time. Values of many steps count as others."""
    seen, left = set[Node](), [] if value is None else [value.node]
    while left and len(seen) < MOST_STEPS:
        node = left.pop()
        if node in seen or node.value is not None or is_measure(node):
            continue
        if not may_be_settled(node):
            return False
        seen.add(node)
        left.extend(entry.node for entry in node.reads)
    return not left
