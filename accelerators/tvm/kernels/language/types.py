"""The types of a kernel's values: an element type, and the number of lanes."""

from __future__ import annotations

from functools import cache
from typing import Literal, cast

import attrs

from partita.accelerators.errors import CompileError
from partita.graph.types import ELEMENT_TYPES

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


def _element(name: str, wide: Element | None = None) -> Element:
    row = ELEMENT_TYPES[name]
    return Element(name, row.short, cast(Kind, row.kind), row.bits, wide)


float64 = _element("float64")
float32 = _element("float32")
float16 = _element("float16", float32)
bfloat16 = _element("bfloat16", float32)
int64 = _element("int64")
int32 = _element("int32")
int16 = _element("int16")
int8 = _element("int8")
uint64 = _element("uint64")
uint32 = _element("uint32")
uint16 = _element("uint16")
uint8 = _element("uint8")
boolean = _element("bool")
index = Element("int32", "index", "index", 32)
"""The type of positions and counts. It never overflows, so that TVM may reason about it as about integers of any size; elements
of a tensor have the other types."""

ELEMENTS = {
    element.name: element
    for element in (
        float64, float32, float16, bfloat16, int64, int32, int16, int8, uint64, uint32, uint16, uint8, boolean,
    )
}
"""The element types that kernels compute with: the rows of `ELEMENT_TYPES` with a short name."""


def element_named(dtype: str) -> Element:
    """The element type of a tensor's dtype."""
    if dtype not in ELEMENTS:
        raise CompileError(f"kernels have no element type {dtype!r}", remedy=f"There are {', '.join(ELEMENTS)}")
    return ELEMENTS[dtype]
