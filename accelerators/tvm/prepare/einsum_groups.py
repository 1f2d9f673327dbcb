"""An Einsum of two operands whose letters come in groups: those of a batch, of rows, of columns, and those summed over.

Each group is made one dimension and the whole a MatMul (`abc,bcd->ad` is one of a rows and b times c steps); where nothing is
summed, or there are neither rows nor columns, the operands are multiplied number by number. TVM would walk all letters of the
equation, one product after another, and knows no sizes that are symbols."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np

from partita.accelerators.tvm.prepare.contractions import terms_of
from partita.graph.build import constant, op, variable
from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.graph.types import Dim, TensorType

REFUSAL = "this Einsum is a product of groups of dimensions, and is taken apart first"
"""Why no kernel takes it as it is."""


@attrs.frozen(slots=True)
class Groups:
    """The letters of an Einsum."""

    terms: tuple[str, str]
    """Those of the operands, in order,"""
    result: str
    """and of the result."""
    batch: str
    """Those that both operands and the result have."""
    rows: str
    """Those of the first operand alone."""
    summed: str
    """Those of both operands that the result has not."""
    columns: str
    """Those of the second operand alone."""
    sizes: Mapping[str, Dim]
    """What each stands for."""

    @property
    def is_product(self) -> bool:
        """Is it a product of matrices, or of a matrix and a vector?"""
        return bool(self.summed and (self.rows or self.columns))


def groups_of(node: Node) -> Groups | None:
    """The groups of an Einsum of float32 numbers; None where some letter is of no group, a dimension is repeated along another,
    or there are no numbers: that is refused for its own reason."""
    if node.op != "Einsum" or node.domain or len(node.inputs) != 2:
        return None
    terms, result = terms_of(str(node.attrs["equation"]))
    shapes = [kind.shape for entry in node.reads if isinstance(kind := entry.type, TensorType) and kind.dtype == "float32"]
    if len(terms) != 2 or len(shapes) != 2 or any(len(set(term)) != len(term) for term in (*terms, result)):
        return None
    if any(shape is None or len(shape) != len(term) or 0 in shape for term, shape in zip(terms, shapes, strict=True)):
        return None
    first, second = (dict(zip(term, shape or (), strict=True)) for term, shape in zip(terms, shapes, strict=True))
    sizes = {**first, **second}
    shared = "".join(letter for letter in terms[0] if letter in second)
    rows, columns = ("".join(letter for letter in term if letter not in shared) for term in terms)
    batch = "".join(letter for letter in result if letter in shared)
    if not all(letter.isalpha() and sizes[letter] is not None for letter in sizes):
        return None
    if any(first[letter] != second[letter] for letter in shared) or set(result) != {*batch, *rows, *columns}:
        return None
    summed = "".join(letter for letter in shared if letter not in result)
    return Groups((terms[0], terms[1]), result, batch, rows, summed, columns, sizes)


def parts_of_groups(groups: Groups, node: Node, graph: Graph) -> Graph:
    """The body of one, its inputs named x0 and x1."""
    first, second = (variable(f"x{i}", type=entry.type) for i, entry in enumerate(node.reads))
    writing = _Writing(groups, (first, second), graph.opsets.get("", 1))
    result = writing.product() if groups.is_product else writing.number_by_number()
    return Graph([result], [first, second], "parts", graph.opsets)


@attrs.frozen(slots=True)
class _Writing:
    """Writes the ops of one."""

    groups: Groups
    operands: tuple[Node, Node]
    version: int

    def op(self, name: str, *inputs: Node, **attributes: Any) -> Node:
        return op(name, *inputs, opset=self.version, **attributes)

    def product(self) -> Node:
        """One MatMul of the groups."""
        groups = self.groups
        left = self._reshaped(self._ordered(0, groups.batch + groups.rows + groups.summed), groups.rows, groups.summed)
        right = self._reshaped(self._ordered(1, groups.batch + groups.summed + groups.columns), groups.summed, groups.columns)
        product = self.op("MatMul", left, right)
        if len(groups.rows) != 1 or len(groups.columns) != 1:
            product = self._shaped(product, [*groups.batch, *groups.rows, *groups.columns])
        return self._in_order_of_result(product)

    def number_by_number(self) -> Node:
        """The operands multiplied where they meet, and summed up."""
        groups = self.groups
        left = self._ordered(0, groups.batch + groups.rows + groups.summed)
        right = self._ordered(1, groups.batch + groups.summed + groups.columns)
        first = len(groups.batch)
        left = self._with_ones(left, range(first + len(groups.rows), first + len(groups.rows) + len(groups.columns)))
        multiplied = self.op("Mul", left, self._with_ones(right, range(first, first + len(groups.rows))))
        if groups.summed:
            axes = list(range(first, first + len(groups.summed)))
            said: tuple[Node, ...] = (_whole(axes),) if self.version >= 13 else ()
            multiplied = self.op("ReduceSum", multiplied, *said, keepdims=0, **({} if said else {"axes": axes}))
        return self._in_order_of_result(multiplied)

    def _ordered(self, side: int, letters: str) -> Node:
        """The operand with its dimensions in this order."""
        order = [self.groups.terms[side].index(letter) for letter in letters]
        return self._turned(self.operands[side], order)

    def _in_order_of_result(self, value: Node) -> Node:
        groups = self.groups
        letters = groups.batch + groups.rows + groups.columns
        return self._turned(value, [letters.index(letter) for letter in groups.result])

    def _turned(self, value: Node, order: list[int]) -> Node:
        return value if order == sorted(order) else self.op("Transpose", value, perm=order)

    def _with_ones(self, value: Node, axes: range) -> Node:
        """The value with dimensions of 1 at these places."""
        if not axes:
            return value
        if self.version < 13:
            return self.op("Unsqueeze", value, axes=list(axes))
        return self.op("Unsqueeze", value, _whole(list(axes)))

    def _reshaped(self, value: Node, *last: str) -> Node:
        """The value with two groups of letters, its last, as one dimension each."""
        return value if all(len(group) == 1 for group in last) else self._shaped(value, [*self.groups.batch, *last])

    def _shaped(self, value: Node, dimensions: list[str]) -> Node:
        """The value under another shape, each dimension that of some letters."""
        sizes = [self._size(letters) for letters in dimensions]
        if all(isinstance(size, int) for size in sizes):
            return self.op("Reshape", value, _whole([size for size in sizes if isinstance(size, int)]))
        vectors = [_whole([size]) if isinstance(size, int) else size for size in sizes]
        return self.op("Reshape", value, self.op("Concat", *vectors, axis=0))

    def _size(self, letters: str) -> int | Node:
        """How many numbers there are along some letters: a number where it is known, or else a vector of one."""
        sizes = [self.groups.sizes[letter] for letter in letters]
        if all(isinstance(size, int) for size in sizes):
            return int(np.prod([size for size in sizes if isinstance(size, int)], dtype=np.int64))
        side = 0 if set(letters) <= set(self.groups.terms[0]) else 1
        axes = [self.groups.terms[side].index(letter) for letter in letters]
        read = self.op("Gather", self.op("Shape", self.operands[side]), _whole(axes))
        return self.op("ReduceProd", read) if len(axes) > 1 else read


def _whole(numbers: list[int]) -> Node:
    """A constant of whole numbers."""
    return constant(np.array(numbers, np.int64))
