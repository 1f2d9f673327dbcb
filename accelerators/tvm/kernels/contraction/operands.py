"""Operands and results of matrix products: reshapes, transposes, splits and scalings around a product are folded into its reads
and writes if nothing else needs their results. A product becomes one kernel with these ops: it is found in a graph, and again in
the body of a subgraph."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

import attrs

from partita.accelerators.tvm.bodies.body import Body, make_body
from partita.accelerators.tvm.kernels.shared.element_access import Shape, any_shape, real_shape
from partita.accelerators.tvm.kernels.shared.elementwise import formula
from partita.accelerators.tvm.kernels.shared.strides import VIEWS, followed, ghost, undone
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.graph.ops.traits import ops
from partita.partition.property import SubgraphProperty
from partita.partition.selector import ContainOpSelector, SubgraphSelector

Readers = Mapping[NodeEntry, Sequence["Node | None"]]
"""The nodes that read each value; None is an output of the graph."""

NARROWEST = 16
"""The least number of keys, or of columns of values; fewer do not fill some processor's vector."""

LONGEST = 12
"""Maximum number of ops between a product and its source or destination."""


@attrs.frozen(slots=True, eq=False)
class Matrix:
    """A matrix of a product."""

    source: NodeEntry
    """The value that it is read from."""
    path: tuple[Node, ...]
    """The ops in between, which only reorder and scale it."""
    value: NodeEntry
    """The product's own input."""

    @property
    def factor(self) -> float:
        """The factor by which it is scaled."""
        product = 1.0
        for node in self.path:
            number = _scaling(node)
            product *= 1.0 if number is None else number
        return product


MOST_AFTER = 16
"""Maximum number of element-wise ops after a product of two values in its kernel."""


@attrs.frozen(slots=True, eq=False)
class TwoSided:
    """A product of two values, and the ops around it."""

    left: Matrix
    right: Matrix
    root: Node
    """The product."""
    chain: tuple[Node, ...]
    """Element-wise ops after it."""
    after: tuple[Node, ...]
    """Ops that reorder the result."""

    @property
    def operands(self) -> tuple[Matrix, ...]:
        """The matrices that the product reads."""
        return self.left, self.right

    @property
    def nodes(self) -> set[Node]:
        """All nodes of the product."""
        return {self.root, *self.chain, *self.after, *self.left.path, *self.right.path}

    @property
    def result(self) -> NodeEntry:
        """The value that the product makes."""
        return (self.after or self.chain or (self.root,))[-1][0]


def is_value_product(node: Node) -> bool:
    """True for ONNX's MatMul."""
    return node.op == "MatMul" and not node.domain


def chain_after(
    root: Node, shape_of: Callable[[NodeEntry | None], Shape | None], readers: Readers, version: int
) -> list[Node]:
    """The element-wise ops after a product, each the only reader of the one before and of the product's shape."""
    chain: list[Node] = []
    node = only_reader(root[0], readers)
    while node is not None and formula(node, version) is not None and shape_of(node[0]) == shape_of(root[0]):
        chain.append(node)
        node = only_reader(node[0], readers) if len(chain) < MOST_AFTER else None
    return chain


def readers_of(graph: Graph) -> Readers:
    """The readers of each value. Linear."""
    readers: dict[NodeEntry, list[Node | None]] = {}
    for node in graph.nodes:
        for entry in (*node.reads, *node.captures):
            readers.setdefault(entry, []).append(node)
    for entry in graph.outputs:
        readers.setdefault(entry, []).append(None)
    return readers


def only_reader(entry: NodeEntry, readers: Readers) -> Node | None:
    """The node that reads the value, if there is only one."""
    readers_of_entry = readers.get(entry, ())
    return readers_of_entry[0] if len(readers_of_entry) == 1 else None


def operands_of(values: Sequence[NodeEntry | None], core: set[Node], readers: Readers) -> list[Matrix] | None:
    """The matrices that products read, each followed back through the ops that nothing else reads."""
    paths = [_back(value) for value in values if value is not None]
    while True:
        kept = [_viewed(_owned(path, value, {*core, *(n for p in paths for n in p)}, readers), value) for path, value in
                zip(paths, values, strict=True) if value is not None]
        held = {node for path in kept for node in path}
        sources = [_source(path, value) for path, value in zip(kept, values, strict=True) if value is not None]
        kept = [_without(path, {s.node for s in sources} & held) for path in kept]
        if kept == paths:
            return [Matrix(*operands) for operands in zip(sources, map(tuple, paths), values, strict=True)]  # type: ignore[arg-type]
        paths = kept


def _back(value: NodeEntry) -> list[Node]:
    """The ops before the value that reorder or scale, in order."""
    path: list[Node] = []
    node = value.node
    while node.is_op and not node.domain and len(path) < LONGEST and (node.op in ops("view") or _scaling(node) is not None):
        path.append(node)
        first = _moved_input(node)
        node = first.node
    return path[::-1]


