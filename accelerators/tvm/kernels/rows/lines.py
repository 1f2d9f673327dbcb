"""Searches and sums along one dimension: ArgMax, ArgMin, Hardmax and CumSum.

What is kept for an element of the result, the best element so far and its position or a sum, is kept for a strip of neighbours,
which fills the vectors. Along the last dimension the row itself is cut into strips, whose best elements are compared at the end;
a row of sums is added up in the order of its elements. Floats are compared as integers with the same order, the largest of which
represents NaN, so that NaN wins, as in numpy. TVM's own kernel starts with the smallest finite number, finds nothing in a row of
infinities, and ignores NaN."""

from __future__ import annotations

import math
from collections.abc import Callable

import attrs

from partita.accelerators.tvm.bodies.body import Body, element_of, shape_of
from partita.accelerators.tvm.kernels.language import (
    Buffer,
    Element,
    Kernel,
    Operand,
    Value,
    constant,
    element_named,
    float32,
    float64,
    int32,
    int64,
    select,
)
from partita.accelerators.tvm.kernels.shared.element_access import NUMBERS
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft, Problem
from partita.accelerators.tvm.kernels.shared.loops import counted, is_shared_out, pieces
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.sizes.extent import Extent
from partita.graph.node import Node

STRIPS = 4
"""Vectors of best elements, or of sums, that are kept at a time."""


def position_of_extreme(body: Body, machine: Machine) -> Draft | None:
    """The kernel for ArgMax or ArgMin; None for any other body."""
    search = extreme_sought(body)
    if search is None:
        return None
    problem, order, (outer, size, inner) = Problem.of(body), search.order, search.sizes
    width = machine.lanes * STRIPS
    kernel, (x,), (y,) = problem.kernel("positions", {0: search.sizes}, [(outer, inner)])
    strips = 1 if inner == 1 else pieces(inner, width)
    with kernel.tasks(counted(outer) * strips, "p", is_shared_out(outer * size * inner, machine)) as p:
        if inner == 1:
            y[p, 0] = _along_rows(kernel, x, p, counted(size), width, order).cast(int64)
        else:
            _across(kernel, x, y, p, counted(size), counted(inner), width, order)
    return problem.draft(kernel, "positions")


def one_at_the_largest(body: Body, machine: Machine) -> Draft | None:
    """The kernel for Hardmax along the last dimension, or along all from one on: one at the largest element, else zero."""
    search = largest_sought(body)
    if search is None:
        return None
    problem, (outer, size, _) = Problem.of(body), search.sizes
    kernel, (x,), (y,) = problem.kernel("positions", {0: search.sizes}, [(outer, size)])
    with kernel.tasks(outer, "p", machine.threads_for(2 * outer * size) > 1) as p:
        at = _along_rows(kernel, x, p, size, machine.lanes * STRIPS, search.order)
        with kernel.loop(size, "j") as j:
            y[p, j] = constant(0, y.element)
        y[p, at.as_index()] = constant(1, y.element)
    return problem.draft(kernel, "positions")


@attrs.frozen(slots=True)
class Search:
    """A search for the best element along the middle one of three dimensions."""

    order: Order
    sizes: tuple[int, int, int]
    """The sizes before the dimension, merged; its own size; and those after it, merged."""


def extreme_sought(body: Body) -> Search | None:
    """The search of an ArgMax or ArgMin; None for any other body."""
    node, read = body.ops[0], body.graph.inputs
    if len(read) != 1:
        return None
    shape, dtype = shape_of(read[0][0]), element_of(read[0][0])
    if not shape or 0 in shape or dtype not in NUMBERS:
        return None
    axis = int(node.attrs.get("axis", 0)) % len(shape)
    sizes = math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
    if not isinstance(sizes[1], Extent) and sizes[1] >= 2**31:
        return None
    return Search(Order.of(dtype, node.op == "ArgMax", bool(node.attrs.get("select_last_index", 0))), sizes)


def largest_sought(body: Body) -> Search | None:
    """The search of a Hardmax along the last dimension, or along all from one on; None for any other body."""
    node, version = body.ops[0], body.graph.opset
    shape, dtype = shape_of(node[0]), element_of(node[0])
    if not shape or 0 in shape or dtype not in NUMBERS:
        return None
    axis = int(node.attrs.get("axis", -1 if version >= 13 else 1)) % len(shape)
    if version >= 13 and axis != len(shape) - 1:
        return None
    size, outer = math.prod(shape[axis:]), math.prod(shape[:axis])
    return None if size >= 2**31 else Search(Order.of(dtype, True, False), (outer, size, 1))


@attrs.frozen(slots=True)
class Order:
    """The order by which one of two elements is better."""

    element: Element
    """The element type in which they are compared."""
    largest: bool
    """True if the larger one wins."""
    last: bool
    """True if the last of equal elements wins."""
    key: Callable[[Value], Value]
    """A function from an element to the integer that is compared."""

    @classmethod
    def of(cls, dtype: str, largest: bool, last: bool) -> Order:
        """The order for an element type, in which the largest or smallest wins; of equal elements the first or last."""
        element = element_named(dtype)
        if element.kind != "float":
            return cls(element, largest, last, lambda x: x)
        return cls(int64 if element is float64 else int32, True, last, lambda x: _key(x, largest))

    def wins(self, new: Value, best: Value) -> Value:
        """True if the new element is better than the best one of those before it."""
        if self.largest:
            return new >= best if self.last else new > best
        return new <= best if self.last else new < best

    def joins(self, new: Value, at: Value, best: Value, best_at: Value) -> Value:
        """True if the new element is better, or as good and at the winning position; the order of the two is arbitrary."""
        is_better = new > best if self.largest else new < best
        return is_better | (new.equals(best) & (at > best_at if self.last else at < best_at))


