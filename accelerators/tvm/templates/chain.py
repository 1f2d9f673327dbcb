"""A chain of element-wise ops: one pass over memory.

Neighbouring dimensions that every operand walks in the same way are made one; the innermost is cut into vectors, the others
run in parallel. Cheap ops are worked into their readers; the result of a dear one stays in a register. (One expression for all
would be a tree with a term for each path through the chain.) Functions such as exp are polynomials, so that they vectorise
too."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from accelerators.tvm.bodies import Body, element_of, shape_of
from accelerators.tvm.library import part
from accelerators.tvm.machine import Machine
from accelerators.tvm.schedules import bytes_of, for_threads
from accelerators.tvm.templates import Draft, template
from accelerators.tvm.templates.formulas import DEAR, Formula, formula
from graph.node import Node, NodeEntry

Shape = tuple[int, ...]

DEAR_STEPS = 8
"""How many cheap steps a dear one is worth."""

UNROLLED = 4
"""Vectors that are worked on at a time, so that one's latency hides another's."""


@template("cpu")
def chain(body: Body, machine: Machine) -> Draft | None:
    """Bodies of element-wise ops whose results have one shape."""
    version = body.graph.opsets.get("", 1)
    formulas = {node: formula(node, version) for node in body.ops}
    arrays = any(node.value is not None and node.value.size != 1 for node in body.graph.nodes)
    if None in formulas.values() or arrays:
        return None
    shapes = {shape_of(node[0]) for node in body.ops}
    if len(shapes) != 1:
        return None
    shape = shapes.pop()
    if math.prod(shape) == 0:
        return None
    flat = _Flat.of(body, shape)
    function = _function(body, flat, formulas)
    scheduled = _scheduled(function, flat, machine, _steps(body, shape), _sizes(body))
    return Draft(scheduled, "chain", shapes=dict(enumerate(flat.operands)), results=(flat.shape,) * len(body.graph.outputs))


@attrs.frozen(slots=True)
class _Flat:
    """The shapes with neighbouring dimensions made one."""

    shape: Shape
    """The result's."""
    operands: tuple[Shape, ...]
    """The inputs'; each dimension is the result's, or 1."""

    @classmethod
    def of(cls, body: Body, shape: Shape) -> _Flat:
        given = [(1,) * (len(shape) - len(own)) + own for own in (shape_of(n[0]) for n in body.graph.inputs)]
        groups: list[list[int]] = []
        walk: tuple[bool, ...] | None = None
        for d, size in enumerate(shape):
            new = tuple(operand[d] == size for operand in given) if size > 1 else None
            if groups and (new is None or walk is None or new == walk):
                groups[-1].append(d)
            else:
                groups.append([d])
            walk = walk if new is None else new

        def merged(sizes: Shape) -> Shape:
            return tuple(math.prod(sizes[d] for d in group) for group in groups) or (1,)

        return cls(merged(shape), tuple(map(merged, given)))


def _function(body: Body, flat: _Flat, formulas: dict[Node, Formula | None]) -> Any:
    """One step for each op; the last is called `out`. Several results are written side by side, by blocks in one loop."""
    te, tirx = part("te"), part("tirx")
    places = [
        te.placeholder(shape, element_of(n[0]), n.name) for n, shape in zip(body.graph.inputs, flat.operands, strict=True)
    ]
    tensors = dict(zip((n[0] for n in body.graph.inputs), places, strict=True))

    def number(entry: NodeEntry | None, indices: Sequence[Any]) -> Any:
        if entry is None:
            return None
        if entry.node.value is not None:
            return tirx.const(entry.node.value.item(), element_of(entry))
        tensor = tensors[entry]
        return tensor(*[0 if int(size) == 1 else index for size, index in zip(tensor.shape, indices, strict=True)])

    outputs = body.graph.outputs
    for node in body.ops:
        compute = formulas[node]
        assert compute is not None

        step = _step(node, compute, number)
        last = len(outputs) == 1 and node[0] == outputs[0]
        name = f"{'dear' if node.op in DEAR else 'cheap'}_{node.name}"
        tensors[node[0]] = te.compute(flat.shape, step, name="out" if last else name)
    made = [tensors[entry] for entry in outputs]
    if len(outputs) > 1:
        made = te.compute(flat.shape, lambda *place: tuple([number(entry, place) for entry in outputs]), name="out")
    return te.create_prim_func([*places, *made])


def _step(node: Node, compute: Formula, number: Callable[[NodeEntry | None, Sequence[Any]], Any]) -> Callable[..., Any]:
    """What the node makes at a place."""
    return lambda *indices: compute(node, [number(entry, indices) for entry in node.inputs])


def _steps(body: Body, shape: Shape) -> int:
    """How much work it is, for all numbers."""
    return math.prod(shape) * max(1, sum(DEAR_STEPS if node.op in DEAR else 1 for node in body.ops) // 4)


def _sizes(body: Body) -> list[int]:
    """How many bytes the numbers take that are read and written."""
    return [bytes_of(element_of(entry)) for entry in (*(n[0] for n in body.graph.inputs), *body.graph.outputs)]


def _scheduled(function: Any, flat: _Flat, machine: Machine, steps: int, sizes: Sequence[int]) -> Any:
    schedule = part("s_tir").Schedule(function)
    named = [(block, schedule.get(block).name_hint) for block in schedule.get_child_blocks(schedule.get_sblock("root"))]
    out = next(block for block, name in named if name.startswith("out"))
    for block, name in named:
        if name.startswith("cheap"):
            schedule.compute_inline(block)
    *outer, inner = schedule.get_loops(out)
    extent, room = flat.shape[-1], machine.lanes * 4 * UNROLLED
    narrow = machine.lanes * 4 // min(sizes)
    lanes = narrow if narrow > machine.lanes and extent % narrow == 0 else machine.lanes
    vectors = extent % lanes == 0 and max(sizes) > 2  # narrow numbers LLVM puts into vectors better than TVM says them
    if vectors:
        fits = [k for k in (UNROLLED, 2) if lanes * k * max(sizes) <= room and extent % (lanes * k) == 0]
        width = lanes * (fits or [1])[0]
        rest, several, vector = schedule.split(inner, [None, width // lanes, lanes])
        outer, inner = [*outer, rest], vector
        schedule.unroll(several)
        schedule.vectorize(vector)
        at = several
    else:
        if not outer and (pieces := _pieces(extent)) > 1:
            rest, inner = schedule.split(inner, [pieces, None])
            outer = [rest]
        at = inner
    for block, name in reversed(named):
        if name.startswith("dear"):
            schedule.compute_at(block, at, preserve_unit_loops=True)
            schedule.set_scope(block, 0, "local")
            if vectors:
                schedule.vectorize(schedule.get_loops(block)[-1])
    if outer and for_threads(machine, steps):
        schedule.parallel(schedule.fuse(*outer) if len(outer) > 1 else outer[0])
    return schedule.mod["main"]


def _pieces(extent: int) -> int:
    """Into how many equal parts a loop that no vector divides is cut."""
    return max((d for d in range(1, 257) if extent % d == 0), default=1)
