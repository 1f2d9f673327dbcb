"""A chain of element-wise ops: one pass over memory.

All ops become one expression, computed where the result stands. Neighbouring dimensions that every operand walks in the same way
are one loop; the innermost is cut into vectors, the others run in parallel. Functions such as exp are polynomials, so that they
vectorise too."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from accelerators.tvm.bodies import Body
from accelerators.tvm.library import part
from accelerators.tvm.machine import Machine
from accelerators.tvm.templates import Draft, template
from accelerators.tvm.templates.formulas import Formula, formula
from graph.node import Node, NodeEntry

Shape = tuple[int, ...]

SERIAL = 16_384
"""Fewer numbers than this are one thread's work."""

UNROLLED = 4
"""Vectors that are worked on at a time, so that one's latency hides another's."""


@template("cpu")
def chain(body: Body, machine: Machine) -> Draft | None:
    """Bodies of element-wise ops whose results have one shape."""
    version = body.graph.opsets.get("", 1)
    formulas = {node: formula(node, version) for node in body.ops}
    shapes = {entry.type.shape for node in body.ops for entry in node.outputs}
    arrays = any(node.value is not None and node.value.size != 1 for node in body.graph.nodes)
    if None in formulas.values() or len(shapes) != 1 or arrays:
        return None
    shape = shapes.pop()
    if math.prod(shape) == 0:
        return None
    function = _function(body, shape, formulas)
    return Draft(_scheduled(function, _groups(body, shape), machine), "chain")


def _function(body: Body, shape: Shape, formulas: dict[Node, Formula | None]) -> Any:
    """All outputs in one block."""
    te, tirx = part("te"), part("tirx")
    places = [te.placeholder(n.output_types[0].shape, n.output_types[0].dtype, n.name) for n in body.graph.inputs]
    tensors = dict(zip((n[0] for n in body.graph.inputs), places, strict=True))

    def at(*indices: Any) -> Any:
        values: dict[NodeEntry, Any] = {}
        for entry, tensor in tensors.items():
            values[entry] = tensor(*_indices(entry.type.shape, indices))
        for node in body.graph.nodes:
            if node.value is not None:
                values[node[0]] = tirx.const(node.value.item(), node.output_types[0].dtype)
        for node in body.ops:
            compute = formulas[node]
            assert compute is not None
            values[node[0]] = compute(node, [None if e is None else values[e] for e in node.inputs])
        made = [values[entry] for entry in body.graph.outputs]
        return made if len(made) > 1 else made[0]

    outs = te.compute(shape, at, name="out")
    return te.create_prim_func([*places, *(outs if isinstance(outs, (list, tuple)) else [outs])])


def _indices(shape: Shape, indices: Sequence[Any]) -> list[Any]:
    """The place in an operand that is broadcast to the whole."""
    inner = indices[len(indices) - len(shape) :]
    return [0 if size == 1 else index for size, index in zip(shape, inner, strict=True)]


def _groups(body: Body, shape: Shape) -> list[int]:
    """How many neighbouring dimensions make one loop each, outermost first."""
    rank = len(shape)
    operands = [(1,) * (rank - len(n.output_types[0].shape)) + n.output_types[0].shape for n in body.graph.inputs]
    walks = [tuple(size[d] == shape[d] for size in operands) if shape[d] > 1 else None for d in range(rank)]
    groups: list[int] = []
    current: Any = None
    for walk in walks:
        if groups and (walk is None or current is None or walk == current):
            groups[-1] += 1
        else:
            groups.append(1)
        current = walk if walk is not None else current
    return groups


def _scheduled(function: Any, groups: Sequence[int], machine: Machine) -> Any:
    schedule = part("s_tir").Schedule(function)
    block = schedule.get_sblock("out")
    loops = list(schedule.get_loops(block))
    if not loops:
        return schedule.mod["main"]
    fused = []
    for count in groups:
        taken, loops = loops[:count], loops[count:]
        fused.append(schedule.fuse(*taken) if count > 1 else taken[0])
    extents = [int(schedule.get(loop).extent) for loop in fused]
    outer, inner = fused[:-1], fused[-1]
    if extents[-1] % machine.lanes == 0:
        width = next(machine.lanes * k for k in (UNROLLED, 2, 1) if extents[-1] % (machine.lanes * k) == 0)
        rest, strip = schedule.split(inner, [None, width])
        if width > machine.lanes:
            unrolled, strip = schedule.split(strip, [None, machine.lanes])
            schedule.unroll(unrolled)
        schedule.vectorize(strip)
        outer.append(rest)
    elif not outer:
        pieces = _pieces(extents[-1])
        if pieces > 1:
            rest, inner = schedule.split(inner, [pieces, None])
            outer.append(rest)
    if outer and math.prod(extents) >= SERIAL:
        schedule.parallel(schedule.fuse(*outer) if len(outer) > 1 else outer[0])
    return schedule.mod["main"]


def _pieces(extent: int) -> int:
    """Into how many equal parts a loop that no vector divides is cut."""
    return max((d for d in range(1, 257) if extent % d == 0), default=1)
