"""Nodes and the values that they compute. Nodes are immutable except for their affinity."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import define, field, fields

from partita.graph.errors import GraphError
from partita.graph.order import reachable, topological
from partita.graph.types import Type

if TYPE_CHECKING:
    from partita.graph.graph import Graph

CONSTANT = "Constant"
"""The op of a constant node."""

NOTHING: Mapping[str, Any] = MappingProxyType({})
"""The attributes of a node that has none."""


class _Clock:
    """Counter of the places that were handed out."""

    def __init__(self) -> None:
        self.places = itertools.count()
        self.passed = -1

    def pass_by(self, place: int) -> None:
        """Makes later nodes come after this place, which a node from another process may have."""
        if place > self.passed:
            self.passed = max(place, next(self.places))
            self.places = itertools.count(self.passed + 1)


_clock = _Clock()


class Body:
    """Base of `Graph`, for nodes that hold a graph as an attribute."""

    __slots__ = ("__weakref__",)



def next_place() -> int:
    """The place of a new node: after every node made before."""
    return next(_clock.places)


def frozen_attrs(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """A read-only copy of these attributes."""
    return MappingProxyType(dict(values)) if values else NOTHING


class NodeEntry:
    """One value: output number `index` of `node`."""

    __slots__ = ("node", "index")

    def __init__(self, node: Node, index: int = 0) -> None:
        self.node = node
        """The node that computes the value."""
        self.index = index
        """Index among the node's outputs."""

    @property
    def name(self) -> str:
        """The value's name."""
        return self.node.output_names[self.index]

    @property
    def type(self) -> Type | None:
        """The value's type, or None before inference."""
        return self.node.output_types[self.index]

    def __reduce__(self) -> tuple[Any, ...]:
        return NodeEntry, (self.node, self.index)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, NodeEntry):
            return NotImplemented
        return self.node is other.node and self.index == other.index

    def __hash__(self) -> int:
        return id(self.node) + self.index

    def __repr__(self) -> str:
        return f"<NodeEntry %{self.name}{'' if self.type is None else f': {self.type}'}>"


def _refuse(node: Node, attribute: Any, value: Any) -> None:
    raise GraphError(
        f"a node never changes once it is made ({attribute.name} was to be set)",
        where=f"node {node.name!r} ({node.op})",
        remedy="node.evolve(...) returns a changed copy; only node.affinity may be set",
    )


def _checked_affinity(node: Node, attribute: Any, value: Any) -> Any:
    if value is None or isinstance(value, str):
        return value
    raise GraphError(
        f"an affinity is the name of a device, not {value!r}",
        where=f"node {node.name!r} ({node.op})",
        remedy='Write node.affinity = "cpu"; None takes it away',
    )


class _MutableNode:
    """A mutable node with the layout of `Node`, which it becomes by changing its class: copies are several times faster so."""

    __slots__ = (
        "name", "op", "inputs", "attrs", "output_names", "output_types", "domain", "captures", "subgraph", "value", "after",
        "metadata", "place", "affinity", "__weakref__",
    )


