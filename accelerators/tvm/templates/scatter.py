"""Numbers written at places that are given: the data is copied, then each update goes where its index says.

TVM's own takes it that indices have the data's sizes in every dimension but the axis, as other definitions of the op demand;
ONNX lets them be shorter. Of two updates of one place the later one counts, so updates of one place stay on one thread."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from accelerators.tvm.bodies import Body, element_of, shape_of
from accelerators.tvm.machine import Machine
from accelerators.tvm.schedules import for_threads
from accelerators.tvm.templates import Draft, template
from accelerators.tvm.templates.epilogue import input_name
from accelerators.tvm.templates.script import Lines, kernel, loop
from graph.node import Node

SCATTERED = frozenset(("ScatterElements", "Scatter", "ScatterND"))
"""The ops."""

JOINED = frozenset("float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64".split())
"""Element types in which an update may be joined to what stands there."""


@template("cpu", ops=SCATTERED)
def scatter(body: Body, machine: Machine) -> Draft | None:
    """ScatterElements, Scatter or ScatterND."""
    node = body.ops[0]
    positions = {n[0]: i for i, n in enumerate(body.graph.inputs)}
    places = [positions.get(entry, -1) for entry in node.reads]
    if len(body.ops) != 1 or len(places) != 3 or -1 in places:
        return None
    data, indices, updates = (shape_of(entry) for entry in node.reads)
    dtype, reduction = element_of(node[0]), str(node.attrs.get("reduction", "none"))
    if not data or 0 in (*data, *indices, *updates) or (reduction != "none" and dtype not in JOINED):
        return None
    names = [input_name(i) for i in places]
    count = math.prod(data)
    lines = loop("i", count, [f"y0[i] = {names[0]}[i]"], "parallel" if for_threads(machine, count) else "serial")
    write = _by_rows if node.op == "ScatterND" else _by_elements
    lines += write(node, names, data, indices, updates, dtype, machine)
    shapes = {i: (math.prod(shape_of(n[0])),) for i, n in enumerate(body.graph.inputs)}
    params = [(input_name(i), shapes[i], element_of(n[0])) for i, n in enumerate(body.graph.inputs)]
    return Draft(kernel([*params, ("y0", (count,), dtype)], lines), "scatter", shapes=shapes, results=((count,),))


Shape = tuple[int, ...]


def _by_elements(
    node: Node, names: Sequence[str], data: Shape, indices: Shape, updates: Shape, dtype: str, machine: Machine
) -> Lines:
    """A loop for each dimension of the indices; the axis is the innermost, and the outermost of the others is shared out."""
    axis = int(node.attrs.get("axis", 0)) % len(data)
    own, far = _steps(indices), _steps(data)
    number = " + ".join(f"d{d} * {step}" for d, step in enumerate(own))
    others = [d for d in range(len(data)) if d != axis]
    place = " + ".join([*(f"d{d} * {far[d]}" for d in others), f"at * {far[axis]}"])
    lines = [f"n: T.let = {number}", *_index("at", f"{names[1]}[n]", data[axis]), f"p: T.let = {place}"]
    lines = loop(f"d{axis}", indices[axis], [*lines, _written(node, f"{names[2]}[n]", "p", dtype)])
    shared = for_threads(machine, math.prod(indices))
    for d in reversed(others):
        lines = loop(f"d{d}", indices[d], lines, "parallel" if shared and d == others[0] else "serial")
    return lines


def _by_rows(
    node: Node, names: Sequence[str], data: Shape, indices: Shape, updates: Shape, dtype: str, machine: Machine
) -> Lines:
    """Row after row of the indices, which say where a slice of the updates goes."""
    count, rows = indices[-1], math.prod(indices[:-1])
    size, far = math.prod(data[count:]), _steps(data)
    lines = list(itertools.chain(*[_index(f"at{k}", f"{names[1]}[r * {count} + {k}]", data[k]) for k in range(count)]))
    lines.append("p: T.let = " + " + ".join(f"at{k} * {far[k]}" for k in range(count)))
    lines += loop("e", size, [_written(node, f"{names[2]}[r * {size} + e]", "p + e", dtype)])
    return loop("r", rows, lines)


def _index(name: str, value: str, size: int) -> Lines:
    """The index under a name, counted from the start."""
    wide = f'T.Cast("int64", {value})'
    return [f"{name}: T.let = T.Select({wide} < T.int64(0), {wide} + T.int64({size}), {wide})"]


def _written(node: Node, update: str, place: str, dtype: str) -> str:
    """What becomes of the number at the place; of the larger or smaller one, what is no number stays so."""
    there, reduction = f"y0[{place}]", str(node.attrs.get("reduction", "none"))
    if reduction in ("add", "mul"):
        return f"{there} = {there} {'+' if reduction == 'add' else '*'} {update}"
    if reduction in ("max", "min"):
        joined = f"T.Select({there} {'>' if reduction == 'max' else '<'} {update}, {there}, {update})"
        if "float" in dtype:
            joined = f'T.Select({there} <= T.{dtype}("inf"), {joined}, {there})'
        return f"{there} = {joined}"
    return f"{there} = {update}"


def _steps(shape: Shape) -> Shape:
    """How far neighbours along each dimension lie apart."""
    return tuple(math.prod(shape[d + 1 :]) for d in range(len(shape)))
