"""Finds the integers of a graph that openvino computes correctly: it uses 32 bits at most, and often floats."""

from __future__ import annotations

import numpy as np

from partita.graph.graph import Graph
from partita.graph.nested import bodies_of
from partita.graph.node import Node, NodeEntry
from partita.graph.ops.traits import ops
from partita.graph.types import TensorType

WIDE = frozenset(("int64", "uint64", "uint32"))
"""Types that are computed, and even moved, in 32 bits."""

_NARROW = frozenset(("int16", "uint16", "int8", "uint8"))

_INTEGERS = WIDE | _NARROW | {"int32"}

_INDEXED = {
    "Gather": (1,), "GatherElements": (1,), "GatherND": (1,), "ScatterElements": (1,), "ScatterND": (1,), "Scatter": (1,),
    "OneHot": (0, 1), "Reshape": (1,), "Expand": (1,), "Slice": (1, 2, 3, 4), "Tile": (1,), "Pad": (1, 3), "Resize": (3,),
    "Squeeze": (1,), "Unsqueeze": (1,), "ConstantOfShape": (0,), "TopK": (1,), "Split": (1,), "CumSum": (1,),
    "ReduceSum": (1,), "ReduceMean": (1,), "ReduceMax": (1,), "ReduceMin": (1,), "ReduceProd": (1,), "ReduceL1": (1,),
    "ReduceL2": (1,), "ReduceLogSum": (1,), "ReduceLogSumExp": (1,), "ReduceSumSquare": (1,), "Trilu": (1,),
    "NonMaxSuppression": (2,), "ReverseSequence": (1,), "RoiAlign": (2,),
}
"""The inputs of each op that are sizes, axes or indices: no valid value of them needs more than 32 bits."""

_ARITHMETIC = ops("ring", "reduction", "running", "matmul", "contraction") | frozenset(
    "Abs BitShift Div Erf Mod PRelu Pow Relu".split()
)
"""Ops that openvino computes with saturation or as float32, though ONNX wraps around."""

_LIMIT = 2**31 - 1


class SmallIntegers:
    """The values of a graph, including bodies, that are integers small enough for any arithmetic. Linear."""

    def __init__(self, graph: Graph) -> None:
        self._small: set[NodeEntry] = set()
        self._read(graph)

    def _read(self, graph: Graph) -> None:
        for node in graph.nodes:
            for body in bodies_of(node):
                self._read(body)
            self._small.update(node.outputs if self._makes_small(node) else node.outputs[1:] if node.op in ops("picking") else ())

    def _makes_small(self, node: Node) -> bool:
        if node.value is not None:
            return node.value.dtype.kind in "iu" and _fits(node.value)
        if node.op is None or node.bodies:
            return False
        if node.op in ops("positional"):
            return True
        if node.op == "ConstantOfShape":
            return _fits(np.asarray(node.attrs.get("value", 0)))
        data = [entry for i, entry in enumerate(node.inputs) if entry is not None and not is_index(node, i)]
        if node.op == "Cast":
            return _dtype(data[0]) in ("bool", "int8", "uint8", "int16", "uint16") or data[0] in self._small
        return bool(data) and all(entry in self._small or _dtype(entry) == "bool" for entry in data)

    def refused(self, node: Node) -> str | None:
        """The reason why the node's integers might be computed wrongly."""
        if node.bodies:
            return None
        for i, entry in enumerate(node.inputs):
            if entry is not None and not is_index(node, i):
                why = self._refused(node, entry)
                if why:
                    return why
        for entry in node.outputs:
            if entry.name and _dtype(entry) in WIDE and entry not in self._small:
                return _too_wide(entry)
        return None

    def _refused(self, node: Node, entry: NodeEntry) -> str | None:
        dtype = _dtype(entry)
        # a value that is small for 32 bits may exceed 8 or 16 bits
        if dtype not in _INTEGERS or (entry in self._small and dtype not in _NARROW):
            return None
        if dtype in WIDE:
            return _too_wide(entry)
        is_summed = node.op in ops("scattering") and node.attrs.get("reduction", "none") != "none"
        if node.op in _ARITHMETIC or is_summed:
            return f"openvino's {node.op} of {dtype} rounds or saturates where ONNX counts on from the other end"
        if node.op in ops("comparison") and dtype == "int32":
            return f"openvino compares int32 as float32, and {entry.name!r} may hold large numbers"
        return None


def _too_wide(entry: NodeEntry) -> str:
    return f"openvino computes {_dtype(entry)} in 32 bits, and {entry.name!r} may hold larger numbers"


def _fits(array: np.ndarray) -> bool:  # type: ignore[type-arg]
    return not array.size or bool(np.all(np.abs(array.astype(np.float64)) <= _LIMIT))


def is_index(node: Node, number: int) -> bool:
    """True if this input of the node is a size, an axis or an index."""
    return number in _INDEXED.get(node.op or "", ())


def _dtype(entry: NodeEntry) -> str:
    return entry.type.dtype if isinstance(entry.type, TensorType) else ""