@define(slots=True, eq=False, repr=False, on_setattr=_refuse)
class Node(_MutableNode):
    """An op, a graph input (`op` is None), a constant, or a call of a subgraph.

    Make nodes with `variable`, `constant`, `op` and `call`; `evolve` returns a changed copy."""

    name: str
    """Unique in its graph; empty until the first graph that contains the node names it."""
    op: str | None
    """The op type by ONNX's name; None for a variable, "Constant" for a constant."""
    inputs: tuple[NodeEntry | None, ...] = ()
    """The values read, in the op's order; None for an optional input that is absent."""
    attrs: Mapping[str, Any] = NOTHING
    """The op's attributes; bodies of If, Loop and Scan are graphs."""
    output_names: tuple[str, ...] = ()
    """The names of the outputs; an empty name is an optional output that is absent."""
    output_types: tuple[Type | None, ...] = ()
    """The types of the outputs, None before inference."""
    domain: str = ""
    """The op's domain; empty for ONNX's own."""
    captures: tuple[NodeEntry, ...] = ()
    """Outer values that the bodies in `attrs` read: bound, in order, to the last inputs of each body."""
    subgraph: Graph | None = None
    """The body of a call."""
    value: np.ndarray[Any, Any] | None = None
    """The array of a constant."""
    after: tuple[Node, ...] = ()
    """Control dependencies: nodes that must run before this one although it reads none of their values."""
    metadata: Mapping[str, str] = NOTHING
    """Free text by key, carried from file to file."""
    place: int = field(factory=next_place)
    """Sort key: among the ready nodes of a graph the one with the lowest place comes first."""
    affinity: str | None = field(default=None, on_setattr=_checked_affinity)
    """The device requested by the user or a pass; the only field that may be set."""

    @property
    def is_variable(self) -> bool:
        """True for a graph input."""
        return self.op is None

    @property
    def is_constant(self) -> bool:
        """True for a constant."""
        return self.op == CONSTANT and self.value is not None

    @property
    def is_op(self) -> bool:
        """True for a node that computes something (neither variable nor constant)."""
        return self.op is not None and self.value is None

    @property
    def is_call(self) -> bool:
        """True for a call of a subgraph."""
        return self.subgraph is not None

    @property
    def outputs(self) -> tuple[NodeEntry, ...]:
        """All outputs of the node."""
        return tuple([NodeEntry(self, i) for i in range(len(self.output_names))])

    @property
    def bodies(self) -> tuple[tuple[str, Graph], ...]:
        """The graphs inside, each with its attribute's name ("subgraph" for the body of a call)."""
        bodies: list[tuple[str, Any]] = [(k, v) for k, v in self.attrs.items() if isinstance(v, Body)]
        if self.subgraph is not None:
            bodies.append(("subgraph", self.subgraph))
        return tuple(bodies)

    @property
    def reads(self) -> tuple[NodeEntry, ...]:
        """All values that the node depends on: its present inputs, then its captures."""
        return (*[e for e in self.inputs if e is not None], *self.captures)

    def __getitem__(self, index: int) -> NodeEntry:
        count = len(self.output_names)
        if not -count <= index < count:
            raise GraphError(
                f"there is no output {index}: the node has {count}",
                where=f"node {self.name!r} ({self.op})",
                remedy="Give the number of outputs as n_outputs= when the node is made",
            )
        return NodeEntry(self, index % count)

    def __iter__(self) -> Any:
        return iter(self.outputs)

    def evolve(self, **changes: Any) -> Node:
        """A copy with these fields changed; place and affinity are kept."""
        if "attrs" in changes:
            changes["attrs"] = frozen_attrs(changes["attrs"])
        if not changes.keys() <= _FIELDS:
            raise GraphError(f"a node has no {', '.join(sorted(changes.keys() - _FIELDS))}", where=f"node {self.name!r}")
        changed = _copied(self)
        for name, value in changes.items():
            setattr(changed, name, value)
        changed.__class__ = Node
        return changed

    def reading(self, inputs: tuple[NodeEntry | None, ...]) -> Node:
        """`evolve(inputs=inputs)`, for rewrites of whole graphs."""
        changed = _copied(self)
        changed.inputs = inputs
        changed.__class__ = Node
        return changed

    def __copy__(self) -> Node:
        return self.evolve()

    def __deepcopy__(self, memo: dict[int, Any]) -> Node:
        copy_nodes(topological(reachable([self])), memo)
        duplicate: Node = memo[id(self)]
        return duplicate

    def __reduce__(self) -> tuple[Any, ...]:
        """The pickled form, with the nodes that this one depends on; a graph pickles its nodes in order, without recursion."""
        values = {f.name: getattr(self, f.name) for f in fields(Node)}
        return _restored, ({**values, "attrs": dict(self.attrs), "metadata": dict(self.metadata)},)

    def __delattr__(self, name: str) -> None:
        if name == "affinity":
            raise GraphError("an affinity cannot be deleted; set it to None", where=f"node {self.name!r} ({self.op})")
        setattr(self, name, None)

    def __repr__(self) -> str:
        what = "variable" if self.op is None else self.op
        return f"<Node {self.name!r} {what}>"


_FIELDS = frozenset(f.name for f in fields(Node))


