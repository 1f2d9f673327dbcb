"""The roles of values whose elements are not data: sizes, indices, and parameters of ops."""

from __future__ import annotations

import attrs

from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.graph.ops.schemas import spec_of
from partita.graph.ops.traits import ops
from partita.graph.types import TensorType
from partita.passes.infer.shape_operands import INDEXED, deciding

_PASSED_ON = ops("copying") | {"Cast"}
"""Ops that pass indices on unchanged."""

_INTEGERS = frozenset(("int32", "int64"))


@attrs.frozen(slots=True)
class Indices:
    """The dimensions that indices refer to."""

    sizes: tuple[int | None, ...] = (None,)
    """The size of the dimension, None if dynamic; one per column if there are several."""
    are_written: bool = False
    """True if an op writes there: the result of two writes to the same index is undefined."""


@attrs.define(slots=True, eq=False)
class ValueRoles:
    """The roles of values in a graph and its bodies."""

    deciding: set[NodeEntry] = attrs.field(factory=set)
    """Values that determine sizes, directly or through ops."""
    bounds: dict[NodeEntry, Indices] = attrs.field(factory=dict)
    """Values that are indices."""
    parameters: set[NodeEntry] = attrs.field(factory=set)
    """Values that only parametrize an op, such as an axis or a length."""


def roles_of(graph: Graph) -> ValueRoles:
    """The roles of the values in a graph and its bodies. Linear in the number of nodes."""
    roles = ValueRoles()
    _find(graph, roles)
    return roles


def _find(graph: Graph, roles: ValueRoles) -> None:
    for node in reversed(graph.nodes):
        if not node.is_op:
            continue
        roles.deciding.update(deciding(node))
        is_read_as_size = not roles.deciding.isdisjoint(node.outputs)
        if is_read_as_size and not (node.op in ops("size") and not node.domain):
            roles.deciding.update(node.reads)
        known = [roles.bounds[entry] for entry in node.outputs if entry in roles.bounds and len(roles.bounds[entry].sizes) == 1]
        if not node.domain and node.op in _PASSED_ON and known:
            tightest = min(known, key=lambda bound: (bound.sizes[0] is None, bound.sizes[0]))
            for entry in node.inputs if node.op == "Concat" else node.inputs[:1]:
                if entry is not None:
                    roles.bounds.setdefault(entry, tightest)
        slot = INDEXED.get(str(node.op)) if not node.domain else None
        indices = node.inputs[slot] if slot is not None and slot < len(node.inputs) else None
        if indices is not None:
            roles.bounds[indices] = _bounds(node, indices)
        roles.parameters.update(
            entry for number, entry in enumerate(node.inputs) if entry is not None and _is_parameter(node, number, graph)
        )
        for _, body in node.bodies:
            if is_read_as_size:
                roles.deciding.update(body.outputs)
            _find(body, roles)
            inner = body.inputs[len(body.inputs) - len(node.captures) :]
            for entry, variable in zip(node.captures, inner):
                if variable[0] in roles.deciding:
                    roles.deciding.add(entry)
                if variable[0] in roles.parameters:
                    roles.parameters.add(entry)
                if variable[0] in roles.bounds:
                    roles.bounds.setdefault(entry, roles.bounds[variable[0]])


def _bounds(node: Node, indices: NodeEntry) -> Indices:
    """The dimensions that the indices refer to."""
    data = node.inputs[0]
    shape = data.type.shape if data is not None and isinstance(data.type, TensorType) else None
    if not shape or node.op == "MaxUnpool":
        return Indices()
    if str(node.op).endswith("ND"):
        first, own = int(node.attrs.get("batch_dims", 0)), indices.type
        columns = own.shape[-1] if isinstance(own, TensorType) and own.shape else None
        chosen = shape[first : first + columns] if isinstance(columns, int) else ()
    else:
        chosen = (shape[int(node.attrs.get("axis", 0)) % len(shape)],)
    sizes = tuple([size if isinstance(size, int) else None for size in chosen]) or (None,)
    return Indices(sizes, are_written=str(node.op).startswith("Scatter"))


def _is_parameter(node: Node, slot: int, graph: Graph) -> bool:
    """True if the schema accepts only integers there. Without a schema, constants may be parameters; inputs are data."""
    spec = spec_of(str(node.op), node.domain, graph.opsets.get(node.domain, 1))
    if spec is None:
        entry = node.inputs[slot]
        return entry is not None and not entry.node.is_variable
    types = spec.inputs[min(slot, len(spec.inputs) - 1)].types if spec.inputs else frozenset()
    return "int64" in types and types <= _INTEGERS
