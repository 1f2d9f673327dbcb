"""Where the largest or smallest number along a dimension stands.

The best number so far and its place are kept for a strip of neighbours, which fills the vectors; along the last dimension the
strip is cut out of the row itself, and its parts are compared at the end. Floats are compared as whole numbers in the same
order, the largest of which stands for what is no number: that wins, as in numpy. TVM's own begins at the smallest finite number,
finds nothing in a row of infinities, and passes over what is no number."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import attrs

from accelerators.tvm.bodies import Body, element_of, shape_of
from accelerators.tvm.library import part
from accelerators.tvm.machine import Machine
from accelerators.tvm.schedules import for_threads
from accelerators.tvm.templates import Draft, template
from accelerators.tvm.templates.script import Lines, indent, kernel, local, loop

STRIPS = 4
"""Vectors whose best numbers are kept at a time."""

_PLACE = 'y0[p, 0] = T.Cast("int64", at[0])'

TYPES = frozenset("float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64".split())


@template("cpu", ops=frozenset({"ArgMax", "ArgMin"}))
def place_of_extreme(body: Body, machine: Machine) -> Draft | None:
    """ArgMax or ArgMin."""
    node = body.ops[0]
    if len(body.ops) != 1 or len(body.graph.inputs) != 1:
        return None
    shape, dtype = shape_of(body.graph.inputs[0][0]), element_of(body.graph.inputs[0][0])
    if not shape or 0 in shape or dtype not in TYPES:
        return None
    axis = int(node.attrs.get("axis", 0)) % len(shape)
    outer, size, inner = math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
    if size >= 2**31:
        return None
    order = _Order.of(dtype, node.op == "ArgMax", bool(node.attrs.get("select_last_index", 0)))
    width = machine.lanes * STRIPS
    lines = _along_rows(size, width, order, [_PLACE]) if inner == 1 else _across(size, inner, width, order)
    pieces = outer if inner == 1 else outer * -(-inner // width)
    kind = "parallel" if for_threads(machine, outer * size * inner) and pieces > 1 else "serial"
    params = [("x0", (outer, size, inner), dtype), ("y0", (outer, inner), "int64")]
    made = kernel(params, loop("p", pieces, lines, kind), order.functions)
    return Draft(made, "places", shapes={0: (outer, size, inner)}, results=((outer, inner),))


@template("cpu", ops=frozenset({"Hardmax"}))
def one_at_the_largest(body: Body, machine: Machine) -> Draft | None:
    """Hardmax along the last dimension, or along all from one on: one where the largest number stands, else zero."""
    node, version = body.ops[0], body.graph.opsets.get("", 1)
    shape, dtype = shape_of(node[0]), element_of(node[0])
    if len(body.ops) != 1 or not shape or 0 in shape or dtype not in TYPES:
        return None
    axis = int(node.attrs.get("axis", -1 if version >= 13 else 1)) % len(shape)
    if version >= 13 and axis != len(shape) - 1:
        return None
    size, outer = math.prod(shape[axis:]), math.prod(shape[:axis])
    if size >= 2**31:
        return None
    order = _Order.of(dtype, True, False)
    result = [*loop("j", size, [f"y0[p, j] = T.{dtype}(0)"]), f"y0[p, at[0]] = T.{dtype}(1)"]
    lines = _along_rows(size, machine.lanes * STRIPS, order, result)
    kind = "parallel" if for_threads(machine, 2 * outer * size) and outer > 1 else "serial"
    params = [("x0", (outer, size, 1), dtype), ("y0", (outer, size), dtype)]
    made = kernel(params, loop("p", outer, lines, kind), order.functions)
    return Draft(made, "places", shapes={0: (outer, size, 1)}, results=((outer, size),))


@attrs.frozen(slots=True)
class _Order:
    """Which of two numbers is better."""

    dtype: str
    """The element type in which they are compared."""
    sign: str
    """The comparison that a better one passes."""
    functions: dict[str, Callable[[Any], Any]]
    """`key`, which makes a float a whole number, by that name; empty for whole numbers."""

    @classmethod
    def of(cls, dtype: str, largest: bool, last: bool) -> _Order:
        """For a type: the largest or the smallest wins, of equal ones the first or the last."""
        equal = "=" if last else ""
        if "float" not in dtype:
            return cls(dtype, (">" if largest else "<") + equal, {})
        return cls("int64" if dtype == "float64" else "int32", ">" + equal, {"key": lambda x: _key(x, dtype, largest)})

    def at(self, place: str) -> str:
        """Text of the number at a place of the input."""
        return f"key(x0[{place}])" if self.functions else f"x0[{place}]"


def _key(x: Any, dtype: str, largest: bool) -> Any:
    """A whole number that is larger where the float is better; both zeros are one, and what is no number is best."""
    tirx, (kind, bits) = part("tirx"), ("int64", 63) if dtype == "float64" else ("int32", 31)
    wide = "float64" if dtype == "float64" else "float32"
    x = x if dtype == wide else tirx.Cast(wide, x)
    zero, top = tirx.const(0.0, wide), tirx.const(2**bits - 1, kind)
    raw = tirx.reinterpret(kind, tirx.Select(x.equal(zero), zero, x if largest else zero - x))
    return tirx.Select(x <= tirx.const(math.inf, wide), raw ^ ((raw >> tirx.const(bits, kind)) & top), top)


def _kept(width: int, dtype: str) -> Lines:
    return [local("best", width, dtype), local("at", width, "int32")]


def _begin(count: int | str, value: str) -> Lines:
    return loop("j", count, [f"best[j] = {value}", "at[j] = 0"])


def _better(count: int | str, value: str, place: str, sign: str) -> Lines:
    """Where the value is better, it and its place are kept."""
    better = f"{value} {sign} best[j]"
    return loop("j", count, [f"at[j] = T.Select({better}, {place}, at[j])", f"best[j] = T.Select({better}, {value}, best[j])"])


def _across(size: int, inner: int, width: int, order: _Order) -> Lines:
    """A strip of the numbers behind the dimension; the last may be narrower."""
    pieces = -(-inner // width)

    def strip(first: str, count: int) -> Lines:
        return [
            *_begin(count, order.at(f"o, 0, {first} + j")),
            *loop("k", size - 1, _better(count, order.at(f"o, k + 1, {first} + j"), "k + 1", order.sign)),
            *loop("j", count, [f'y0[o, {first} + j] = T.Cast("int64", at[j])']),
        ]

    lines = [*_kept(width, order.dtype), f"o: T.let = p // {pieces}", f"f: T.let = p % {pieces} * {width}"]
    rest = inner % width
    if not rest:
        return [*lines, *strip("f", width)]
    if inner < width:
        return [*lines, *strip("f", rest)]
    return [*lines, f"if f < {inner - rest}:", *indent(strip("f", width)), "else:", *indent(strip("f", rest))]


def _along_rows(size: int, width: int, order: _Order, result: Lines) -> Lines:
    """The row in strips, each place with its own best; the earliest (or last) of the best ones wins, and is the result."""
    if size < 2 * width:
        one = _better(1, order.at("p, k + 1, 0"), "k + 1", order.sign)
        return [*_kept(1, order.dtype), *_begin(1, order.at("p, 0, 0")), *loop("k", size - 1, one), *result]
    strips, rest = size // width, size % width
    strict, last = order.sign[0], order.sign.endswith("=")
    nearer = f"at[j + 1] {'>' if last else '<'} at[0]"
    wins = f"best[j + 1] {strict} best[0] or (best[j + 1] == best[0] and {nearer})"
    next_one = order.at(f"p, {strips * width} + j, 0")
    return [
        *_kept(width, order.dtype),
        *loop("j", width, [f"best[j] = {order.at('p, j, 0')}", "at[j] = 0"]),
        *loop("k", strips - 1, _better(width, order.at(f"p, (k + 1) * {width} + j, 0"), "k + 1", order.sign)),
        *loop("j", width, [f"at[j] = at[j] * {width} + j"]),
        *loop("j", width - 1, [f"if {wins}:", "    best[0] = best[j + 1]", "    at[0] = at[j + 1]"]),
        *loop(
            "j",
            rest,
            [f"if {next_one} {order.sign} best[0]:", f"    best[0] = {next_one}", f"    at[0] = {strips * width} + j"],
        ),
        *result,
    ]
