"""Prefix sums along a dimension: CumSum.

The loop along the dimension keeps the sums of a strip of neighbours, which fills the vectors; along the last dimension there is
one sum, and each element waits for the one before. Each sum is added up in the order of its elements."""

from __future__ import annotations

import math

from partita.accelerators.tvm.bodies.body import Body, element_of, shape_of
from partita.accelerators.tvm.kernels.language import Buffer, Kernel, Operand, Value, constant
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft, Problem
from partita.accelerators.tvm.kernels.shared.loops import counted, is_shared_out, pieces
from partita.accelerators.tvm.machine.machine import Machine
from partita.graph.node import Node

STRIPS = 4
"""Vectors of sums that are kept at a time."""

TYPES = frozenset("float32 float64 int32 int64 uint32 uint64".split())


def running_sums(body: Body, machine: Machine) -> Draft | None:
    """The kernel for one CumSum along a constant dimension; None for any other body."""
    sizes = sizes_summed(body)
    if sizes is None:
        return None
    node, problem, (outer, size, inner) = body.ops[0], Problem.of(body), sizes
    kernel, (x,), (y,) = problem.kernel("running_sums", {0: sizes}, [sizes])
    width = machine.lanes * STRIPS
    strips = 1 if inner == 1 else pieces(inner, width)
    with kernel.tasks(counted(outer) * strips, "task", is_shared_out(outer * size * inner, machine)) as task:
        row = kernel.name_value("row", task if inner == 1 else task // strips)
        if inner == 1:
            _summed(kernel, node, x, y, (row, counted(size), task * 0), 1)
        else:
            first = kernel.name_value("first", task % strips * width)
            _by_strips(kernel, node, x, y, (row, counted(size), first), counted(inner), width)
    return problem.draft(kernel, "running sums")


def sizes_summed(body: Body) -> tuple[int, int, int] | None:
    """The sizes before a CumSum's dimension, merged; its own size; and those after it, merged. None for any other body."""
    node = body.ops[0]
    axis = node.inputs[1].node.value if len(node.inputs) > 1 and node.inputs[1] is not None else None
    if len(body.graph.inputs) != 1 or axis is None or axis.size != 1:
        return None
    shape = shape_of(node[0])
    if not shape or 0 in shape or element_of(node[0]) not in TYPES:
        return None
    d = int(axis.item()) % len(shape)
    return math.prod(shape[:d]), shape[d], math.prod(shape[d + 1 :])


def _by_strips(
    kernel: Kernel, node: Node, x: Buffer, y: Buffer, at: tuple[Value, int | Value, Value], inner: int | Value, width: int
) -> None:
    """Writes a strip of `width` neighbours, or of the remainder at the end."""
    rest, (_, _, first) = inner % width, at
    if isinstance(inner, int) and (not rest or inner < width):
        _summed(kernel, node, x, y, at, rest or width)
        return
    with kernel.when(first < inner - rest):
        _summed(kernel, node, x, y, at, width)
    with kernel.otherwise():
        _summed(kernel, node, x, y, at, rest, width)


def _summed(
    kernel: Kernel, node: Node, x: Buffer, y: Buffer, at: tuple[Value, int | Value, Value], count: Operand, most: int = 0
) -> None:
    """Writes the sums of `count` neighbours from position `at` on; `most` bounds a dynamic count."""
    row, size, first = at
    excludes, is_reversed = bool(node.attrs.get("exclusive", 0)), bool(node.attrs.get("reverse", 0))
    total = kernel.stack("total", x.element, (count if isinstance(count, int) else most,))
    with kernel.loop(count, "j") as j:
        total[j] = constant(0, x.element)
    with kernel.loop(size, "k") as k:
        index = kernel.name_value("index", size - 1 - k if is_reversed else k)
        with kernel.loop(count, "j") as j:
            if excludes:
                y[row, index, first + j] = total[j]
            total[j] = total[j] + x[row, index, first + j]
            if not excludes:
                y[row, index, first + j] = total[j]
