"""A subgraph without what it tells about its model: random weights of the same statistics, and names that are numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from graph.graph import Graph
from graph.node import Node
from graph.rewrite import Rewriter, map_bodies, rewrite

FEW = 8
"""A constant of fewer numbers is a size, an axis or a bound rather than a weight, and stays."""

BYTES = ("int8", "uint8")
"""The integers that weights are quantized to; other integers are positions and sizes, and stay."""


def anonymous(graph: Graph, seed: int = 0) -> Graph:
    """The graph with random weights, and names and metadata that say nothing."""
    random = np.random.default_rng(seed)
    numbers: dict[str, int] = {}

    def named(kind: str) -> str:
        numbers[kind] = numbers.get(kind, -1) + 1
        return f"{kind}{numbers[kind]}"

    def visit(node: Node, rewriter: Rewriter) -> None:
        name = named("input" if node.is_variable else "weight" if node.is_constant else "node")
        single = len(node.output_names) == 1
        outputs = tuple([value and (name if single else f"{name}_{i}") for i, value in enumerate(node.output_names)])
        changes: dict[str, Any] = {"name": name, "output_names": outputs, "metadata": {}, "affinity": None}
        if node.is_constant:
            changes["value"] = random_like(node.value, random)
        inner = map_bodies(rewriter.rebuilt(node), lambda body: anonymous(body, seed))
        rewriter.keep(node, inner.evolve(**changes))

    renamed = rewrite(graph, visit)
    return renamed.evolve(name="capsule", output_names=[f"output{i}" for i in range(len(renamed.outputs))], metadata={})


def random_like(array: Any, random: np.random.Generator) -> Any:
    """Normal random numbers with the mean, the deviation and the bounds of a weight; anything else as it is."""
    is_float = isinstance(array, np.ndarray) and (array.dtype.kind == "f" or "float" in array.dtype.name)
    if not isinstance(array, np.ndarray) or array.size < FEW or not (is_float or array.dtype.name in BYTES):
        return array
    wide = array.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    if not finite.size:
        return array
    drawn = random.normal(finite.mean(), finite.std(), array.shape).clip(finite.min(), finite.max())
    drawn = drawn if is_float else np.rint(drawn)
    return np.where(np.isfinite(wide), drawn, wide).astype(array.dtype)
