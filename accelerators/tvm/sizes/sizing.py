"""Prepares a graph with symbols to be compiled once for all sizes.

Every value gets a type whose sizes are extents. Values that depend on sizes and constants alone are computed by the host once for
each size. If such a value is only a shape, as the second input of a Reshape, the op drops it, and its output's type holds the
sizes. If its elements are used, as those of positions and causal masks, it becomes an input."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import attrs
import numpy as np

from partita.accelerators.errors import CompileError
from partita.accelerators.tvm.sizes.extent import Extent, Floor, Indivisible, Size, has_extents, known_least, sizes_of, symbol
from partita.accelerators.tvm.sizes.gathered import (
    can_gather,
    changes_nothing,
    gathered_spans,
    goes_forward,
    has_kernel,
    in_newer_form,
    is_gathered,
    stated_factors,
    with_ends_said,
)
from partita.accelerators.tvm.sizes.reading import Reading, Rounded
from partita.accelerators.tvm.sizes.symbols import Grains, Symbols, coarser
from partita.graph.body_builder import BodyBuilder, body_call
from partita.graph.build import constant, variable
from partita.graph.graph import Graph
from partita.graph.inline import inline_calls
from partita.graph.names import unique
from partita.graph.node import Node, NodeEntry
from partita.graph.ops.traits import ops
from partita.graph.rewrite import Rewriter, rewrite
from partita.graph.types import TensorType
from partita.passes import apply_pass
from partita.passes.decompose import dynamic_sizes
from partita.passes.decompose.moves import cast_like, is_one_hot, one_hot
from partita.passes.infer import infer
from partita.passes.registry import REQUESTS, register_pass

MOST_INPUTS = 512
"""Largest number of the host's values; a graph with more is compiled for each size."""

IN_PARTS = "InParts"
"""The op of a call of an op's body until it is inlined."""

SHAPE_HAS_ENDS = 15
"""The opset since which a Shape may return some of the sizes."""

UNSQUEEZE_HAS_AXES = 13
"""The opset since which the axes of Unsqueeze are an input."""

PADDED = frozenset("float32 float64 int32 int64".split())
"""The element types whose padding has a body."""

FEW_ROWS = 8
"""Minimum number of rows in products on a GPU; sizes with fewer rows are compiled on their own."""


@attrs.frozen(slots=True, eq=False)
class Sized:
    """A graph for any size, and the data to call it."""

    graph: Graph
    """Its inputs are those of the original graph, then the host's values, then `measured`. Its types have extents."""
    inputs: tuple[tuple[Size, ...], ...]
    """The sizes of the inputs."""
    of_sizes: tuple[Node, ...]
    """The ops that the host computes, in order."""
    lent: tuple[NodeEntry, ...]
    """The host's values that are inputs of the graph."""
    handed_out: frozenset[NodeEntry]
    """Those of the host's values that are outputs of the graph."""
    known: Mapping[NodeEntry, tuple[Size, ...]]
    """The elements of the Shape and Size results from which the host's values are computed."""
    opsets: Mapping[str, int]
    """The opsets of `of_sizes`."""
    conditions: tuple[Size, ...]
    """Sizes that have to be at least 0."""
    counts: tuple[Extent, ...]
    """The numbers of elements of the values, as far as they are dynamic."""
    counting: tuple[str, ...]
    """The symbols that count several pixels each, or are one more than a size."""
    rounded: Mapping[str, Rounded | Floor]
    """The symbols whose values are computed from others, in order."""

    @property
    def measured(self) -> tuple[str, ...]:
        """The symbols that are not the size of an input. The graph has an additional input of that many bytes for each of them,
        which nothing reads: the compiled kernels take the symbol from its size."""
        return (*self.counting, *self.rounded)

    @property
    def filled(self) -> tuple[Size, ...]:
        """Conditions (each ≥ 0) under which no input is empty."""
        return tuple([size - 1 for sizes in self.inputs for size in sizes if known_least(size) < 1])

    @property
    def symbols(self) -> tuple[str, ...]:
        """The symbols of the inputs' sizes, in order."""
        names = {name for sizes in self.inputs for size in sizes if isinstance(size, Extent) for name in size.symbols}
        return tuple(sorted(names))


def forms_for_any_size(graph: Graph) -> Iterator[Sized]:
    """The graph for any size in up to two forms, the more general one first: quotients that are rounded down get symbols, or
    sizes have to be multiples. CompileError if it has no such form. Linear."""
    try:
        with_floors = sized(graph)
    except CompileError:
        yield sized(graph, has_floors=False)
        return
    yield with_floors
    if with_floors.rounded:
        yield sized(graph, has_floors=False)


