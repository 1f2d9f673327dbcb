"""Attention as exporters write it: a product of queries and keys, element-wise ops, a softmax, a product with the values.

It is found from its softmax. Scalings of queries and keys go to the scores; reshapes, transposes and splits before and after are
ways to read and write, as long as nobody else needs their results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from accelerators.tvm.templates.epilogue import static_shape
from accelerators.tvm.templates.formulas import formula
from accelerators.tvm.templates.strides import MOVES, VIEWS, followed, ghost, undone
from graph.graph import Graph
from graph.node import Node, NodeEntry

Readers = Mapping[NodeEntry, Sequence["Node | None"]]
"""By value, the nodes that read it; None for each output of the graph."""

LONGEST = 12
"""So many ops at most stand between a product and what it reads, or its softmax."""


@attrs.frozen(slots=True, eq=False)
class Operand:
    """A matrix of a product."""

    source: NodeEntry
    """What it is read from."""
    path: tuple[Node, ...]
    """The ops in between, which only move and scale it."""
    value: NodeEntry
    """The product's own input."""

    @property
    def factor(self) -> float:
        """By what it is scaled."""
        made = 1.0
        for node in self.path:
            number = _scaling(node)
            made *= 1.0 if number is None else number
        return made


@attrs.frozen(slots=True, eq=False)
class Attention:
    """One attention."""

    query: Operand
    key: Operand
    """Transposed: depth by keys."""
    value: Operand
    scores: Node
    """The product of queries and keys."""
    chain: tuple[Node, ...]
    """Element-wise ops on the scores, in order."""
    softmax: Node
    guard: tuple[Node, ...]
    """What replaces rows that are no numbers by zeros."""
    mix: Node
    """The product with the values."""
    after: tuple[Node, ...]
    """Ops that write its result in another order."""

    @property
    def operands(self) -> tuple[Operand, ...]:
        """What its products read."""
        return self.query, self.key, self.value

    @property
    def nodes(self) -> set[Node]:
        """All of it."""
        paths = (node for operand in self.operands for node in operand.path)
        return {self.scores, *self.chain, self.softmax, *self.guard, self.mix, *self.after, *paths}

    @property
    def result(self) -> NodeEntry:
        """What it makes."""
        return (self.after[-1] if self.after else self.mix)[0]


def readers_of(graph: Graph) -> Readers:
    """Who reads each value. Linear."""
    made: dict[NodeEntry, list[Node | None]] = {}
    for node in graph.nodes:
        for entry in (*node.reads, *node.captures):
            made.setdefault(entry, []).append(node)
    for entry in graph.outputs:
        made.setdefault(entry, []).append(None)
    return made


def find_attention(softmax: Node, readers: Readers, version: int) -> Attention | None:
    """The attention around the softmax."""
    shape = static_shape(softmax[0]) if softmax.op == "Softmax" and not softmax.domain else None
    if shape is None or len(shape) < 2 or 0 in shape or shape[-1] < 2:
        return None
    if softmax.attrs.get("axis", -1 if version >= 13 else 1) % len(shape) != len(shape) - 1:
        return None
    guard, weights = _guard(softmax, readers)
    mix = _only_reader(weights, readers)
    found = _scores(softmax, shape, readers, version)
    if mix is None or mix.op != "MatMul" or mix.domain or mix.inputs[0] != weights or mix.inputs[1] == weights or found is None:
        return None
    scores, between = found
    core = {scores, *between, softmax, *guard, mix}
    operands = operands_of([scores.inputs[0], scores.inputs[1], mix.inputs[1]], core, readers)
    if operands is None or any(static_shape(operand.source) is None for operand in operands):
        return None
    query, key, value = operands
    return Attention(query, key, value, scores, between, softmax, guard, mix, written_after(mix[0], readers))


def _only_reader(entry: NodeEntry, readers: Readers) -> Node | None:
    found = readers.get(entry, ())
    return found[0] if len(found) == 1 else None


