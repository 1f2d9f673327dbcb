"""SubgraphProperty: how one accelerator wants its subgraphs chosen, made and connected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from partita.graph.build import call
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.partition.errors import PartitionError
from partita.partition.options import Growth
from partita.partition.selector import ContainOpSelector, SubgraphSelector

if TYPE_CHECKING:
    from partita.partition.pattern import Pattern


class SubgraphProperty:
    """Override `create_subgraph_selector`, and what else you need. Hooks never change what they are given.

    Hooks run in this order: `pre_partition`; the selectors; for each subgraph `init_subgraph_inputs`, `review_subgraph`,
    `create_subgraph_node`; then, while the graph is put together, `connect_subgraph_inputs`, `connect_subgraph_outputs`;
    `post_partition`.
    """

    name: str = "subgraph"
    """Calls are named `<name>_<index>`."""
    growth: Growth | None = None
    """"walk", "largest", "seed", "waves", or a function; None: "largest" for a stateless selector, "walk" for others."""
    min_subgraph_size: int = 1
    """Subgraphs of fewer ops than this are left in the graph."""
    max_subgraphs: int | None = None
    """At most so many subgraphs: the largest ones, the earlier where they are equal."""
    inline: bool = True
    """May `compile` inline its calls where no device takes them whole, the last resort apart? False: each stays in one piece."""
    dedup_inputs: bool = True
    """Does a value that several nodes of a subgraph read enter it once? (It is the value that counts, never its name.)"""
    options: ClassVar[Sequence[str] | None] = None
    """The options of its own that `pre_partition` takes; None: `pre_partition`, if it is defined, looks at all of them itself."""

    def create_subgraph_selector(self) -> SubgraphSelector | Pattern:
        """A selector (a new one for every seed, unless it is stateless), or a pattern to match."""
        raise NotImplementedError("a property has to define create_subgraph_selector()")

    def pre_partition(self, graph: Graph, options: Mapping[str, Any]) -> None:
        """Called once before anything is chosen, with the graph and those options that PartitionGraph does not know itself."""

    def init_subgraph_inputs(self, variables: Sequence[Node], entries: Sequence[NodeEntry]) -> Sequence[Node]:
        """The body's inputs, one for each outer value in `entries`; return them, or others in their stead.

        They carry the value's name and type, and the affinity of the node that makes it (None for graph inputs)."""
        return variables

    def review_subgraph(self, subgraph: Graph, index: int) -> bool | Mapping[str, Any]:
        """False leaves the nodes as they were; attributes are added to the call."""
        return True

    def create_subgraph_node(
        self, subgraph: Graph, index: int, selector: SubgraphSelector | Pattern | None = None
    ) -> Node | None:
        """The node that stands for the subgraph, with as many outputs; None leaves the nodes as they were.

        Without inputs it is connected as a call: it reads the outer values in the order of the body's inputs. With inputs, it
        reads just those: an input of `subgraph` stands for the outer value, and constants stay as they are.

        `selector` is the selector that the subgraph grew by, with whatever it has noted, or the pattern that matched; None where
        a plan from a file is applied. An override may leave the argument out."""
        return call(subgraph, name=f"{self.name}_{index}")

    def adjust_subgraph_node(
        self, nodes: Sequence[Node], index: int, selector: SubgraphSelector | Pattern | None = None
    ) -> Sequence[Node] | None:
        """Called where `create_subgraph_node` returned None: for each node its changed copy (`node.evolve(attrs=...)`),
        or None to leave them as they were. `selector` is that of `create_subgraph_node`."""
        return None

    def connect_subgraph_inputs(self, node: Node, entries: Sequence[NodeEntry]) -> Node:
        """The created node reading its inputs; `entries` are the outer values in the order of the body's inputs.

        A node that was created with inputs reads them already."""
        return node if node.reads else node.evolve(inputs=tuple(entries))

    def connect_subgraph_outputs(self, node: Node, entries: Sequence[NodeEntry]) -> Sequence[NodeEntry]:
        """For each of the body's outputs (`entries`) the connected node's value that stands for it outside."""
        return node.outputs

    def post_partition(self, graph: Graph) -> None:
        """Called once with the partitioned graph."""

    def for_device(self, device: str | None) -> SubgraphProperty:
        """The property whose hooks make the calls of this device, where subgraphs are chosen by affinity."""
        return self

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"


class PatternProperty(SubgraphProperty):
    """One call for every match of a pattern, or for every subgraph that a stateless selector takes.

    >>> PatternProperty(Pattern("Conv", "Relu"), name="conv_relu")
    <PatternProperty 'conv_relu'>
    """

    def __init__(self, pattern: Pattern | SubgraphSelector, name: str = "subgraph") -> None:
        if isinstance(pattern, SubgraphSelector) and not pattern.stateless:
            raise PartitionError(
                f"{type(pattern).__name__} may keep state, so every seed needs a new one",
                where="PatternProperty",
                remedy="Say `stateless = True` in its class, or write a property whose create_subgraph_selector makes a new one",
            )
        self.pattern = pattern
        """The pattern, or the selector, that finds the subgraphs."""
        self.name = name

    def create_subgraph_selector(self) -> SubgraphSelector | Pattern:
        return self.pattern


class AffinityProperty(SubgraphProperty):
    """Nodes of equal affinity go together, all devices at once; each device's own property makes its calls."""

    name = "affinity"

    def __init__(self, properties: Mapping[str, SubgraphProperty] | None = None) -> None:
        self.properties = dict(properties or {})
        """For each device, the property that makes its calls; other devices get plain calls named after the device."""

    def create_subgraph_selector(self) -> SubgraphSelector:
        return ContainOpSelector()

    def for_device(self, device: str | None) -> SubgraphProperty:
        if device is None:
            return self
        if device not in self.properties:
            self.properties[device] = plain = SubgraphProperty()
            plain.name = device
        return self.properties[device]
