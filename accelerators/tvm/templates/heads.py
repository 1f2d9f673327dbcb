"""Matrices of several heads that are read and written where they stand, and ops on their numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import attrs
import numpy as np

from accelerators.tvm.bodies import Body, element_of, shape_of
from accelerators.tvm.library import part
from accelerators.tvm.templates.attention_pattern import Operand, Readers, readers_of
from accelerators.tvm.templates.epilogue import input_name, output_name
from accelerators.tvm.templates.formulas import formula
from accelerators.tvm.templates.panels import PanelTile
from accelerators.tvm.templates.script import Lines, loop
from accelerators.tvm.templates.strides import Strides, followed, ghost, strides_in, undone
from graph.node import Node, NodeEntry


class Found(Protocol):
    """Products that were found in a graph, with the ops around them."""

    @property
    def operands(self) -> tuple[Operand, ...]:
        """The matrices."""

    @property
    def chain(self) -> tuple[Node, ...]:
        """Element-wise ops on the numbers of a product."""

    @property
    def nodes(self) -> set[Node]:
        """All of it."""

    @property
    def result(self) -> NodeEntry:
        """What it makes."""


F = TypeVar("F", bound=Found)


@attrs.frozen(slots=True, eq=False)
class Heads:
    """The buffers of a body, flat, seen as matrices. In the text `head` numbers the matrices, h0, h1, … are its dimensions."""

    body: Body
    """What the kernel computes."""
    batch: tuple[int, ...]
    """The dimensions before the matrices: sequences, heads."""

    @property
    def count(self) -> int:
        """How many matrices."""
        return math.prod(self.batch)

    @property
    def indices(self) -> Lines:
        """The head's place in each of the dimensions."""
        places = enumerate(self.batch)
        return [f"h{d}: T.let = head // {math.prod(self.batch[d + 1 :])} % {size}" for d, size in places if size > 1]

    def params(self, result: NodeEntry) -> list[tuple[str, tuple[int, ...], str]]:
        """The kernel's buffers: the inputs and the result."""
        given = [node[0] for node in self.body.graph.inputs]
        made = [(input_name(i), (math.prod(shape_of(entry)),), element_of(entry)) for i, entry in enumerate(given)]
        return [*made, (output_name(0), (math.prod(shape_of(result)),), "float32")]

    def at(self, strides: Strides, row: str, column: str) -> str:
        """Text of a number's place."""
        return strides.at([*(f"h{d}" if size > 1 else "0" for d, size in enumerate(self.batch)), row, column])

    def name(self, entry: NodeEntry) -> str:
        """The buffer of an input."""
        return input_name([node[0] for node in self.body.graph.inputs].index(entry))

    def read(self, operand: Operand) -> tuple[str, Strides]:
        """The operand's buffer, and where its numbers stand for each head, row and column."""
        whole = ghost(shape_of(operand.source))
        view = followed(whole, operand.path, operand.value)
        assert view is not None
        return self.name(operand.source), strides_in(np.broadcast_to(view, (*self.batch, *view.shape[-2:])), whole)

    def written(self, result: NodeEntry, after: Sequence[Node]) -> tuple[str, Strides]:
        """The result's buffer, and where its numbers stand before the ops `after` order them anew."""
        whole = ghost(shape_of(result))
        view = undone(whole, after)
        assert view is not None
        return output_name(0), strides_in(view, whole)

    def packed(self, into: str, name: str, strides: Strides, tile: PanelTile, depth: int, column: str, start: str = "0") -> Lines:
        """Lines that copy one panel, which begins at `start`."""
        line = f"{into}[{start} + k * {tile.width} + c] = {name}[{self.at(strides, 'k', f'{column} + c')}]"
        if strides.steps[-1] == 1:
            return loop("k", depth, loop("c", tile.width, [line], "vectorized"))
        return loop("c", tile.width, loop("k", depth, [line]))

    # -- element-wise ops --------------------------------------------------------------------------------

    def beside(self, nodes: Sequence[Node]) -> list[NodeEntry]:
        """The inputs that element-wise ops read."""
        inputs = {node[0] for node in self.body.graph.inputs}
        return list(dict.fromkeys(entry for node in nodes for entry in node.reads if entry in inputs))

    def beside_at(self, nodes: Sequence[Node], rows: int, columns: int, row: str, column: str) -> list[str]:
        """Texts of their numbers at a place of the matrix."""
        made = []
        for entry in self.beside(nodes):
            whole = ghost(shape_of(entry))
            strides = strides_in(np.broadcast_to(whole, (*self.batch, rows, columns)), whole)
            made.append(f"{self.name(entry)}[{self.at(strides, row, column)}]")
        return made

    def number(self, nodes: Sequence[Node], root: NodeEntry, wanted: NodeEntry, total: Any, given: Sequence[Any]) -> Any:
        """What element-wise ops make of the root's number `total` and of those beside it."""
        values: dict[NodeEntry, Any] = {**dict(zip(self.beside(nodes), given, strict=True)), root: total}
        for node in self.body.graph.nodes:
            if node.value is not None and node.value.size == 1:
                values[node[0]] = part("tirx").const(node.value.item(), str(node.value.dtype))
            if node in nodes:
                compute = formula(node, self.body.graph.opsets.get("", 1))
                assert compute is not None
                values[node[0]] = compute(node, [None if e is None else values[e] for e in node.inputs])
        return values[wanted]


def found_in(body: Body, op: str, find: Callable[[Node, Readers, int], F | None]) -> F | None:
    """What is found around the body's one such op, if that is all of the body and every matrix is an input."""
    roots = [node for node in body.ops if node.op == op]
    if len(roots) != 1 or len(body.graph.outputs) != 1:
        return None
    found = find(roots[0], readers_of(body.graph), body.graph.opsets.get("", 1))
    if found is None or found.result != body.graph.outputs[0] or found.nodes != set(body.ops):
        return None
    given = all(operand.source.node.is_variable for operand in found.operands)
    return found if given and not _reads_arrays(body, found.chain) else None


def _reads_arrays(body: Body, nodes: Sequence[Node]) -> bool:
    """Does one of the element-wise ops read a constant of several numbers?"""
    read = {entry for node in nodes for entry in node.reads}
    return any(node.value is not None and node.value.size != 1 and node[0] in read for node in body.graph.nodes)
