"""Sums and maxima over arrays without elements, which few engines and kernels were ever tested with.

Some return uninitialized memory, some end the process. If the sizes are static, such ops are refused; if they occur
at run time, `Empties` has numpy compute them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from partita.accelerators.arrays.layout import array_ids, owned
from partita.accelerators.errors import RunError
from partita.accelerators.interface.stub_body import is_skeleton
from partita.graph.graph import Graph
from partita.graph.interpret import interpret
from partita.graph.nested import graphs_in
from partita.graph.node import Node
from partita.graph.ops.traits import ops
from partita.graph.types import TensorType, Type

REDUCING = ops("reduction", "arg_reduction")
"""Ops whose optional second input lists axes, possibly none."""

SUMMING = REDUCING | ops(
    "pool", "global_pool", "convolution", "matmul", "integer_product", "quantized_product", "recurrent", "norm", "summing"
)
"""Ops that combine several elements into each result: all along an axis, or those of a window."""


def sums_nothing(node: Node) -> str | None:
    """The reason why the op should run on `reference`: it computes elements from an operand that has none. None for other ops."""
    if node.domain or node.op in ops("filling"):
        return None
    if node.op not in SUMMING and any(has_no_elements(value_type) for value_type in node.output_types):
        return None
    operands = node.reads if node.op in SUMMING - REDUCING else node.reads[:1]
    empty = next((entry for entry in operands if has_no_elements(entry.type)), None)
    return None if empty is None else f"{node.op} reads {empty.name!r}, which has no elements ({empty.type})"


def has_no_elements(value_type: Type | None) -> bool:
    """True for a tensor with a static dimension of zero."""
    return isinstance(value_type, TensorType) and 0 in (value_type.shape or ())


def may_be_empty(node: Node, graph: Graph) -> str | None:
    """The reason why a recurrent op should run on `reference`: its input may turn out to be empty at run time."""
    if node.op not in ops("recurrent") or node.domain or not node.reads:
        return None
    given = node.reads[0].type
    sizes = given.shape if isinstance(given, TensorType) else None
    named = {size for entry in graph.inputs for size in _sizes(entry[0].type)}
    if sizes is not None and all(isinstance(size, int) or (size is not None and size in named) for size in sizes):
        return None
    return f"{node.op} may be given no elements, since the sizes of {node.reads[0].name!r} depend on values"


def may_reduce_nothing(node: Node, graph: Graph) -> str | None:
    """The reason why a reduction may be over nothing though no input of the graph is empty: a reduced size depends on values."""
    if node.op not in REDUCING or node.domain or not node.reads:
        return None
    sizes = _sizes(node.reads[0].type)
    if not sizes and isinstance(node.reads[0].type, TensorType) and node.reads[0].type.shape is not None:
        return None
    axes = axes_of(node)
    reduced = [sizes[axis] for axis in axes if -len(sizes) <= axis < len(sizes)] if sizes and axes else sizes
    named = {size for entry in graph.inputs for size in _sizes(entry[0].type)}
    if sizes and all(isinstance(size, int) or (size is not None and size in named) for size in reduced):
        return None
    return f"{node.op} may be over nothing, since the sizes of {node.reads[0].name!r} depend on values"


def axes_of(node: Node) -> list[int]:
    """The axes of a reduction, from a constant or an attribute; empty if all are reduced or the axes are dynamic."""
    if node.op in ops("arg_reduction"):
        return [int(node.attrs.get("axis", 0))]
    given = node.inputs[1].node.value if len(node.inputs) > 1 and node.inputs[1] is not None else node.attrs.get("axes")
    return [] if given is None else [int(axis) for axis in given]


def _sizes(value_type: Type | None) -> Sequence[Any]:
    return (value_type.shape or ()) if isinstance(value_type, TensorType) else ()


class Empties:
    """Handles calls of a compiled subgraph whose inputs may have no elements."""

    def __init__(self, graph: Graph, is_probed: bool = False) -> None:
        """`is_probed`: the device reports the sizes of intermediate values, which may turn out to be empty too."""
        is_open = any(not isinstance(node[0].type, TensorType) or not node[0].type.is_static for node in graph.inputs)
        nodes = (node for inner in graphs_in(graph) for node in inner.nodes)
        sums = is_probed or is_skeleton(graph) or any(node.op in SUMMING for node in nodes)
        self._whole = graph
        self._graph = graph if is_open and sums else None

    def results(self, inputs: Sequence[Any]) -> Sequence[Any] | None:
        """The subgraph's outputs, computed by numpy, if an input has no elements; None if the device can compute them."""
        if self._graph is None or all(getattr(value, "size", 1) for value in inputs):
            return None
        return self.computed(inputs, "an input has no elements, which the device cannot be given")

    def computed(self, inputs: Sequence[Any], cause: str) -> Sequence[Any]:
        """The subgraph's outputs, computed by numpy; raises RunError with this cause if the body was left out."""
        if is_skeleton(self._whole):
            raise RunError(cause, remedy="Export the model with its bodies, by which numpy computes it")
        return owned(interpret(self._whole, inputs), array_ids(inputs) | _constants(self._whole))


def _constants(graph: Graph) -> set[int]:
    return array_ids(node.value for inner in graphs_in(graph) for node in inner.nodes if node.value is not None)
