"""Images whose height and width are multiples of a network's total stride.

If a network halves an image five times, its sizes are polynomials only for images of 32, 64, 96, ... pixels. The symbol of an
image's size then counts such grains: the height is `32*s1`. Other sizes are compiled one by one."""

from __future__ import annotations

import math
from collections.abc import Mapping

from partita.accelerators.tvm.sizes.extent import Indivisible
from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.graph.types import TensorType

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
