"""The graph: nodes in topological order between named inputs and outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import attrs

from partita.graph.copying import check_attributes, copied_attributes
from partita.graph.errors import GraphError, MissingDependency, did_you_mean
from partita.graph.formatting import counted
from partita.graph.gc_pause import collector_paused
from partita.graph.names import check_names, check_output_names, name_bodies_apart, name_nodes
from partita.graph.node import Body, Node, NodeEntry, as_entries, copy_nodes
from partita.graph.order import is_ordered, reachable, sources, topological
from partita.graph.text import print_graph

if TYPE_CHECKING:
    import networkx

    from partita.graph.file_state import FileState

@attrs.frozen(slots=True, eq=False)
class GraphIndex:
    """Nodes by their number in topological order, and the edges between them."""

    nodes: tuple[Node, ...]
    """The nodes in topological order; a node's number is its position."""
    number: dict[Node, int]
    """The number of each node."""
    producers: list[list[int]]
    """Per node the numbers of those it depends on (inputs in order, captures, control), once per edge."""
    consumers: list[list[int]]
    """Per node the numbers of those that depend on it, ascending and distinct."""

    def __len__(self) -> int:
        return len(self.nodes)


def build_index(graph: Graph) -> GraphIndex:
    """Builds the index in one pass over nodes and edges."""
    number = {node: i for i, node in enumerate(graph.nodes)}
    producers = [[number[source] for source in sources(node)] for node in graph.nodes]
    consumers: list[list[int]] = [[] for _ in producers]
    for i, origins in enumerate(producers):
        for j in origins:
            known = consumers[j]
            if not known or known[-1] != i:
                known.append(i)
    return GraphIndex(graph.nodes, number, producers, consumers)


DEFAULT_OPSET = 21
"""The version of ONNX's own op set that a graph made in Python has."""

NOTES = "notes"
"""The graph attribute that holds notes on how the graph's file deviated from ONNX, and how it was read."""

DEFERRED = ("nodes", "inputs", "outputs", "output_names")
"""The parts that a deferred graph lacks until one of them is read."""

NEWEST_VERSION = 2**31 - 1
"""The largest opset version that onnx accepts."""


class _MutableGraph(Body):
    """A mutable graph with the layout of `Graph`, which it becomes by changing its class: that is several times faster."""

    __slots__ = (
        "name", "nodes", "inputs", "outputs", "output_names", "opsets", "attrs", "metadata", "_index", "_by_name", "_typed",
        "_file", "_build",
    )


