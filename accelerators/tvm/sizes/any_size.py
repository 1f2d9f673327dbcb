"""Calls of a subgraph that is compiled once for all sizes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from itertools import chain, count
from typing import Any

import attrs
import numpy as np

from partita.accelerators.interface.accelerator import AnySize, CompiledSubgraph
from partita.accelerators.process.forking import Guard
from partita.accelerators.tvm.sizes.extent import Extent, Size, value_of
from partita.accelerators.tvm.sizes.sizing import Sized
from partita.graph.errors import PartitaError
from partita.graph.interpret import evaluate_node
from partita.graph.node import NodeEntry

KEPT = 64
"""Number of sizes for which the host's values are cached."""

KEPT_BYTES = 64 << 20
"""Largest memory of these values in bytes; those of the last size are cached whatever they take."""

LITTLE = 1 << 16
"""Maximum number of elements of a value in a subgraph that numpy computes because a size is 0."""

MOST = 2**31 - 2**16
"""Bound on the elements of a value: kernels index in int32, with room for rounding up to whole tiles."""

NUMBER = 4
"""Assumed bytes per element."""

Note = Callable[[Hashable, int], None]

_numbers = count()
"""Source of the numbers that identify subgraphs."""

Shapes = tuple[tuple[int, ...], ...]
"""The sizes of all inputs."""


@attrs.frozen(slots=True, eq=False)
class _Known:
    """The cached data of one combination of sizes."""

    lent: tuple[np.ndarray[Any, Any], ...] | None
    """The host's values; None if the kernels do not take these sizes."""
    needed: int = 0
    """Estimated bytes of all values of a call."""

    @property
    def bytes(self) -> int:
        """Bytes of the host's values."""
        return sum(array.nbytes for array in self.lent or ())


class SizedSubgraph(AnySize):
    """The kernels for any size, and the values that the host computes for each size."""

    def __init__(self, sized: Sized, compiled: CompiledSubgraph, note: Note | None = None) -> None:
        """`note` gets for each call a key of its subgraph and sizes, and the estimated bytes of its values."""
        self.compiled = compiled
        self.notes = _multiples(sized)
        self._sized = sized
        self._note, self._number = note, next(_numbers)
        self._handed_out = [i for i, entry in enumerate(sized.lent) if entry in sized.handed_out]
        self._guard = Guard()
        self._known: OrderedDict[Shapes, _Known] = OrderedDict()
        self._bytes = 0

    def given(self, shapes: Shapes, inputs: Sequence[Any]) -> Sequence[Any] | None:
        """The kernels' operands in a call with inputs of these sizes; None if the kernels do not take these sizes."""
        with self._guard.lock:
            known = self._known.get(shapes)
            if known is None:
                known = self._known[shapes] = self._new(shapes)
                self._bytes += known.bytes
                while len(self._known) > KEPT or (self._bytes > KEPT_BYTES and len(self._known) > 1):
                    self._bytes -= self._known.popitem(last=False)[1].bytes
            else:
                self._known.move_to_end(shapes)
        if known.lent is None:
            return None
        if self._note is not None:
            self._note((self._number, shapes), known.needed)
        lent = list(known.lent)
        for i in self._handed_out:  # A view of it becomes the caller's.
            lent[i] = lent[i].copy()
        return [*inputs, *lent]

    def is_empty(self, shapes: Shapes) -> bool:
        """True if a symbol is 0, so that most values are empty, and the others are small."""
        sizes = self._symbols(shapes)
        return sizes is not None and 0 in sizes.values() and all(numbers.at(sizes) <= LITTLE for numbers in self._sized.counts)

    def _new(self, shapes: Shapes) -> _Known:
        """The data of sizes that are not cached."""
        sizes = self._symbols(shapes)
        if sizes is None or 0 in sizes.values():
            return _Known(None)
        sized = self._sized
        if any(value_of(condition, sizes) < 0 for condition in sized.conditions):
            return _Known(None)
        counts = [numbers.at(sizes) for numbers in sized.counts]
        if max(counts, default=0) >= MOST:
            return _Known(None)
        try:
            return _Known(self._computed(sizes), NUMBER * sum(counts))
        except PartitaError:
            return _Known(None)  # Compiling the subgraph for this size reports the error.

    def _symbols(self, shapes: Shapes) -> dict[str, int] | None:
        """The value of each symbol; None if the shapes contradict each other or the graph."""
        inputs = self._sized.inputs
        if [len(stated) for stated in inputs] != [len(shape) for shape in shapes]:
            return None
        pairs = list(zip(chain(*inputs), chain(*shapes), strict=True))
        sizes = dict(own for pair in pairs if (own := _own(*pair)) is not None)
        if any(value_of(expected, sizes) != size for expected, size in pairs):
            return None
        for name, rounded in self._sized.rounded.items():
            sizes[name] = rounded.at(sizes)
        return sizes

    def _computed(self, sizes: dict[str, int]) -> tuple[np.ndarray[Any, Any], ...]:
        """The values that depend on sizes alone, computed op by op."""
        sized, values = self._sized, dict[NodeEntry, Any]()
        for node in sized.of_sizes:
            if node[0] in sized.known:
                numbers = np.array([value_of(size, sizes) for size in sized.known[node[0]]], np.int64)
                values[node[0]] = numbers if node.op == "Shape" else numbers.reshape(())
                continue
            given = [None if e is None else e.node.value if e.node.value is not None else values[e] for e in node.inputs]
            values.update(zip(node.outputs, evaluate_node(node, given, sized.opsets), strict=True))
        measures = [np.empty(sizes[name], np.uint8) for name in sized.measured]
        return (*[np.asarray(values[entry], order="C") for entry in sized.lent], *measures)


def _multiples(sized: Sized) -> tuple[str, ...]:
    """The report's note on sizes that have to be multiples."""
    grains = [
        f"dimension {d} of {node.name!r} is a multiple of {size.terms[monomial]}"
        for node, sizes in zip(sized.graph.inputs, sized.inputs, strict=False)
        for d, size in enumerate(sizes)
        if isinstance(size, Extent)
        for monomial in size.terms
        if len(size.terms) == 1 and size.terms[monomial] > 1
    ]
    return (f"sizes are compiled for each unless {' and '.join(grains)}",) if grains else ()


def _own(stated: Size, size: int) -> tuple[str, int] | None:
    """The symbol and its value if the declared size is linear in a single symbol, else None."""
    if not isinstance(stated, Extent) or any(len(monomial) > 1 for monomial in stated.terms) or len(stated.symbols) != 1:
        return None
    (name,) = stated.symbols
    return name, (size - stated.terms.get((), 0)) // stated.terms[name,]
