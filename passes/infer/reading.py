"""One pass over a graph that computes the shapes of all values, and the requirements of the ops on them.

Sizes are integers or depend on symbols; rules (`rules`, `moves`, `products`) are written once for both. A requirement that
always holds is dropped, one that never holds is an error, and the others are kept for each call."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import attrs
import numpy as np

from partita.graph.errors import PartitaError, TypeMismatch
from partita.graph.graph import Graph
from partita.graph.interpret import evaluate_node
from partita.graph.microsoft import NoBody, body_of, is_known
from partita.graph.node import Node, NodeEntry
from partita.graph.symbols import (
    LARGEST,
    AnySize,
    Size,
    Sizes,
    Symbol,
    at,
    covers,
    has_terms,
    is_at_least,
    joined,
    larger,
    replaced,
    smaller,
    solved,
    symbol,
    symbols_of,
)
from partita.graph.types import TensorType, Type
from partita.passes.infer import moves, products, signals  # noqa: F401  they register rules
from partita.passes.infer.rules import RULES, Rule, Unknown
from partita.passes.infer.shape_operands import is_measure, is_settled_by
from partita.passes.infer.values import LONGEST, VALUES, Elements, objects, within

FAILURES = (IndexError, KeyError, ValueError, TypeError, AttributeError, ZeroDivisionError, OverflowError)
"""Errors of a rule for a node that is not valid in ONNX."""

REMEDY = "Correct the sizes of the inputs, or what the model combines them with"


@attrs.frozen(slots=True)
class Requirement:
    """A required relation between two sizes."""

    left: AnySize
    relation: Literal["==", ">=", "broadcasts to", "1 or =="]
    right: AnySize
    what: str = attrs.field(eq=False)
    """The two sizes, for messages."""
    where: str = attrs.field(eq=False)
    """The node."""

    def is_broken(self, values: Mapping[Symbol, int]) -> bool:
        """True if it does not hold for these values of the symbols."""
        return not _holds(at(self.left, values), self.relation, at(self.right, values))

    def error(self, values: Mapping[Symbol, int], remedy: str = REMEDY) -> TypeMismatch:
        """The error for these values of the symbols."""
        left, right = at(self.left, values), at(self.right, values)
        return TypeMismatch(_words(self.what, self.relation, left, right), where=self.where, remedy=remedy)


def _holds(left: int, relation: str, right: int) -> bool:
    if relation == ">=":
        return left >= right
    return left == right or (relation == "broadcasts to" and 1 in (left, right)) or (relation == "1 or ==" and left == 1)


def _words(what: str, relation: str, left: AnySize, right: AnySize) -> str:
    return f"{what} do not go together: {left} {'is less than' if relation == '>=' else 'and'} {right}"


class Reading:
    """The sizes of a graph's values that follow from those of its inputs, and what its ops require."""

    def __init__(self, graph: Graph, inputs: Iterable[Sizes | None], exact: bool = False, one_form: bool = False) -> None:
        self.is_exact = exact
        """True if nothing is assumed: the sizes are those of every call that fulfils the requirements."""
        self.is_one_form = one_form
        """True if sizes that may be broadcast to one another are assumed to be equal, as kernels that are compiled once need."""
        self.requirements: dict[Requirement, None] = {}
        """The requirements that hold for some values of the symbols only."""
        self.assumptions: dict[Requirement, None] = {}
        """Assumptions besides the requirements; if one is violated, only a reading with integers is valid."""
        self.fills_shapes = False
        """True if sizes in shapes that are asked for are taken to be at least 1: zeros and -1 are not told by a symbol."""
        self.depth = 0
        """Number of loops and branches around the current node."""
        self.is_open = False
        """True if integers instead of symbols would give more information."""
        self.stated: dict[Node, str] = {}
        """The ops whose shapes cannot be derived, so that their declared ones are taken, and the reasons."""
        self.meanings: dict[Symbol, AnySize] = {}
        """The size that each solved symbol equals."""
        self._known: dict[NodeEntry, Sizes | None] = {}
        self._elements: dict[NodeEntry, Elements | None] = {}
        self._arrays: dict[NodeEntry, np.ndarray[Any, Any]] = {}
        self._settled: set[NodeEntry] = set()
        """The values that depend on sizes and constants alone."""
        for node, sizes in zip(graph.inputs, inputs, strict=True):
            self.note(node[0], sizes)
            self.is_open |= sizes is None and isinstance(node[0].type, TensorType)
        self._read_all(graph)

    def sizes(self, entry: NodeEntry | None) -> Sizes | None:
        """The value's shape; None if its rank is unknown."""
        known = None if entry is None else self._known.get(entry)
        return known if known is None or not self.meanings else tuple([replaced(size, self.meanings) for size in known])

    def elements(self, entry: NodeEntry | None) -> Elements | None:
        """The value's elements as sizes, with None for unknown ones; None if all are unknown."""
        known = None if entry is None else self._elements.get(entry)
        if known is None or not self.meanings:
            return known
        items = [replaced(item, self.meanings) if isinstance(item, Size) else item for item in known.reshape(-1)]
        return objects(items, known.shape)

    def array(self, entry: NodeEntry | None) -> np.ndarray[Any, Any] | None:
        """The array of a constant, or of a value computed from integers; else None."""
        return None if entry is None else self._arrays.get(entry)

    def is_settled(self, entry: NodeEntry) -> bool:
        """True if the value depends on sizes and constants alone."""
        return entry in self._settled

    def demand(self, requirement: Requirement) -> None:
        """Records a requirement unless it always holds; TypeMismatch if it never does."""
        a, b = replaced(requirement.left, self.meanings), replaced(requirement.right, self.meanings)
        relation = requirement.relation
        if isinstance(a, int) and isinstance(b, int):
            if _holds(a, relation, b):
                return
            raise self._mismatch(requirement, a, b)
        if a == b or (relation == ">=" and is_at_least(a, b)):
            return
        if relation == "broadcasts to" and (1 in (a, b) or covers(a, b) or covers(b, a)):
            return
        if relation == "1 or ==" and (a == 1 or is_at_least(a, 2)):
            if a == 1:
                return
            relation = "=="
        may_be_one = (relation == "broadcasts to" and not (is_at_least(a, 2) and is_at_least(b, 2))) or relation == "1 or =="
        apart = is_at_least(a, b) is False or (relation != ">=" and is_at_least(b, a) is False)
        if apart and not may_be_one:
            raise self._mismatch(requirement, a, b)
        self.requirements.setdefault(attrs.evolve(requirement, left=a, relation=relation, right=b))
        if relation == "==":
            self._solve(a - b)

    def assume_equal(self, a: AnySize, b: AnySize) -> bool:
        """True if both sizes are equal. A reading for one form assumes that they are, if a symbol can be solved for."""
        a, b = replaced(a, self.meanings), replaced(b, self.meanings)
        return a == b or (self.is_one_form and self._solve(a - b))

    def _solve(self, difference: AnySize) -> bool:
        """Replace a symbol from now on by the size that makes the difference 0; False if there is none.

        In a reading for one form the sizes of inputs stay polynomials, since a call's symbols are solved from them."""
        if self.is_one_form and (has_terms(difference) or any(one.is_computed for one in symbols_of(difference))):
            return False
        solution = solved(difference)
        if solution is None:
            return False
        name, meaning = solution
        self.meanings = {**{old: replaced(size, {name: meaning}) for old, size in self.meanings.items()}, name: meaning}
        return True

    def _mismatch(self, requirement: Requirement, a: AnySize, b: AnySize) -> TypeMismatch:
        return TypeMismatch(_words(requirement.what, requirement.relation, a, b), where=requirement.where, remedy=REMEDY)

    def note(self, entry: NodeEntry, sizes: Sizes | None, elements: Elements | None = None) -> None:
        """Records a value's shape, and its elements if they are known."""
        self._known[entry], self._elements[entry] = sizes, elements
        self._settled.discard(entry)
        self._arrays.pop(entry, None)

    def _read_all(self, graph: Graph) -> None:
        for node in graph.nodes:
            if node.value is not None:
                self._constant(node)
            elif node.is_op:
                self._read(node, graph)

    def _constant(self, node: Node) -> None:
        array = node.value
        assert array is not None
        self.note(node[0], tuple(array.shape), elements_of(array))
        self._arrays[node[0]] = array
        self._settled.add(node[0])

    def _read(self, node: Node, graph: Graph) -> None:
        if node.subgraph is not None:
            self._enter(node, node.subgraph)
            return
        for entry in node.outputs:
            self.note(entry, None)
        context = Context(self, node, graph.opsets.get(node.domain, 1))
        try:
            shapes = self._results(node, graph, context)
        except Unknown as error:
            self.is_open |= self._depends(node)
            self.stated[node] = str(error)
            for entry in node.outputs:
                self.note(entry, _stated(entry))
            shapes = ()
        for entry, sizes in zip(node.outputs, shapes, strict=False):
            self._known[entry] = sizes
        self._settle(node, graph, context, shapes)

    def _results(self, node: Node, graph: Graph, context: Context) -> Sequence[Sizes | None]:
        rule = rule_of(node)
        if rule is not None:
            try:
                return context.bounded(rule(context))
            except FAILURES as error:
                raise Unknown(f"{type(error).__name__}: {error}") from error  # inference reports the error
        if not is_known(node):
            raise Unknown("it has bodies" if node.bodies else "no rule gives its sizes")
        return self._by_body(node, graph)

    def _settle(self, node: Node, graph: Graph, context: Context, shapes: Sequence[Sizes | None]) -> None:
        """Records the elements of results that are small vectors of integers."""
        is_settled = is_settled_by(node, self._settled)
        if node.domain or not (is_settled or node.op in VALUES):
            return
        if is_settled:
            self._settled.update(node.outputs)
        arrays = self._computed(node, graph) if is_settled and not is_measure(node) else None
        if arrays is not None:
            for entry, array in zip(node.outputs, arrays, strict=False):
                self._known[entry], self._arrays[entry] = tuple(array.shape), array
                self._elements[entry] = elements_of(array)
        else:
            self._propagate(node, context, shapes)

    def _propagate(self, node: Node, context: Context, shapes: Sequence[Sizes | None]) -> None:
        """Records the elements of results that follow from elements of operands."""
        rule = VALUES.get(str(node.op)) if shapes and shapes[0] is not None and len(shapes[0]) < 3 else None
        try:
            vectors = () if rule is None else rule(context, shapes[0])  # type: ignore[arg-type]
        except (Unknown, *FAILURES):
            vectors = ()
        for entry, elements in zip(node.outputs, vectors, strict=False):
            given = self.type_of(entry)
            kind = given.dtype if isinstance(given, TensorType) else "int64"
            if kind in ("int64", "int32", "bool"):
                elements = within(elements, kind)
                if all(isinstance(item, int) for item in elements.reshape(-1)):
                    self._arrays[entry] = elements.astype(kind)
            self._elements[entry] = elements

    def _computed(self, node: Node, graph: Graph) -> Sequence[np.ndarray[Any, Any]] | None:
        """The results of an op with known inputs, if they are small."""
        values = [None if entry is None else self._arrays.get(entry) for entry in node.inputs]
        if any(entry is not None and value is None for entry, value in zip(node.inputs, values, strict=True)):
            return None
        sizes = [self._known.get(entry) for entry in node.outputs]
        if any(known is None or not all(isinstance(size, int) for size in known) for known in sizes):
            return None
        if any(known is not None and math.prod(known) > LONGEST for known in sizes):  # type: ignore[operator]
            return None
        if any(value is not None and value.size > LONGEST * LONGEST for value in values):
            return None
        try:
            return evaluate_node(node, values, graph.opsets)
        except PartitaError:  # reported at run time
            return None

    def _depends(self, node: Node) -> bool:
        """True if integers instead of symbols would give more of an op's sizes."""
        read = [self.sizes(entry) for entry in node.reads]
        return not node.bodies and any(not s.is_computed for sizes in read for s in symbols_of(*(sizes or ())))

    def _enter(self, call: Node, body: Graph) -> None:
        """Reads the body of a call, or of an op that is expressed by one."""
        for inner, outer in zip(body.inputs, call.inputs, strict=False):
            self._bind(inner[0], outer)
        self._read_all(body)
        for result, entry in zip(call.outputs, body.outputs, strict=False):
            self._bind(result, entry)

    def _bind(self, to: NodeEntry, entry: NodeEntry | None) -> None:
        self.note(to, self.sizes(entry), self.elements(entry))
        array = self.array(entry)
        if array is not None:
            self._arrays[to] = array
        if entry is not None and entry in self._settled:
            self._settled.add(to)

    def _by_body(self, node: Node, graph: Graph) -> Sequence[Sizes | None]:
        """Shapes by an op's body in ONNX's ops; its requirements become the op's."""
        try:
            body = body_of(node, [self.type_read(e) for e in node.inputs], [self.array(e) for e in node.inputs])
        except (NoBody, PartitaError) as error:
            raise Unknown(str(error)) from error
        present = [entry for entry in node.inputs if entry is not None]
        for inner, outer in zip(body.inputs, present, strict=True):
            self._bind(inner[0], outer)
        try:
            self._read_all(body)
        except TypeMismatch as error:
            raise TypeMismatch(error.cause, where=f"node {node.name!r} ({node.op})", remedy=error.remedy) from error
        return [self.sizes(entry) for entry in body.outputs]

    def type_of(self, entry: NodeEntry) -> Type | None:
        """The value's type; of a tensor the element type counts."""
        return entry.type

    def type_read(self, entry: NodeEntry | None) -> Type | None:
        """The value's type with the integers among its sizes."""
        kind = None if entry is None else self.type_of(entry)
        if not isinstance(kind, TensorType):
            return kind
        sizes = self.sizes(entry)
        return TensorType(kind.dtype, None if sizes is None else tuple([s if isinstance(s, int) else None for s in sizes]))


