"""The symbols of a graph's inputs, and the size that each represents.

Symbols get the same short names in every graph, and are at least 1. A size may have to equal other sizes; be one less than its
symbol, as a dimension of a decoder's cache, which is 0 in its first call; or be a multiple of its symbol. If a network halves an
image five times, its sizes are polynomials only for images of 32, 64, 96, ... pixels: the symbol of an image's size then counts
such grains, and the height is `32*s1`. Other sizes are compiled one by one."""

from __future__ import annotations

import math
from collections.abc import Mapping

from partita.accelerators.errors import CompileError
from partita.accelerators.tvm.sizes.extent import Indivisible
from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.graph.symbols import AnySize, Sizes, Symbol, replaced, symbol
from partita.graph.types import Dim, TensorType

READERS = frozenset("Concat Identity Shape Size Transpose".split())
"""Ops that can read a tensor without elements."""


def past_dimensions(graph: Graph) -> frozenset[tuple[Node, int]]:
    """The axes along which inputs are first operands of a Concat whose result is an output. Linear."""
    pasts = set[tuple[Node, int]]()
    for entry in graph.outputs:
        node = entry.node
        if node.op != "Concat" or node.domain or len(node.inputs) < 2 or node.inputs[0] is None:
            continue
        past = node.inputs[0]
        rank = past.type.rank if isinstance(past.type, TensorType) else None
        if past.node in graph.inputs and rank:
            pasts.add((past.node, int(node.attrs.get("axis", 0)) % rank))
    return frozenset(pasts)


LARGEST = 512
"""Largest grain, in pixels of an image or samples of a signal."""

Grains = Mapping[str, int]
"""Number of pixels that a symbol counts, by its name; 1 for all others."""


def name_of(size: str | None, node: Node, dimension: int) -> object:
    """The key of a dynamic size of an input: its declared symbol, or node and dimension if it has no name."""
    return (node.name, dimension) if size is None else size


def image_symbols(graph: Graph) -> frozenset[object]:
    """The keys of those sizes that are only used as sizes of images, signals or volumes. The second dimension of a float matrix
    may be a signal's length."""
    inside: set[object] = set()
    outside: set[object] = set()
    for node in graph.inputs:
        known = node[0].type
        shape = known.shape if isinstance(known, TensorType) and known.shape is not None else ()
        first = 1 if len(shape) == 2 and isinstance(known, TensorType) and known.dtype.startswith("float") else 2
        for d, size in enumerate(shape):
            if not isinstance(size, int):
                (inside if d >= first else outside).add(name_of(size, node, d))
    return frozenset(inside - outside)


def coarser(grains: Grains, error: Indivisible, images: frozenset[str]) -> Grains | None:
    """Grains with which the size of the error is divisible; None if there are none. `images` are the symbols of image sizes."""
    wanted = dict(grains)
    for monomial, count in error.extent.terms.items():
        missing = error.divisor // math.gcd(count, error.divisor)
        if not monomial or missing == 1:
            continue
        if len(monomial) != 1 or monomial[0] not in images:
            return None
        wanted[monomial[0]] = max(wanted.get(monomial[0], 1), grains.get(monomial[0], 1) * missing)
    return wanted if wanted != grains and max(wanted.values()) <= LARGEST else None


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
        """The symbols that are not themselves the size of an input, but from which such a size is computed."""
        return tuple([name for name in (*self._grains, *sorted(self.pasts)) if name not in self._solved])


def _shape(node: Node) -> tuple[Dim, ...]:
    known = node[0].type
    if not isinstance(known, TensorType) or known.shape is None:
        raise CompileError(f"input {node.name!r} has any number of dimensions")
    return known.shape