def _key(x: Value, largest: bool) -> Value:
    """An integer that is larger if the float is better. Both zeros have the same one; NaN has the largest."""
    wide, whole = (float64, int64) if x.type.element is float64 else (float32, int32)
    x, top = x.cast(wide), constant(2 ** (whole.bits - 1) - 1, whole)
    zero = constant(0.0, wide)
    raw = select(x.equals(zero), zero, x if largest else zero - x).bits_as(whole)
    return select(x <= math.inf, raw ^ ((raw >> (whole.bits - 1)) & top), top)


@attrs.frozen(slots=True, eq=False)
class Best:
    """The best elements so far of a strip of neighbours, and their positions."""

    kernel: Kernel
    order: Order
    numbers: Buffer
    positions: Buffer

    @classmethod
    def of(cls, kernel: Kernel, width: int, order: Order) -> Best:
        """Allocates a strip of `width` elements on the stack."""
        return cls(kernel, order, kernel.stack("best", order.element, (width,)), kernel.stack("at", int32, (width,)))

    def begin(self, count: Operand, number: Callable[[Value], Value]) -> None:
        """Sets the best elements to the first ones."""
        with self.kernel.loop(count, "j") as j:
            self.numbers[j] = self.order.key(number(j))
            self.positions[j] = 0

    def offer(self, count: Operand, number: Callable[[Value], Value], position: Value) -> None:
        """Updates the best elements and positions with elements that come after those before."""
        with self.kernel.loop(count, "j") as j:
            new, best = self.order.key(number(j)), self.numbers[j]
            self.positions[j] = select(self.order.wins(new, best), position.cast(int32), self.positions[j])
            self.numbers[j] = select(self.order.wins(new, best), new, best)

    def join(self, new: Value, position: Value) -> None:
        """Updates the first best element with another one from any position."""
        self._take(self.order.joins(new, position, self.numbers[0], self.positions[0]), new, position)

    def append(self, new: Value, position: Value) -> None:
        """Updates the first best element with an element that comes after all before."""
        self._take(self.order.wins(new, self.numbers[0]), new, position)

    def _take(self, wins: Value, new: Value, position: Value) -> None:
        with self.kernel.when(wins):
            self.numbers[0] = new
            self.positions[0] = position


def _across(
    kernel: Kernel, x: Buffer, y: Buffer, p: Value, size: int | Value, inner: int | Value, width: int, order: Order
) -> None:
    """The loops for a strip along the dimensions after the searched one; the last strip may be narrower."""
    strips, rest = pieces(inner, width), inner % width
    best = Best.of(kernel, width, order)
    row, first = kernel.name_value("o", p // strips), kernel.name_value("f", p % strips * width)

    def strip(count: Operand) -> None:
        best.begin(count, lambda j: x[row, 0, first + j])
        with kernel.loop(size - 1, "k") as k:
            best.offer(count, lambda j: x[row, k + 1, first + j], k + 1)
        with kernel.loop(count, "j") as j:
            y[row, first + j] = best.positions[j].cast(int64)

    if isinstance(inner, int) and (not rest or inner < width):
        strip(rest or width)
        return
    with kernel.when(first < inner - rest):
        strip(width)
    with kernel.otherwise():
        strip(rest)


def _along_rows(kernel: Kernel, x: Buffer, p: Value, size: int | Value, width: int, order: Order) -> Value:
    """Position of the best element of a row; short rows are searched element by element."""
    if isinstance(size, int):
        best = Best.of(kernel, 1 if size < 2 * width else width, order)
        (_one_by_one if size < 2 * width else _in_strips)(best, x, p, size, width)
        return best.positions[0]
    best = Best.of(kernel, width, order)
    with kernel.when(size < 2 * width):
        _one_by_one(best, x, p, size, width)
    with kernel.otherwise():
        _in_strips(best, x, p, size, width)
    return best.positions[0]


def _one_by_one(best: Best, x: Buffer, p: Value, size: int | Value, width: int) -> None:
    """Searches the row element by element."""
    best.begin(1, lambda j: x[p, 0, 0])
    with best.kernel.loop(size - 1, "k") as k:
        best.offer(1, lambda j: x[p, k + 1, 0], k + 1)


def _in_strips(best: Best, x: Buffer, p: Value, size: int | Value, width: int) -> None:
    """Searches the row in strips, with a best element per lane; the earliest (or last) of the best ones wins."""
    kernel, order, strips, rest = best.kernel, best.order, size // width, size % width
    best.begin(width, lambda j: x[p, j, 0])
    with kernel.loop(strips - 1, "k") as k:
        best.offer(width, lambda j: x[p, (k + 1) * width + j, 0], k + 1)
    with kernel.loop(width, "j") as j:
        best.positions[j] = best.positions[j] * width + j.cast(int32)
    with kernel.loop(width - 1, "j") as j:
        best.join(best.numbers[j + 1], best.positions[j + 1])
    with kernel.loop(rest, "j") as j:
        best.append(order.key(x[p, strips * width + j, 0]), (strips * width + j).cast(int32))


SUMMED = frozenset("float32 float64 int32 int64 uint32 uint64".split())


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
    if not shape or 0 in shape or element_of(node[0]) not in SUMMED:
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