def symbolic(entry: NodeEntry) -> Sizes | None:
    """The shape in a value's type, with a symbol for each dynamic size."""
    known = entry.type
    if not isinstance(known, TensorType) or known.shape is None:
        return None
    sizes: list[AnySize] = []
    for axis, size in enumerate(known.shape):
        sizes.append(size if isinstance(size, int) else symbol(size if isinstance(size, str) else f"{entry.name}[{axis}]"))
    return tuple(sizes)


def has_rule(node: Node) -> bool:
    """True if a rule of ours gives the sizes of the op's results."""
    return rule_of(node) is not None


def rule_of(node: Node) -> Rule | None:
    """The rule that gives the sizes of the op's results."""
    return RULES.get(f"{node.domain}.{node.op}" if node.domain else str(node.op)) if node.subgraph is None else None


def elements_of(array: np.ndarray[Any, Any]) -> Elements | None:
    """The elements of a small vector of integers; None for other values."""
    is_small = array.dtype.kind in "iub" and array.ndim < 3 and array.size <= LONGEST
    return objects(array.reshape(-1).tolist(), array.shape) if is_small else None


def _computed_size(entry: NodeEntry, d: int) -> AnySize:
    return symbol(f"{entry.name}[{d}]", is_computed=True)


def _stated(entry: NodeEntry) -> Sizes | None:
    """The shape of a value without a rule: the integers in its declared type, and symbols."""
    shape = entry.type.shape if isinstance(entry.type, TensorType) else None
    return None if shape is None else tuple([s if isinstance(s, int) else _computed_size(entry, d) for d, s in enumerate(shape)])