def sized(graph: Graph, has_floors: bool = True) -> Sized:
    """The graph for any size; CompileError if it has no such form. Linear: it starts again, a few times at most, if sizes of
    images have to be multiples of a larger number than assumed."""
    grains: Grains = {}
    while True:
        symbols = Symbols(graph, grains)
        try:
            result = _sized(graph, symbols, has_floors)
            return result if is_for_any_size(result.graph) else _of_one_size(graph, result)
        except Indivisible as error:
            wanted = coarser(grains, error, symbols.images)
            if wanted is None:
                raise
            grains = wanted


def _of_one_size(graph: Graph, result: Sized) -> Sized:
    """The original graph, typed with the only sizes that fit it. It is compiled like a graph of static sizes, where two ops that
    differ only in their results' types would be merged."""
    given = {node.name: sizes for node, sizes in zip(graph.inputs, result.inputs, strict=True)}
    typed = infer(graph, given)  # type: ignore[arg-type]
    return attrs.evolve(result, graph=typed, of_sizes=(), lent=(), handed_out=frozenset(), known={})


def _sized(graph: Graph, symbols: Symbols, has_floors: bool) -> Sized:
    """The graph for sizes in these symbols."""
    reading = Reading(graph, symbols, has_floors)
    bodies = {node: body for node in graph.nodes if (body := _body(node, reading, graph)) is not None}
    if bodies:
        return _sized(apply_pass(graph, "InlineParts", family="tvm", verify=False, bodies=bodies), symbols, has_floors)
    return _Rewriting(graph, reading).run(symbols.counting)


def _body(node: Node, reading: Reading, graph: Graph) -> Graph | None:
    """The body of an op that has no form for any size; None for one that has, and for one that the host computes."""
    if node.domain or node in reading.of_sizes:
        return None
    write = _decomposition(node, reading, graph.opset)
    return None if write is None else write(BodyBuilder(node, graph.opsets))


def _decomposition(node: Node, reading: Reading, version: int) -> Callable[[BodyBuilder], Graph | None] | None:
    """The function that writes the body of such an op."""
    if node.op == "CastLike":
        return cast_like
    axes = _gathered_along(node, reading, version)
    if axes:
        return partial(dynamic_sizes.resize_by_gathers, axes=axes)
    amounts = _padded_by_sizes(node, reading, version)
    if amounts:
        return partial(dynamic_sizes.pad_by_gathers, amounts=amounts)
    if is_one_hot(node, version):
        return one_hot
    if _is_repeated_by_sizes(node, reading, version):
        return dynamic_sizes.tile_by_expand
    if _is_sliced(node, reading, version):
        return dynamic_sizes.volumes_as_images
    if _multiplies_a_vector(node, reading, version):
        return dynamic_sizes.vector_product
    if is_gathered(node, reading, version):
        return partial(dynamic_sizes.slice_by_gathers, spans=gathered_spans(node, reading))
    return None


def _is_repeated_by_sizes(node: Node, reading: Reading, version: int) -> bool:
    """True for a Tile by counts that follow from dynamic sizes."""
    if node.op != "Tile" or node.domain or version < UNSQUEEZE_HAS_AXES:
        return False
    return any(isinstance(count, Extent) for count in reading.vector(node.inputs[1]))


def _multiplies_a_vector(node: Node, reading: Reading, version: int) -> bool:
    """True for a MatMul by a vector."""
    return node.op == "MatMul" and version >= UNSQUEEZE_HAS_AXES and any(len(reading.sizes(entry)) == 1 for entry in node.reads)


def _is_sliced(node: Node, reading: Reading, version: int) -> bool:
    """True for a convolution of volumes of dynamic depth, height or width by constant weights that read all channels."""
    sizes = reading.sizes(node.inputs[0]) if node.op == "Conv" and not node.domain and version >= SHAPE_HAS_ENDS else ()
    if len(sizes) != 5:
        return False
    weight, *others = node.inputs[1:]
    is_constant = all(entry is None or entry.node.value is not None for entry in (weight, *others))
    is_plain = node.attrs.get("group", 1) == 1 and node.attrs.get("auto_pad", "NOTSET") in ("NOTSET", "VALID")
    return is_constant and is_plain and any(isinstance(size, Extent) for size in sizes[2:])


def _padded_by_sizes(node: Node, reading: Reading, version: int) -> dict[int, tuple[int, int]]:
    """By padded axis, the places of its two amounts among the pads; empty unless one of these follows from dynamic sizes."""
    if node.op != "Pad" or node.domain or version < SHAPE_HAS_ENDS or node.inputs[0] is None:
        return {}
    pads: list[Size] = list(reading.vector(node.inputs[1]))
    if not any(isinstance(size, Extent) for size in pads) or reading.type_of(node.inputs[0]).dtype not in PADDED:
        return {}
    named = node.inputs[3] if len(node.inputs) > 3 else None
    rank, count = len(reading.sizes(node.inputs[0])), len(pads) // 2
    axes = range(rank) if named is None else reading.numbers(named)
    return {axis % rank: (i, count + i) for i, axis in enumerate(axes) if pads[i] != 0 or pads[count + i] != 0}


