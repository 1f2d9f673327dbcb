"""Attention without the matrix of all scores in memory.

A task is one head, or some rows of it. It lays the keys and the values out in panels (`panels.py`); then, for a block of rows
that a near cache holds, it makes the scores, with scale and mask worked in, their exponentials and sums, and the product with
the values, which is divided by the sums as it is written. All is read and written where it stands (`strides.py`): the products
before and after never see a transpose."""

from __future__ import annotations

import math
from typing import Any

import attrs

from accelerators.tvm.bodies import Body, shape_of
from accelerators.tvm.machine import Machine
from accelerators.tvm.templates import Draft, template
from accelerators.tvm.templates.attention_pattern import Attention, Operand, find_attention
from accelerators.tvm.templates.heads import Heads, found_in
from accelerators.tvm.templates.numbers import const, exp_of_negative
from accelerators.tvm.templates.panels import PanelTile, best_tile
from accelerators.tvm.templates.row_text import Row, across
from accelerators.tvm.templates.script import Lines, Vectors, indent, kernel, local, loop

BLOCK = 16_384
"""So many scores a near cache holds beside the panels."""

SERIAL = 200_000
"""Fewer products than this are one thread's work."""

MOST_PARTS = 8
"""A head's rows are cut among so many tasks at most: each lays out the keys and values for itself."""

FEWEST_ROWS = 16
"""A part has so many rows at least."""


@template("cpu", ops=frozenset({"Softmax"}))
def attention(body: Body, machine: Machine) -> Draft | None:
    """A body that is one attention."""
    found = found_in(body, "Softmax", find_attention)
    if found is None:
        return None
    *batch, rows, keys = shape_of(found.scores[0])
    columns, depth = shape_of(found.mix[0])[-1], shape_of(found.query.value)[-1]
    first, second = best_tile(rows, keys, machine, "scores"), best_tile(rows, columns, machine, "values")
    if first is None or second is None:
        return None
    heads = Heads(body, tuple(batch))
    text = _Text(found, heads, machine, rows, keys, depth, columns, first, second)
    params = heads.params(found.result)
    shapes = {i: size for i, (_, size, _) in enumerate(params[:-1])}
    function = kernel(params, text.lines(), {"f0": text.score, "f1": exp_of_negative})
    return Draft(function, "attention", shapes=shapes, results=(params[-1][1],))


