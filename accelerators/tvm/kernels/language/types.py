"""The types of a kernel's values: an element type, and the number of lanes."""

from __future__ import annotations

from functools import cache
from typing import Literal

import attrs

from partita.accelerators.errors import CompileError

Kind = Literal["float", "int", "uint", "bool", "index"]


@attrs.frozen(slots=True, eq=False)
class Element:
    """The type of a single element."""

    name: str
    """Its name in TVM and numpy; an index is TVM's int32."""
    short: str
    """Its name in the text of a kernel."""
    kind: Kind
    """Its kind of arithmetic."""
    bits: int
    """Number of bits of an element."""
    wide: Element | None = None
    """The element type in which its elements are computed, if it is another."""

    @property
    def is_whole(self) -> bool:
        """True for an integer, signed or not, and for an index."""
        return self.kind in ("int", "uint", "index")

    def __str__(self) -> str:
        return self.short


@attrs.frozen(slots=True, eq=False)
class Type:
    """An element type and a number of lanes. `type_of` interns types, so that equal ones are the same object."""

    element: Element
    """The element type of each lane."""
    lanes: int
    """Number of lanes; 1 for a scalar."""

    def __str__(self) -> str:
        return self.element.short if self.lanes == 1 else f"{self.element.short}x{self.lanes}"


def type_of(element: Element, lanes: int = 1) -> Type:
    """The type of `lanes` elements."""
    return _interned(element, lanes)


@cache
def _interned(element: Element, lanes: int) -> Type:
    return Type(element, lanes)


float64 = Element("float64", "f64", "float", 64)
float32 = Element("float32", "f32", "float", 32)
float16 = Element("float16", "f16", "float", 16, float32)
bfloat16 = Element("bfloat16", "bf16", "float", 16, float32)
int64 = Element("int64", "i64", "int", 64)
int32 = Element("int32", "i32", "int", 32)
int16 = Element("int16", "i16", "int", 16)
int8 = Element("int8", "i8", "int", 8)
uint64 = Element("uint64", "u64", "uint", 64)
uint32 = Element("uint32", "u32", "uint", 32)
uint16 = Element("uint16", "u16", "uint", 16)
uint8 = Element("uint8", "u8", "uint", 8)
boolean = Element("bool", "bool", "bool", 8)
index = Element("int32", "index", "index", 32)
"""The type of positions and counts. It never overflows, so that TVM may reason about it as about integers of any size; elements
of a tensor have the other types."""

ELEMENTS = {
    element.name: element
    for element in (
        float64, float32, float16, bfloat16, int64, int32, int16, int8, uint64, uint32, uint16, uint8, boolean,
    )
}
"""The element types of tensors, by their names in graphs."""


def element_named(dtype: str) -> Element:
    """The element type of a tensor's dtype."""
    if dtype not in ELEMENTS:
        raise CompileError(f"kernels have no element type {dtype!r}", remedy=f"There are {', '.join(ELEMENTS)}")
    return ELEMENTS[dtype]
