"""The attentions that read a decoder's caches: found in the graph, and checked by computing them.

Attention is a region of the graph that reads queries, the joined keys and values, and values that follow from sizes (a mask).
Its ops differ between exporters. A region is accepted as causal attention only if it returns the same results: for few earlier
tokens, for the maximum, and for random counts in between. This detects masks that add to the scores, and masks that restart
with each chunk of positions. If a region attends to a sliding window, the size of the window is measured."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from typing import Any

import attrs
import numpy as np

from partita.accelerators.decoder.input_roles import Readers, TooLong, Unfit
from partita.accelerators.decoder.kv_pairs import Cache
from partita.accelerators.decoder.values_at_length import Known
from partita.accelerators.interface.cached_attention import cached_attention
from partita.graph.build import constant, variable
from partita.graph.errors import GraphError
from partita.graph.graph import Graph
from partita.graph.interpret import interpret
from partita.graph.node import Node, NodeEntry
from partita.graph.ops.traits import ops

Array = np.ndarray[Any, Any]

CLOSE = 1e-4
"""Tolerance between two computations of one attention, relative to the largest result."""

LARGE = 16.0
"""Factor of some test queries: large scores reveal that a region clips or soft-caps them."""

MOST = 200
"""Maximum number of ops of one attention."""

MOVES = ops("reshape", "repeating", "forwarding", "casting") | {"Transpose", "Mul", "Div"}
"""The ops that may be between a cache and the product that reads it."""

VALUES = {"MatMul": 1, "Attention": 2}
"""The ops that multiply by keys or values, each with the index of the input that holds the values."""


@attrs.frozen(slots=True, eq=False)
class Region:
    """An attention in a graph."""

    query: NodeEntry
    key: Cache
    value: Cache
    nodes: tuple[Node, ...]
    """Its ops, in order."""
    result: NodeEntry

    def held(self, known: Known) -> int:
        """The number of earlier positions in its caches."""
        return self.key.held(known.past)

    def computed(self, known: Known, opsets: Mapping[str, int], given: Mapping[NodeEntry, Array]) -> Array:
        """Computes its result from these values."""
        inputs = [variable(f"given{i}", array.dtype.name, array.shape) for i, array in enumerate(given.values())]
        values = {entry: node[0] for entry, node in zip(given, inputs, strict=True)}
        for node in self.nodes:
            read = [None if entry is None else values.get(entry) or _constant(entry, known) for entry in node.inputs]
            rebuilt = node.evolve(inputs=tuple(read), affinity=None, after=())
            values.update({old: new for old, new in zip(node.outputs, rebuilt.outputs, strict=True) if old not in given})
        graph = Graph([values[self.result]], inputs, "region", opsets)
        try:
            return np.asarray(interpret(graph, list(given.values()))[0])
        except GraphError as error:
            cause = f"{self.result.name!r} cannot be computed for {self.held(known)} earlier positions: {error.cause}"
            raise TooLong(cause) from None

    def form(self, known: Sequence[Known]) -> tuple[object, ...]:
        """A description of its computation without names: equal for two regions that compute the same."""
        numbers: dict[NodeEntry, object] = {self.query: "query"}
        for end, cache in (("key", self.key), ("value", self.value)):
            numbers |= {cache.joined: end, cache.earlier: f"past {end}", cache.new: f"new {end}"}
        ops = []
        for i, node in enumerate(self.nodes):
            read = [None if e is None else numbers.get(e) or _digest(e, known) for e in node.inputs]
            ops.append((node.op, node.domain, repr(sorted(node.attrs.items())), tuple(read)))
            numbers |= {entry: (i, entry.index) for entry in node.outputs if entry not in numbers}
        return (*ops, self.key.axis, self.value.axis)


def _digest(entry: NodeEntry, known: Sequence[Known]) -> object:
    arrays = [entry.node.value] if entry.node.value is not None else [one.values.get(entry) for one in known]
    return tuple([None if a is None else (str(a.dtype), a.shape, sha256(a.tobytes()).digest()) for a in arrays])


def _constant(entry: NodeEntry, known: Known) -> NodeEntry:
    if entry.node.value is not None:
        return entry
    if entry not in known.values:
        raise Unfit(f"attention reads {entry.name!r}, which does not follow from sizes")
    return constant(known.values[entry])[0]


def find_regions(graph: Graph, caches: Sequence[Cache], follow: Collection[NodeEntry], readers: Readers) -> list[Region]:
    """The attention of each pair of caches; raises Unfit if one is not found. Linear."""
    by_joined = {cache.joined: cache for cache in caches}
    order = {node: i for i, node in enumerate(graph.nodes)}
    regions = []
    for cache in caches:
        node = cache.joined.node
        if node.op == "Attention":
            if cache.joined.index == 1:
                regions.append(_of_op(node, by_joined))
            continue
        mix = _product_of(cache, readers)
        if mix is not None:
            regions.append(_around(mix, cache, by_joined, follow, order))
    read = {cache for region in regions for cache in (region.key, region.value)}
    missing = [cache.past.name for cache in caches if cache not in read]
    if missing:
        raise Unfit(f"no attention was found that reads {missing[0]!r}")
    for region in regions:
        if region.key.keeps != region.value.keeps:
            raise Unfit(f"{region.key.past.name!r} holds other positions than {region.value.past.name!r}")
    return regions


def _of_op(node: Node, by_joined: Mapping[NodeEntry, Cache]) -> Region:
    """The region of an Attention op."""
    query, key, value = node.inputs[0], by_joined.get(node[1]), by_joined.get(node[2])
    if query is None or key is None or value is None:
        raise Unfit(f"{node.name!r} does not return both its keys and its values as caches")
    return Region(query, key, value, (node,), node[0])


def _product_of(cache: Cache, readers: Readers) -> Node | None:
    """The op that multiplies by a cache's values: a MatMul or an Attention. None for keys, which are multiplied before a
    softmax."""
    entry = cache.joined
    while True:
        reading = [(n, slot) for n, slot in readers.get(entry, ()) if n.op in VALUES or (n.op in MOVES and slot == 0)]
        if len(reading) != 1:
            return None
        node, slot = reading[0]
        if node.op in VALUES:
            is_mixed = slot == VALUES[str(node.op)] and (node.op == "Attention" or not _is_scored(node, readers))
            return node if is_mixed else None
        entry = node[0]


def _is_scored(product: Node, readers: Readers) -> bool:
    """True if a softmax reads the product, directly or indirectly."""
    waiting, seen = [product], {product}
    while waiting and len(seen) < MOST:
        for reader, _ in readers.get(waiting.pop()[0], ()):
            if reader.op == "Softmax":
                return True
            if reader.op not in ops("matmul") and reader.output_names and reader not in seen:
                seen.add(reader)
                waiting.append(reader)
    return False


def _around(
    mix: Node, value: Cache, by_joined: Mapping[NodeEntry, Cache], follow: Collection[NodeEntry], order: Mapping[Node, int]
) -> Region:
    """The attention that ends in this product."""
    nodes, keys, queries = {mix}, set[Cache](), list[NodeEntry]()

    def multiplied(node: Node) -> list[NodeEntry]:
        """The inputs to follow from this op. Of a product of queries and keys it records both, and leaves out the queries."""
        product = node.op == "Attention" or (node.op == "MatMul" and node is not mix)
        source = _source(node.inputs[1], by_joined) if product else None
        read = [entry for entry in node.inputs if entry is not None]
        if source is None:
            return read
        keys.add(source)
        queries.append(read[0])
        return read[1:]

    waiting = multiplied(mix)
    while waiting:
        entry = waiting.pop()
        node = entry.node
        if entry in by_joined or entry in follow or node.value is not None or node in nodes:
            continue
        if node.is_variable or node.bodies or len(nodes) > MOST:
            raise Unfit(f"{mix.name!r} reads {entry.name!r}, which is not part of attention")
        nodes.add(node)
        waiting += multiplied(node)
    if len(keys) != 1 or len(queries) != 1:
        raise Unfit(f"{mix.name!r} is not attention to one cache of keys")
    return Region(queries[0], keys.pop(), value, tuple(sorted(nodes, key=order.__getitem__)), mix[0])


def _source(entry: NodeEntry | None, by_joined: Mapping[NodeEntry, Cache]) -> Cache | None:
    """The cache that a value is derived from by moves."""
    while entry is not None and entry not in by_joined:
        if entry.node.op not in MOVES or entry.node.domain:
            return None
        entry = entry.node.inputs[0]
    return None if entry is None else by_joined[entry]


# -- numerical check -------------------------------------------------------------------------------------


@attrs.frozen(slots=True)
class Shapes:
    """The sizes of one attention."""

    query: tuple[int, ...]
    """Sequences, heads, rows, depth."""
    groups: int
    """Heads of keys and values."""

    def room(self, positions: int) -> tuple[int, ...]:
        """The shape of a cache with this many positions."""
        return self.query[0], self.groups, positions, self.query[3]


def scale_of(region: Region, shapes: Shapes, known: Known, opsets: Mapping[str, int]) -> float:
    """The scale of the scores, measured with one earlier token. The token's weight in the first row is the logistic function of
    the scale times `difference`, which is the query times the difference of the two keys."""
    random = np.random.default_rng(0)
    query, past, new = _random(random, shapes, region.held(known))
    past[1][:], new[1][:] = 1.0, 0.0
    weight = float(_through(region, known, opsets, query, past, new)[0, 0, 0, 0])
    difference = float(query[0, 0, 0] @ (past[0][0, 0, 0] - new[0][0, 0, 0]))
    if not 0.0 < weight < 1.0:
        raise Unfit(f"{region.result.name!r} is not a softmax of queries times keys")
    fitted = math.log(weight / (1.0 - weight)) / difference
    usual = shapes.query[3] ** -0.5
    return next((scale for scale in (usual, 1.0) if abs(fitted / scale - 1.0) < 1e-3), fitted)


def window_of(region: Region, shapes: Shapes, known: Known, opsets: Mapping[str, int]) -> int:
    """The number of positions that a row attends to, including its own; 0 if the last row attends to all.

    A query of zeros weights these positions equally, so that their number is the inverse of one weight. If the cache keeps only
    the last positions, the window is never 0, and Unfit is raised if it is larger than these and the row's own."""
    query, past, new = _random(np.random.default_rng(0), shapes, region.held(known))
    query[:], past[1][:], new[1][:] = 0.0, 0.0, 0.0
    new[1][:, :, -1] = 1.0
    share = float(_through(region, known, opsets, query, past, new)[0, 0, -1, 0])
    positions = region.held(known) + shapes.query[2]
    count = round(1.0 / share) if 0.0 < share <= 1.0 else positions
    keeps = region.key.keeps
    if keeps is not None and count > keeps + 1:
        raise Unfit(f"{region.result.name!r} sees {count} positions, and {region.key.past.name!r} holds the last {keeps}")
    return count if count < positions or keeps is not None else 0


