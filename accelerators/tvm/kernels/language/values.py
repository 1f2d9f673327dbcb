"""Values of a kernel and the operators on them. Types are checked where an expression is written.

`expressions.py` has the other expressions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

import attrs

from partita.accelerators.errors import CompileError
from partita.accelerators.tvm.kernels.language.types import Element, Type, boolean, index, type_of
from partita.accelerators.tvm.sizes.extent import Extent


class Value:
    """An expression. Python's operators build larger ones; a plain number gets the type of the other operand."""

    __slots__ = ()
    type: Type

    @property
    def parts(self) -> tuple[Value, ...]:
        """The operands of the expression."""
        return ()

    def cast(self, element: Element) -> Value:
        """The value converted to another element type, lane by lane."""
        return self if self.type.element is element else Cast(type_of(element, self.type.lanes), self)

    def as_index(self) -> Value:
        """An integer of a tensor as an index; the kernel has to make sure that it fits."""
        if not self.type.element.is_whole:
            raise CompileError(f"{self} is {self.type}: only a whole number can be a position")
        return self.cast(index)

    def bits_as(self, element: Element) -> Value:
        """The same bits as another element type of the same width."""
        if element.bits != self.type.element.bits:
            raise CompileError(f"the bits of {self.type} cannot be read as {element}: they are not as many")
        return Bits(type_of(element, self.type.lanes), self)

    def regrouped(self, element: Element) -> Value:
        """The same bits as fewer, wider elements, or as more, narrower ones; the first one has the low bits."""
        bits = self.type.element.bits * self.type.lanes
        if bits % element.bits:
            raise CompileError(f"the {bits} bits of {self.type} cannot be read as numbers of type {element}")
        return Bits(type_of(element, bits // element.bits), self)

    def spread(self, lanes: int) -> Value:
        """A vector with this value in every lane."""
        if self.type.lanes != 1:
            raise CompileError(f"{self.type} is a vector already: only a single number can be spread over lanes")
        return self if lanes == 1 else Spread(type_of(self.type.element, lanes), self)

    def equals(self, other: Operand) -> Value:
        """Lane by lane, true if both are equal."""
        return compare("==", self, other)

    def differs(self, other: Operand) -> Value:
        """Lane by lane, true if they differ."""
        return compare("!=", self, other)

    def __add__(self, other: Operand) -> Value:
        return arithmetic("+", self, other)

    def __radd__(self, other: Operand) -> Value:
        return arithmetic("+", other, self)

    def __sub__(self, other: Operand) -> Value:
        return arithmetic("-", self, other)

    def __rsub__(self, other: Operand) -> Value:
        return arithmetic("-", other, self)

    def __mul__(self, other: Operand) -> Value:
        return arithmetic("*", self, other)

    def __rmul__(self, other: Operand) -> Value:
        return arithmetic("*", other, self)

    def __truediv__(self, other: Operand) -> Value:
        return arithmetic("/", self, other)

    def __rtruediv__(self, other: Operand) -> Value:
        return arithmetic("/", other, self)

    def __floordiv__(self, other: Operand) -> Value:
        return arithmetic("//", self, other)

    def __rfloordiv__(self, other: Operand) -> Value:
        return arithmetic("//", other, self)

    def __mod__(self, other: Operand) -> Value:
        return arithmetic("%", self, other)

    def __rmod__(self, other: Operand) -> Value:
        return arithmetic("%", other, self)

    def __lshift__(self, other: Operand) -> Value:
        return arithmetic("<<", self, other)

    def __rshift__(self, other: Operand) -> Value:
        return arithmetic(">>", self, other)

    def __and__(self, other: Operand) -> Value:
        return arithmetic("&", self, other)

    def __or__(self, other: Operand) -> Value:
        return arithmetic("|", self, other)

    def __xor__(self, other: Operand) -> Value:
        return arithmetic("^", self, other)

    def __neg__(self) -> Value:
        return arithmetic("-", 0, self)

    def __invert__(self) -> Value:
        if self.type.element is not boolean:
            raise CompileError(f"~ turns truth values round, and {self.type} is none")
        return Not(self.type, self)

    def __lt__(self, other: Operand) -> Value:
        return compare("<", self, other)

    def __le__(self, other: Operand) -> Value:
        return compare("<=", self, other)

    def __gt__(self, other: Operand) -> Value:
        return compare(">", self, other)

    def __ge__(self, other: Operand) -> Value:
        return compare(">=", self, other)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        raise CompileError(f"{self} == {other} would compare objects of Python", remedy="Write .equals(), or .differs()")

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise CompileError(
            f"{self} is known only while the kernel runs, and Python asks for it now",
            remedy="Write kernel.when(condition) for a statement and select(condition, yes, no) for a value; == is .equals()",
        )

    def __str__(self) -> str:
        from partita.accelerators.tvm.kernels.language.text import value_text  # upward: str() is a method

        return value_text(self)


Operand = Value | int | float
"""The operands of an operator. An extent is allowed too; for the type checker it counts as a number."""


@attrs.frozen(slots=True, eq=False, repr=False, str=False)
class Constant(Value):
    """A constant, in every lane."""

    type: Type
    number: int | float


@attrs.frozen(slots=True, eq=False, repr=False, str=False)
class Variable(Value):
    """A loop's counter, or a named value."""

    type: Type
    name: str


class Symbol(Variable):
    """A size that is passed to the kernel."""

    __slots__ = ()


@cache
def symbol_of(name: str) -> Symbol:
    """The symbol of this name: one object for all kernels."""
    return Symbol(type_of(index), name)


@attrs.frozen(slots=True, eq=False, repr=False, str=False)
class ComputedSize(Value):
    """A size that is computed from symbols. It is computed once, at the start of the kernel: TVM would inline it wherever it is
    used, and quotients by it would grow with each use."""

    type: Type
    extent: Extent
    value: Value
    """The extent as an expression."""

    @property
    def parts(self) -> tuple[Value, ...]:
        return (self.value,)


def value_of_extent(extent: Extent) -> Value:
    """The extent as a value of the kernel."""
    written = _written_out(extent)
    return written if isinstance(written, Symbol) else ComputedSize(written.type, extent, written)


def _written_out(extent: Extent) -> Value:
    """The extent as an expression of its symbols."""
    total: Value | None = None
    for monomial, count in extent.terms.items():
        term: Value = constant(count, index)
        for position, name in enumerate(monomial):
            term = symbol_of(name) if position == 0 and count == 1 else term * symbol_of(name)
        total = term if total is None else total + term
    assert total is not None
    return total


@attrs.frozen(slots=True, eq=False, repr=False, str=False)
class Binary(Value):
    """A binary operation: arithmetic, a comparison, `and`, `or`, `min`, `max`."""

    type: Type
    operator: str
    left: Value
    right: Value

    @property
    def parts(self) -> tuple[Value, ...]:
        return self.left, self.right


@attrs.frozen(slots=True, eq=False, repr=False, str=False)
class Changed(Value):
    """A unary operation; the class is the operator."""

    type: Type
    value: Value

    @property
    def parts(self) -> tuple[Value, ...]:
        return (self.value,)


class Not(Changed):
    """The negation of a boolean."""

    __slots__ = ()


class Cast(Changed):
    """A conversion to another element type."""

    __slots__ = ()


class Bits(Changed):
    """A reinterpretation of bits as another element type."""

    __slots__ = ()


class Spread(Changed):
    """A value broadcast to all lanes."""

    __slots__ = ()


def _is_number(element: Element) -> bool:
    return element is not boolean


def _is_whole(element: Element) -> bool:
    return element.is_whole


def _has_bits(element: Element) -> bool:
    return element.is_whole or element is boolean


def _is_float(element: Element) -> bool:
    return element.kind == "float"


_TAKES: Mapping[str, Callable[[Element], bool]] = {
    **dict.fromkeys(("+", "-", "*"), _is_number), "/": _is_float,
    **dict.fromkeys(("//", "%", "<<", ">>", "^"), _is_whole), **dict.fromkeys(("&", "|"), _has_bits),
}
"""For each operator, the condition that it sets on element types."""


def constant(number: float, element: Element, lanes: int = 1) -> Value:
    """A constant of this type."""
    if isinstance(number, (Value, Extent)):
        raise CompileError(f"{number} is not a number that is known at compile time")
    if element.kind != "float" and number != int(number):
        raise CompileError(f"{number!r} is not a value of {element}")
    return Constant(type_of(element, lanes), float(number) if element.kind == "float" else int(number))


def as_index(value: Operand) -> Value:
    """The operand as an index: a position or a count."""
    return typed(value, type_of(index))


def parts_of(size: Operand, each: int) -> Operand:
    """Number of parts of `each` that cover a size; the last part may be smaller."""
    return -(-size // each) if isinstance(size, int) else (as_index(size) + (each - 1)) // each


def arithmetic(operator: str, left: Operand, right: Operand) -> Value:
    """An arithmetic operation; both operands have the same type."""
    a, b = same_type(operator, left, right)
    element = a.type.element
    if not _TAKES[operator](element):
        raise CompileError(f"{element} has no operator {operator}: {a} {operator} {b}")
    return Binary(a.type, operator, a, b)


def compare(operator: str, left: Operand, right: Operand) -> Value:
    """A comparison, lane by lane."""
    a, b = same_type(operator, left, right)
    return Binary(type_of(boolean, a.type.lanes), operator, a, b)


def typed(value: Operand, wanted: Type) -> Value:
    """The operand as a value of this type; an error if it is a value of another type."""
    if isinstance(value, Extent):
        return value_of_extent(value).cast(wanted.element).spread(wanted.lanes)
    if isinstance(value, Value):
        if value.type is not wanted:
            raise CompileError(f"{value} is {value.type}, where {wanted} is needed")
        return value
    return constant(value, wanted.element, wanted.lanes)


def same_type(operator: str, left: Operand, right: Operand) -> tuple[Value, Value]:
    """Both operands as values of the same type; a plain number gets the type of the other."""
    if not isinstance(left, Value):
        if not isinstance(right, Value):
            raise CompileError(f"{left!r} {operator} {right!r}: one of both has to be a value of a kernel")
        return typed(left, right.type), right
    if not isinstance(right, Value):
        return left, typed(right, left.type)
    if left.type is not right.type:
        raise CompileError(
            f"{left} {operator} {right}: the one is {left.type}, the other {right.type}",
            remedy="Write .cast(element) or .spread(lanes) where that is meant",
        )
    return left, right
