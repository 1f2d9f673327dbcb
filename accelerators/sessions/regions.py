"""The attentions that read a decoder's caches: found by what reads what, and checked by computing them.

However an exporter writes attention, it is a part of the graph that reads queries, the joined keys and values, and values that
follow from sizes (a mask). Such a part is taken for causal attention only if it gives the same numbers, for few earlier tokens,
for as many as there is room for, and for numbers drawn between: a mask that adds to the scores shows there, and so does one that
begins anew with each chunk of positions. Of one that hides what is long past it is found out how many positions it leaves."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from typing import Any

import attrs
import numpy as np

from partita.accelerators.interface.cached_attention import cached_attention
from partita.accelerators.sessions.caches import Cache
from partita.accelerators.sessions.errors import TooLong, Unfit
from partita.accelerators.sessions.known import Known
from partita.accelerators.sessions.readers import Readers
from partita.graph.build import constant, variable
from partita.graph.errors import GraphError
from partita.graph.graph import Graph
from partita.graph.interpret import interpret
from partita.graph.node import Node, NodeEntry

Array = np.ndarray[Any, Any]

CLOSE = 1e-4
"""How far numbers of one attention may lie apart, computed in two ways, as a part of the largest."""

LARGE = 16.0
"""How much larger some queries are than others: scores that are cut off, or bent, above a number show then."""

MOST = 200
"""The ops of one attention, at most."""

MOVES = frozenset("Unsqueeze Squeeze Expand Reshape Transpose Identity Cast Mul Div Tile".split())
"""The ops that may stand between a cache and the product that reads it."""

PRODUCTS = frozenset({"MatMul", "Attention"})
"""The ops that keys and values are multiplied in."""


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
        """The number of earlier positions that its caches hold."""
        return self.key.held(known.past)

    def computed(self, known: Known, opsets: Mapping[str, int], given: Mapping[NodeEntry, Array]) -> Array:
        """What it makes of these values."""
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
        """What it computes, without names: equal for two that compute the same."""
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
    """The attention of each pair of caches; Unfit where one is not found. Linear."""
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
    """ONNX's own Attention."""
    query, key, value = node.inputs[0], by_joined.get(node[1]), by_joined.get(node[2])
    if query is None or key is None or value is None:
        raise Unfit(f"{node.name!r} does not give both its keys and its values")
    return Region(query, key, value, (node,), node[0])


def _product_of(cache: Cache, readers: Readers) -> Node | None:
    """The product by the values of a cache, or the Attention that makes it; None if they are keys, which are multiplied before
    a softmax."""
    entry = cache.joined
    while True:
        reading = [(node, slot) for node, slot in readers.get(entry, ()) if node.op in MOVES or node.op in PRODUCTS]
        reading = [(node, slot) for node, slot in reading if slot == 0 or node.op in PRODUCTS]
        if len(reading) != 1:
            return None
        node, slot = reading[0]
        if node.op == "Attention":
            return node if slot == 2 else None
        if node.op == "MatMul":
            return node if slot == 1 and not _is_scored(node, readers) else None
        entry = node[0]


def _is_scored(product: Node, readers: Readers) -> bool:
    """Does a softmax read the product, whatever stands between?"""
    waiting, seen = [product], {product}
    while waiting and len(seen) < MOST:
        for reader, _ in readers.get(waiting.pop()[0], ()):
            if reader.op == "Softmax":
                return True
            if reader.op not in ("MatMul", "Gemm") and reader.output_names and reader not in seen:
                seen.add(reader)
                waiting.append(reader)
    return False


def _around(
    mix: Node, value: Cache, by_joined: Mapping[NodeEntry, Cache], follow: Collection[NodeEntry], order: Mapping[Node, int]
) -> Region:
    """The attention that ends in this product."""
    nodes, keys, queries = {mix}, set[Cache](), list[NodeEntry]()

    def multiplied(node: Node) -> list[NodeEntry]:
        """What the op reads; where it multiplies queries by keys, all but the queries, which are noted."""
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
            raise Unfit(f"{mix.name!r} reads {entry.name!r}, which is no part of attention")
        nodes.add(node)
        waiting += multiplied(node)
    if len(keys) != 1 or len(queries) != 1:
        raise Unfit(f"{mix.name!r} is not attention to one cache of keys")
    return Region(queries[0], keys.pop(), value, tuple(sorted(nodes, key=order.__getitem__)), mix[0])


def _source(entry: NodeEntry | None, by_joined: Mapping[NodeEntry, Cache]) -> Cache | None:
    """The cache that a value is a move of."""
    while entry is not None and entry not in by_joined:
        if entry.node.op not in MOVES or entry.node.domain:
            return None
        entry = entry.node.inputs[0]
    return None if entry is None else by_joined[entry]