def _moved_input(node: Node) -> NodeEntry:
    """The input that the op reorders or scales."""
    first, second = node.inputs[0], node.inputs[1] if len(node.inputs) > 1 else None
    assert first is not None
    return second if node.op == "Mul" and first.node.value is not None and second is not None else first


def _scaling(node: Node) -> float | None:
    """The constant that the op multiplies by."""
    if node.op not in ("Mul", "Div") or node.domain or real_shape(node[0]) is None:
        return None
    moved = _moved_input(node)
    other = node.inputs[0] if moved is node.inputs[1] else node.inputs[1]
    number = None if other is None else other.node.value
    if number is None or number.size != 1 or real_shape(moved) != real_shape(node[0]):
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
        shape = any_shape(_source(path, value))
        if shape is not None and 0 not in shape and followed(ghost(shape), path, value) is not None:
            return path
        path = path[1:]
    return path


def _source(path: Sequence[Node], value: NodeEntry) -> NodeEntry:
    return _moved_input(path[0]) if path else value


def _without(path: list[Node], dropped: set[Node]) -> list[Node]:
    """The part of the path after the last of the dropped nodes."""
    last = max((i for i, node in enumerate(path) if node in dropped), default=-1)
    return path[last + 1 :]


def written_after(result: NodeEntry, readers: Readers) -> tuple[Node, ...]:
    """The longest path of reshapes and transposes after the value that only change its position in memory."""
    path: list[Node] = []
    node = only_reader(result, readers)
    while node is not None and not node.domain and len(path) < LONGEST and (node.op in VIEWS or node.op == "Transpose"):
        path.append(node)
        node = only_reader(node[0], readers)
    while path:
        shape = any_shape(path[-1][0])
        if shape is not None and undone(ghost(shape), path) is not None:
            break
        path.pop()
    return tuple(path)


class Found(Protocol):
    """Matrix products that were found in a graph, with the ops around them."""

    @property
    def operands(self) -> tuple[Matrix, ...]:
        """The matrices."""

    @property
    def chain(self) -> tuple[Node, ...]:
        """Element-wise ops on the result of a product."""

    @property
    def nodes(self) -> set[Node]:
        """All ops that the kernel computes."""

    @property
    def result(self) -> NodeEntry:
        """The value that the kernel makes."""


F = TypeVar("F", bound=Found)


def found_in(body: Body, find: Callable[[Node, Readers, int], F | None]) -> F | None:
    """The match of `find` around one of the body's ops, if it covers the body and every matrix is an input."""
    readers, version = readers_of(body.graph), body.graph.opset
    match = next(filter(None, (find(node, readers, version) for node in body.ops)), None)
    if match is None or len(body.graph.outputs) != 1 or match.result != body.graph.outputs[0] or match.nodes != set(body.ops):
        return None
    given = all(operand.source.node.is_variable for operand in match.operands)
    return match if given and not _reads_arrays(body, match.chain) else None


def _reads_arrays(body: Body, nodes: Sequence[Node]) -> bool:
    """True if one of the element-wise ops reads a constant of several elements."""
    read = {entry for node in nodes for entry in node.reads}
    return any(node.value is not None and node.value.size != 1 and node[0] in read for node in body.graph.nodes)


class FoundProperty(SubgraphProperty, Generic[F]):
    """Makes a subgraph of each match that it finds in a graph."""

    growth = "largest"

    def __init__(self, name: str, is_root: Callable[[Node], bool], find: Callable[[Node, Readers, int], F | None]) -> None:
        """`find` returns the match around a root."""
        self.name, self.is_root, self.find = name, is_root, find
        self.labels: dict[Node, int] = {}

    def matches(self, graph: Graph) -> Iterator[F]:
        """The matches, of which an earlier one has the nodes that are in several. Linear."""
        roots = list(filter(self.is_root, graph.nodes))
        readers, version = readers_of(graph) if roots else {}, graph.opset
        return filter(None, (self.find(root, readers, version) for root in roots))

    def pre_partition(self, graph: Graph, options: Mapping[str, Any]) -> None:
        self.labels = {}
        for i, match in enumerate(self.matches(graph)):
            self.labels |= dict.fromkeys(match.nodes - self.labels.keys(), i)

    def review_subgraph(self, subgraph: Graph, index: int) -> bool:
        """Accepts only subgraphs that are exactly one match."""
        return found_in(make_body(subgraph), self.find) is not None

    def create_subgraph_selector(self) -> SubgraphSelector:
        return LabelSelector(self.labels)


class LabelSelector(ContainOpSelector):
    """Selects the nodes of one label."""

    stateless = True

    def __init__(self, labels: Mapping[Node, int]) -> None:
        super().__init__(lambda node: node in labels)
        self.labels = labels

    def label(self, node: Node) -> Hashable | None:
        return self.labels.get(node)
