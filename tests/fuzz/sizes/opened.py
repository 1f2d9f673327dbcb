"""A model with some sizes of its inputs left open, and sizes to call it with, most of which contradict something."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence

import attrs
import numpy as np

import partita as pt
from partita.graph.node import Node
from partita.graph.rewrite import Rewriter, rewrite
from partita.graph.types import Array, Dim, TensorType
from tests.fuzz.models.builder import Case, typed

WAYS = ("each", "constant", "shared", "one")
"""Sizes that are left open: each by a symbol of its own; those of one input, with the others as constants; equal ones by one
symbol; a single one."""

Shapes = tuple[tuple[int, ...], ...]
"""The sizes of all inputs."""

LARGEST = 1 << 16
"""Elements of an input."""


@attrs.frozen
class Opened:
    """A graph with symbols, and the arrays that it was drawn with."""

    graph: pt.Graph
    feeds: tuple[Array, ...]

    @property
    def dims(self) -> tuple[tuple[Dim, ...], ...]:
        """The declared sizes of the inputs."""
        return tuple([tuple(node[0].type.shape) for node in self.graph.inputs])  # type: ignore[union-attr, arg-type]

    @property
    def base(self) -> Shapes:
        """The sizes that the model was drawn with."""
        return tuple([array.shape for array in self.feeds])

    def fitted(self, shapes: Shapes) -> list[Array]:
        """The arrays repeated or cut to these sizes."""
        return [fitted(array, shape) for array, shape in zip(self.feeds, shapes, strict=True)]


def fitted(array: Array, shape: tuple[int, ...]) -> Array:
    """The array repeated or cut to these sizes; zeros for one without elements."""
    if not array.size:
        return np.zeros(shape, array.dtype)
    for axis, size in enumerate(shape):
        array = np.take(array, np.arange(size) % array.shape[axis], axis=axis)
    return np.ascontiguousarray(array).reshape(shape)


def opened(case: Case, way: str, rng: random.Random) -> Opened | None:
    """The case with sizes left open in this way; None where it has none to leave open, or bodies with sizes of their own."""
    inputs = [node for node in case.graph.inputs if isinstance(node[0].type, TensorType)]
    places = [(node, axis) for node in inputs for axis in range(len(node[0].type.shape))]  # type: ignore[union-attr, arg-type]
    if not places or len(inputs) != len(case.graph.inputs) or any(node.bodies for node in case.graph.nodes):
        return None
    alone, chosen = rng.choice(places)[0], rng.choice(places)
    dims: dict[Node, tuple[Dim, ...]] = {}
    for i, node in enumerate(inputs):
        shape: Sequence[int] = case.feeds[i].shape
        if way == "each":
            dims[node] = tuple([f"s{i}_{axis}" for axis in range(len(shape))])
        elif way == "constant":
            dims[node] = tuple([f"s{axis}" for axis in range(len(shape))]) if node is alone else ()
        elif way == "shared":
            dims[node] = tuple([f"N{size}" for size in shape])
        else:
            dims[node] = tuple(["N" if (node, axis) == chosen else size for axis, size in enumerate(shape)])
    fixed = {node for node in inputs if node is not alone} if way == "constant" else set()

    def visit(node: Node, rewriter: Rewriter) -> None:
        if node in fixed:
            rewriter.replace(node[0], pt.constant(case.feeds[inputs.index(node)], name=f"{node.name}_fixed")[0])
        elif node in dims:
            kind = node.output_types[0]
            assert isinstance(kind, TensorType)
            rewriter.keep(node, node.evolve(output_types=(TensorType(kind.dtype, dims[node]),)))
        elif node.is_op:
            rewriter.keep(node, rewriter.rebuilt(node, output_types=(None,) * len(node.output_names)))
        else:
            rewriter.keep(node)

    whole = rewrite(case.graph, visit)
    left = [node for node in whole.inputs if node.name not in {other.name for other in fixed}]
    graph = typed(pt.Graph(list(whole.outputs), left, name=whole.name, opsets=whole.opsets))
    feeds = {node.name: feed for node, feed in zip(case.graph.inputs, case.feeds, strict=True)}
    return Opened(graph, tuple([np.asarray(feeds[node.name]) for node in graph.inputs]))


def calls(model: Opened, rng: random.Random, most: int) -> Iterator[Shapes]:
    """Sizes that differ from the first ones in one symbol or two, or in one dimension whose symbol stands elsewhere too; a
    declared size is never left."""
    places = [(i, axis) for i, dims in enumerate(model.dims) for axis, dim in enumerate(dims) if isinstance(dim, str)]
    symbols = sorted({model.dims[i][axis] for i, axis in places})  # type: ignore[type-var]
    wanted: list[dict[tuple[int, int], int]] = []
    for symbol in symbols:
        same = [place for place in places if model.dims[place[0]][place[1]] == symbol]
        wanted += [dict.fromkeys(same, size) for size in _sizes(model.base[same[0][0]][same[0][1]])]
        if len(same) > 1:
            wanted += [{rng.choice(same): size} for size in _sizes(model.base[same[0][0]][same[0][1]])]
    pairs = [{**rng.choice(wanted), **rng.choice(wanted)} for _ in range(len(wanted) // 3)]
    rng.shuffle(wanted)
    seen = {model.base}
    for changes in (*wanted[: most - most // 4], *pairs[: most // 4]):
        shapes = tuple(
            [tuple([changes.get((i, axis), size) for axis, size in enumerate(shape)]) for i, shape in enumerate(model.base)]
        )
        if shapes not in seen and all(math.prod(shape) <= LARGEST for shape in shapes):
            seen.add(shapes)
            yield shapes


def _sizes(size: int) -> list[int]:
    """Sizes on both sides of this one."""
    return sorted({0, 1, max(0, size - 1), size + 1, 2 * size, size + 7} - {size})
