"""Attention without the matrix of all scores in memory.

A task is one head, or some rows of it. It lays the keys and the values out in panels (`panels.py`); then, for a block of rows
that a near cache holds, it makes the scores, with scale and mask worked in, their exponentials and sums, and the product with
the values, which is divided by the sums as it is written. All is read and written where it stands (`strides.py`): the products
before and after never see a transpose."""

from __future__ import annotations

import math
from typing import Any

import attrs
import numpy as np

from accelerators.tvm.bodies import Body, element_of, shape_of
from accelerators.tvm.library import part
from accelerators.tvm.machine import Machine
from accelerators.tvm.templates import Draft, template
from accelerators.tvm.templates.attention_pattern import Attention, Operand, find_attention, readers_of
from accelerators.tvm.templates.epilogue import input_name, output_name
from accelerators.tvm.templates.formulas import formula
from accelerators.tvm.templates.numbers import const
from accelerators.tvm.templates.panels import PanelTile, best_tile
from accelerators.tvm.templates.row_text import Place, Row
from accelerators.tvm.templates.script import Lines, Vectors, indent, kernel, local, loop
from accelerators.tvm.templates.strides import Strides, followed, ghost, strides_in, undone
from graph.node import NodeEntry

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
    found = find_in(body)
    if found is None:
        return None
    *batch, rows, keys = shape_of(found.scores[0])
    columns, depth = shape_of(found.mix[0])[-1], shape_of(found.query.value)[-1]
    first, second = best_tile(rows, keys, machine), best_tile(rows, columns, machine)
    if first is None or second is None:
        return None
    made = _Text(body, found, machine, tuple(batch), rows, keys, depth, columns, first, second)
    given = [node[0] for node in body.graph.inputs]
    shapes = {i: (math.prod(shape_of(entry)) or 1,) for i, entry in enumerate(given)}
    params = [(input_name(i), shapes[i], element_of(entry)) for i, entry in enumerate(given)]
    result = (math.prod(shape_of(found.result)),)
    params.append((output_name(0), result, "float32"))
    return Draft(kernel(params, made.lines(), {"f0": made.score}), "attention", shapes=shapes, results=(result,))


def find_in(body: Body) -> Attention | None:
    """The body's attention, if that is all it is."""
    softmaxes = [node for node in body.ops if node.op == "Softmax"]
    if len(softmaxes) != 1 or len(body.graph.outputs) != 1:
        return None
    found = find_attention(softmaxes[0], readers_of(body.graph), body.graph.opsets.get("", 1))
    if found is None or found.result != body.graph.outputs[0] or found.nodes != set(body.ops):
        return None
    arrays = any(node.value is not None and node.value.size != 1 and _is_read(node[0], found) for node in body.graph.nodes)
    return None if arrays or any(not e.node.is_variable for e in _sources(found)) else found


def _sources(found: Attention) -> list[NodeEntry]:
    return [found.query.source, found.key.source, found.value.source]


def _is_read(entry: NodeEntry, found: Attention) -> bool:
    """Is the constant among the numbers of the element-wise ops?"""
    return any(entry in node.reads for node in found.between)


