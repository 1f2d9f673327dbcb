"""The sizes of a graph's values as extents, read by the rules of `passes/infer`.

Symbols of extents count from 1 on: a symbol of `graph/symbols` that may be 0 is the extent `s0-1`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import attrs
import numpy as np

from partita.accelerators.errors import CompileError
from partita.accelerators.tvm.sizes.extent import Extent, Floor, Indivisible, Size, floor_named, known_least, symbol
from partita.accelerators.tvm.sizes.floors import floored
from partita.accelerators.tvm.sizes.needs import hold_needs
from partita.accelerators.tvm.sizes.symbols import Symbols
from partita.graph import symbols as algebra
from partita.graph.errors import TypeMismatch
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.graph.numerics.resize import scaled_size
from partita.graph.ops.traits import ops
from partita.graph.symbols import AnySize, Symbol, Term
from partita.graph.types import TensorType
from partita.passes.infer import reading as infer
from partita.passes.infer.reading import Requirement

Sizes = tuple[Size, ...]


@attrs.frozen(slots=True)
class Rounded:
    """A size times a fraction, rounded down. It has a symbol, whose value the host computes in each call."""

    size: Extent
    """The size that is multiplied."""
    factor: float | Fraction
    """The fraction; a float multiplies in single precision, as ONNX's Resize does."""

    def at(self, sizes: Mapping[str, int]) -> int:
        """Its value, given those of the symbols before it."""
        size = self.size.at(sizes)
        return scaled_size(size, self.factor) if isinstance(self.factor, float) else math.floor(size * self.factor)


class Reading:
    """The sizes of all values of a graph, and the elements of those that are sizes themselves.

    CompileError if a size is not a polynomial of symbols, their quotients and their fractions."""

    def __init__(self, graph: Graph, symbols: Symbols, has_floors: bool) -> None:
        self.pasts = symbols.pasts
        """The symbols that are one more than a size, which may be 0."""
        self.has_floors = has_floors
        """True if quotients that are rounded down get symbols. Otherwise sizes have to be multiples."""
        self.rounded: dict[str, Rounded | Floor] = {}
        """The symbols whose values are computed from others, in order."""
        self.conditions: dict[Extent, None] = {}
        """The sizes that are at least 0 in the calls that the graph is compiled for."""
        self.of_sizes: set[Node] = set()
        """The ops whose results follow from sizes and constants."""
        self._extents: dict[algebra.Size, Size] = {}
        self._sizes: dict[NodeEntry, Sizes] = {}
        self._counts: dict[Sizes, Size] = {}
        self._read = _read(graph, symbols)
        self.inputs = [self._translated(node[0]) for node in graph.inputs]
        """The sizes of the graph's inputs."""
        for node in graph.nodes:
            if node.is_op:
                self._op(node)
            elif node.value is not None:
                self._sizes[node[0]] = tuple(node.value.shape)
        for requirement in (*self._read.requirements, *self._read.assumptions):
            self._require(requirement)

    def _op(self, node: Node) -> None:
        if all(map(self._read.is_settled, node.outputs)) and self._depends_on_sizes(node):
            self.of_sizes.add(node)
        elif node in self._read.stated:
            raise CompileError(f"no rule says which sizes {node.op} makes of any size: {self._read.stated[node]}")
        if node not in self.of_sizes:
            hold_needs(self, node)
        for entry in node.outputs:
            if entry.name:
                self._translated(entry)

    def _depends_on_sizes(self, node: Node) -> bool:
        return node.op in ops("size") or any(entry.node in self.of_sizes for entry in node.reads)

    def _translated(self, entry: NodeEntry) -> Sizes:
        sizes = self._read.sizes(entry)
        if sizes is None:
            raise CompileError(f"the number of dimensions of {entry.name!r} is unknown")
        self._sizes[entry] = tuple(map(self.extent, sizes))
        return self._sizes[entry]

    def sizes(self, entry: NodeEntry | None) -> Sizes:
        """The value's sizes."""
        if entry is None or not (entry in self._sizes or self._read.sizes(entry) is not None):
            raise CompileError("an op lacks an input whose size is needed")
        return self._sizes[entry] if entry in self._sizes else self._translated(entry)

    def static(self, entry: NodeEntry) -> np.ndarray[Any, Any] | None:
        """The array of a value that is the same for all sizes, else None."""
        return self._read.array(entry)

    def vector(self, entry: NodeEntry | None) -> Sequence[Size]:
        """The value's elements."""
        elements = self._read.elements(entry)
        if elements is None or any(item is None for item in elements.reshape(-1)):
            raise CompileError(f"sizes depend on values: those of {entry.name!r}" if entry is not None else "sizes are missing")
        return [self.extent(item) for item in elements.reshape(-1)]

    def numbers(self, entry: NodeEntry) -> list[int]:
        """The value's elements that are integers."""
        return [number for number in self.vector(entry) if isinstance(number, int)]

    def type_of(self, entry: NodeEntry) -> TensorType:
        """The value's element type with its sizes."""
        if not isinstance(entry.type, TensorType):
            raise CompileError(f"the type of {entry.name!r} is unknown")
        return TensorType(entry.type.dtype, self.sizes(entry))

    def count(self, entry: NodeEntry) -> Size:
        """The number of elements."""
        sizes = self.sizes(entry)
        if sizes not in self._counts:
            self._counts[sizes] = math.prod(sizes)
        return self._counts[sizes]

    def assume(self, room: Size) -> None:
        """Records that this is at least 0; CompileError if it never is."""
        if isinstance(room, Extent):
            if known_least(room) < 0:
                self.conditions[room] = None
        elif room < 0:
            raise CompileError("a place lies outside of its dimension, or sizes do not go together")

    def divide(self, size: Size, divisor: int) -> Size:
        """The size divided by an integer and rounded down."""
        if not self.has_floors:
            return size // divisor
        try:
            quotient = floored(size, divisor)
        except Indivisible:
            return self._rounded_down(size, Fraction(1, divisor))
        for name in quotient.symbols if isinstance(quotient, Extent) else ():
            known = floor_named(name)
            if known is not None:
                self.rounded.setdefault(name, known)
        return quotient

    def _require(self, requirement: Requirement) -> None:
        """Records that a requirement or assumption holds in the calls that the graph is compiled for."""
        difference = requirement.left - requirement.right
        if requirement.relation == ">=":
            self.assume(self.extent(difference))
        elif requirement.left != requirement.right:
            self._refuse_remainder(difference)
            sizes = f"{self.extent(requirement.left)} and {self.extent(requirement.right)}"
            raise CompileError(f"{requirement.what} go together at some sizes only: {sizes}", where=requirement.where)

    def _refuse_remainder(self, difference: AnySize) -> None:
        """Indivisible if a quotient in the difference of two sizes was rounded: they may be equal where it is exact."""
        monomials = difference.terms if isinstance(difference, algebra.Size) else ()
        for factor in [factor for monomial in monomials for factor in monomial if isinstance(factor, Term)]:
            size, divisor = factor.operands
            extent = self.extent(size) if factor.kind == "//" and isinstance(divisor, int) else 0
            if isinstance(extent, Extent):
                raise Indivisible(extent, divisor, f"no kernel for any size: {extent} is not a multiple of {divisor}")

    def extent(self, size: AnySize) -> Size:
        """The size as an extent; CompileError if it has no such form."""
        if isinstance(size, int):
            return size
        extent = self._extents.get(size)
        if extent is None:
            extent = 0
            for monomial, count in size.terms.items():
                product: Size = count
                for factor in monomial:
                    product = product * self._factor(factor)
                extent = extent + product
            self._extents[size] = extent
        return extent

    def _factor(self, factor: Symbol | Term) -> Size:
        if isinstance(factor, Symbol):
            if factor.is_computed:
                raise CompileError(f"sizes depend on values: {factor.name}")
            return symbol(factor.name) if factor.least else symbol(factor.name) - 1
        size, by = factor.operands
        if factor.kind == "scaled":
            return self._rounded_down(self.extent(size), by)
        if factor.kind == "//" and isinstance(by, int):
            return self.divide(self.extent(size), by)
        if factor.kind == "//":
            return self.extent(size) // self.extent(by)
        raise CompileError(f"no kernel for any size: {factor} is known only when the model is called")

    def _rounded_down(self, size: Size, factor: float | Fraction) -> Extent:
        """A symbol for the size times a fraction, rounded down; the same for the same two."""
        assert isinstance(size, Extent)
        wanted = Rounded(size, factor)
        for name, known in self.rounded.items():
            if known == wanted:
                return symbol(name)
        name = f"r{len(self.rounded)}"
        self.rounded[name] = wanted
        return symbol(name)


