"""Matrix products that become one kernel each with the ops around them: found in a graph, and again in the body of a subgraph."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from partita.accelerators.tvm.bodies.body import Body, make_body
from partita.accelerators.tvm.kernels.contraction.operands import Matrix, Readers, readers_of
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.partition.property import SubgraphProperty
from partita.partition.selector import ContainOpSelector, SubgraphSelector


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

    def __init__(self) -> None:
        self.labels: dict[Node, int] = {}

    @abstractmethod
    def is_root(self, node: Node) -> bool:
        """True for a node around which there may be a match."""

    def matches(self, graph: Graph) -> Iterator[F]:
        """The matches, of which an earlier one has the nodes that are in several. Linear."""
        roots = list(filter(self.is_root, graph.nodes))
        readers, version = readers_of(graph) if roots else {}, graph.opset
        return filter(None, (self.find(root, readers, version) for root in roots))

    @abstractmethod
    def find(self, root: Node, readers: Readers, version: int) -> F | None:
        """The match around a node."""

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