@attrs.frozen(slots=True, eq=False)
class _Text:
    found: Attention
    heads: Heads
    machine: Machine
    rows: int
    """Queries."""
    keys: int
    """And values."""
    depth: int
    """Of queries and keys."""
    columns: int
    """Of the values."""
    first: PanelTile
    """For the scores."""
    second: PanelTile
    """For the product with the values."""

    # -- how the work is cut -----------------------------------------------------------------------------

    @property
    def threads(self) -> int:
        """Of so many threads it is work."""
        products = self.heads.count * self.rows * self.keys * (self.depth + self.columns)
        return self.machine.threads if products >= SERIAL else 1

    @property
    def parts(self) -> int:
        """Into how many tasks a head is cut, for the threads to have equal work."""
        even = [p for p in range(1, MOST_PARTS + 1) if self.heads.count * p % self.threads == 0 and p * FEWEST_ROWS <= self.rows]
        return even[0] if even else 1

    @property
    def blocks(self) -> int:
        """Into how many blocks the rows of a head are cut."""
        least = math.ceil(self.rows / max(BLOCK // self.keys, self.first.rows, self.second.rows))
        return math.ceil(least / self.parts) * self.parts

    @property
    def height(self) -> int:
        """Rows of a block; the last overlaps the one before where they do not divide."""
        step = max(self.first.rows, self.second.rows)
        return min(self.rows, math.ceil(math.ceil(self.rows / self.blocks) / step) * step)

    # -- text --------------------------------------------------------------------------------------------

    def lines(self) -> Lines:
        """All of the kernel."""
        first, second, height = self.first, self.second, self.height
        each = self.blocks // self.parts
        start = f"T.min(block * {height}, {self.rows - height})"
        block = [f"row: T.let = {start}", *self._scores(), *self._softmax(), *self._mix()]
        task = [
            f"head: T.let = task // {self.parts}",
            *self.heads.indices,
            f'keys = T.alloc_buffer(({first.across(self.keys) * self.depth * first.width},), "float32")',
            f'values = T.alloc_buffer(({second.across(self.columns) * self.keys * second.width},), "float32")',
            f'scores = T.alloc_buffer(({height}, {self.keys}), "float32")',
            f'inverse = T.alloc_buffer(({height},), "float32")',
            *self._pack("keys", self.found.key, first, self.depth, self.keys),
            *self._pack("values", self.found.value, second, self.keys, self.columns),
            *loop("b", each, [f"block: T.let = task % {self.parts} * {each} + b", *block]),
        ]
        return loop("task", self.heads.count * self.parts, task, "parallel" if self.threads > 1 else "serial")

    def _pack(self, into: str, operand: Operand, tile: PanelTile, depth: int, columns: int) -> Lines:
        """Panels of the operand, which has so many rows and columns."""
        name, strides = self.heads.read(operand)
        start = f"j * {depth * tile.width}"
        return loop(
            "j", tile.across(columns), self.heads.packed(into, name, strides, tile, depth, tile.column("j", columns), start)
        )

    def _scores(self) -> Lines:
        tile, height, heads = self.first, self.height, self.heads
        name, strides = heads.read(self.found.query)
        row, column = tile.row("i", height), tile.column("j", self.keys)

        def number(r: str, k: str) -> str:
            return f"{name}[{heads.at(strides, f'row + {row} + {r}', k)}]"

        def store(total: str, r: str, c: str) -> Lines:
            place = f"row + {row} + {r}", f"{column} + {c}"
            given = [total, *heads.beside_at(self.found.chain, self.rows, self.keys, *place)]
            return [f"scores[{row} + {r}, {column} + {c}] = f0({', '.join(given)})"]

        work = tile.product(self.depth, number, "keys", f"j * {self.depth * tile.width}") + tile.finish(store)
        return loop("j", tile.across(self.keys), loop("i", tile.down(height), work))

    def score(self, total: Any, *given: Any) -> Any:
        """The score from the product and the operands at its place."""
        factor, wanted = self.found.query.factor * self.found.key.factor, self.found.softmax.inputs[0]
        assert wanted is not None
        scaled = total if factor == 1.0 else total * const(factor)
        return self.heads.number(self.found.chain, self.found.scores[0], wanted, scaled, given)

    def _softmax(self) -> Lines:
        """Each row's scores become exponentials; `inverse` is one over their sum."""
        lanes = self.machine.lanes
        row, text, whole = Row(self.keys, lanes), Vectors(lanes), self.keys // lanes
        sums = text.at("s0", 0)

        def power(column: str, total: str) -> Lines:
            made = f"scores[r, {column}]"
            return [f"{made} = f1({made} - m[0])", f"{total} = {total} + {made}"]

        lines = [*row.buffers, local("m", 2), *row.reduce("max", lambda p: p.row("scores"), "m[0]")]
        lines.append(f"{sums} = {text.const(0.0)}")
        lines += loop("v", whole, loop("l", lanes, power(f"v * {lanes} + l", "s0[l]"), "vectorized"))
        lines += across("sum", "s0", lanes, "m[1]")
        lines += loop("e", self.keys % lanes, power(f"{whole * lanes} + e", "m[1]")) if self.keys % lanes else []
        divided = ["inverse[r] = T.float32(1.0) / m[1]"]
        if self.found.guard:
            zeros = row.each(lambda p: [f"{p.row('scores')} = {p.const(0.0)}"])
            nothing = indent([*zeros, "inverse[r] = T.float32(1.0)"])
            divided = ["if m[1] >= T.float32(0.0):", *indent(divided), "else:", *nothing]
        return loop("r", self.height, lines + divided)

    def _mix(self) -> Lines:
        tile, height, heads = self.second, self.height, self.heads
        name, strides = heads.written(self.found.result, self.found.after)
        row, column = tile.row("i", height), tile.column("j", self.columns)

        def store(total: str, r: str, c: str) -> Lines:
            place = heads.at(strides, f"row + {row} + {r}", f"{column} + {c}")
            return [f"{name}[{place}] = {total} * inverse[{row} + {r}]"]

        def number(r: str, k: str) -> str:
            return f"scores[{row} + {r}, {k}]"

        work = tile.product(self.keys, number, "values", f"j * {self.keys * tile.width}") + tile.finish(store)
        return loop("j", tile.across(self.columns), loop("i", tile.down(height), work))