@register_pass("InlineParts", keeps=REQUESTS, family="tvm")
def inline_parts(graph: Graph, bodies: Mapping[Node, Graph]) -> Graph:
    """The graph with these ops replaced by their bodies. Linear."""

    def visit(node: Node, rewriter: Rewriter) -> None:
        rebuilt = rewriter.rebuilt(node)
        rewriter.keep(node, body_call(rebuilt, bodies[node], IN_PARTS) if node in bodies else rebuilt)

    return infer(inline_calls(rewrite(graph, visit), lambda call: call.op == IN_PARTS), strict=False)


def _gathered_along(node: Node, reading: Reading, version: int) -> list[int]:
    """The axes that a resize made of gathers changes: its positions depend on the image's size, or its result is not a multiple
    of it. Empty for a resize that has a kernel."""
    if not can_gather(node, version):
        return []
    pairs = list(zip(reading.sizes(node[0]), reading.sizes(node.inputs[0]), strict=True))
    factors, stated = [_factor(*pair) for pair in pairs], stated_factors(node) or [1.0] * len(pairs)
    if stated_factors(node):  # A result that is rounded down has another ratio than the factor that determines positions.
        factors = [factor if factor == scale else None for factor, scale in zip(factors, stated, strict=True)]
    if not any(isinstance(size, Extent) for pair in pairs for size in pair) or has_kernel(node, factors):
        return []
    return [d for d, (wanted, size) in enumerate(pairs) if wanted != size or stated[d] != 1]


def is_for_any_size(graph: Graph) -> bool:
    """True if a value of the graph has an extent among its sizes."""
    return any(has_extents(known) for node in graph.nodes for known in node.output_types)


class _Rewriting:
    """Rewrites the graph for any size."""

    def __init__(self, graph: Graph, reading: Reading) -> None:
        self.graph = graph
        self.reading = reading
        self.lent: dict[NodeEntry, Node] = {}
        """The graph input for each value of the host."""
        self.names = {name for node in graph.nodes for name in (node.name, *node.output_names)}

    def run(self, counting: tuple[str, ...]) -> Sized:
        """The graph rewritten."""
        reading = self.reading
        rewriter = Rewriter(self.graph)
        for node in self.graph.nodes:
            self._visit(node, rewriter)
        given = [rewriter.value(node[0]).node for node in self.graph.inputs]
        names = (*counting, *reading.rounded)
        measures = [variable(self._name(f"{name}_counted"), type=TensorType("uint8", (symbol(name),))) for name in names]
        whole = rewriter.finish(inputs=[*given, *self.lent.values(), *measures], nodes=())
        lent = tuple(self.lent)
        needed = _needed(self.graph, reading, lent)
        known = {entry: tuple(reading.vector(entry)) for node in needed for entry in node.outputs if node.op in ops("size")}
        named = [entry for node in self.graph.nodes for entry in node.outputs if entry.name]
        counts = dict.fromkeys(map(reading.count, named))
        extents = tuple([count for count in counts if isinstance(count, Extent)])
        conditions, rounded = tuple(reading.conditions), reading.rounded
        handed_out = frozenset(self.lent).intersection(self.graph.outputs)
        opsets, inputs = self.graph.opsets, tuple(reading.inputs)
        return Sized(whole, inputs, needed, lent, handed_out, known, opsets, conditions, extents, counting, rounded)

    def _visit(self, node: Node, rewriter: Rewriter) -> None:
        if node.is_op and node in self.reading.of_sizes:
            for entry in self.graph.outputs:
                if entry.node is node:
                    rewriter.replace(entry, self._handed_out(entry, rewriter))
            return
        rebuilt = rewriter.rebuilt(node) if not node.is_op else self._op(node, rewriter)
        if rebuilt is None:
            assert node.inputs[0] is not None
            rewriter.replace(node[0], rewriter.value(node.inputs[0]))
            return
        types = tuple([self.reading.type_of(entry) if entry.name else None for entry in node.outputs])
        rewriter.keep(node, rebuilt.evolve(output_types=types))

    def _handed_out(self, entry: NodeEntry, rewriter: Rewriter) -> NodeEntry:
        """An Identity of the host's value, for an output that depends on sizes alone."""
        given, node, types = self._value(entry, rewriter), entry.node, (self.reading.type_of(entry),)
        name = node.name if len(node.output_names) == 1 else self._name(f"{entry.name}_of_sizes")
        return Node(name, "Identity", (given,), output_names=(entry.name,), output_types=types, metadata=node.metadata)[0]

    def _op(self, node: Node, rewriter: Rewriter) -> Node | None:
        """The op with the inputs that it keeps; None for one that changes nothing."""
        reading = self.reading
        said = node.op in ops("typed") and not node.domain and all(node.output_names)  # An absent output has no type.
        if said and len(node.output_names) == 1 and reading.sizes(node.inputs[0]) == reading.sizes(node[0]):
            return None
        leaves_alone = {"Slice": goes_forward, "Resize": changes_nothing}.get(str(node.op)) if not node.domain else None
        if leaves_alone is not None and reading.sizes(node.inputs[0]) == reading.sizes(node[0]) and leaves_alone(node):
            return None
        if node.op == "Resize" and not node.domain and len(node.inputs) > 3 and node.inputs[3] is not None:
            node = self._by_factors(node)
        if node.op == "Slice" and not node.domain:
            node = with_ends_said(node, reading)
        node = in_newer_form(node)
        given = node.inputs[:1] if said else node.inputs
        inputs = tuple([None if entry is None else self._value(entry, rewriter) for entry in given])
        if node.op in ops("reshape") and not node.domain:
            return node.evolve(inputs=inputs, op="Reshape", attrs={})
        said_later = [new for old, new in zip(given, inputs, strict=True) if old and new and old.node in reading.of_sizes]
        if node.op in _SAYING_SIZES and any(entry.node.value is None for entry in said_later):
            raise CompileError(f"{node.op} reads where sizes say, for which there is no kernel for any size")
        return node.evolve(inputs=inputs)

    def _by_factors(self, node: Node) -> Node:
        """A Resize to sizes as one by factors, if these are the same for all sizes."""
        pairs = zip(self.reading.sizes(node[0]), self.reading.sizes(node.inputs[0]), strict=True)
        factors = [_factor(wanted, size) for wanted, size in pairs]
        if not any(isinstance(size, Extent) for size in self.reading.sizes(node[0])) or None in factors:
            return node
        return node.evolve(inputs=(*node.inputs[:2], constant(np.array(factors, np.float32))[0], None))

    def _value(self, entry: NodeEntry, rewriter: Rewriter) -> NodeEntry:
        if entry.node not in self.reading.of_sizes:
            return rewriter.value(entry)
        static = self.reading.static(entry)
        if static is not None:
            return constant(static)[0]
        if entry not in self.lent:
            if len(self.lent) == MOST_INPUTS:
                raise CompileError(f"more than {MOST_INPUTS} values depend on sizes alone")
            self.lent[entry] = variable(self._name(f"{entry.name}_of_sizes"), type=self.reading.type_of(entry))
        return self.lent[entry][0]

    def _name(self, wanted: str) -> str:
        """The name, made unique."""
        name = unique(wanted, self.names)
        self.names.add(name)
        return name


