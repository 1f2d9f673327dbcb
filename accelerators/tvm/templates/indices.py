"""Indices held against their dimensions: copied, negative ones counted from the end; one outside is an error.

A row of indices has one for each size. On a processor the copy remembers whether any lies outside, and complains at the end; a
GPU's kernel cannot complain, and takes the border instead."""

from __future__ import annotations

import math
from typing import Any

from accelerators.tvm.bodies import Body, element_of, shape_of
from accelerators.tvm.indices import INDICES, is_indices
from accelerators.tvm.library import part
from accelerators.tvm.machine import Machine
from accelerators.tvm.schedules import for_threads, schedule
from accelerators.tvm.templates import Draft, template
from accelerators.tvm.templates.script import Lines, kernel, local, loop
from graph.build import CALL_DOMAIN

PIECES = 16
"""Into so many parts long lists are cut, one thread's work each."""


@template("cpu", "cuda", ops=frozenset({f"{CALL_DOMAIN}.{INDICES}"}))
def indices(body: Body, machine: Machine) -> Draft | None:
    """The one op that looks at indices."""
    node = body.ops[0]
    if not is_indices(node) or len(body.ops) != 1:
        return None
    sizes = [int(size) for size in node.attrs["sizes"]]
    shape, dtype = shape_of(node[0]), element_of(node[0])
    rows = math.prod(shape) // max(len(sizes), 1)
    if machine.kind == "cuda":
        return Draft(*schedule(_clamped(shape, dtype, sizes), machine))
    flat = (rows, len(sizes))
    made = kernel([("x0", flat, dtype), ("y0", flat, dtype)], _checked(rows, dtype, sizes, machine))
    return Draft(made, "indices", shapes={0: flat}, results=(flat,))


def _checked(rows: int, dtype: str, sizes: list[int], machine: Machine) -> Lines:
    lines: Lines = []
    for j, size in enumerate(sizes):
        lines += [
            f"at: T.let = T.Select(x0[i, {j}] < T.{dtype}(0), x0[i, {j}] + T.{dtype}({size}), x0[i, {j}])",
            f"y0[i, {j}] = at",
            f"bad[0] = bad[0] | T.Cast(\"int32\", at < T.{dtype}(0)) | T.Cast(\"int32\", at >= T.{dtype}({size}))",
        ]
    said = f'"an index is outside of {"a dimension" if len(sizes) == 1 else "dimensions"} of {", ".join(map(str, sizes))}"'

    def watched(start: str, count: int | str) -> Lines:
        counted = [f"i: T.let = {start} + k", *lines]
        return [local("bad", 1, "int32"), "bad[0] = 0", *loop("k", count, counted), f"assert bad[0] == 0, {said}"]

    if not for_threads(machine, rows * len(sizes)):
        return watched("0", rows)
    each = -(-rows // PIECES)
    return loop("p", PIECES, watched(f"p * {each}", f"T.max(T.min({each}, {rows} - p * {each}), 0)"), "parallel")


def _clamped(shape: tuple[int, ...], dtype: str, sizes: list[int]) -> Any:
    te, tirx = part("te"), part("tirx")
    given = te.placeholder(shape, dtype, "x0")

    def at(*place: Any) -> Any:
        bound = tirx.const(sizes[-1], dtype)
        for j, size in enumerate(sizes[:-1]):
            bound = tirx.Select(place[-1].equal(j), tirx.const(size, dtype), bound)
        value = given(*place)
        value = tirx.Select(value < tirx.const(0, dtype), value + bound, value)
        return te.max(te.min(value, bound - tirx.const(1, dtype)), tirx.const(0, dtype))

    return te.create_prim_func([given, te.compute(shape, at, name="out")])
