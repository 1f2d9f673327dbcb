"""Recurrent layers split in two: one product of the inputs of all steps by the weights, and the steps, which read its result.

Layers of 16-bit floats are computed in float32 between casts."""

from __future__ import annotations

from typing import Any

import numpy as np

from partita.accelerators.tvm.bodies.blocked import origin_metadata
from partita.accelerators.tvm.bodies.recurrent import DOMAIN, is_recurrent
from partita.accelerators.tvm.kernels.shared.element_access import HALVES
from partita.accelerators.tvm.sizes.sizing import is_for_any_size
from partita.graph.build import constant, op
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.graph.rewrite import Rewriter, rewrite
from partita.graph.types import TensorType
from partita.passes.constants import Namer
from partita.passes.infer import infer
from partita.passes.registry import REQUESTS, register_pass


@register_pass("ProjectInputs", keeps=REQUESTS, family="tvm")
def project_inputs(graph: Graph) -> Graph:
    """Recurrent layers split into one matrix product of all their inputs and the steps. Linear."""
    if not any(is_recurrent(node) for node in graph.nodes):
        return graph
    namer = Namer(graph)

    def visit(node: Node, rewriter: Rewriter) -> None:
        if is_recurrent(node):
            _Projecting(node, graph, namer, rewriter).run()
        else:
            rewriter.keep(node)

    projected = rewrite(graph, visit)
    return projected if is_for_any_size(graph) else infer(projected, strict=False, check_declared=False)


class _Projecting:
    """Splits one layer in two."""

    def __init__(self, node: Node, graph: Graph, namer: Namer, rewriter: Rewriter) -> None:
        self.node = node
        self.namer = namer
        self.rewriter = rewriter
        self.opset = graph.opset
        given = node.inputs[0]
        assert given is not None and isinstance(given.type, TensorType)
        self.dtype = given.type.dtype

    def run(self) -> None:
        """Replaces the node by the product and the layer."""
        node = self.node
        inputs = [None if entry is None else self._single(self.rewriter.value(entry)) for entry in node.inputs]
        assert inputs[0] is not None and inputs[1] is not None
        projected = self._product(inputs[0], self._columns(inputs[1]))
        layer = node.evolve(domain=DOMAIN, inputs=(projected, *inputs[2:]))
        if self.dtype not in HALVES:
            self.rewriter.keep(node, layer)
            return
        names = tuple(name and self.namer(f"{name}_float32") for name in node.output_names)
        types = tuple(t and TensorType("float32", t.shape) if isinstance(t, TensorType) else t for t in node.output_types)
        wide = self.rewriter.keep(self._named(layer.evolve(output_names=names, output_types=types), "steps"))
        for old in node.outputs:
            if old.name:
                self.rewriter.replace(old, self._op("Cast", "narrow", wide[old.index], to=self.dtype))

    def _product(self, given: NodeEntry, columns: NodeEntry) -> NodeEntry:
        """The product of the inputs of all steps by the weights. Its type is set here: dynamic sizes are not inferred later."""
        product = self._named(op("MatMul", given, columns, opset=self.opset, name="new"), "product")
        if columns.node.value is not None and isinstance(given.type, TensorType) and given.type.shape is not None:
            sizes = (*given.type.shape[:-1], columns.node.value.shape[1])
            product = product.evolve(output_types=(TensorType(given.type.dtype, sizes),))
        return self.rewriter.keep(product)[0]

    def _single(self, entry: NodeEntry) -> NodeEntry:
        """The value, cast to float32 if it is a 16-bit float."""
        if not isinstance(entry.type, TensorType) or entry.type.dtype not in HALVES:
            return entry
        array = entry.node.value
        return self._op("Cast", "wide", entry, to=1) if array is None else self._constant(array.astype(np.float32), "wide")

    def _columns(self, weights: NodeEntry) -> NodeEntry:
        """[directions, gates * hidden, inputs] as a matrix with a column for each hidden unit of each gate of each direction."""
        array = weights.node.value
        if array is not None:
            return self._constant(np.ascontiguousarray(array.reshape(-1, array.shape[-1]).T), "weights")
        turned = self._op("Transpose", "turned", weights, perm=[2, 0, 1])
        return self._op("Reshape", "weights", turned, self._constant(np.array([0, -1]), "shape"))

    # -- nodes on behalf of the layer ----------------------------------------------------------------------

    def _op(self, name: str, what: str, *inputs: NodeEntry, **attributes: Any) -> NodeEntry:
        return self.rewriter.keep(self._named(op(name, *inputs, opset=self.opset, name="new", **attributes), what))[0]

    def _constant(self, array: np.ndarray, what: str) -> NodeEntry:
        return self.rewriter.keep(constant(array, self.namer(f"{self.node.name}_{what}")))[0]

    def _named(self, node: Node, what: str) -> Node:
        name = self.namer(f"{self.node.name}_{what}")
        names = (name,) if len(node.output_names) == 1 else node.output_names
        return node.evolve(name=name, output_names=names, metadata=origin_metadata(self.node))
