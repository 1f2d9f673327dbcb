"""Images whose height and width are multiples of what a network makes them smaller by.

Where a network takes every second pixel five times over, its sizes are polynomials only of images of 32, 64, 96, ... pixels. So a
symbol of an image's size then counts such grains: the height is stated as `32*s1`. Other sizes are compiled for each."""

from __future__ import annotations

import math
from collections.abc import Mapping

from partita.accelerators.tvm.sizes.extent import Indivisible
from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.graph.types import TensorType

LARGEST = 512
"""No symbol counts grains of more pixels, or of more numbers of a signal."""

Grains = Mapping[str, int]
"""How many pixels a symbol counts, by its name; of others one."""


def name_of(size: str | None, node: Node, dimension: int) -> object:
    """What a size of an input that is not known is called: its symbol; one without a name is a size of its own."""
    return (node.name, dimension) if size is None else size


def image_symbols(graph: Graph) -> frozenset[object]:
    """The names of those sizes that are sizes of images, or of signals and volumes, and nothing else. The second of two sizes of
    numbers of floating point may be a signal's length."""
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
    """Grains with which the size can be divided; None where there are none. `images` are the symbols that count pixels."""
    wanted = dict(grains)
    for monomial, count in error.extent.terms.items():
        missing = error.divisor // math.gcd(count, error.divisor)
        if not monomial or missing == 1:
            continue
        if len(monomial) != 1 or monomial[0] not in images:
            return None
        wanted[monomial[0]] = max(wanted.get(monomial[0], 1), grains.get(monomial[0], 1) * missing)
    return wanted if wanted != grains and max(wanted.values()) <= LARGEST else None
