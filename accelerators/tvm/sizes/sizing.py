"""A graph with symbols, made ready to be compiled once for all sizes.

Every value gets a type whose sizes are extents. What depends on sizes and constants alone is left to the host, which computes it
once for each size: where such a value only says a size, as the second input of a Reshape, the op keeps its first input, and its
output's type says the size; where its numbers are used, as positions and causal masks are, it becomes an input."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import attrs
import numpy as np

from partita.accelerators.errors import CompileError
from partita.accelerators.tvm.sizes.dynamic_ops import (
    is_repeated_by_sizes,
    is_sliced,
    multiplies_a_vector,
    padded_by_sizes,
)
from partita.accelerators.tvm.sizes.extent import Extent, Indivisible, Size, has_extents, known_least, symbol
from partita.accelerators.tvm.sizes.gathered_resizes import (
    can_gather,
    changes_nothing,
    has_kernel,
    in_newer_form,
    stated_factors,
)
from partita.accelerators.tvm.sizes.gathered_slices import (
    gathered_spans,
    goes_forward,
    is_gathered,
    with_ends_said,
)
from partita.accelerators.tvm.sizes.multiples import Grains, coarser
from partita.accelerators.tvm.sizes.quotients import Floor
from partita.accelerators.tvm.sizes.reading import Reading, Rounded
from partita.accelerators.tvm.sizes.symbols import Symbols
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
"""A graph with more values for the host than this is left to be compiled for each size."""


IN_PARTS = "InParts"
"""The op of a call that stands for an op's body until it is inlined."""


@attrs.frozen(slots=True, eq=False)
class Sized:
    """A graph for any size, and what belongs to it."""

    graph: Graph
    """Its inputs are those of the graph that it was made from, then the host's values. Its types are of extents."""
    inputs: tuple[tuple[Size, ...], ...]
    """The sizes of the inputs."""
    of_sizes: tuple[Node, ...]
    """What the host computes, in order."""
    lent: tuple[NodeEntry, ...]
    """The host's values that are inputs of the graph."""
    handed_out: frozenset[NodeEntry]
    """Those of them that the graph gives back as outputs."""
    known: Mapping[NodeEntry, tuple[Size, ...]]
    """The elements of vectors of sizes that the host's values begin with."""
    opsets: Mapping[str, int]
    """The versions of the ops."""
    conditions: tuple[Size, ...]
    """What has to be no less than zero."""
    counts: tuple[Extent, ...]
    """How many numbers the values have."""
    counting: tuple[str, ...]
    """The symbols that count several pixels each, or one more than there are."""
    rounded: Mapping[str, Rounded | Floor]
    """The symbols whose values are computed from others', in order."""

    @property
    def measured(self) -> tuple[str, ...]:
        """The symbols that are no input's size. For every one of them the graph has a last input of so many bytes, which
        nothing reads: the compiled kernels take the symbol from its size."""
        return (*self.counting, *self.rounded)

    @property
    def filled(self) -> tuple[Size, ...]:
        """What has to be no less than zero where every input is to have some numbers."""
        return tuple([size - 1 for sizes in self.inputs for size in sizes if known_least(size) < 1])

    @property
    def symbols(self) -> tuple[str, ...]:
        """The symbols of the inputs' sizes, in order."""
        names = {name for sizes in self.inputs for size in sizes if isinstance(size, Extent) for name in size.symbols}
        return tuple(sorted(names))


def forms_for_any_size(graph: Graph) -> Iterator[Sized]:
    """The graph for any size, in the ways to say what sizes are that are divided and rounded down, the one that takes most sizes
    first: by symbols of their own, or as multiples alone. CompileError where it has no such form. Linear."""
    try:
        with_floors = sized(graph)
    except CompileError:
        yield sized(graph, has_floors=False)
        return
    yield with_floors
    if with_floors.rounded:
        yield sized(graph, has_floors=False)


def sized(graph: Graph, has_floors: bool = True) -> Sized:
    """The graph for any size; CompileError where it has no such form. Linear: sizes of images that have to be multiples of more
    than was assumed are worked out again, a few times at most."""
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
    """The graph whole, typed with the only sizes that fit it. It goes the way of graphs of static sizes, where two ops that their
    results' types alone tell apart would be taken for one."""
    given = {node.name: sizes for node, sizes in zip(graph.inputs, result.inputs, strict=True)}
    typed = infer(graph, given)  # type: ignore[arg-type]
    return attrs.evolve(result, graph=typed, of_sizes=(), lent=(), handed_out=frozenset(), known={})


def _sized(graph: Graph, symbols: Symbols, has_floors: bool) -> Sized:
    """The graph for sizes that these symbols say."""
    reading = Reading(graph, symbols, has_floors)
    bodies = {node: body for node in graph.nodes if (body := _body(node, reading, graph)) is not None}
    if bodies:
        return _sized(apply_pass(graph, "InlineParts", family="tvm", verify=False, bodies=bodies), symbols, has_floors)
    return _Rewriting(graph, reading).run(symbols.counting)