def _guard(softmax: Node, readers: Readers) -> tuple[tuple[Node, ...], NodeEntry]:
    """The ops by which torch makes zeros of rows that are no numbers, and what comes out of them."""
    found = [node for node in readers.get(softmax[0], ()) if node is not None]
    tests = [node for node in found if node.op == "IsNaN"]
    chosen = [node for node in found if node.op == "Where"]
    if len(found) != 2 or len(tests) != 1 or len(chosen) != 1 or len(readers[softmax[0]]) != 2:
        return (), softmax[0]
    test, where = tests[0], chosen[0]
    zero = where.inputs[1].node.value if where.inputs[1] is not None else None
    is_zero = zero is not None and zero.size == 1 and zero.item() == 0
    if where.inputs[0] != test[0] or where.inputs[2] != softmax[0] or not is_zero or _only_reader(test[0], readers) is not where:
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
        if entry is None or node is None or not node.is_op or node in inside or static_shape(entry) != shape:
            continue
        if not all(reader in inside for reader in readers.get(entry, ())):
            continue
        if node.op == "MatMul" and not node.domain and product is None:
            product = node
        elif formula(node, version) is not None:
            between.append(node)
            inside.add(node)
            waiting += [e for e in reversed(node.inputs) if e is not None]
    return None if product is None else (product, tuple(reversed(between)))


def operands_of(values: Sequence[NodeEntry | None], core: set[Node], readers: Readers) -> list[Operand] | None:
    """What the products read, from as far back as nobody else reads what lies between."""
    paths = [_back(value) for value in values if value is not None]
    while True:
        kept = [_viewed(_owned(path, value, {*core, *(n for p in paths for n in p)}, readers), value) for path, value in
                zip(paths, values, strict=True) if value is not None]  # fmt: skip
        held = {node for path in kept for node in path}
        sources = [_source(path, value) for path, value in zip(kept, values, strict=True) if value is not None]
        kept = [_without(path, {s.node for s in sources} & held) for path in kept]
        if kept == paths:
            return [Operand(*made) for made in zip(sources, map(tuple, paths), values, strict=True)]  # type: ignore[arg-type]
        paths = kept


def _back(value: NodeEntry) -> list[Node]:
    """The ops that move or scale before the value, in order."""
    path: list[Node] = []
    node = value.node
    while node.is_op and not node.domain and len(path) < LONGEST and (node.op in MOVES or _scaling(node) is not None):
        path.append(node)
        first = _moved_input(node)
        node = first.node
    return path[::-1]


def _moved_input(node: Node) -> NodeEntry:
    """The input that the op moves or scales."""
    first, second = node.inputs[0], node.inputs[1] if len(node.inputs) > 1 else None
    assert first is not None
    return second if node.op == "Mul" and first.node.value is not None and second is not None else first


def _scaling(node: Node) -> float | None:
    """The number that the op multiplies by."""
    if node.op not in ("Mul", "Div") or node.domain or static_shape(node[0]) is None:
        return None
    moved = _moved_input(node)
    other = node.inputs[0] if moved is node.inputs[1] else node.inputs[1]
    number = None if other is None else other.node.value
    if number is None or number.size != 1 or static_shape(moved) != static_shape(node[0]):
        return None
    return float(number.item()) if node.op == "Mul" else 1.0 / float(number.item()) if number.item() else None


def _owned(path: list[Node], value: NodeEntry, group: set[Node], readers: Readers) -> list[Node]:
    """The end of the path that only the group reads."""
    start = len(path)
    while start and all(reader in group for entry in path[start - 1].outputs for reader in readers.get(entry, ())):
        start -= 1
    return path[start:]


def _viewed(path: list[Node], value: NodeEntry) -> list[Node]:
    """The longest end of the path that copies nothing."""
    while path:
        shape = static_shape(_source(path, value))
        if shape is not None and 0 not in shape and followed(ghost(shape), path, value) is not None:
            return path
        path = path[1:]
    return path


def _source(path: Sequence[Node], value: NodeEntry) -> NodeEntry:
    return _moved_input(path[0]) if path else value


def _without(path: list[Node], dropped: set[Node]) -> list[Node]:
    """What comes after the last of the dropped nodes."""
    last = max((i for i, node in enumerate(path) if node in dropped), default=-1)
    return path[last + 1 :]


def written_after(made: NodeEntry, readers: Readers) -> tuple[Node, ...]:
    """The longest path of reshapes and transposes after the value that only say where it is written."""
    path: list[Node] = []
    node = _only_reader(made, readers)
    while node is not None and not node.domain and len(path) < LONGEST and (node.op in VIEWS or node.op == "Transpose"):
        path.append(node)
        node = _only_reader(node[0], readers)
    while path:
        shape = static_shape(path[-1][0])
        if shape is not None and undone(ghost(shape), path) is not None:
            break
        path.pop()
    return tuple(path)
