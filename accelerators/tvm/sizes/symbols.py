"""The symbols of a graph's inputs, and what each stands for.

A symbol gets the same short name in every graph. It may count several pixels each (`grains.py`), be one more than a size that may
be 0 (`pasts.py`), or be said by others (`equations.py`)."""

from __future__ import annotations

from partita.accelerators.errors import CompileError
from partita.accelerators.tvm.sizes.equations import Equations
from partita.accelerators.tvm.sizes.extent import Extent, Size
from partita.accelerators.tvm.sizes.grains import Grains, grained, image_symbols, name_of
from partita.accelerators.tvm.sizes.pasts import past_dimensions
from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.graph.types import Dim, TensorType


class Symbols:
    """The symbols of one graph's inputs."""

    def __init__(self, graph: Graph, grains: Grains) -> None:
        self.equations = Equations()
        """Which symbols others say."""
        self.pasts: frozenset[str] = frozenset()
        """The symbols that are one more than a size."""
        self._grains = grains
        self._graph = graph
        self._own: dict[object, Extent] = {}
        """What each symbol of the graph says of its own; a size without a name has a symbol too."""
        self._add(graph)

    def _add(self, graph: Graph) -> None:
        names = dict[object, str]()
        for node in graph.inputs:
            for d, size in enumerate(_shape(node)):
                if not isinstance(size, int):
                    names.setdefault(name_of(size, node, d), f"s{len(names)}")
        sizes = [(_shape(node)[d], node, d) for node, d in past_dimensions(graph)]
        pasts = {names[name_of(size, node, d)] for size, node, d in sizes if not isinstance(size, int)}
        self.pasts = frozenset(pasts - self._grains.keys())
        for of, name in names.items():
            self._own[of] = Extent({(name,): 1, (): -1}) if name in self.pasts else grained(name, self._grains)

    def inputs(self, graph: Graph) -> list[tuple[Size, ...]]:
        """The sizes of the inputs of the graph, or of one with the same inputs."""
        sizes = []
        for node in graph.inputs:
            dims = enumerate(_shape(node))
            sizes.append(tuple([dim if isinstance(dim, int) else self._said(name_of(dim, node, d)) for d, dim in dims]))
        return sizes

    def _said(self, name: object) -> Size:
        """The size that a symbol of the graph stands for."""
        return self.equations.settled(self._own[name])

    def stated(self, size: Dim) -> Size | None:
        """A size as a file states it; None for a symbol that no input has."""
        if isinstance(size, int):
            return size
        return self._said(size) if size in self._own else None

    @property
    def images(self) -> frozenset[str]:
        """The symbols that may count several pixels each."""
        images = image_symbols(self._graph)
        return frozenset(extent.symbols[0] for size, extent in self._own.items() if size in images)

    @property
    def counting(self) -> tuple[str, ...]:
        """The symbols that are no input's size themselves, but say such sizes."""
        return tuple([name for name in (*self._grains, *sorted(self.pasts)) if name not in self.equations.meanings])


def _shape(node: Node) -> tuple[Dim, ...]:
    known = node[0].type
    if not isinstance(known, TensorType) or known.shape is None:
        raise CompileError(f"input {node.name!r} has any number of dimensions")
    return known.shape
