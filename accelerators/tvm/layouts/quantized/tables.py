"""Functions of a single byte as tables.

An element-wise function of one quantized byte that is quantized again has at most 256 results. They are computed at compile time,
with ONNX's semantics, and looked up. That pays off if the function contains a costly op."""

from __future__ import annotations

import numpy as np

from partita.accelerators.tvm.bodies.quantized import DOMAIN
from partita.accelerators.tvm.kernels.shared.element_access import any_shape, float32_shape
from partita.accelerators.tvm.kernels.shared.elementwise import ELEMENTWISE
from partita.accelerators.tvm.layouts.quantized.notes import FOUND
from partita.accelerators.tvm.layouts.quantized.scales import BYTE_TYPES, scaling_of
from partita.graph.build import constant
from partita.graph.graph import Graph
from partita.graph.interpret import evaluate_node
from partita.graph.node import Node, NodeEntry, frozen_attrs
from partita.graph.ops.traits import ops
from partita.graph.rewrite import Rewriter, rewrite
from partita.graph.types import Array, TensorType
from partita.passes.constants import Namer
from partita.passes.registry import REQUESTS, register_pass


@register_pass("TabulateBytes", keeps=(FOUND, *REQUESTS), family="tvm")
def tabulate(graph: Graph) -> Graph:
    """A table of 256 entries for each costly element-wise function of a quantized byte. Linear."""
    if not any(node.op == "QuantizeLinear" for node in graph.nodes):
        return graph
    tables, namer = _Tables(graph), Namer(graph)

    def visit(node: Node, rewriter: Rewriter) -> None:
        source = tables.sources.get(node[0]) if node.op == "QuantizeLinear" and node[0] in tables.long else None
        if source is None or not node.is_op:
            rewriter.keep(node)
            return
        numbers = rewriter.keep(constant(tables.values(node[0]), namer(f"{node.name}_table")))
        read = (rewriter.value(source), numbers[0])
        rewriter.keep(node, node.evolve(op="Table", domain=DOMAIN, inputs=read, attrs=frozen_attrs({})))

    rewritten = rewrite(graph, visit)
    return rewritten if rewritten is graph else rewritten.evolve(nodes=())


@register_pass("DropNanTests", keeps=(FOUND, *REQUESTS), family="tvm")
def drop_nan_tests(graph: Graph) -> Graph:
    """The graph without tests for NaN in dequantized values, which are never NaN. Linear."""
    if not any(node.op == "IsNaN" for node in graph.nodes):
        return graph

    def visit(node: Node, rewriter: Rewriter) -> None:
        if _keeps_numbers(node):
            assert node.inputs[2] is not None
            rewriter.replace(node[0], rewriter.value(node.inputs[2]))
        else:
            rewriter.keep(node)

    rewritten = rewrite(graph, visit)
    return rewritten if rewritten is graph else rewritten.evolve(nodes=())


def _keeps_numbers(node: Node) -> bool:
    """True for a Where that replaces NaN in dequantized values, which are never NaN."""
    test = node.inputs[0].node if node.op == "Where" and not node.domain and node.inputs[0] is not None else None
    if test is None or test.op != "IsNaN" or test.domain or test.inputs[0] != node.inputs[2] or test.inputs[0] is None:
        return False
    scaling, shape = scaling_of(test.inputs[0].node), any_shape(node[0])
    is_number = test.inputs[0].node.op == "DequantizeLinear" and scaling is not None and scaling.is_plain
    return is_number and shape is not None and shape == any_shape(node.inputs[2])


class _Tables:
    """The values that are element-wise functions of one byte, and their results for all bytes."""

    def __init__(self, graph: Graph) -> None:
        self.opsets = graph.opsets
        self.sources: dict[NodeEntry, NodeEntry] = {}
        """The bytes of which each value is a function."""
        self.long: set[NodeEntry] = set()
        """The values whose functions contain an op of many instructions."""
        self._known: dict[NodeEntry, Array] = {}
        for node in graph.nodes:
            source = self._source(node) if node.is_op and not node.domain and len(node.output_names) == 1 else None
            if source is not None:
                self.sources[node[0]] = source
                if node.op in ops("long") or any(entry in self.long for entry in node.reads):
                    self.long.add(node[0])

    def _source(self, node: Node) -> NodeEntry | None:
        """The bytes of which the op's value is an element-wise function."""
        scaling, first = scaling_of(node), node.inputs[0] if node.inputs else None
        if node.op in ops("quantizing"):
            if first is None or scaling is None or not scaling.is_plain or scaling.point.dtype.name not in BYTE_TYPES:
                return None
            if node.op == "QuantizeLinear":
                return self.sources.get(first)
            return None if first.node.value is not None else self.sources.get(first, first)
        if node.op not in ELEMENTWISE or float32_shape(node[0]) is None:
            return None
        values = [entry for entry in node.reads if entry.node.value is None]
        sources = {self.sources.get(entry) for entry in values}
        single = all(entry.node.value is None or entry.node.value.size == 1 for entry in node.reads)
        source = next(iter(sources)) if len(sources) == 1 and single else None
        alike = source is not None and any_shape(source) == any_shape(node[0])
        return source if alike and all(float32_shape(entry) is not None for entry in node.reads) else None

    def values(self, entry: NodeEntry) -> Array:
        """The results for all bytes, ordered by the bytes as unsigned."""
        waiting = [entry]
        while waiting:
            last = waiting[-1]
            if last in self._known:
                waiting.pop()
                continue
            if last not in self.sources:
                kind = last.type
                assert isinstance(kind, TensorType)
                self._known[last] = np.arange(256, dtype=np.uint8).view(kind.dtype)
                continue
            unknown = [read for read in last.node.reads if read.node.value is None and read not in self._known]
            if unknown:
                waiting += unknown
                continue
            given = [None if e is None else self._known[e] if e.node.value is None else _single(e.node) for e in last.node.inputs]
            with np.errstate(all="ignore"):
                (self._known[last],) = evaluate_node(last.node, given, self.opsets)
        return self._known[entry]


def _single(node: Node) -> Array:
    """A constant of one element, as a scalar."""
    assert node.value is not None
    return node.value.reshape(())
