"""Reads and writes of tensor elements, in the types in which they are computed, and the shapes of tensors that kernels take.

16-bit floats are computed in float32: a kernel widens them when it reads them, and rounds them once, when it writes them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from partita.accelerators.tvm.bodies.body import Body, element_of
from partita.accelerators.tvm.bodies.quantized import STORED
from partita.accelerators.tvm.kernels.language import (
    Buffer,
    Element,
    Operand,
    Value,
    bfloat16,
    constant,
    element_named,
    float32,
    uint16,
)
from partita.accelerators.tvm.kernels.language.types import ELEMENTS
from partita.accelerators.tvm.sizes.extent import sizes_of
from partita.graph.node import NodeEntry
from partita.graph.types import TensorType

HALVES = frozenset(name for name, element in ELEMENTS.items() if element.wide is float32)
"""Element types that are stored in two bytes and computed in float32."""

REALS = HALVES | {"float32"}
"""Element types that are computed in float32."""

FLOATS = REALS | {"float64"}
INTEGERS = frozenset(name for name, element in ELEMENTS.items() if element.is_whole)
NUMBERS = FLOATS | INTEGERS


def computed_as(element: Element) -> Element:
    """The element type in which elements of this one are computed."""
    return element.wide or element


def computed_element(entry: NodeEntry) -> Element:
    """The element type in which a value's elements are computed."""
    return computed_as(element_named(element_of(entry)))


def read(buffer: Buffer, position: tuple[Operand, ...], lanes: int = 1) -> Value:
    """An element of a buffer, or a vector of neighbours, in the type for computing."""
    return buffer.vector(lanes, *position).cast(computed_as(buffer.element))


def write(buffer: Buffer, position: tuple[Operand, ...], value: Value) -> None:
    """Store a computed value, rounded to the buffer's type."""
    buffer[position] = value.cast(buffer.element)


def stored_bits(number: Value, element: Element) -> Value:
    """A computed value in the element type of a buffer; buffers of uint16 hold the bits of bfloat16."""
    return number.cast(bfloat16).bits_as(uint16) if element is uint16 else number.cast(element)


def rounded(value: Value, element: Element) -> Value:
    """A computed value as it is after a store and a load in this element type."""
    return value if value.type.element is element else value.cast(element).cast(computed_as(element))


def constants_of(body: Body) -> Mapping[NodeEntry, Value]:
    """The scalars among a body's constants, in the types for computing."""
    single = [node for node in body.graph.nodes if node.value is not None and node.value.size == 1]
    return {node[0]: constant(node.value.item(), computed_element(node[0])) for node in single if node.value is not None}


Shape = tuple[int, ...]
"""Sizes. A dynamic one is an `Extent`, which counts as an integer for mypy, and raises an error in unsupported operations."""

FARTHEST = 2**31
"""Bound of offsets, which are 32-bit integers."""

FLOAT32 = frozenset(("float32",))


def float32_shape(entry: NodeEntry | None) -> Shape | None:
    """The sizes of a value if it is a float32 tensor with known sizes."""
    return _shape_of(entry, FLOAT32)


def real_shape(entry: NodeEntry | None) -> Shape | None:
    """The sizes of a value if its elements are computed in float32, however they are stored, and the sizes are known."""
    return _shape_of(entry, REALS)


def number_shape(entry: NodeEntry | None) -> Shape | None:
    """The sizes of a value if its elements are computed in float32 or are quantized integers, and the sizes are known."""
    return _shape_of(entry, REALS | STORED)


def any_shape(entry: NodeEntry | None) -> Shape | None:
    """The sizes of a value if it is a tensor with known sizes."""
    return _shape_of(entry, None)


def _shape_of(entry: NodeEntry | None, dtypes: Collection[str] | None) -> Shape | None:
    known = None if entry is None else entry.type
    if not isinstance(known, TensorType) or (dtypes is not None and known.dtype not in dtypes):
        return None
    return sizes_of(known)  # type: ignore[return-value]
