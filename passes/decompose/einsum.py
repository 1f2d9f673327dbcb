"""Einsum as a Transpose, a product of groups of letters, or a sequence of smaller ones.

An Einsum of one operand whose letters are permuted is a Transpose. One of two operands whose letters form groups (batch, rows,
columns, summed) is a MatMul of the groups: `abc,bcd->ad` has rows a and sums over b times c. Without summed letters, or without
rows and columns, it is an element-wise product. One of many operands would iterate over all letters at once: a chain of a dozen
8 x 8 matrices takes 5e11 products so, and some thousand as a sequence of smaller ones."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

import attrs
import numpy as np

from partita.graph.body_builder import BodyBuilder, static_shape
from partita.graph.flops import einsum_products
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.graph.types import Dim, TensorType
from partita.passes.decompose.halves import is_half

MOST_PRODUCTS = 1 << 28
"""Largest number of products of an Einsum of more than two operands that is computed at once."""


def einsum(b: BodyBuilder) -> Graph | None:
    """The body of an Einsum."""
    order, groups = order_of(b.node), groups_of(b.node)
    if order is not None:
        return b.done(b.Transpose(b.input(0), perm=list(order)))
    if groups is not None:
        return b.done(_by_matmul(b, groups) if groups.is_product else _by_element(b, groups))
    row = contractions(b.node) if is_long(b.node) else None
    if row is None or any(map(is_half, b.node.reads)):
        return None
    values = [b.input(i) for i in range(len(b.node.inputs))]
    for step in row:
        read = [values[position] for position in step.operands]
        values = [value for position, value in enumerate(values) if position not in step.operands]
        values.append(b.Einsum(*read, equation=step.equation))
    return b.done(values[0])


def terms_of(equation: str) -> tuple[list[str], str]:
    """The letters of each operand, and of the result, which without an arrow has all that appear once."""
    left, arrow, result = equation.replace(" ", "").partition("->")
    counts = Counter(letter for letter in left if letter != ",")
    return left.split(","), result if arrow else "".join(sorted(letter for letter, count in counts.items() if count == 1))


# -- one operand -----------------------------------------------------------------------------------------


def order_of(node: Node) -> tuple[int, ...] | None:
    """The permutation of an Einsum that is a Transpose; None for any other op."""
    if node.op != "Einsum" or node.domain or len(node.reads) != 1:
        return None
    terms, result = terms_of(str(node.attrs["equation"]))
    kind, term = node.reads[0].type, terms[0]
    is_plain = isinstance(kind, TensorType) and kind.rank == len(term) == len(set(term)) and term.isalpha()
    if len(terms) != 1 or not is_plain or sorted(result) != sorted(term):
        return None
    return tuple([term.index(letter) for letter in result])


# -- two operands ----------------------------------------------------------------------------------------


@attrs.frozen(slots=True)
class Groups:
    """The letters of an Einsum of two operands."""

    terms: tuple[str, str]
    """The letters of the operands."""
    result: str
    """The letters of the result."""
    batch: str
    """The letters of both operands and the result."""
    rows: str
    """The letters of the first operand alone."""
    summed: str
    """The letters of both operands that the result lacks."""
    columns: str
    """The letters of the second operand alone."""
    sizes: Mapping[str, Dim]

    @property
    def is_product(self) -> bool:
        """True for a product of matrices, or of a matrix and a vector."""
        return bool(self.summed and (self.rows or self.columns))

    @property
    def is_matmul(self) -> bool:
        """True for a MatMul of transposed operands, without merged dimensions."""
        return len(self.rows) == len(self.columns) == len(self.summed) == 1


def groups_of(node: Node) -> Groups | None:
    """The groups of a float32 Einsum; None if a letter is in no group, a dimension is broadcast, or a size is 0, which is
    rejected elsewhere."""
    if node.op != "Einsum" or node.domain or len(node.inputs) != 2:
        return None
    terms, result = terms_of(str(node.attrs["equation"]))
    shapes = [kind.shape for entry in node.reads if isinstance(kind := entry.type, TensorType) and kind.dtype == "float32"]
    if len(terms) != 2 or len(shapes) != 2 or any(len(set(term)) != len(term) for term in (*terms, result)):
        return None
    if any(shape is None or len(shape) != len(term) or 0 in shape for term, shape in zip(terms, shapes, strict=True)):
        return None
    first, second = (dict(zip(term, shape or (), strict=True)) for term, shape in zip(terms, shapes, strict=True))
    shared = "".join(letter for letter in terms[0] if letter in second)
    rows, columns = ("".join(letter for letter in term if letter not in shared) for term in terms)
    batch = "".join(letter for letter in result if letter in shared)
    if not all(letter.isalpha() for term in terms for letter in term) or set(result) != {*batch, *rows, *columns}:
        return None
    if any(first[letter] is None or first[letter] != second[letter] for letter in shared):
        return None
    summed = "".join(letter for letter in shared if letter not in result)
    groups = Groups((terms[0], terms[1]), result, batch, rows, summed, columns, {**first, **second})
    return groups if groups.is_matmul or None not in groups.sizes.values() else None


def _by_matmul(b: BodyBuilder, groups: Groups) -> NodeEntry:
    """One MatMul of the groups."""
    left = _joined(b, groups, _ordered(b, groups, 0, groups.batch + groups.rows + groups.summed), groups.rows, groups.summed)
    right = _ordered(b, groups, 1, groups.batch + groups.summed + groups.columns)
    product = b.MatMul(left, _joined(b, groups, right, groups.summed, groups.columns))
    if len(groups.rows) != 1 or len(groups.columns) != 1:
        product = _shaped(b, groups, product, [*groups.batch, *groups.rows, *groups.columns])
    return _in_order_of_result(b, groups, product)


def _by_element(b: BodyBuilder, groups: Groups) -> NodeEntry:
    """The broadcast product of the operands, summed."""
    left = _ordered(b, groups, 0, groups.batch + groups.rows + groups.summed)
    right = _ordered(b, groups, 1, groups.batch + groups.summed + groups.columns)
    first, rows = len(groups.batch), len(groups.rows)
    if groups.columns:
        left = b.along("Unsqueeze", left, range(first + rows, first + rows + len(groups.columns)))
    if groups.rows:
        right = b.along("Unsqueeze", right, range(first, first + rows))
    product = b.Mul(left, right)
    if groups.summed:
        product = b.along("ReduceSum", product, range(first, first + len(groups.summed)), keepdims=0)
    return _in_order_of_result(b, groups, product)


def _ordered(b: BodyBuilder, groups: Groups, side: int, letters: str) -> NodeEntry:
    """An operand with its dimensions in this order."""
    return b.transposed(b.input(side), [groups.terms[side].index(letter) for letter in letters])


def _in_order_of_result(b: BodyBuilder, groups: Groups, value: NodeEntry) -> NodeEntry:
    letters = groups.batch + groups.rows + groups.columns
    return b.transposed(value, [letters.index(letter) for letter in groups.result])


def _joined(b: BodyBuilder, groups: Groups, value: NodeEntry, *last: str) -> NodeEntry:
    """The value with each of its last two groups of letters merged into one dimension."""
    return value if all(len(group) == 1 for group in last) else _shaped(b, groups, value, [*groups.batch, *last])


def _shaped(b: BodyBuilder, groups: Groups, value: NodeEntry, dimensions: list[str]) -> NodeEntry:
    """The value reshaped to one dimension for each string of letters."""
    sizes = [_size(b, groups, letters) for letters in dimensions]
    static = [size for size in sizes if isinstance(size, int)]
    if len(static) == len(sizes):
        return b.Reshape(value, static)
    return b.Reshape(value, b.Concat(*([size] if isinstance(size, int) else size for size in sizes), axis=0))


def _size(b: BodyBuilder, groups: Groups, letters: str) -> int | NodeEntry:
    """The product of the sizes of some letters: an integer if it is static, else a vector of one element."""
    static = [size for letter in letters if isinstance(size := groups.sizes[letter], int)]
    if len(static) == len(letters):
        return math.prod(static)
    side = 0 if set(letters) <= set(groups.terms[0]) else 1
    axes = [groups.terms[side].index(letter) for letter in letters]
    read = b.Gather(b.Shape(b.input(side)), axes)
    return b.ReduceProd(read) if len(axes) > 1 else read


# -- many operands ---------------------------------------------------------------------------------------


@attrs.frozen(slots=True)
class Contraction:
    """One Einsum of the sequence."""

    operands: tuple[int, ...]
    """The indices of its operands in the remaining values; its result is appended to them."""
    equation: str


def is_long(node: Node) -> bool:
    """True for an Einsum of more than two operands that takes too long at once."""
    return node.op == "Einsum" and not node.domain and len(node.inputs) > 2 and (einsum_products(node) or 0) > MOST_PRODUCTS


def contractions(node: Node) -> list[Contraction] | None:
    """The sequence of smaller Einsums; None if the equation has an ellipsis or a size is dynamic."""
    shapes = [static_shape(entry) for entry in node.reads]
    terms, result = terms_of(str(node.attrs["equation"]))
    if any("." in term for term in (*terms, result)) or any(shape is None for shape in shapes):
        return None
    operands = [np.broadcast_to(np.float32(0), shape) for shape in shapes if shape is not None]
    path = np.einsum_path(f"{','.join(terms)}->{result}", *operands, optimize="greedy")[0][1:]
    row = []
    for operands_read in path:
        read = [terms[position] for position in operands_read]
        terms = [term for position, term in enumerate(terms) if position not in operands_read]
        needed = set(result).union(*terms)
        kept = "".join(sorted(set("".join(read)) & needed)) if terms else result
        row.append(Contraction(tuple(operands_read), f"{','.join(read)}->{kept}"))
        terms.append(kept)
    return row