def _is_beyond(size: AnySize) -> bool:
    return size > LARGEST if isinstance(size, int) else size.is_unwieldy


class Context:
    """The interface of one node to its rule."""

    def __init__(self, reading: Reading, node: Node, version: int) -> None:
        self.reading, self.node, self.op, self.version = reading, node, str(node.op), version
        self.results = len(node.output_names)
        self.where = f"node {node.name!r} ({node.op})"
        self.depth = reading.depth

    def has(self, slot: int) -> bool:
        """True if the input is present."""
        return slot < len(self.node.inputs) and self.node.inputs[slot] is not None

    def type(self, slot: int) -> Type | None:
        """The type of an input; of a tensor the element type counts."""
        return self.reading.type_of(self.node.inputs[slot]) if self.has(slot) else None  # type: ignore[arg-type]

    def dtype(self, slot: int) -> str | None:
        """The element type of an input that is a tensor."""
        kind = self.type(slot)
        return kind.dtype if isinstance(kind, TensorType) else None

    def attribute(self, name: str, default: Any = None) -> Any:
        """An attribute, with bytes decoded."""
        value = self.node.attrs.get(name, default)
        return value.decode() if isinstance(value, bytes) else value

    def shape(self, slot: int) -> Sizes:
        """The shape of an input."""
        sizes = self.reading.sizes(self.node.inputs[slot]) if self.has(slot) else None
        if sizes is None:
            raise Unknown(f"the sizes of input {slot}")
        return sizes

    def shapes(self) -> list[Sizes]:
        """The shapes of all present inputs."""
        return [self.shape(slot) for slot in range(len(self.node.inputs)) if self.has(slot)]

    def elements(self, slot: int) -> Elements | None:
        """The elements of an input as sizes, in its shape."""
        return self.reading.elements(self.node.inputs[slot]) if self.has(slot) else None

    def values(self, slot: int, attribute: str = "") -> list[AnySize | None] | None:
        """The elements of an input, or of the attribute that older opsets have instead."""
        if not self.has(slot):
            given = self.attribute(attribute) if attribute else None
            return None if given is None else list(given)
        array, sizes = self.elements(slot), self.reading.sizes(self.node.inputs[slot])
        entry = self.node.inputs[slot]
        if entry is not None and self.reading.is_settled(entry) and (array is None or any(v is None for v in array.reshape(-1))):
            self.reading.is_open = True
        if array is None:
            count = sizes[0] if sizes is not None and len(sizes) == 1 else None
            return [None] * count if isinstance(count, int) and count <= LONGEST else None
        return list(array.reshape(-1))

    def constant(self, slot: int) -> np.ndarray[Any, Any] | None:
        """The array of an input that is constant, or computed from integers; else None."""
        return self.reading.array(self.node.inputs[slot]) if self.has(slot) else None

    def unknown(self, what: str) -> AnySize:
        """A symbol for a data-dependent size."""
        return symbol(f"{self.node.name}: {what}", is_computed=True)

    def bounded(self, shapes: Sequence[Sizes | None]) -> Sequence[Sizes | None]:
        """The shapes of the results, with symbols for polynomials that grew too long; TypeMismatch for a size that no model can
        state."""
        if not any(shape and any(map(_is_beyond, shape)) for shape in shapes):
            return shapes
        sizes = [size for shape in shapes for size in shape or () if isinstance(size, int) and size > LARGEST]
        if sizes:
            raise TypeMismatch("a result would be larger than any size that can be stated", where=self.where)
        return [shape and self._without_unwieldy(i, shape) for i, shape in enumerate(shapes)]

    def _without_unwieldy(self, number: int, shape: Sizes) -> Sizes:
        return tuple([self.unknown(f"size {d} of result {number}") if _is_beyond(size) else size for d, size in enumerate(shape)])

    def equal(self, a: AnySize, b: AnySize, what: str) -> AnySize:
        """Requires that both sizes are equal."""
        if a != b:
            self.reading.demand(Requirement(a, "==", b, what, self.where))
        return b if isinstance(b, int) else a

    def one_or_equal(self, a: AnySize, b: AnySize, what: str) -> None:
        """Requires that the first size is 1, or both are equal."""
        if a != 1 and a != b:
            self.reading.assume_equal(a, b)
            self.reading.demand(Requirement(a, "1 or ==", b, what, self.where))

    def at_least(self, a: AnySize, b: AnySize, what: str) -> None:
        """Requires a >= b."""
        if not (isinstance(a, int) and isinstance(b, int) and a >= b):
            self.reading.demand(Requirement(a, ">=", b, what, self.where))

    def broadcast(self, shapes: Sequence[Sizes], what: str) -> Sizes:
        """The broadcast shape, which is required to exist."""
        rank, whole = max(map(len, shapes), default=0), list[AnySize]()
        for column in zip(*[(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes], strict=True):
            size: AnySize = 1
            for other in column:
                if other == 1 or size == other or size == 1:
                    size = size if other == 1 else other
                    continue
                if self.reading.assume_equal(size, other):
                    continue
                self.reading.demand(Requirement(size, "broadcasts to", other, what, self.where))
                size = joined(size, other)
            whole.append(size)
        return tuple(whole)

    def parted(self, size: AnySize, parts: AnySize, what: str) -> AnySize:
        """The quotient of two sizes, which is required to be exact."""
        quotient = size // parts
        self.equal(quotient * parts, size, what)
        return self.some(quotient, size)

    def some(self, size: AnySize, other: AnySize) -> AnySize:
        """The size, which is at least 1 if the other one is; only an exact reading says so."""
        return larger(size, 1) if self.reading.is_exact and is_at_least(other, 1) else size

    def usually(self, a: AnySize, b: AnySize) -> bool:
        """True for a >= b. Where that depends on symbols it is assumed: calls for which it does not hold are read by themselves.
        `Unknown` where values decide, and where nothing is assumed."""
        known = is_at_least(a, b)
        if known is None and self.reading.is_exact:
            raise Unknown(f"{a} >= {b}")
        if known is None and any(one.is_computed for one in symbols_of(a, b)):
            raise Unknown(f"{a} >= {b}")
        if known is None:
            self.reading.assumptions.setdefault(Requirement(a, ">=", b, "what is assumed", self.where))
        return known is not False

    def is_filled(self, size: AnySize, low: AnySize) -> bool:
        """True for size >= low, if it is one of a shape that is asked for."""
        return is_at_least(size, 0) is not False if self.reading.fills_shapes else self.usually(size, low)

    def within(self, value: AnySize, low: AnySize, high: AnySize) -> AnySize:
        """The value, or the bound that it is beyond: the higher one if that is below the lower one."""
        if self.reading.is_exact:
            return smaller(larger(low, value), high)
        value = value if self.usually(high, value) else high
        return value if self.usually(value, low) else low