def _factor(wanted: Size, size: Size) -> float | None:
    """The constant ratio of two sizes, if it is exact in float32, else None."""
    if isinstance(wanted, int) != isinstance(size, int):
        return None
    a, b = [next(iter(s.terms.values())) if isinstance(s, Extent) else s for s in (wanted, size)]
    return a / b if wanted * b == size * a and float(np.float32(a / b)) == a / b else None


_SAYING_SIZES = frozenset("Slice Tile Pad Resize TopK OneHot Clip ReduceSum ReduceMean ReduceMax ReduceMin".split())
"""Ops whose inputs after the first have to be constant for kernels."""


def _needed(graph: Graph, reading: Reading, lent: Sequence[NodeEntry]) -> tuple[Node, ...]:
    """The ops that compute the host's values, in order."""
    needed: set[Node] = set()
    waiting = [entry.node for entry in lent]
    while waiting:
        node = waiting.pop()
        if node not in needed and node.is_op:
            needed.add(node)
            waiting += [] if node.op in ops("size") else [entry.node for entry in node.reads]
    return tuple([node for node in graph.nodes if node in needed])


def enough_rows(graph: Graph) -> tuple[Extent, ...]:
    """Conditions (each ≥ 0) under which products of dynamic rows by constants have enough rows, weighted by the constants' sizes:
    a GPU's kernel computes whole tiles. Rows of a convolution are the pixels of all results, of a transposed one those of all
    images."""
    room: Size = 0
    for node in graph.nodes:
        weight = node.inputs[1] if node.op in ops("convolution", "matmul") else None
        if weight is None or weight.node.value is None:
            continue
        counted = node.reads[0] if node.op == "ConvTranspose" else node[0]
        shape = sizes_of(counted.type)
        ways = () if shape is None else (shape[0], *shape[2:]) if node.op in ops("convolution") else shape[:-1]
        rows = math.prod(ways)
        if isinstance(rows, Extent):
            room = room + (rows - FEW_ROWS) * int(weight.node.value.size)
    return (room,) if isinstance(room, Extent) else ()
