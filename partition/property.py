"""SubgraphProperty: the choice, creation and connection of subgraphs for one accelerator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import attrs

from partita.graph.build import call
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.partition.errors import PartitionError, warn_of_capitals
from partita.partition.options import Growth
from partita.partition.selector import ContainOpSelector, SubgraphSelector

if TYPE_CHECKING:
    from partita.partition.pattern import Pattern


@attrs.frozen(slots=True)
class Hook:
    """A row of `HOOKS`."""

    name: str
    """The method of `SubgraphProperty`."""
    sees_bodies: bool = False
    """True if it gets bodies, or their inputs, so that types matter."""
    connects: bool = False
    """True if it connects calls."""
    declined: str = ""
    """The answer, in words, that leaves a subgraph's nodes unchanged."""


HOOKS = {
    hook.name: hook
    for hook in (
        Hook("pre_partition"),
        Hook("create_subgraph_selector"),
        Hook("init_subgraph_inputs", sees_bodies=True),
        Hook("review_subgraph", sees_bodies=True, declined="said no"),
        Hook("create_subgraph_node", sees_bodies=True, declined="returned None"),
        Hook("adjust_subgraph_node"),
        Hook("connect_subgraph_inputs", connects=True),
        Hook("connect_subgraph_outputs", connects=True),
        Hook("post_partition"),
    )
}
"""The hooks of a property by name, in the order in which they run."""


class SubgraphProperty:
    """Override `create_subgraph_selector`, and other hooks as needed. Hooks never change their arguments.

    They run in the order of `HOOKS`: calls are created one by one, and connected later, while the graph is assembled."""

    def __init_subclass__(cls, **keywords: object) -> None:
        """Warns of hooks that have MXNet's names."""
        super().__init_subclass__(**keywords)
        warn_of_capitals(cls, SubgraphProperty)

    name: str = "subgraph"
    """Calls are named `<name>_<index>`."""
    growth: Growth | None = None
    """A name in `partition.growth.GROWTHS`, or a function; None: "largest" for a stateless selector, "walk" for others."""
    min_subgraph_size: int = 1
    """Minimum number of ops of a subgraph; smaller ones are left in the graph."""
    max_subgraphs: int | None = None
    """Maximum number of subgraphs: the largest ones are kept, the earlier among equals."""
    max_nodes: int | None = None
    """Maximum number of ops of a subgraph; larger ones are cut into several. A larger match of a pattern is left in the graph."""
    inline: bool = True
    """True if `compile` may inline calls that no device but the last resort takes as a whole. False keeps each in one piece."""
    dedup_inputs: bool = True
    """True if a value that several nodes of a subgraph read enters it once. (Values are compared by identity, never by name.)"""
    options: ClassVar[Sequence[str] | None] = None
    """The options that `pre_partition` takes; None if it checks all of them itself."""

    def create_subgraph_selector(self) -> SubgraphSelector | Pattern:
        """A selector (a new one for every seed, unless it is stateless), or a pattern to match."""
        raise NotImplementedError("a property has to define create_subgraph_selector()")

    def pre_partition(self, graph: Graph, options: Mapping[str, Any]) -> None:
        """Called once before anything is chosen, with the graph and the options that are not PartitionGraph's own."""

    def init_subgraph_inputs(self, variables: Sequence[Node], entries: Sequence[NodeEntry]) -> Sequence[Node]:
        """The body's inputs, one per outer value in `entries`; return them, or replacements.

        They have the value's name and type, and the affinity of its producer (None for graph inputs)."""
        return variables

    def review_subgraph(self, subgraph: Graph, index: int) -> bool | Mapping[str, Any]:
        """Return False to leave the nodes unchanged; attributes are added to the call."""
        return True

    def create_subgraph_node(
        self, subgraph: Graph, index: int, selector: SubgraphSelector | Pattern | None = None
    ) -> Node | None:
        """The node that replaces the subgraph, with as many outputs; None leaves the nodes unchanged.

        Without inputs it is connected like a call: it reads the outer values in the order of the body's inputs. With inputs, it
        reads exactly those: an input of `subgraph` means the outer value, and constants are kept.

        `selector` is the selector that grew the subgraph, with its state, or the pattern that matched; None if
        a plan from a file is applied. An override may omit the argument."""
        return call(subgraph, name=f"{self.name}_{index}")

    def adjust_subgraph_node(
        self, nodes: Sequence[Node], index: int, selector: SubgraphSelector | Pattern | None = None
    ) -> Sequence[Node] | None:
        """Called if `create_subgraph_node` returned None: a changed copy per node (`node.evolve(attrs=...)`),
        or None to leave them unchanged. `selector` is that of `create_subgraph_node`."""
        return None

    def connect_subgraph_inputs(self, node: Node, entries: Sequence[NodeEntry]) -> Node:
        """The created node, connected to its inputs; `entries` are the outer values in the order of the body's inputs.

        A node that was created with inputs is connected already."""
        return node if node.reads else node.evolve(inputs=tuple(entries))

    def connect_subgraph_outputs(self, node: Node, entries: Sequence[NodeEntry]) -> Sequence[NodeEntry]:
        """Per output of the body (`entries`) the value of the connected node that replaces it."""
        return node.outputs

    def post_partition(self, graph: Graph) -> None:
        """Called once with the partitioned graph."""

    def for_device(self, device: str | None) -> SubgraphProperty:
        """The property whose hooks make the calls of this device, if subgraphs are chosen by affinity."""
        return self

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"


def overridden_hooks(subject: SubgraphProperty) -> list[Hook]:
    """The hooks that the property overrides."""
    kind, base = type(subject), SubgraphProperty
    return [
        hook for name, hook in HOOKS.items()
        if getattr(kind, name, None) is not getattr(base, name) or name in vars(subject)
    ]


def sees_bodies(subject: SubgraphProperty) -> bool:
    """True if the property overrides a hook that gets bodies."""
    return any(hook.sees_bodies for hook in overridden_hooks(subject))


class PatternProperty(SubgraphProperty):
    """One call per match of a pattern, or per subgraph that a stateless selector accepts.

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
        """The pattern or selector that finds the subgraphs."""
        self.name = name

    def create_subgraph_selector(self) -> SubgraphSelector | Pattern:
        return self.pattern


class AffinityProperty(SubgraphProperty):
    """Groups nodes of equal affinity, for all devices at once; each device's own property makes its calls."""

    name = "affinity"

    def __init__(self, properties: Mapping[str, SubgraphProperty] | None = None) -> None:
        if not (properties is None or isinstance(properties, Mapping)):
            raise PartitionError(f"properties are given by device, not as {properties!r:.80}", where="AffinityProperty")
        self.properties = dict(properties or {})
        """Per device the property that makes its calls; other devices get plain calls named after the device."""

    def create_subgraph_selector(self) -> SubgraphSelector:
        return ContainOpSelector()

    def for_device(self, device: str | None) -> SubgraphProperty:
        if device is None:
            return self
        if device not in self.properties:
            self.properties[device] = plain = SubgraphProperty()
            plain.name = device
        return self.properties[device]