class Graph(_MutableGraph):
    """A network: everything that `outputs` need, the inputs, and any further `nodes` to keep although nothing reads them.

    Nodes may be shared with other graphs. Only `attrs` (results that passes leave for each other) may be written to."""

    __slots__ = ()

    name: str
    nodes: tuple[Node, ...]
    """All nodes in topological order, variables and constants too."""
    inputs: tuple[Node, ...]
    """The variables, in argument order."""
    outputs: tuple[NodeEntry, ...]
    """The values returned; a value may occur several times."""
    output_names: tuple[str, ...]
    """The outputs' own names."""
    opsets: Mapping[str, int]
    """The version of each op domain ("" is ONNX's own), shared by all bodies."""
    attrs: dict[str, Any]
    """Results that passes leave for each other, and the user's own attributes."""
    metadata: Mapping[str, str]
    """Free text by key, carried from file to file."""
    _index: GraphIndex | None
    _by_name: dict[str, Node] | None
    _typed: tuple[Graph, tuple[str, ...]] | None
    _file: FileState | None
    _build: dict[str, Any] | None

    def __init__(
        self,
        outputs: Sequence[Node | NodeEntry],
        inputs: Sequence[Node] | None = None,
        name: str = "net",
        opsets: Mapping[str, int] | None = None,
        *,
        output_names: Sequence[str] | None = None,
        nodes: Iterable[Node] = (),
        attrs: Mapping[str, Any] | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        with collector_paused():
            entries = as_entries([outputs] if isinstance(outputs, (Node, NodeEntry)) else outputs)
            listed = _variables(inputs)
            ordered = _ordered([*listed, *(e.node for e in entries)], tuple(nodes))
            check_names(ordered)
            name_nodes(ordered)
            name_bodies_apart(ordered)
            put = object.__setattr__
            put(self, "name", name)
            put(self, "nodes", ordered)
            put(self, "inputs", _all_inputs(ordered, listed, inputs is not None, name))
            put(self, "outputs", entries)
            put(self, "output_names", _output_names(entries, output_names))
            put(self, "opsets", _opsets(opsets))
            put(self, "attrs", dict(attrs or {}))
            put(self, "metadata", dict(metadata or {}))
            put(self, "_index", None)
            put(self, "_by_name", None)
            put(self, "_typed", None)
            put(self, "_file", None)
            put(self, "_build", None)

    @classmethod
    def assembled(
        cls,
        nodes: tuple[Node, ...],
        inputs: Sequence[Node],
        outputs: Sequence[NodeEntry],
        name: str,
        opsets: Mapping[str, int],
        output_names: tuple[str, ...] | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Graph:
        """A graph from parts that are known to fit, for passes that make many or large graphs: `nodes` are all nodes in
        the order of `topological`, with unique names. Nothing is checked."""
        graph = _empty(name, opsets)
        graph.nodes = nodes
        graph.inputs = tuple(inputs)
        graph.outputs = tuple(outputs)
        graph.output_names = output_names or tuple([entry.name for entry in outputs])
        if metadata:
            graph.metadata.update(metadata)
        graph.__class__ = cls
        return graph

    @classmethod
    def deferred(cls, build: Callable[[], Graph], name: str, opsets: Mapping[str, int]) -> Graph:
        """The graph that `build` makes, with this name and these opsets, made when one of its parts is read: for passes that
        make many bodies."""
        graph = _empty(name, opsets)
        graph._build = {"function": build}
        graph.__class__ = cls
        return graph

    if not TYPE_CHECKING:  # else no misspelt attribute would be found

        def __getattr__(self, name: str) -> Any:
            """Makes a deferred graph's parts. Of several threads that do so at the same time, the first one's are taken."""
            if name not in DEFERRED:
                raise AttributeError(f"a graph has no attribute {name!r}")
            build = self._build
            if build is not None:
                built = build.setdefault("graph", build["function"]())
                for part in DEFERRED:
                    object.__setattr__(self, part, getattr(built, part))
                object.__setattr__(self, "_build", None)
            return object.__getattribute__(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        raise GraphError(
            f"a graph never changes once it is made ({name} was to be set)",
            where=f"graph {self.name!r}",
            remedy="Make another with graph.evolve(...) or a pass",
        )

    def __delattr__(self, name: str) -> None:
        setattr(self, name, None)

    @property
    def opset(self) -> int:
        """The version of ONNX's own ops."""
        return self.opsets.get("", 1)

    @property
    def index(self) -> GraphIndex:
        """The graph as integers, built once."""
        index = self._index
        if index is None:
            with collector_paused():
                index = build_index(self)
            object.__setattr__(self, "_index", index)
        return index

    def consumers(self, value: Node | NodeEntry | str) -> tuple[Node, ...]:
        """The nodes of this graph that read `value` (for a node, any of its values) as an input or capture, in order, each once.

        This is a property of the graph and not of the node: graphs share nodes, and each has its own consumers."""
        named = self[value] if isinstance(value, str) else value
        entries = named.outputs if isinstance(named, Node) else (named,)
        maker = named if isinstance(named, Node) else named.node
        number = self.index.number.get(maker)
        if number is None:
            raise GraphError(
                f"node {maker.name!r} is not in the graph",
                where=f"graph {self.name!r}",
                remedy="A pass returns a graph with nodes of its own; look the node up by name: graph[name]",
            )
        readers = [self.nodes[i] for i in self.index.consumers[number]]
        return tuple([reader for reader in readers if not set(entries).isdisjoint(reader.reads)])

    @property
    def typed(self) -> tuple[Graph, tuple[str, ...]] | None:
        """The cached result of type inference: this graph with types, and the notes."""
        return self._typed

    def keep_typed(self, typed: Graph, notes: tuple[str, ...]) -> None:
        """Caches the result of type inference; the graph itself does not change."""
        object.__setattr__(self, "_typed", (typed, notes))

    @property
    def file(self) -> FileState | None:
        """State of the ONNX file when the graph was read from it; None unless the file holds exactly this graph."""
        return self._file

    def keep_file(self, file: FileState) -> None:
        """Sets the file that the graph was read from."""
        object.__setattr__(self, "_file", file)

    def __getitem__(self, name: str) -> Node:
        node = self._named().get(name)
        if node is None:
            hint = did_you_mean(str(name), self._named()) or "graph.nodes lists the nodes"
            raise GraphError(f"there is no node {name!r}", where=f"graph {self.name!r}", remedy=hint)
        return node

    def __contains__(self, name: object) -> bool:
        return name in self._named()

    def _named(self) -> dict[str, Node]:
        by_name = self._by_name
        if by_name is None:
            by_name = {node.name: node for node in self.nodes}
            object.__setattr__(self, "_by_name", by_name)
        return by_name

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    def __len__(self) -> int:
        return len(self.nodes)

    def evolve(self, **changes: Any) -> Graph:
        """A copy with these constructor arguments changed; unread nodes are kept unless `nodes` is given."""
        if changes.keys() == {"attrs"}:
            return self._with_attrs(changes["attrs"])
        fields: dict[str, Any] = {
            "outputs": self.outputs,
            "inputs": self.inputs,
            "name": self.name,
            "opsets": self.opsets,
            "output_names": self.output_names,
            "nodes": self.nodes,
            "attrs": self.attrs,
            "metadata": self.metadata,
        }
        return Graph(**{**fields, **changes})

    def _with_attrs(self, attrs: Mapping[str, Any]) -> Graph:
        """A copy that shares everything else, including the index; nothing is sorted again."""
        graph = Graph.__new__(Graph)
        for part in _MutableGraph.__slots__:
            object.__setattr__(graph, part, getattr(self, part))
        object.__setattr__(graph, "attrs", dict(attrs))
        return graph

    def __copy__(self) -> Graph:
        return self._with_attrs(self.attrs)

    def __deepcopy__(self, memo: dict[int, Any]) -> Graph:
        """A copy with its own nodes, whose affinities may be set; arrays, which never change, are shared."""
        with collector_paused():
            copy_nodes(self.nodes, memo)
            nodes = tuple([memo[id(node)] for node in self.nodes])
            inputs = [memo[id(node)] for node in self.inputs]
            outputs = [NodeEntry(memo[id(entry.node)], entry.index) for entry in self.outputs]
            duplicate = Graph.assembled(nodes, inputs, outputs, self.name, self.opsets, self.output_names, self.metadata)
            memo[id(self)] = duplicate
            duplicate.attrs.update(copied_attributes(self.attrs, memo, self.name))
        return duplicate

    def __reduce__(self) -> tuple[Any, ...]:
        """The pickled form: the nodes in topological order."""
        check_attributes(self.attrs, self.name)
        parts = (self.nodes, self.inputs, self.outputs, self.name, dict(self.opsets), self.output_names, dict(self.metadata))
        return _restored, parts, self.attrs

    def __setstate__(self, attrs: Mapping[str, Any]) -> None:
        self.attrs.update(attrs)

    def to_networkx(self) -> networkx.MultiDiGraph:
        """The graph as a networkx graph: nodes by name with `op` and `node`; one edge per value read, with the value's name,
        and per control dependency."""
        try:
            import networkx
        except ImportError as error:
            raise MissingDependency("networkx", None, "a graph of networkx's") from error

        networkx_graph: networkx.MultiDiGraph = networkx.MultiDiGraph(name=self.name)
        for node in self.nodes:
            networkx_graph.add_node(node.name, op=node.op, node=node)
        for node in self.nodes:
            for entry in node.reads:
                networkx_graph.add_edge(entry.node.name, node.name, value=entry.name, type=entry.type)
            for source in node.after:
                networkx_graph.add_edge(source.name, node.name, value=None, type=None)
        return networkx_graph

    def __str__(self) -> str:
        return print_graph(self)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """Rich display in notebooks: a picture, or a summary of a large graph."""
        from partita.graph.pictures import mimebundle  # start-up

        return mimebundle(self)

    def __repr__(self) -> str:
        ops = sum(node.is_op for node in self.nodes)
        inputs, outputs = counted(len(self.inputs), "input"), counted(len(self.outputs), "output")
        return f"<Graph {self.name!r}: {inputs}, {counted(ops, 'op')}, {outputs}>"


def _empty(name: str, opsets: Mapping[str, int]) -> Any:
    """A graph that has no nodes yet."""
    graph: Any = _MutableGraph()
    graph.name = name
    graph.opsets = opsets
    graph.attrs = {}
    graph.metadata = {}
    graph._index = graph._by_name = graph._typed = graph._file = graph._build = None
    return graph


def _restored(nodes: tuple[Node, ...], inputs: Any, outputs: Any, name: str, opsets: Any, names: Any, metadata: Any) -> Graph:
    """The graph that was pickled."""
    return Graph.assembled(nodes, inputs, outputs, name, _opsets(opsets), names, metadata)


def _opsets(given: Mapping[str, int] | None) -> Mapping[str, int]:
    if given is not None and not isinstance(given, Mapping):
        raise GraphError(f"opsets are versions by domain, not {given!r:.60}", remedy='Write {"": 21}')
    for domain, version in (given or {}).items():
        if not isinstance(version, int) or not 1 <= version <= NEWEST_VERSION:
            cause = f"no opset of domain {domain or 'ai.onnx'!r} has the version {version!r:.60}"
            raise GraphError(cause, remedy='Write {"": 21}')
    return MappingProxyType(dict(given or {"": DEFAULT_OPSET}))


INSTEAD = {
    "partita.accelerators.runtime.compiled_model.CompiledModel": "m.export(path) writes a compiled model",
    "torch.nn.modules.module.Module": "pt.from_torch(module, inputs) makes a graph of a torch module",
    "torch.export.exported_program.ExportedProgram": "pt.from_torch(program) makes a graph of it",
}
"""Remedies by the classes whose objects are given in place of a graph."""


def require_graph(value: Any) -> Graph:
    """Returns the value if it is a graph, and raises otherwise."""
    if isinstance(value, Graph):
        return value
    kinds = [f"{base.__module__}.{base.__name__}" for base in type(value).__mro__]
    remedy = next((INSTEAD[kind] for kind in kinds if kind in INSTEAD), "pt.load(...) reads a model from a file")
    raise GraphError(f"a Graph is expected, not {type(value).__name__}", remedy=remedy)


def _ordered(roots: list[Node], kept: tuple[Node, ...]) -> tuple[Node, ...]:
    """All nodes in topological order. Nothing is sorted if the nodes to keep are all nodes and are in order already."""
    known = set(kept)
    if len(known) == len(kept) and known.issuperset(roots) and is_ordered(kept):
        return kept
    return topological(reachable([*roots, *kept]))


def _variables(inputs: Sequence[Node] | None) -> list[Node]:
    for node in inputs or ():
        if not (isinstance(node, Node) and node.is_variable):
            raise GraphError(f"{node!r} is not a graph input", remedy="Make graph inputs with variable(name, dtype, shape)")
    listed = list(inputs or ())
    if len(set(listed)) < len(listed):
        raise GraphError("an input is listed twice", where=f"inputs {[n.name for n in listed]}")
    return listed


def _all_inputs(ordered: tuple[Node, ...], listed: list[Node], complete: bool, name: str) -> tuple[Node, ...]:
    variables = [node for node in ordered if node.is_variable]
    if not complete:
        return tuple(variables)
    if len(variables) > len(listed):
        missing = [node.name for node in variables if node not in set(listed)]
        raise GraphError(
            f"the graph reads variables that are not among its inputs: {', '.join(missing)}",
            where=f"graph {name!r}",
            remedy="List them in inputs=, or leave inputs out",
        )
    return tuple(listed)


def _output_names(outputs: tuple[NodeEntry, ...], given: Sequence[str] | None) -> tuple[str, ...]:
    if given is None:
        return _distinct([entry.name for entry in outputs])
    if len(given) != len(outputs):
        raise GraphError(f"there are {len(outputs)} outputs and {len(given)} output names")
    check_output_names(outputs, given)
    return tuple(given)


def _distinct(names: list[str]) -> tuple[str, ...]:
    """The names, with a number appended to repeated ones."""
    taken = set(names)
    seen: set[str] = set()
    distinct = []
    for name in names:
        count = 0
        own = name
        while own in seen or (count and own in taken):
            count += 1
            own = f"{name}_{count}"
        seen.add(own)
        distinct.append(own)
    return tuple(distinct)