def check(
    region: Region, shapes: Shapes, known: Known, opsets: Mapping[str, int], scale: float, window: int, queries: float = 1.0
) -> None:
    """Raises Unfit unless the region computes causal attention at this size, for queries of this magnitude."""
    earlier = region.held(known)
    query, past, new = _random(np.random.default_rng(1), shapes, earlier)
    query *= np.float32(queries)
    result = _through(region, known, opsets, query, past, new)
    expected = _causal(shapes, earlier, scale, query, past, new, window)
    if not np.allclose(result, expected, rtol=0.0, atol=CLOSE * float(np.abs(expected).max())):
        raise Unfit(f"{region.result.name!r} is not plain causal attention to {earlier} earlier positions")


def _random(random: np.random.Generator, shapes: Shapes, past: int) -> tuple[Array, tuple[Array, Array], tuple[Array, Array]]:
    """A query, earlier keys and values, and new ones."""
    count = shapes.query[2]
    arrays = [random.standard_normal(shapes.room(n), np.float32) for n in (past, past, count, count)]
    return random.standard_normal(shapes.query, np.float32), (arrays[0], arrays[1]), (arrays[2], arrays[3])


def _through(
    region: Region, known: Known, opsets: Mapping[str, int], query: Array, past: tuple[Array, Array], new: tuple[Array, Array]
) -> Array:
    """The region's result for these values."""
    given = {region.query: query}
    for cache, before, added in zip((region.key, region.value), past, new, strict=True):
        if cache.joined.node in region.nodes:
            given |= {cache.earlier: before, cache.new: added}
        else:
            given[cache.joined] = _filled_up(np.concatenate([before, added], axis=cache.axis), cache)
    result = region.computed(known, opsets, given)
    if result.shape != (*query.shape[:3], new[1].shape[3]):
        raise Unfit(f"{region.result.name!r} does not have the sizes of queries and values")
    return result


def _filled_up(joined: Array, cache: Cache) -> Array:
    """The joined positions. A buffer of fixed capacity is padded with other values, which must have no effect."""
    if cache.room is None:
        return joined
    shape = list(joined.shape)
    shape[cache.axis] = cache.room - shape[cache.axis]
    return np.concatenate([joined, np.full(shape, 2.0, joined.dtype)], axis=cache.axis)


def _causal(
    shapes: Shapes, past: int, scale: float, query: Array, before: tuple[Array, Array], new: tuple[Array, Array], window: int
) -> Array:
    """The result of causal attention, computed by the body of a `cached_attention` call."""
    arrays = [query, *before, *new, np.array([past])]
    inputs = [variable(f"x{i}", array.dtype.name, array.shape) for i, array in enumerate(arrays)]
    q, k, v, new_k, new_v, length = (node[0] for node in inputs)
    call = cached_attention(q, (k, v), (new_k, new_v), length, shapes.query, shapes.room(past), scale, "causal", window)
    (result,) = interpret(Graph([call], inputs, "causal", {"": 21}), arrays)
    return np.asarray(result)