@attrs.frozen(slots=True, eq=False)
class _Text:
    body: Body
    found: Attention
    machine: Machine
    batch: tuple[int, ...]
    """The dimensions before the matrices: sequences, heads."""
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
    def heads(self) -> int:
        """Matrices."""
        return math.prod(self.batch)

    @property
    def threads(self) -> int:
        """Of so many threads it is work."""
        products = self.heads * self.rows * self.keys * (self.depth + self.columns)
        return self.machine.threads if products >= SERIAL else 1

    @property
    def parts(self) -> int:
        """Into how many tasks a head is cut, for the threads to have equal work."""
        even = [p for p in range(1, MOST_PARTS + 1) if self.heads * p % self.threads == 0 and p * FEWEST_ROWS <= self.rows]
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
            *self._indices(),
            f'keys = T.alloc_buffer(({first.across(self.keys) * self.depth * first.width},), "float32")',
            f'values = T.alloc_buffer(({second.across(self.columns) * self.keys * second.width},), "float32")',
            f'scores = T.alloc_buffer(({height}, {self.keys}), "float32")',
            f'inverse = T.alloc_buffer(({height},), "float32")',
            *self._pack("keys", self.found.key, first, self.depth, self.keys),
            *self._pack("values", self.found.value, second, self.keys, self.columns),
            *loop("b", each, [f"block: T.let = task % {self.parts} * {each} + b", *block]),
        ]
        return loop("task", self.heads * self.parts, task, "parallel" if self.threads > 1 else "serial")

    def _indices(self) -> Lines:
        """The head's place in each of the batch's dimensions."""
        return [
            f"h{d}: T.let = head // {math.prod(self.batch[d + 1 :])} % {size}" for d, size in enumerate(self.batch) if size > 1
        ]

    def _at(self, strides: Strides, row: str, column: str) -> str:
        """Text of a place in a buffer of all heads' matrices."""
        return strides.at([*(f"h{d}" if size > 1 else "0" for d, size in enumerate(self.batch)), row, column])

    def _read(self, operand: Operand) -> tuple[str, Strides]:
        """The operand's buffer, and where its numbers stand for each head, row and column."""
        whole = ghost(shape_of(operand.source))
        view = followed(whole, operand.path, operand.value)
        assert view is not None
        return self._name(operand.source), strides_in(np.broadcast_to(view, (*self.batch, *view.shape[-2:])), whole)

    def _name(self, entry: NodeEntry) -> str:
        return input_name([node[0] for node in self.body.graph.inputs].index(entry))

    def _pack(self, into: str, operand: Operand, tile: PanelTile, depth: int, columns: int) -> Lines:
        """Panels of the operand, which has so many rows and columns."""
        name, strides = self._read(operand)
        column = f"{tile.column('j', columns)} + c"
        number = f"{name}[{self._at(strides, 'k', column)}]"
        place = f"{into}[(j * {depth} + k) * {tile.width} + c]"
        if strides.steps[-1] == 1:
            body = loop("k", depth, loop("c", tile.width, [f"{place} = {number}"], "vectorized"))
        else:
            body = loop("c", tile.width, loop("k", depth, [f"{place} = {number}"]))
        return loop("j", tile.across(columns), body)

    def _scores(self) -> Lines:
        tile, height = self.first, self.height
        name, strides = self._read(self.found.query)
        row, column = tile.row("i", height), tile.column("j", self.keys)

        def number(r: str, k: str) -> str:
            return f"{name}[{self._at(strides, f'row + {row} + {r}', k)}]"

        def store(total: str, r: str, c: str) -> Lines:
            place = f"row + {row} + {r}", f"{column} + {c}"
            given = ", ".join([total, *(f"{self._name(e)}[{self._at(self._beside(e), *place)}]" for e in self._operands())])
            return [f"scores[{row} + {r}, {column} + {c}] = f0({given})"]

        work = tile.product(self.depth, number, "keys", f"j * {self.depth * tile.width}") + tile.finish(store)
        return loop("j", tile.across(self.keys), loop("i", tile.down(height), work))

    def _operands(self) -> list[NodeEntry]:
        """What the element-wise ops read beside the scores and numbers of their own."""
        inputs = {node[0] for node in self.body.graph.inputs}
        return list(dict.fromkeys(e for node in self.found.between for e in node.reads if e in inputs))

    def _beside(self, entry: NodeEntry) -> Strides:
        whole = ghost(shape_of(entry))
        return strides_in(np.broadcast_to(whole, (*self.batch, self.rows, self.keys)), whole)

    def score(self, total: Any, *given: Any) -> Any:
        """The score from the product and the operands at its place."""
        factor = self.found.query.factor * self.found.key.factor
        values: dict[NodeEntry, Any] = dict(zip(self._operands(), given, strict=True))
        values[self.found.scores[0]] = total if factor == 1.0 else total * const(factor)
        for node in self.body.graph.nodes:
            if node.value is not None and node.value.size == 1:
                values[node[0]] = _constant(node.value)
            if node in self.found.between:
                compute = formula(node, self.body.graph.opsets.get("", 1))
                assert compute is not None
                values[node[0]] = compute(node, [None if e is None else values[e] for e in node.inputs])
        before = self.found.softmax.inputs[0]
        assert before is not None
        return values[before]

    def _softmax(self) -> Lines:
        """Each row's scores become exponentials; `inverse` is one over their sum."""
        row, text = Row(self.keys, self.machine.lanes), Vectors(self.machine.lanes)
        sums, power = text.at("s0", 0), text.at("s1", 0)

        def vector(p: Place) -> Lines:
            centred = f"{power} = {p.row('scores')} - {p.all('m[0]')}"
            return [centred, *text.exp(power, power), f"{sums} = {sums} + {power}", f"{p.row('scores')} = {power}"]

        def scalar(p: Place) -> Lines:
            return [f"m[2] = T.exp({p.row('scores')} - m[0])", "m[1] = m[1] + m[2]", f"{p.row('scores')} = m[2]"]

        lines = [*row.buffers, local("m", 3), *row.reduce("max", lambda p: p.row("scores"), "m[0]")]
        lines += [f"{sums} = {text.const(0.0)}", *row.vectors(vector), f"m[1] = {text.total(sums)}", *row.rest(scalar)]
        divided = ["inverse[r] = T.float32(1.0) / m[1]"]
        if self.found.guard:
            zeros = row.each(lambda p: [f"{p.row('scores')} = {p.const(0.0)}"])
            nothing = indent([*zeros, "inverse[r] = T.float32(1.0)"])
            divided = ["if m[1] >= T.float32(0.0):", *indent(divided), "else:", *nothing]
        return loop("r", self.height, lines + divided)

    def _mix(self) -> Lines:
        tile, height = self.second, self.height
        whole = ghost(shape_of(self.found.result))
        view = undone(whole, self.found.after)
        assert view is not None
        strides = strides_in(view, whole)
        row, column = tile.row("i", height), tile.column("j", self.columns)

        def store(total: str, r: str, c: str) -> Lines:
            place = self._at(strides, f"row + {row} + {r}", f"{column} + {c}")
            return [f"{output_name(0)}[{place}] = {total} * inverse[{row} + {r}]"]

        def number(r: str, k: str) -> str:
            return f"scores[{row} + {r}, {k}]"

        work = tile.product(self.keys, number, "values", f"j * {self.keys * tile.width}") + tile.finish(store)
        return loop("j", tile.across(self.columns), loop("i", tile.down(height), work))


def _constant(value: np.ndarray[Any, Any]) -> Any:
    return part("tirx").const(value.item(), str(value.dtype))
