"""What is known of a graph's values while its sizes are worked out, node by node."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from partita.accelerators.errors import CompileError
from partita.accelerators.tvm.sizes.equations import Equations
from partita.accelerators.tvm.sizes.extent import Extent, Indivisible, Size, known_least, symbol
from partita.accelerators.tvm.sizes.floors import floored
from partita.accelerators.tvm.sizes.op_sizes import Sizes, inside, not_empty, sizes_made
from partita.accelerators.tvm.sizes.pasts import READERS
from partita.accelerators.tvm.sizes.quotients import Floor, floor_named
from partita.accelerators.tvm.sizes.rounded import Rounded
from partita.accelerators.tvm.sizes.vectors import DEEPEST, LONGEST, Vector, vector_made
from partita.graph.node import Node, NodeEntry
from partita.graph.ops import is_random
from partita.graph.ops.fitting import Fit, fits
from partita.graph.ops.traits import ops
from partita.graph.types import TensorType


class Reading:
    """The sizes of all values met so far, and the elements of those that are sizes themselves."""

    def __init__(self, equations: Equations, pasts: frozenset[str], has_floors: bool) -> None:
        self.equations = equations
        """Which symbols others say."""
        self.pasts = pasts
        """The symbols that are one more than a size, which may be 0."""
        self.has_floors = has_floors
        """Do sizes that are divided and rounded down get symbols of their own? Else they have to be multiples."""
        self.conditions: dict[Extent, None] = {}
        """What has to be no less than zero for all this to hold."""
        self.of_sizes: set[Node] = set()
        """The ops whose results depend on sizes, and beside them on constants alone."""
        self.rounded: dict[str, Rounded | Floor] = {}
        """The symbols whose values follow from others', and are no polynomials of them."""
        self.indivisible: Indivisible | None = None
        """Why an element of a vector is not known, if it is since a size may leave a rest."""
        self._settled: set[Node] = set()
        """These, and the ops that read nothing but constants."""
        self._sizes: dict[NodeEntry, Sizes] = {}
        self._vectors: dict[NodeEntry, Vector] = {}

    def given(self, node: Node, sizes: Sizes) -> None:
        """Note an input."""
        self._sizes[node[0]] = sizes

    def read(self, node: Node) -> None:
        """Note the next constant or op; CompileError where its sizes cannot be said."""
        if node.value is not None:
            self._sizes[node[0]] = tuple(node.value.shape)
            if node.value.dtype.kind in "iub" and node.value.ndim < 2 and node.value.size <= LONGEST:
                self._vectors[node[0]] = _objects(node.value)
            return
        inside(self, node)
        not_empty(self, node)
        self._hold_some(node)
        for fit in fits(node, [None if entry is None else self._sizes.get(entry) for entry in node.inputs]):
            self._hold(fit)
        if self._is_settled(node):
            self._settled.add(node)
            if node.op in ops("size") or any(entry.node in self.of_sizes for entry in (*node.reads, *node.captures)):
                self.of_sizes.add(node)
        shapes = sizes_made(self, node)
        if len(shapes) != len(node.output_names):
            raise CompileError(f"{node.op} makes {len(node.output_names)} results, and {len(shapes)} have known sizes")
        self._sizes.update(zip(node.outputs, shapes, strict=True))
        vector = vector_made(self, node) if len(node.output_names) == 1 and len(shapes[0]) <= DEEPEST else None
        if vector is not None:
            self._vectors[node[0]] = vector

    def _hold(self, fit: Fit) -> None:
        """Sizes of the op's inputs go together, which is assumed where it is not known."""
        if fit.relation == "one or equal" or fit.size == fit.other or None in (fit.size, fit.other):
            return
        if fit.relation == "equal" and self.are_same(fit.size, fit.other):
            return
        self.assume(fit.other - fit.size)
        if fit.relation == "equal":
            self.assume(fit.size - fit.other)

    def _hold_some(self, node: Node) -> None:
        """What the op reads has some numbers, which is assumed of a past, unless it reads none as well."""
        if node.op in READERS and not node.domain:
            return
        for entry in node.reads:
            count = self.count(entry)
            if isinstance(count, Extent) and not self.pasts.isdisjoint(count.symbols):
                self.assume(count - 1)

    def are_same(self, a: Size, b: Size) -> bool:
        """Are both sizes equal, or taken to be so from now on?"""
        return a == b or self.equations.hold(a, b)

    def are_alike(self, a: Sizes, b: Sizes) -> bool:
        """Are the sizes equal, dimension by dimension?"""
        return len(a) == len(b) and all(self.are_same(*pair) for pair in zip(a, b, strict=True))

    def _is_settled(self, node: Node) -> bool:
        """Does the node's result depend on nothing but sizes and constants? Ops of other domains numpy may not know."""
        if node.domain or node.bodies or is_random(node) or node.subgraph is not None:
            return False
        return node.op in ops("size") or all(
            entry.node.value is not None or entry.node in self._settled for entry in (*node.reads, *node.captures)
        )

    def sizes(self, entry: NodeEntry | None) -> Sizes:
        """The value's sizes."""
        if entry is None or entry not in self._sizes:
            raise CompileError("an op lacks an input whose size is needed")
        return self._sizes[entry]

    def known(self, entry: NodeEntry | None) -> Vector | None:
        """The value's elements, as far as they are known; None where nothing is."""
        return None if entry is None else self._vectors.get(entry)

    def vector(self, entry: NodeEntry | None) -> Sequence[Size]:
        """The value's elements, all of which are known."""
        vector = self.known(entry)
        if vector is None or any(item is None for item in vector.reshape(-1)):
            cause = f"sizes depend on values: those of {entry.name!r}" if entry is not None else "sizes are missing"
            raise self.indivisible or CompileError(cause)
        return vector.reshape(-1).tolist()  # type: ignore[no-any-return]

    def numbers(self, entry: NodeEntry) -> list[int]:
        """The value's elements, all of which are plain numbers."""
        return [number for number in self.vector(entry) if isinstance(number, int)]

    def type_of(self, entry: NodeEntry) -> TensorType:
        """The value's element type with its sizes."""
        if not isinstance(entry.type, TensorType):
            raise CompileError(f"the type of {entry.name!r} is unknown")
        return TensorType(entry.type.dtype, self.sizes(entry))

    def count(self, entry: NodeEntry) -> Size:
        """How many numbers the value has."""
        return math.prod(self.sizes(entry))

    def round_down(self, size: Extent, factor: float) -> Extent:
        """The size times a factor, rounded down: a symbol of its own, the same wherever the two are."""
        wanted = Rounded(size, factor)
        for name, known in self.rounded.items():
            if known == wanted:
                return symbol(name)
        name = f"r{len(self.rounded)}"
        self.rounded[name] = wanted
        return symbol(name)

    def divide(self, size: Size, divisor: int) -> Size:
        """The size divided by a number and rounded down."""
        if not self.has_floors:
            return size // divisor
        quotient = floored(size, divisor)
        for name in quotient.symbols if isinstance(quotient, Extent) else ():
            known = floor_named(name)
            if known is not None:
                self.rounded.setdefault(name, known)
        return quotient

    def assume(self, room: Size) -> None:
        """Note that this is no less than zero."""
        if isinstance(room, Extent):
            if known_least(room) < 0:
                self.conditions[room] = None
        elif room < 0:
            raise CompileError("a place lies outside of its dimension, or sizes do not go together")


def _objects(array: np.ndarray) -> Vector:  # type: ignore[type-arg]
    """The numbers as Python's."""
    vector = np.empty(array.shape, object)
    vector.reshape(-1)[:] = array.reshape(-1).tolist()
    return vector
