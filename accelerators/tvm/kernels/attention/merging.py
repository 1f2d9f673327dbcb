"""Merges products of the same input that feed one attention: its queries, keys and values become parts of one product.

One large product uses the processor better than three, and the attention reads the parts in place."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np

from partita.accelerators.tvm.bodies.blocked import ORIGIN, origins_of
from partita.accelerators.tvm.bodies.body import element_of
from partita.accelerators.tvm.bodies.stored_types import as_stored
from partita.accelerators.tvm.kernels.attention.pattern import Attention, AttentionProperty
from partita.accelerators.tvm.kernels.contraction.operands import Readers, readers_of
from partita.accelerators.tvm.kernels.shared.element_access import real_shape
from partita.graph.build import constant, op
from partita.graph.graph import Graph
from partita.graph.mapped_arrays import new_array
from partita.graph.node import Node, NodeEntry
from partita.graph.ops.traits import ops
from partita.graph.rewrite import Rewriter, rewrite
from partita.graph.types import Array, TensorType, numpy_dtype
from partita.passes.constants import Namer
from partita.passes.registry import REQUESTS, register_pass


@attrs.frozen(slots=True, eq=False)
class Projection:
    """A product with a constant matrix, and its bias."""

    result: NodeEntry
    """The output of the projection."""
    nodes: tuple[Node, ...]
    """The product, and the Add of the bias if it is a separate op."""
    weight: Array
    """The matrix, shaped (depth, columns)."""
    bias: Array | None
    """One element per column."""

    @property
    def given(self) -> NodeEntry:
        """The input that is multiplied by the weights."""
        entry = self.nodes[0].inputs[0]
        assert entry is not None
        return entry


@register_pass("MergeProjections", keeps=REQUESTS, family="tvm")
def merge_projections(graph: Graph) -> Graph:
    """Query, key and value projections of one input merged into one matrix product. Linear."""
    matches = list(AttentionProperty().matches(graph))
    if not matches:
        return graph
    readers = readers_of(graph)
    groups = [group for merged in matches for group in _groups(merged, readers)]
    leader = {node: group for group in groups for part in group for node in part.nodes}
    done: set[Node] = set()
    namer = Namer(graph)

    def visit(node: Node, rewriter: Rewriter) -> None:
        group = leader.get(node)
        if group is None:
            rewriter.keep(node)
        elif group[0].nodes[0] not in done:
            done.add(group[0].nodes[0])
            merged = _merged(group, rewriter, namer)
            for part, entry in zip(group, merged.outputs, strict=True):
                rewriter.replace(part.result, entry)

    return rewrite(graph, visit)


def _groups(match: Attention, readers: Readers) -> list[list[Projection]]:
    """Groups of at least two projections of the same input that only this attention reads."""
    by_input: dict[tuple[NodeEntry, bool], list[Projection]] = {}
    for entry in dict.fromkeys(operand.source for operand in match.operands):
        part = _projection(entry, readers)
        if part is not None and all(reader in match.nodes for reader in readers[entry]):
            by_input.setdefault((part.given, part.bias is None), []).append(part)
    return [group for group in by_input.values() if len(group) > 1]


def _projection(result: NodeEntry, readers: Readers) -> Projection | None:
    """The projection that computes this value."""
    last = result.node
    if last.op == "Add" and not last.domain:
        for inner, bias in (last.inputs, last.inputs[::-1]):
            product = None if inner is None or len(readers[inner]) != 1 else _projection(inner, readers)
            if product is not None and product.bias is None and bias is not None and _is_row(bias.node.value, product.weight):
                assert bias.node.value is not None
                return attrs.evolve(product, result=result, nodes=(*product.nodes, last), bias=bias.node.value.reshape(-1))
        return None
    if last.op not in ops("matmul") or last.domain or real_shape(result) is None or last.attrs.get("transA", 0):
        return None
    given, weight = last.inputs[0], None if last.inputs[1] is None else last.inputs[1].node.value
    if given is None or weight is None or weight.ndim != 2 or last.attrs.get("alpha", 1.0) != 1.0:
        return None
    matrix = weight.T if last.attrs.get("transB", 0) else weight
    third = last.inputs[2] if len(last.inputs) > 2 else None
    if third is not None and (not _is_row(third.node.value, matrix) or last.attrs.get("beta", 1.0) != 1.0):
        return None
    row = None if third is None or third.node.value is None else third.node.value.reshape(-1)
    return Projection(result, (last,), matrix, row)


def _is_row(bias: Array | None, weight: Array) -> bool:
    return bias is not None and bias.size == bias.shape[-1] == weight.shape[1] and bias.dtype == np.float32


def _merged(group: Sequence[Projection], rewriter: Rewriter, namer: Namer) -> Node:
    """A Split of one merged product into the results of the group."""
    first = group[0].nodes[0]
    shape = real_shape(group[0].result)
    assert shape is not None
    widths = [part.weight.shape[1] for part in group]
    whole = TensorType(element_of(group[0].result), (*shape[:-1], sum(widths)))
    given = rewriter.value(group[0].given)
    weight = _side_by_side(group, namer(f"{first.name}_weights"))
    value = (namer(f"{first.name}_product"),)
    product = op("MatMul", given, weight, name=first.name, output_names=value).evolve(output_types=(whole,))
    result = _named(product, [part.nodes[0] for part in group])
    biases = [part.bias for part in group if part.bias is not None]
    if biases:
        last = group[0].nodes[-1]
        name = last.name if last is not first else namer(f"{first.name}_bias")
        bias, value = constant(np.concatenate(biases), namer(f"{name}_numbers")), (namer(f"{name}_sum"),)
        added = op("Add", result, bias, name=name, output_names=value).evolve(output_types=(whole,))
        result = _named(added, [part.nodes[-1] for part in group])
    types = tuple(TensorType(element_of(group[0].result), (*shape[:-1], width)) for width in widths)
    sizes = constant(np.array(widths, np.int64), namer(f"{first.name}_widths"))
    names = tuple(part.result.name for part in group)
    split = op("Split", result, sizes, name=namer(f"{first.name}_parts"), output_names=names, axis=-1)
    return _named(split.evolve(output_types=types), [part.nodes[-1] for part in group])


def _side_by_side(group: Sequence[Projection], name: str) -> Node:
    """The matrices of the group concatenated along the columns, in their declared element type."""
    entry = group[0].nodes[0].inputs[1]
    assert entry is not None
    dtype, widths = element_of(entry), [part.weight.shape[1] for part in group]
    whole = new_array((len(group[0].weight), sum(widths)), numpy_dtype(dtype))
    for part, columns in zip(group, np.split(whole, np.cumsum(widths)[:-1], axis=1), strict=True):
        columns[...] = as_stored(part.weight, dtype)
    return constant(whole, name)


def _named(node: Node, origins: Sequence[Node]) -> Node:
    """The node, named after `origins` in profiles and reports."""
    return node.evolve(metadata={ORIGIN: "\n".join(name for origin in origins for name in origins_of(origin))})
