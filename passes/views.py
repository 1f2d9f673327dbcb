"""`g.attrs["shape"]` and `g.attrs["dtype"]`: views of the types of a graph's values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from partita.graph.errors import GraphError, did_you_mean
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.graph.types import Dim, SparseTensorType, TensorType, Type


class TypeView(Mapping[str, Any]):
    """One aspect of the types of a graph's values, by value name or by entry; None if unknown.

    The graph holds its views, and they hold its nodes but not the graph: so it is freed, with its weights, when its last
    user drops it."""

    __slots__ = ("aspect", "name", "nodes", "_of", "_by_name")

    def __init__(self, aspect: str, of: Callable[[Type | None], Any], name: str, nodes: tuple[Node, ...]) -> None:
        self.aspect = aspect
        """The aspect: "shape" or "dtype"."""
        self.name = name
        """The name of the graph."""
        self.nodes = nodes
        """Its nodes."""
        self._of = of
        self._by_name: dict[str, NodeEntry] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return TypeView, (self.aspect, self._of, self.name, self.nodes)

    def is_of(self, graph: Graph) -> bool:
        """True if it is a view of this graph."""
        return self.nodes == graph.nodes and self.name == graph.name

    def seen_on(self, graph: Graph) -> TypeView:
        """The same view of another graph."""
        return TypeView(self.aspect, self._of, graph.name, graph.nodes)

    def __getitem__(self, key: str | NodeEntry) -> Any:
        if isinstance(key, NodeEntry):
            return self._of(key.type)
        entry = self._names().get(key)
        if entry is None:
            hint = did_you_mean(str(key), self._names())
            raise GraphError(f"there is no value {key!r}", where=f"graph {self.name!r}", remedy=hint)
        return self._of(entry.type)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, NodeEntry) or key in self._names()

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._names())

    def __repr__(self) -> str:
        return f"<{self.aspect} of the {len(self)} values of {self.name!r}>"

    def _names(self) -> dict[str, NodeEntry]:
        if self._by_name is None:
            values = (
                (name, node, i) for node in self.nodes for i, name in enumerate(node.output_names)
            )
            self._by_name = {name: NodeEntry(node, i) for name, node, i in values if name}
        return self._by_name


def shape_view(graph: Graph) -> TypeView:
    """The shapes of the graph's values."""
    return TypeView("shape", _shape, graph.name, graph.nodes)


def dtype_view(graph: Graph) -> TypeView:
    """The element types of the graph's values."""
    return TypeView("dtype", _dtype, graph.name, graph.nodes)


def _shape(known: Type | None) -> tuple[Dim, ...] | None:
    return known.shape if isinstance(known, (TensorType, SparseTensorType)) else None


def _dtype(known: Type | None) -> str | None:
    return known.dtype if isinstance(known, (TensorType, SparseTensorType)) else None
