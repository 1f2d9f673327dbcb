"""The graph of one step: a decoder whose caches are preallocated buffers, and which returns only new positions.

Values that depend on the number of earlier tokens, such as positions, are computed from that number, which is an input. All
sizes are static, so that a step is compiled once, however long the past is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from partita.accelerators.decoder.attention_match import LARGE, Region, Shapes, check, find_regions, scale_of, window_of
from partita.accelerators.decoder.input_roles import Roles, TooLong, Unfit, readers_of
from partita.accelerators.decoder.values_at_length import Known, known_at, known_between, of_sizes, sized_input, straight_line
from partita.accelerators.interface.cached_attention import cached_attention, is_cached_attention
from partita.graph.build import constant, op, variable
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.graph.ops.traits import ops
from partita.graph.rewrite import Rewriter
from partita.graph.types import TensorType, numpy_dtype

Array = np.ndarray[Any, Any]

LENGTH = "partita_length"
"""The input with the number of earlier positions."""

FEW = (1, 6)
"""Numbers of earlier tokens at which a decoder is analysed, besides the maximum."""

FEWEST = (1, 2)
"""The same, if the capacity exceeds the new tokens by only a few."""

DRAWN = 6
"""Number of further, random numbers of earlier tokens at which it is analysed, chosen by the step's sizes. So is the successor of
each: a periodic value may look regular at one of them."""


@attrs.frozen(slots=True)
class StepSizes:
    """The sizes of a step."""

    batch: int
    """Number of sequences."""
    rows: int
    """Number of new tokens of each."""
    room: int
    """Capacity of the buffers in positions."""


def step_graph(roles: Roles, sizes: StepSizes) -> Graph:
    """The graph of the step; raises Unfit if the decoder is not recognised."""
    for cache in roles.caches:
        kind = cache.past.output_types[0]
        shape = kind.shape if isinstance(kind, TensorType) else None
        if kind is None or cache.axis != 2 or shape is None or len(shape) != 4:
            raise Unfit(f"{cache.past.name!r} is not a cache of sequences, heads, positions and depth")
        if not cache.grows and cache.room != sizes.room:
            raise Unfit(f"{cache.past.name!r} has room for {cache.room} positions, and others for {sizes.room}")
        if not isinstance(kind, TensorType) or kind.dtype != "float32" or not isinstance(shape[1], int):
            raise Unfit(f"{cache.past.name!r} is {kind}, and caches of float32 with a known number of heads are appended to")
    _check_symbols(roles)
    follow = of_sizes(roles)
    regions = find_regions(roles.graph, roles.caches, follow, readers_of(roles.graph))
    looked_at = [entry for region in regions for entry in (region.query, region.key.new, region.value.new)]
    known = _known(roles, sizes, follow, looked_at)
    scales = _scales(regions, known, roles)
    return _StepBuilder(roles, sizes, follow, known, scales).graph()


def prompt_graph(roles: Roles, batch: int) -> Graph:
    """The decoder without a past, for any number of tokens: it returns only new positions. Raises Unfit if caches are not joined
    by Concat. Linear."""
    rewriter, graph = Rewriter(roles.graph), roles.graph
    joins = {cache.joined.node: cache for cache in roles.caches}
    pasts = {cache.past for cache in roles.caches}
    if any(node.op != "Concat" for node in joins):
        raise Unfit("caches are not joined by Concat")
    sizes = {symbol: size for symbol, size in roles.sizes(batch, 0, 0).items() if roles.symbols.get(symbol) != "rows"}
    for node in graph.nodes:
        if node in pasts:
            kind = sized_input(node, sizes).output_types[0]
            assert isinstance(kind, TensorType) and kind.is_static
            rewriter.replace(node[0], constant(np.zeros(kind.shape, numpy_dtype(kind.dtype)), node.name)[0])  # type: ignore[arg-type]
        elif node.is_variable:
            rewriter.keep(node, sized_input(node, sizes))
        elif node in joins:
            rewriter.replace(node[0], rewriter.value(joins[node].new))
        elif node.is_op:
            rewriter.keep(node, rewriter.rebuilt(node, output_types=(None,) * len(node.output_types)))
        else:
            rewriter.keep(node)
    added = {cache.output: cache.new for cache in roles.caches}
    outputs = [rewriter.value(added.get(i, entry)) for i, entry in enumerate(graph.outputs)]
    inputs = [rewriter.value(node[0]).node for node in graph.inputs if node not in pasts]
    return rewriter.finish(outputs=outputs, inputs=inputs, name=f"{graph.name}_prompt", nodes=(), attrs={})


def _known(
    roles: Roles, sizes: StepSizes, follow: Mapping[NodeEntry, bool], looked_at: Sequence[NodeEntry]
) -> list[Known]:
    """The values that follow from sizes, for each number of earlier tokens at which the decoder is analysed, in order."""

    def known(past: int) -> Known:
        return known_at(roles, follow, looked_at, sizes.batch, sizes.rows, past)

    few = FEW if sizes.room - sizes.rows > FEW[-1] else FEWEST
    most = max(sizes.room - sizes.rows, few[-1] + 1)
    drawn = np.random.default_rng([sizes.rows, sizes.room]).integers(few[-1] + 1, most + 1, DRAWN).tolist()
    near = [keeps + more for keeps in roles.windows for more in (-1, 0, 1)]
    between = {number for number in (*drawn, *(number + 1 for number in drawn), *near) if few[-1] < number < most}
    ends = [known(past) for past in (*few, most)]
    middle = [known_between(roles, ends, sizes.batch, sizes.rows, past) or known(past) for past in sorted(between)]
    return [*ends[:-1], *middle, ends[-1]]


def _check_symbols(roles: Roles) -> None:
    """Raises Unfit if caches with different numbers of positions share a symbol for these."""
    keeps: dict[object, int | None] = {}
    for cache in roles.caches:
        kind = cache.past.output_types[0]
        symbol = kind.shape[cache.axis] if isinstance(kind, TensorType) and kind.shape else None
        if keeps.setdefault(symbol, cache.keeps) != cache.keeps:
            raise Unfit(f"caches that hold different numbers of positions have one size {symbol!r}")


def most_positions(roles: Roles, sizes: StepSizes) -> int:
    """The maximum number of positions that attention supports, given that these sizes are too large; found by bisection."""
    fits, fails = 0, sizes.room
    tried = sizes.rows + FEWEST[-1] + 1
    while tried < fails:
        try:
            step_graph(roles, attrs.evolve(sizes, room=tried))
            fits = tried
        except TooLong:
            fails = tried
        tried = min(2 * fits, (fits + fails) // 2) if fails - fits > 1 else fails
    return fits


@attrs.frozen(slots=True)
class _Plain:
    """The parameters of an attention."""

    shapes: Shapes
    scale: float
    window: int
    """The number of positions, up to its own, that a row attends to; 0: all."""


def _scales(regions: Sequence[Region], known: Sequence[Known], roles: Roles) -> dict[Region, _Plain]:
    """The parameters of each attention; those that compute the same are checked once."""
    scales: dict[Region, _Plain] = {}
    by_form: dict[tuple[object, ...], _Plain] = {}
    for region in regions:
        shapes, form = _shapes(region, known[0]), region.form(known)
        key = (shapes, *form)
        if key not in by_form:
            opsets = roles.graph.opsets
            scale, window = scale_of(region, shapes, known[0], opsets), window_of(region, shapes, known[-1], opsets)
            for one in known:
                check(region, shapes, one, opsets, scale, window)
            check(region, shapes, known[1], opsets, scale, window, LARGE)
            by_form[key] = _Plain(shapes, scale, window)
        scales[region] = by_form[key]
    return scales


def _shapes(region: Region, known: Known) -> Shapes:
    query, key, value = (known.shapes.get(entry) for entry in (region.query, region.key.new, region.value.new))
    if query is None or key is None or len(query) != 4 or key != value or len(key) != 4 or query[1] % key[1]:
        raise Unfit(f"the sizes of {region.query.name!r} do not fit those of {region.key.past.name!r}")
    return Shapes(query, key[1])


class _StepBuilder:
    def __init__(
        self,
        roles: Roles,
        sizes: StepSizes,
        follow: Mapping[NodeEntry, bool],
        known: Sequence[Known],
        scales: Mapping[Region, _Plain],
    ) -> None:
        self.roles = roles
        self.sizes = sizes
        self.follow = follow
        self.known = known
        self.scales = scales
        self.length = variable(LENGTH, "int64", (1,))
        self.rewriter = Rewriter(roles.graph)
        self.changing: dict[Node, Node] = {}
        """The ops whose sizes depend on the past, in the new graph, and in the old."""

    def graph(self) -> Graph:
        rewriter, roles = self.rewriter, self.roles
        buffers = {cache.past for cache in roles.caches}
        joined = {cache.joined.node for cache in roles.caches}
        masks = {node for node, role in roles.filled.items() if role == "mask"}
        results = {region.result.node: region for region in self.scales}
        rewriter.keep(self.length)
        for node in roles.graph.nodes:
            if node in buffers:
                rewriter.keep(node, self._buffer(node))
            elif node.is_variable:
                kept = rewriter.keep(node, sized_input(node, roles.sizes(self.sizes.batch, self.sizes.rows, 0)))
                if node in masks:
                    self.changing[kept] = node
            elif node in results:
                self._attend(results[node])
            elif not node.is_op:
                rewriter.keep(node)
            else:
                kept = rewriter.keep(node, rewriter.rebuilt(node, output_types=(None,) * len(node.output_types)))
                if node in joined:
                    self.changing[kept] = node
                self._put_sizes(node, kept)
        return self._finished(masks)

    def _finished(self, masks: set[Node]) -> Graph:
        rewriter, graph = self.rewriter, self.roles.graph
        added = {cache.output: cache.new for cache in self.roles.caches}
        outputs = [rewriter.value(added.get(i, entry)) for i, entry in enumerate(graph.outputs)]
        inputs = [rewriter.value(node[0]).node for node in graph.inputs if node not in masks]
        step = rewriter.finish(outputs=outputs, inputs=[*inputs, self.length], name=f"{graph.name}_step", nodes=(), attrs={})
        for node in step.nodes:
            if node in self.changing:
                raise Unfit(f"{self.changing[node].name!r} has other sizes for each number of earlier tokens")
        buffers = {rewriter.value(cache.past[0]) for cache in self.roles.caches}
        for node in step.nodes:
            if not is_cached_attention(node) and any(entry in buffers for entry in node.inputs):
                raise Unfit(f"{node.name!r} reads the past, and is not attention")
        return step

    def _buffer(self, past: Node) -> Node:
        kind = past.output_types[0]
        assert isinstance(kind, TensorType) and kind.shape is not None
        shape = self.sizes.batch, kind.shape[1], self.sizes.room, kind.shape[3]
        return past.evolve(output_types=(TensorType(kind.dtype, shape),))

    def _attend(self, region: Region) -> None:
        """Replaces an attention by the call."""
        plain = self.scales[region]
        value = self.rewriter.value
        past = value(region.key.past[0]), value(region.value.past[0])
        new = value(region.key.new), value(region.value.new)
        room, name = plain.shapes.room(self.sizes.room), region.result.node.name
        query, shape = value(region.query), plain.shapes.query
        call = cached_attention(query, past, new, self.length[0], shape, room, plain.scale, f"{name}_cached", plain.window)
        self.rewriter.replace(region.result, self.rewriter.keep(call)[0])

    def _put_sizes(self, node: Node, kept: Node) -> None:
        """Replaces values that follow from sizes by a constant, or by an expression of the number of earlier tokens."""
        for entry in node.outputs:
            values = [known.values.get(entry) for known in self.known]
            arrays = [value for value in values if value is not None]
            replacement = None
            if entry not in self.follow:
                continue
            if any(array.shape != arrays[0].shape for array in arrays):
                self.changing[kept] = node
            elif not self.follow[entry] and len(arrays) == len(values):
                replacement = self._computed(arrays)
                if replacement is not None:
                    self.rewriter.replace(entry, replacement[0])
            if replacement is None and node.op in ops("size"):  # it would return the capacity
                self.changing[kept] = node

    def _computed(self, arrays: Sequence[Array]) -> Node | None:
        """The value as a function of the past, if that is linear, or linear in the number of positions that a cache holds."""
        if all(np.array_equal(arrays[0], array) for array in arrays[1:]):
            return self._kept(constant(arrays[0]))
        for most in (None, *sorted(self.roles.windows)):
            line = straight_line(arrays, [known.past for known in self.known], most)
            if line is not None:
                return self._line(*line, most, arrays[0])
        return None

    def _line(self, base: Array, slope: Array, most: int | None, first: Array) -> Node:
        """The linear function of the number of earlier tokens, limited to `most`, with the rank and dtype of the first value."""
        length = self.length if most is None else self._kept(op("Min", self.length, self._kept(constant(np.array([most])))))
        counted = length if first.ndim else self._kept(op("Squeeze", length, self._kept(constant(np.array([0])))))
        line = self._kept(op("Mul", counted, self._kept(constant(slope))))
        line = self._kept(op("Add", line, self._kept(constant(base))))
        if first.dtype == np.int64:
            return line
        from onnx.helper import np_dtype_to_tensor_dtype

        return self._kept(op("Cast", line, to=np_dtype_to_tensor_dtype(first.dtype)))

    def _kept(self, node: Node) -> Node:
        return self.rewriter.keep(node)
