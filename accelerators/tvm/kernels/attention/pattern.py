"""Attention as exporters write it: queries times keys, element-wise ops, Softmax, a product with the values.

It is matched from its Softmax. Scale factors of queries and keys are applied to the scores."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import attrs

from partita.accelerators.tvm.kernels.contraction.heads import Head, Heads
from partita.accelerators.tvm.kernels.contraction.operands import (
    NARROWEST,
    FoundProperty,
    Matrix,
    Readers,
    is_value_product,
    only_reader,
    operands_of,
    written_after,
)
from partita.accelerators.tvm.kernels.language import Operand, Value
from partita.accelerators.tvm.kernels.shared.element_access import real_shape
from partita.accelerators.tvm.kernels.shared.elementwise import formula
from partita.accelerators.tvm.sizes.extent import Extent
from partita.graph.node import Node, NodeEntry

LONGEST = 12
"""Maximum number of element-wise ops between the scores and their Softmax."""


@attrs.frozen(slots=True, eq=False)
class Attention:
    """An attention that was found in a graph."""

    query: Matrix
    key: Matrix
    """Transposed, of shape (depth, keys)."""
    value: Matrix
    scores: Node
    """The product of queries and keys."""
    chain: tuple[Node, ...]
    """Element-wise ops on the scores, in order."""
    softmax: Node
    guard: tuple[Node, ...]
    """The nodes that replace rows of NaN by zeros."""
    mix: Node
    """The product with the values."""
    after: tuple[Node, ...]
    """Reshapes and transposes of the result."""

    @property
    def operands(self) -> tuple[Matrix, ...]:
        """The matrices that its products read."""
        return self.query, self.key, self.value

    @property
    def nodes(self) -> set[Node]:
        """All nodes of the attention."""
        paths = (node for operand in self.operands for node in operand.path)
        return {self.scores, *self.chain, self.softmax, *self.guard, self.mix, *self.after, *paths}

    @property
    def result(self) -> NodeEntry:
        """The output of the attention."""
        return (self.after[-1] if self.after else self.mix)[0]

    def score(self, heads: Heads, rows: int, keys: int) -> Callable[[Value, Head, Operand, Operand], Value]:
        """The function that applies scale and mask to a product of a query and a key, in a kernel for this many of both."""
        wanted = self.softmax.inputs[0]
        assert wanted is not None
        return heads.chain(self.chain, self.scores[0], wanted, self.query.factor * self.key.factor, rows, keys)


def find_attention(softmax: Node, readers: Readers, version: int) -> Attention | None:
    """The attention around the softmax."""
    shape = real_shape(softmax[0]) if softmax.op == "Softmax" and not softmax.domain else None
    if shape is None or len(shape) < 2 or 0 in shape or shape[-1] in (0, 1):
        return None
    if softmax.attrs.get("axis", -1 if version >= 13 else 1) % len(shape) != len(shape) - 1:
        return None
    guard, weights = _guard(softmax, readers)
    mix = only_reader(weights, readers)
    scored = _scores(softmax, shape, readers, version)
    if mix is None or not is_value_product(mix) or mix.inputs[0] != weights or mix.inputs[1] == weights or scored is None:
        return None
    scores, between = scored
    mixed = real_shape(mix[0])
    if mixed is None or mixed[:-2] != shape[:-2]:  # The values have more heads than the queries.
        return None
    core = {scores, *between, softmax, *guard, mix}
    operands = operands_of([scores.inputs[0], scores.inputs[1], mix.inputs[1]], core, readers)
    if operands is None or any(real_shape(operand.source) is None for operand in operands):
        return None
    query, key, value = operands
    return Attention(query, key, value, scores, between, softmax, guard, mix, written_after(mix[0], readers))


def _guard(softmax: Node, readers: Readers) -> tuple[tuple[Node, ...], NodeEntry]:
    """The ops by which torch replaces rows of NaN by zeros, and their result."""
    reading = [node for node in readers.get(softmax[0], ()) if node is not None]
    tests = [node for node in reading if node.op == "IsNaN"]
    chosen = [node for node in reading if node.op == "Where"]
    if len(reading) != 2 or len(tests) != 1 or len(chosen) != 1 or len(readers[softmax[0]]) != 2:
        return (), softmax[0]
    test, where = tests[0], chosen[0]
    zero = where.inputs[1].node.value if where.inputs[1] is not None else None
    is_zero = zero is not None and zero.size == 1 and zero.item() == 0
    if where.inputs[0] != test[0] or where.inputs[2] != softmax[0] or not is_zero or only_reader(test[0], readers) is not where:
        return (), softmax[0]
    return (test, where), where[0]


def _scores(softmax: Node, shape: tuple[int, ...], readers: Readers, version: int) -> tuple[Node, tuple[Node, ...]] | None:
    """The product before the softmax, and the element-wise ops in between."""
    product: Node | None = None
    between: list[Node] = []
    inside = {softmax}
    waiting = [softmax.inputs[0]]
    while waiting and len(between) <= LONGEST:
        entry = waiting.pop()
        node = None if entry is None else entry.node
        if entry is None or node is None or not node.is_op or node in inside or real_shape(entry) != shape:
            continue
        if not all(reader in inside for reader in readers.get(entry, ())):
            continue
        if is_value_product(node) and product is None:
            product = node
        elif formula(node, version) is not None:
            between.append(node)
            inside.add(node)
            waiting += [e for e in reversed(node.inputs) if e is not None]
    return None if product is None else (product, tuple(reversed(between)))


def _find_wide(softmax: Node, readers: Readers, version: int) -> Attention | None:
    match = find_attention(softmax, readers, version)
    return match if match is not None and _is_wide(match) else None


AttentionProperty = partial(FoundProperty, "attention", lambda node: node.op == "Softmax", _find_wide)
"""Each attention, found from its Softmax."""


def _is_wide(reads: Attention) -> bool:
    widths = [(real_shape(node[0]) or (0,))[-1] for node in (reads.scores, reads.mix)]
    return all(isinstance(width, Extent) or width >= NARROWEST for width in widths)
