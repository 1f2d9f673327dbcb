"""The symbols of a graph's inputs, and the size that each represents.

Symbols get the same short names in every graph, and are at least 1. A size may be a multiple of its symbol (`multiples.py`), one
less than it (`cache_dims.py`), or have to equal other sizes."""

from __future__ import annotations

from collections.abc import Mapping

from partita.accelerators.errors import CompileError
from partita.accelerators.tvm.sizes.cache_dims import past_dimensions
from partita.accelerators.tvm.sizes.multiples import Grains, image_symbols, name_of
from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.graph.symbols import AnySize, Sizes, Symbol, replaced, symbol
from partita.graph.types import Dim, TensorType


class Symbols:
    """The symbols of one graph's inputs."""

    def __init__(self, graph: Graph, grains: Grains) -> None:
        self.pasts: frozenset[str] = frozenset()
        """The symbols that are one more than a size, which may be 0."""
        self._grains = grains
        self._graph = graph
        self._solved: set[str] = set()
        """The symbols that have to equal other sizes."""
        self._sizes: dict[object, AnySize] = {}
        """The size of each symbol that the graph declares."""
        self._names: dict[object, str] = {}
        """The short name of each declared symbol, and of each size without a name."""
        self._add(graph)

    def _add(self, graph: Graph) -> None:
        for node in graph.inputs:
            for d, size in enumerate(_shape(node)):
                if not isinstance(size, int):
                    self._names.setdefault(name_of(size, node, d), f"s{len(self._names)}")
        sizes = [(_shape(node)[d], node, d) for node, d in past_dimensions(graph)]
        pasts = {self._names[name_of(size, node, d)] for size, node, d in sizes if not isinstance(size, int)}
        self.pasts = frozenset(pasts - self._grains.keys())
        for of, name in self._names.items():
            self._sizes[of] = symbol(name) if name in self.pasts else symbol(name, least=1) * self._grains.get(name, 1)

    def inputs(self, graph: Graph) -> list[Sizes]:
        """The sizes of the inputs of a graph with the same inputs."""
        sizes = []
        for node in graph.inputs:
            dims = enumerate(_shape(node))
            sizes.append(tuple([dim if isinstance(dim, int) else self._sizes[name_of(dim, node, d)] for d, dim in dims]))
        return sizes

    def stated(self, size: Dim) -> AnySize | None:
        """The size of a declared dimension; None for a symbol that no input has."""
        if isinstance(size, int):
            return size
        return self._sizes.get(size)

    def learn(self, meanings: Mapping[Symbol, AnySize]) -> None:
        """Records the sizes that symbols have to equal."""
        self._solved |= {one.name for one in meanings}
        self._sizes = {of: replaced(size, meanings) for of, size in self._sizes.items()}

    @property
    def images(self) -> frozenset[str]:
        """The symbols of image sizes, which may count several pixels each."""
        images = image_symbols(self._graph)
        return frozenset(name for size, name in self._names.items() if size in images)

    @property
    def counting(self) -> tuple[str, ...]:
        """The symbols that are no input's size themselves, but from which such a size is computed."""
        return tuple([name for name in (*self._grains, *sorted(self.pasts)) if name not in self._solved])


def _shape(node: Node) -> tuple[Dim, ...]:
    known = node[0].type
    if not isinstance(known, TensorType) or known.shape is None:
        raise CompileError(f"input {node.name!r} has any number of dimensions")
    return known.shape