def _restored(values: Mapping[str, Any]) -> Node:
    """The unpickled node. The clock is advanced, so that nodes made later come after it."""
    _clock.pass_by(values["place"])
    return Node(**{**values, "attrs": frozen_attrs(values["attrs"]), "metadata": frozen_attrs(values["metadata"])})


def _copied(node: Node) -> Any:
    duplicate: Any = _MutableNode()
    duplicate.name = node.name
    duplicate.op = node.op
    duplicate.inputs = node.inputs
    duplicate.attrs = node.attrs
    duplicate.output_names = node.output_names
    duplicate.output_types = node.output_types
    duplicate.domain = node.domain
    duplicate.captures = node.captures
    duplicate.subgraph = node.subgraph
    duplicate.value = node.value
    duplicate.after = node.after
    duplicate.metadata = node.metadata
    duplicate.place = node.place
    duplicate.affinity = node.affinity
    return duplicate


Memo = dict[int, Any]
"""The copies made so far by `copy.deepcopy`, by the identity of the original."""


def copy_nodes(nodes: Iterable[Node], memo: Memo) -> None:
    """Copies nodes in topological order. Bodies are copied with them; arrays, which never change, are shared."""
    for node in nodes:
        if id(node) in memo:
            continue

        def copied(entry: NodeEntry) -> NodeEntry:
            return NodeEntry(memo[id(entry.node)], entry.index)

        memo[id(node)] = node.evolve(
            inputs=tuple([None if entry is None else copied(entry) for entry in node.inputs]),
            captures=tuple(map(copied, node.captures)),
            after=tuple([memo[id(other)] for other in node.after]),
            attrs={key: _copied_value(value, memo) for key, value in node.attrs.items()},
            subgraph=copy.deepcopy(node.subgraph, memo),
        )


def _copied_value(value: Any, memo: Memo) -> Any:
    return value if isinstance(value, np.ndarray) else copy.deepcopy(value, memo)


_INPUT = Node("", None)


def input_like(entry: NodeEntry, name: str, value: str, affinity: str | None) -> Node:
    """A graph input with the type of a value and the place of its node, under these names."""
    variable = _copied(_INPUT)
    variable.name, variable.output_names, variable.output_types = name, (value,), (entry.type,)
    variable.place, variable.affinity = entry.node.place, affinity
    variable.__class__ = Node
    return variable


def call_like(
    template: Node,
    body: Graph,
    name: str,
    inputs: tuple[NodeEntry, ...],
    outputs: Sequence[tuple[Node, int]],
    place: int,
    affinity: str | None,
) -> Node:
    """A copy of a call, of this body, with the names and types of these values: (node, index of the output)."""
    call = _copied(template)
    call.subgraph, call.name, call.inputs, call.place, call.affinity = body, name, inputs, place, affinity
    call.output_names = tuple([node.output_names[i] for node, i in outputs])
    call.output_types = tuple([node.output_types[i] for node, i in outputs])
    call.__class__ = Node
    return call


def name_node(node: Node, name: str, outputs: tuple[str, ...]) -> None:
    """Names an unnamed node and its values (done by the first graph that contains it)."""
    object.__setattr__(node, "name", name)
    object.__setattr__(node, "output_names", outputs)


def replace_attributes(node: Node, attributes: Mapping[str, Any]) -> None:
    """Replaces the node's attributes: bodies whose ops were renamed by the first graph that contains it."""
    object.__setattr__(node, "attrs", frozen_attrs(attributes))


def as_entry(value: Node | NodeEntry) -> NodeEntry:
    """The value itself, or output 0 of a node."""
    if isinstance(value, NodeEntry):
        return value
    if isinstance(value, Node):
        return value[0]
    raise GraphError(
        f"a value is a Node or a NodeEntry, not {type(value).__name__}",
        remedy="Wrap arrays with constant(array) and inputs with variable(name, dtype, shape)",
    )


def as_entries(values: Sequence[Node | NodeEntry]) -> tuple[NodeEntry, ...]:
    """The values; a node means its output 0."""
    if not isinstance(values, Iterable):
        raise GraphError(f"values are a sequence of nodes and entries, not {type(values).__name__}", remedy="Write [node]")
    return tuple(map(as_entry, values))