def _read(graph: Graph, symbols: Symbols) -> infer.Reading:
    """The sizes of all values in independent symbols."""
    while True:
        try:
            reading = infer.Reading(graph, symbols.inputs(graph), one_form=True)
        except TypeMismatch as error:
            raise CompileError(error.cause, where=error.where) from error
        for node in graph.nodes:
            if node.is_op:
                _hold_to_types(node, reading, symbols)
        if not reading.meanings:
            return reading
        symbols.learn(reading.meanings)


def _hold_to_types(node: Node, reading: infer.Reading, symbols: Symbols) -> None:
    """CompileError if the graph declares other sizes than its ops make, which may be right for some calls. A declared 1 is solved
    for, since torch declares it for the batch of 1 that a model was exported with: the form is for such calls only."""
    for entry in node.outputs:
        declared = entry.type.shape if isinstance(entry.type, TensorType) else None
        sizes = reading.sizes(entry)
        if not entry.name or declared is None or sizes is None:
            continue
        stated = [None if size is None else algebra.replaced(size, reading.meanings) for size in map(symbols.stated, declared)]
        pairs = [(a, b) for a, b in zip(stated, sizes, strict=False) if a is not None and a != b]
        are_open = [(a == 1 or isinstance(a, algebra.Size)) and isinstance(b, algebra.Size) for a, b in pairs]
        if len(declared) != len(sizes) or not (all(are_open) and all(reading.assume_equal(a, b) for a, b in pairs)):
            raise CompileError(f"{entry.name!r} is stated to be {entry.type}, and its op makes {list(sizes)}")
