"""The requirements of a graph on the sizes of its inputs, checked once per set of sizes."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence

from partita.graph.errors import TypeMismatch
from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.graph.ops.traits import ops
from partita.graph.symbols import Sizes, Symbol, symbols_of
from partita.passes.infer.reading import FAILURES, REMEDY, Context, Reading, Requirement, rule_of, symbolic
from partita.passes.infer.rules import Unknown

KEPT = 4096
"""Maximum number of cached sets of valid sizes."""

_NOTHING = Graph([])
"""The graph of a reading whose sizes are given."""

Shapes = tuple[tuple[int, ...] | None, ...]
"""The shapes of all inputs; None for one that is not a tensor."""


class Contract:
    """The requirements of a graph's ops, in symbols of its inputs, derived when sizes are first checked.

    If symbols do not suffice for an op, or sizes violate an assumption, the graph is read again with the sizes of
    the call. Data-dependent sizes (the number of nonzero elements) are left to the device that runs the op."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._requirements: list[Requirement] | None = None
        self._assumptions: list[Requirement] = []
        self._is_open = False
        self._symbols: list[tuple[Symbol, int, int]] = []
        self.fitting: set[Shapes] = set()
        """Sets of valid sizes."""

    def check(self, shapes: Shapes) -> None:
        """Raises TypeMismatch if inputs of these shapes contradict each other or a constant, index or attribute of the graph."""
        if shapes in self.fitting:
            return
        if self._requirements is None:
            self._derive()
        values: dict[Symbol, int] = {}
        for one, number, axis in self._symbols:
            shape = shapes[number]
            assert shape is not None
            if values.setdefault(one, shape[axis]) != shape[axis]:
                cause = f"{one} is {values[one]} in another input, and {shape[axis]} here"
                raise TypeMismatch(cause, where=f"input {self._graph.inputs[number].name!r}", remedy=REMEDY)
        is_usual = not any(assumption.is_broken(values) for assumption in self._assumptions)
        for requirement in self._requirements or () if is_usual else ():
            if requirement.is_broken(values):
                raise requirement.error(values, self._remedy(shapes))
        if self._is_open or not is_usual:
            try:
                Reading(self._graph, shapes)
            except TypeMismatch as error:
                raise TypeMismatch(error.cause, where=error.where, remedy=self._remedy(shapes)) from error
        if len(self.fitting) >= KEPT:
            self.fitting.clear()
        self.fitting.add(shapes)

    def _remedy(self, shapes: Shapes) -> str:
        pairs = zip(self._graph.inputs, shapes, strict=True)
        listed = ", ".join(f"{node.name} is {list(shape)}" for node, shape in pairs if shape is not None)
        return f"Correct the sizes of the inputs: {listed}"

    def _derive(self) -> None:
        """Reads the graph with a symbol for each dynamic size."""
        symbols: list[tuple[Symbol, int, int]] = []
        inputs = []
        for number, node in enumerate(self._graph.inputs):
            sizes = symbolic(node[0])
            inputs.append(sizes)
            for axis, size in enumerate(sizes or ()):
                symbols.extend((one, number, axis) for one in symbols_of(size))
        try:
            reading = Reading(self._graph, inputs)
        except TypeMismatch:  # possibly only for the symbols
            self._is_open, self._requirements = True, []
            return
        given = {one for one, _, _ in symbols}
        self._symbols, self._is_open = symbols, reading.is_open
        self._assumptions = [r for r in reading.assumptions if symbols_of(r.left, r.right) <= given]
        self._requirements = [r for r in reading.requirements if symbols_of(r.left, r.right) <= given]


def require_agreement(graph: Graph) -> None:
    """Raises TypeMismatch if the static sizes of a graph contradict each other, a constant, an index or an attribute."""
    Reading(graph, [symbolic(node[0]) for node in graph.inputs])


def is_unchecked(node: Node) -> bool:
    """True if engines do not compare all sizes of the op's inputs that have to go together."""
    return not node.domain and node.op in ops("unchecked")


def require_fit(node: Node, shapes: Sequence[Sizes | None], opsets: Mapping[str, int]) -> None:
    """Raises TypeMismatch if inputs of an unchecked op have shapes that contradict each other, or its attributes. Symbols of the
    sizes may have any value for which they do not."""
    rule = rule_of(node) if is_unchecked(node) else None
    if rule is None:
        return
    reading = Reading(_NOTHING, ())
    for entry, sizes in zip(node.inputs, shapes, strict=True):
        if entry is not None:
            reading.note(entry, sizes)
    with contextlib.suppress(Unknown, *FAILURES):  # The op's own inference reports such an error.
        rule(Context(reading, node, opsets.get(node.domain, 1)))


def shapes_of(values: Sequence[object]) -> Shapes:
    """The shapes of these arrays."""
    return tuple([getattr(value, "shape", None) for value in values])