# -- the check -------------------------------------------------------------------------------------------


@attrs.frozen(slots=True)
class Shapes:
    """The sizes of one attention."""

    query: tuple[int, ...]
    """Sequences, heads, rows, depth."""
    groups: int
    """Heads of keys and values."""

    def room(self, positions: int) -> tuple[int, ...]:
        """The shape of a cache with so many positions."""
        return self.query[0], self.groups, positions, self.query[3]


def scale_of(region: Region, shapes: Shapes, known: Known, opsets: Mapping[str, int]) -> float:
    """What it multiplies queries times keys by, seen from one earlier token: the first row's chance of that one is a logistic
    function of the difference of both keys, times the scale."""
    random = np.random.default_rng(0)
    query, past, new = _random(random, shapes, region.held(known))
    past[1][:], new[1][:] = 1.0, 0.0
    chance = float(_through(region, known, opsets, query, past, new)[0, 0, 0, 0])
    difference = float(query[0, 0, 0] @ (past[0][0, 0, 0] - new[0][0, 0, 0]))
    if not 0.0 < chance < 1.0:
        raise Unfit(f"{region.result.name!r} is not a softmax of queries times keys")
    fitted = math.log(chance / (1.0 - chance)) / difference
    usual = shapes.query[3] ** -0.5
    return next((scale for scale in (usual, 1.0) if abs(fitted / scale - 1.0) < 1e-3), fitted)


def window_of(region: Region, shapes: Shapes, known: Known, opsets: Mapping[str, int]) -> int:
    """How many positions up to its own a row sees; 0 where the last row, which has most before it, sees all. A query of zeros
    sees them evenly: the share of its own position says how many they are. Behind a cache of the last positions no row sees more
    than these and its own."""
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
    """Raise Unfit unless the region computes causal attention at this size, of queries so large."""
    earlier = region.held(known)
    query, past, new = _random(np.random.default_rng(1), shapes, earlier)
    query *= np.float32(queries)
    given = _through(region, known, opsets, query, past, new)
    wanted = _causal(shapes, earlier, scale, query, past, new, window)
    far = given.shape != wanted.shape or not np.allclose(given, wanted, rtol=0.0, atol=CLOSE * float(np.abs(wanted).max()))
    if far:
        raise Unfit(f"{region.result.name!r} is not plain causal attention to {earlier} earlier positions")


def _random(random: np.random.Generator, shapes: Shapes, past: int) -> tuple[Array, tuple[Array, Array], tuple[Array, Array]]:
    """A query, earlier keys and values, and new ones."""
    count = shapes.query[2]
    arrays = [random.standard_normal(shapes.room(n), np.float32) for n in (past, past, count, count)]
    return random.standard_normal(shapes.query, np.float32), (arrays[0], arrays[1]), (arrays[2], arrays[3])


def _through(
    region: Region, known: Known, opsets: Mapping[str, int], query: Array, past: tuple[Array, Array], new: tuple[Array, Array]
) -> Array:
    """What the region makes of these."""
    given = {region.query: query}
    for cache, before, added in zip((region.key, region.value), past, new, strict=True):
        if cache.joined.node in region.nodes:
            given |= {cache.earlier: before, cache.new: added}
        else:
            given[cache.joined] = _filled_up(np.concatenate([before, added], axis=cache.axis), cache)
    return region.computed(known, opsets, given)


def _filled_up(joined: Array, cache: Cache) -> Array:
    """The joined positions; in a buffer of fixed room, with others behind them, which must not count."""
    if cache.room is None:
        return joined
    shape = list(joined.shape)
    shape[cache.axis] = cache.room - shape[cache.axis]
    return np.concatenate([joined, np.full(shape, 2.0, joined.dtype)], axis=cache.axis)


def _causal(
    shapes: Shapes, past: int, scale: float, query: Array, before: tuple[Array, Array], new: tuple[Array, Array], window: int
) -> Array:
    """What causal attention makes of these, as the call's body says it."""
    arrays = [query, *before, *new, np.array([past])]
    inputs = [variable(f"x{i}", array.dtype.name, array.shape) for i, array in enumerate(arrays)]
    q, k, v, new_k, new_v, length = (node[0] for node in inputs)
    call = cached_attention(q, (k, v), (new_k, new_v), length, shapes.query, shapes.room(past), scale, "causal", window)
    (result,) = interpret(Graph([call], inputs, "causal", {"": 21}), arrays)
    return np.asarray(result)
