"""The exported graph around the subgraphs: each call is a node with the number of its compiled subgraph."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from partita.accelerators.arrays.sharing import ALIGNMENT, array_digest, byte_view, mapped
from partita.accelerators.interface.stub_body import DOMAIN, OP
from partita.accelerators.runtime.package.container import MemberWriter, PackageError
from partita.graph.build import CALL, CALL_DOMAIN
from partita.graph.errors import TypeMismatch
from partita.graph.formatting import counted
from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.graph.rewrite import with_changes
from partita.graph.types import Array, dtype_name, numpy_dtype
from partita.passes.infer.dim_symbols import merged


def plan_of(graph: Graph, numbers: Mapping[Node, int]) -> Graph:
    """The graph of a compiled model with numbers in place of bodies."""

    def as_number(node: Node) -> dict[str, Any]:
        if node not in numbers:
            return {}
        return {"op": OP, "domain": DOMAIN, "subgraph": None, "attrs": {"unit": numbers[node]}, "after": ()}

    stand_in = with_changes(graph, as_number)
    return stand_in.evolve(opsets={**stand_in.opsets, DOMAIN: 1}, attrs={})


def graph_of(plan: Graph, bodies: Mapping[int, Graph]) -> tuple[Graph, dict[str, int]]:
    """The restored graph of a compiled model, and the number of each call's subgraph by call name; an error if a body has other
    inputs or outputs than its call."""
    numbers: dict[str, int] = {}

    def as_call(node: Node) -> dict[str, Any]:
        if not node.is_op:
            return {}
        number = int(node.attrs["unit"])
        _require_fit(node, bodies[number])
        numbers[node.name] = number
        return {"op": CALL, "domain": CALL_DOMAIN, "subgraph": bodies[number], "attrs": {}}

    restored = with_changes(plan, as_call)
    opsets = {domain: version for domain, version in restored.opsets.items() if domain != DOMAIN}
    return restored.evolve(opsets=opsets), numbers


def _require_fit(call: Node, body: Graph) -> None:
    """Raises TypeMismatch if the types of the call contradict those of its body; unknown types and sizes contradict nothing."""
    sides = {
        "input": ([None if entry is None else entry.type for entry in call.inputs], [node[0].type for node in body.inputs]),
        "output": (call.output_types, [entry.type for entry in body.outputs]),
    }
    for side, (outside, inside) in sides.items():
        if len(outside) != len(inside):
            cause = f"the call has {counted(len(outside), side)} and its body {len(inside)}"
            raise TypeMismatch(cause, where=f"call {call.name!r}", remedy=_REMEDY)
        for number, types in enumerate(zip(outside, inside, strict=True)):
            try:
                merged(*types)
            except TypeMismatch as error:
                cause = f"{side} {number} of the call and of its body: {error.cause}"
                raise TypeMismatch(cause, where=f"call {call.name!r}", remedy=_REMEDY) from None


_REMEDY = "Do not trust the file, or export the model again"


WEIGHTS = "weights"
"""The member's name, which is also the location of large constants in the ONNX bodies."""

Row = tuple[int, str, tuple[int, ...]]
"""Offset in the member, dtype, shape."""


class ArrayWriter:
    """Writes arrays; equal contents are written once."""

    location = WEIGHTS

    def __init__(self, member: MemberWriter) -> None:
        self._member = member
        self._known: dict[tuple[int, str], int] = {}

    def add(self, array: Array) -> tuple[int, int]:
        """Adds an array and returns its offset and length."""
        key = array.nbytes, array_digest(array)
        if key not in self._known:
            self._member.write(bytes(-(self._member.start + self._member.size) % ALIGNMENT))
            self._known[key] = self._member.size
            self._member.write(byte_view(array))
        return self._known[key], array.nbytes

    def row(self, array: Array) -> Row:
        """The manifest's row for the array."""
        return self.add(array)[0], dtype_name(array.dtype), array.shape


def read_array(data: Array, row: Sequence[Any], where: str) -> Array:
    """The array that a row of the manifest describes, as a view of the member's bytes."""
    offset, name, shape = row
    dtype = numpy_dtype(name)
    end = offset + math.prod(shape) * dtype.itemsize
    if dtype.hasobject or min((offset, *shape)) < 0 or end > data.size:
        raise PackageError(f"it has no array at {row!r:.80}", where=where)
    return mapped(data[offset:end].view(dtype).reshape(shape))