def _body(node: Node, reading: Reading, graph: Graph) -> Graph | None:
    """The body of an op that has no form for any size itself; None for what has one, and for what the host computes."""
    if node.domain or node in reading.of_sizes:
        return None
    write = _decomposition(node, reading, graph.opsets.get("", 1))
    return None if write is None else write(BodyBuilder(node, graph.opsets))


def _decomposition(node: Node, reading: Reading, version: int) -> Callable[[BodyBuilder], Graph | None] | None:
    """The function that writes the body of such an op."""
    if node.op == "CastLike":
        return cast_like
    axes = _gathered_along(node, reading, version)
    if axes:
        return partial(dynamic_sizes.resize_by_gathers, axes=axes)
    amounts = padded_by_sizes(node, reading, version)
    if amounts:
        return partial(dynamic_sizes.pad_by_gathers, amounts=amounts)
    if is_one_hot(node, version):
        return one_hot
    if is_repeated_by_sizes(node, reading, version):
        return dynamic_sizes.tile_by_expand
    if is_sliced(node, reading, version):
        return dynamic_sizes.volumes_as_images
    if multiplies_a_vector(node, reading, version):
        return dynamic_sizes.vector_product
    if is_gathered(node, reading, version):
        return partial(dynamic_sizes.slice_by_gathers, spans=gathered_spans(node, reading))
    return None


@register_pass("InlineParts", keeps=REQUESTS, family="tvm")
def inline_parts(graph: Graph, bodies: Mapping[Node, Graph]) -> Graph:
    """The graph with these ops replaced by their bodies. Linear."""

    def visit(node: Node, rewriter: Rewriter) -> None:
        rebuilt = rewriter.rebuilt(node)
        rewriter.keep(node, body_call(rebuilt, bodies[node], IN_PARTS) if node in bodies else rebuilt)

    return infer(inline_calls(rewrite(graph, visit), lambda call: call.op == IN_PARTS), strict=False)


def _gathered_along(node: Node, reading: Reading, version: int) -> list[int]:
    """The dimensions whose size a resize changes, where it is made of gathers: its positions follow from all of an image's size,
    or from a size that is no multiple of it. None for what has a kernel."""
    if not can_gather(node, version):
        return []
    pairs = list(zip(reading.sizes(node[0]), reading.sizes(node.inputs[0]), strict=True))
    factors, stated = [_factor(*pair) for pair in pairs], stated_factors(node) or [1.0] * len(pairs)
    if stated_factors(node):  # A size that is rounded down is not multiplied by the factor that positions follow from.
        factors = [factor if factor == scale else None for factor, scale in zip(factors, stated, strict=True)]
    if not any(isinstance(size, Extent) for pair in pairs for size in pair) or has_kernel(node, factors):
        return []
    return [d for d, (wanted, size) in enumerate(pairs) if wanted != size or stated[d] != 1]


def is_for_any_size(graph: Graph) -> bool:
    """Has one of the graph's values an extent among its sizes?"""
    return any(has_extents(known) for node in graph.nodes for known in node.output_types)


class _Rewriting:
    """Turns the graph into one for any size."""

    def __init__(self, graph: Graph, reading: Reading) -> None:
        self.graph = graph
        self.reading = reading
        self.lent: dict[NodeEntry, Node] = {}
        """The input that stands for each value of the host."""
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
        """What stands for an output that depends on sizes alone: the host's value."""
        given, node, types = self._value(entry, rewriter), entry.node, (self.reading.type_of(entry),)
        name = node.name if len(node.output_names) == 1 else self._name(f"{entry.name}_of_sizes")
        return Node(name, "Identity", (given,), output_names=(entry.name,), output_types=types, metadata=node.metadata)[0]

    def _op(self, node: Node, rewriter: Rewriter) -> Node | None:
        """The op with the inputs that it keeps; None for one that changes nothing."""
        reading = self.reading
        said = node.op in ops("typed") and not node.domain and all(node.output_names)  # What is left out has no type.
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
        """A Resize to stated sizes as one by factors, where these are the same for all sizes."""
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
    """What a size is multiplied by, where that is known and a number of 32 bits; None elsewhere."""
    if isinstance(wanted, int) != isinstance(size, int):
        return None
    a, b = [next(iter(s.terms.values())) if isinstance(s, Extent) else s for s in (wanted, size)]
    return a / b if wanted * b == size * a and float(np.float32(a / b)) == a / b else None


_SAYING_SIZES = frozenset("Slice Tile Pad Resize TopK OneHot Clip ReduceSum ReduceMean ReduceMax ReduceMin".split())
"""Ops whose other inputs kernels have to know while they are written."""


def _needed(graph: Graph, reading: Reading, lent: Sequence[NodeEntry]) -> tuple[Node, ...]:
    """The ops that the host's values are computed by, in order."""
    needed: set[Node] = set()
    waiting = [entry.node for entry in lent]
    while waiting:
        node = waiting.pop()
        if node not in needed and node.is_op:
            needed.add(node)
            waiting += [] if node.op in ops("size") else [entry.node for entry in node.reads]
    return tuple([node for node in graph.nodes if node in needed])
