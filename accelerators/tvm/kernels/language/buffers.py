"""The buffers of a kernel: its arguments, memory of its own, and arrays of vectors that stay in registers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import attrs

from partita.accelerators.errors import CompileError
from partita.accelerators.tvm.kernels.language.expressions import Load
from partita.accelerators.tvm.kernels.language.types import Element, type_of
from partita.accelerators.tvm.kernels.language.values import Operand, Value, as_index, typed
from partita.accelerators.tvm.sizes.extent import Extent

if TYPE_CHECKING:
    from partita.accelerators.tvm.kernels.language.statements import Statement

Role = Literal["input", "output", "stack", "memory", "shared"]

Index = Operand | tuple[Operand, ...]


@attrs.frozen(slots=True, eq=False)
class Buffer:
    """Elements of one type. `buffer[i, j]` reads one, `buffer[i, j] = value` writes one, or as many neighbours as the value has
    lanes; `buffer.vector(lanes, i, j)` reads a vector."""

    name: str
    """The buffer's name in the text of the kernel."""
    element: Element
    """The element type."""
    shape: tuple[int | Value, ...]
    """Its sizes; a dynamic one is a value of the kernel, or an extent."""
    role: Role
    """An argument of the kernel, or its own: on the stack, which becomes registers where possible, in memory, or shared by the
    threads of a block."""
    emit: Callable[[Statement], None]
    """Adds a statement to the kernel of the buffer."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Its sizes; an error if one is a value of the kernel."""
        known = tuple([size for size in self.shape if isinstance(size, (int, Extent))])
        if len(known) < len(self.shape):
            raise CompileError(f"a size of buffer {self.name} is known only while the kernel runs")
        return known

    def __getitem__(self, index: Index) -> Value:
        return Load(type_of(self.element), self, self.indices(index))

    def vector(self, lanes: int, *index: Operand) -> Value:
        """Neighbours along the last dimension, from this position on, as a vector."""
        return Load(type_of(self.element, lanes), self, self.indices(index))

    def __setitem__(self, index: Index, value: Operand) -> None:
        from partita.accelerators.tvm.kernels.language.statements import Store  # upward: an assignment is a statement
        lanes = value.type.lanes if isinstance(value, Value) else 1
        self.emit(Store(self, self.indices(index), typed(value, type_of(self.element, lanes))))

    def indices(self, given: Index) -> tuple[Value, ...]:
        """The indices, checked: one per dimension, and within each static size."""
        listed = given if isinstance(given, tuple) else (given,)
        if len(listed) != len(self.shape):
            raise CompileError(f"buffer {self.name} has {len(self.shape)} dimensions, and {len(listed)} indices are given")
        for index, size in zip(listed, self.shape, strict=True):
            if isinstance(index, int) and isinstance(size, int) and not 0 <= index < size:
                raise CompileError(f"index {index} is outside of a dimension of {size} of buffer {self.name}")
        return tuple([as_index(index) for index in listed])


@attrs.frozen(slots=True, eq=False)
class Registers:
    """An array of vectors, indexed by row and column, that stays in registers if all its indices are static once loops are
    unrolled. `acc[r, v]` is a vector."""

    buffer: Buffer
    """The elements, contiguous on the stack."""
    shape: tuple[int, ...]
    """The shape of the array, in vectors."""
    lanes: int
    """Number of elements of a vector."""

    def __getitem__(self, index: Index) -> Value:
        return self.buffer.vector(self.lanes, self._first(index))

    def __setitem__(self, index: Index, value: Operand) -> None:
        self.buffer[self._first(index)] = typed(value, type_of(self.buffer.element, self.lanes))

    def lane(self, index: Index, lane: Operand) -> Value:
        """A single element of a vector."""
        return self.buffer[self._first(index) + lane]

    def set_lane(self, index: Index, lane: Operand, value: Operand) -> None:
        """Writes a single element of a vector."""
        self.buffer[self._first(index) + lane] = value

    def _first(self, given: Index) -> Operand:
        """The position in the buffer of a vector's first element."""
        listed = given if isinstance(given, tuple) else (given,)
        if len(listed) != len(self.shape):
            raise CompileError(f"{self.buffer.name} has {len(self.shape)} dimensions, and {len(listed)} indices are given")
        first: Operand = 0
        for d, index in enumerate(listed):
            step = math.prod(self.shape[d + 1 :]) * self.lanes
            first = index * step if d == 0 else first + index * step
        return first
