"""Reductions over dimensions that are not the last: a strip of neighbours is reduced at a time, which fills the vectors.

What is no number comes through the largest and the smallest."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import attrs

from accelerators.tvm.bodies.body import Body, element_of, shape_of
from accelerators.tvm.kernels.language import Value, select, sqrt
from accelerators.tvm.kernels.rows.row_steps import axes_of
from accelerators.tvm.kernels.shared.draft import Draft
from accelerators.tvm.kernels.shared.functions import magnitude
from accelerators.tvm.kernels.shared.numbers import FLOATS, computed_element, read, write
from accelerators.tvm.kernels.shared.problem import Problem
from accelerators.tvm.kernels.shared.tile import start
from accelerators.tvm.machine.machine import Machine

STRIP = 4
"""Vectors of a strip: one addition need not wait for the one before."""

Shape = tuple[int, int, int]


@attrs.frozen(slots=True)
class Reduction:
    """What a reduction does with the numbers of one position of its result."""

    start: float
    """Where it begins."""
    joined: Callable[[Value, Value], Value]
    """What joins the numbers so far and one more."""
    taken: Callable[[Value], Value] = lambda x: x
    """What is taken of each number."""
    finished: Callable[[Value, int], Value] = lambda total, count: total
    """The result, of so many numbers."""


def _largest(best: Value, x: Value) -> Value:
    return select(x <= math.inf, select(x > best, x, best), x)


def _smallest(best: Value, x: Value) -> Value:
    return select(x <= math.inf, select(x < best, x, best), x)


def _sum(total: Value, x: Value) -> Value:
    return total + x


REDUCTIONS: Mapping[str, Reduction] = {
    "ReduceSum": Reduction(0.0, _sum),
    "ReduceMean": Reduction(0.0, _sum, finished=lambda total, count: total * (1 / count)),
    "ReduceMax": Reduction(-math.inf, _largest),
    "ReduceMin": Reduction(math.inf, _smallest),
    "ReduceProd": Reduction(1.0, lambda total, x: total * x),
    "ReduceL1": Reduction(0.0, _sum, magnitude),
    "ReduceL2": Reduction(0.0, _sum, lambda x: x * x, lambda total, count: sqrt(total)),
    "ReduceSumSquare": Reduction(0.0, _sum, lambda x: x * x),
}
"""How each op reduces."""


def across(body: Body, machine: Machine) -> Draft | None:
    """One reduction of floats over neighbouring dimensions, behind which others stand."""
    node, problem = body.ops[0], Problem.of(body)
    if len(body.ops) != 1 or node.op not in REDUCTIONS or len(problem.inputs) != 1 or element_of(node[0]) not in FLOATS:
        return None
    shape = _cut(shape_of(problem.inputs[0]), axes_of(node, len(shape_of(problem.inputs[0]))))
    if shape is None or shape[-1] < machine.lanes:
        return None
    outer, _, inner = shape
    kernel, (x,), (y,) = problem.kernel("across", {0: shape}, [(outer, inner)])
    reduction, count = REDUCTIONS[str(node.op)], min(STRIP, inner // machine.lanes)
    width = count * machine.lanes
    strips = math.ceil(inner / width)
    with kernel.tasks(outer * strips, "task", machine.threads_for(math.prod(shape)) > 1) as task:
        row, first = kernel.name_value("row", task // strips), kernel.name_value("first", start(task % strips, width, inner))
        acc = kernel.registers("acc", computed_element(node[0]), (count,), machine.lanes)
        with kernel.unroll(count, "v") as v:
            acc[v] = reduction.start
        with kernel.loop(shape[1], "k") as k, kernel.unroll(count, "v") as v:
            number = read(x, (row, k, first + v * machine.lanes), machine.lanes)
            acc[v] = reduction.joined(acc[v], reduction.taken(number))
        with kernel.unroll(count, "v") as v:
            write(y, (row, first + v * machine.lanes), reduction.finished(acc[v], shape[1]))
    return problem.draft(kernel, "across")


def _cut(shape: tuple[int, ...], axes: list[int]) -> Shape | None:
    """The sizes before, of, and behind the dimensions that go; None if those are no neighbours, or nothing is reduced."""
    reduced = [axis for axis in axes if shape[axis] > 1]
    if not reduced or 0 in shape:
        return None
    first, last = reduced[0], reduced[-1] + 1
    if any(shape[d] > 1 and d not in reduced for d in range(first, last)):
        return None
    return math.prod(shape[:first]), math.prod(shape[first:last]), math.prod(shape[last:])
