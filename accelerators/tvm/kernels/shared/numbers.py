"""How the numbers of a tensor are computed with.

Numbers of two bytes are stored as they are and computed with as float32: they are widened where a kernel reads them, and rounded
where it writes them, once."""

from __future__ import annotations

from collections.abc import Mapping

from partita.accelerators.tvm.bodies.body import Body, element_of
from partita.accelerators.tvm.kernels.language import (
    Buffer,
    Element,
    Operand,
    Value,
    bfloat16,
    constant,
    element_named,
    float16,
    float32,
    uint16,
)
from partita.graph.node import NodeEntry

HALVES = frozenset(("float16", "bfloat16"))
"""The element types that are stored in two bytes and computed with as float32."""

REALS = HALVES | {"float32"}
"""The element types that are computed with as float32."""

FLOATS = REALS | {"float64"}
INTEGERS = frozenset(("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"))
NUMBERS = FLOATS | INTEGERS


def computed_as(element: Element) -> Element:
    """The element type in which numbers of this one are computed with."""
    return float32 if element in (float16, bfloat16) else element


def computed_element(entry: NodeEntry) -> Element:
    """The element type in which a value's numbers are computed with."""
    return computed_as(element_named(element_of(entry)))


def read(buffer: Buffer, position: tuple[Operand, ...], lanes: int = 1) -> Value:
    """A number of a buffer, or as many neighbours, to compute with."""
    return buffer.vector(lanes, *position).cast(computed_as(buffer.element))


def write(buffer: Buffer, position: tuple[Operand, ...], value: Value) -> None:
    """Store what was computed."""
    buffer[position] = value.cast(buffer.element)


def stored_bits(number: Value, element: Element) -> Value:
    """A number of a buffer as another buffer keeps it: bits of bfloat16 are kept as uint16."""
    return number.cast(bfloat16).bits_as(uint16) if element is uint16 else number.cast(element)


def rounded(value: Value, element: Element) -> Value:
    """What is left of a computed number once it is stored as this element type."""
    return value if value.type.element is element else value.cast(element).cast(computed_as(element))


def constants_of(body: Body) -> Mapping[NodeEntry, Value]:
    """The single numbers among a body's constants, to compute with."""
    single = [node for node in body.graph.nodes if node.value is not None and node.value.size == 1]
    return {node[0]: constant(node.value.item(), computed_element(node[0])) for node in single if node.value is not None}
