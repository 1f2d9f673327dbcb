"""Values of a kernel and the operators that join them. Each knows its type; a wrong one is an error where it is written.

`expressions.py` has those that take more than an operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

import attrs

from partita.accelerators.errors import CompileError
from partita.accelerators.tvm.kernels.language.types import Element, Type, boolean, index, type_of
from partita.accelerators.tvm.sizes.extent import Extent


class Value:
    """An expression. Operators of Python make larger ones; a plain number takes the other side's type."""

    __slots__ = ()
    type: Type

    @property
    def parts(self) -> tuple[Value, ...]:
        """The expressions that it is made of."""
        return ()

    def cast(self, element: Element) -> Value:
        """The nearest number of another element type, lane by lane."""
        return self if self.type.element is element else Cast(type_of(element, self.type.lanes), self)

    def as_index(self) -> Value:
        """A whole number of a tensor as a position; the kernel answers for its being one."""
        if not self.type.element.is_whole:
            raise CompileError(f"{self} is {self.type}: only a whole number can be a position")
        return self.cast(index)

    def bits_as(self, element: Element) -> Value:
        """The same bits read as another element type of as many bits."""
        if element.bits != self.type.element.bits:
            raise CompileError(f"the bits of {self.type} cannot be read as {element}: they are not as many")
        return Bits(type_of(element, self.type.lanes), self)

    def regrouped(self, element: Element) -> Value:
        """The same bits read as wider numbers, fewer of them, or as narrower ones, more of them: the first has the low bits."""
        bits = self.type.element.bits * self.type.lanes
        if bits % element.bits:
            raise CompileError(f"the {bits} bits of {self.type} cannot be read as numbers of type {element}")
        return Bits(type_of(element, bits // element.bits), self)

    def spread(self, lanes: int) -> Value:
        """A vector with this number in every lane."""
        if self.type.lanes != 1:
            raise CompileError(f"{self.type} is a vector already: only a single number can be spread over lanes")
        return self if lanes == 1 else Spread(type_of(self.type.element, lanes), self)

    def equals(self, other: Operand) -> Value:
        """Lane by lane, whether both are the same number."""
        return compare("==", self, other)

    def differs(self, other: Operand) -> Value:
        """Lane by lane, whether they are not the same number."""
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
"""What may stand beside an operator. An extent may too, which counts as a number to the checker of types."""


@attrs.frozen(slots=True, eq=False, repr=False, str=False)
class Constant(Value):
    """A number that is known when the kernel is written, in every lane."""

    type: Type
    number: int | float


@attrs.frozen(slots=True, eq=False, repr=False, str=False)
class Variable(Value):
    """A loop's counter, or a value that has a name."""

    type: Type
    name: str


class Symbol(Variable):
    """A size that the kernel is given when it is called."""

    __slots__ = ()


@cache
def symbol_of(name: str) -> Symbol:
    """The symbol of this name: one object, whichever kernel asks for it."""
    return Symbol(type_of(index), name)


@attrs.frozen(slots=True, eq=False, repr=False, str=False)
class Polynomial(Value):
    """A size that follows from symbols. It is computed once, before all else that the kernel does: TVM would write it out
    wherever it is used, and what is divided by it would grow with each use."""

    type: Type
    extent: Extent
    value: Value
    """The extent written out."""

    @property
    def parts(self) -> tuple[Value, ...]:
        return (self.value,)


def value_of_extent(extent: Extent) -> Value:
    """The extent as a value of the kernel."""
    written = _written_out(extent)
    return written if isinstance(written, Symbol) else Polynomial(written.type, extent, written)


def _written_out(extent: Extent) -> Value:
    """The extent computed from its symbols while the kernel runs."""
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
    """Two operands and what joins them: arithmetic, a comparison, `and`, `or`, `min`, `max`."""

    type: Type
    operator: str
    left: Value
    right: Value

    @property
    def parts(self) -> tuple[Value, ...]:
        return self.left, self.right


@attrs.frozen(slots=True, eq=False, repr=False, str=False)
class Changed(Value):
    """Another value, changed; the class says how."""

    type: Type
    value: Value

    @property
    def parts(self) -> tuple[Value, ...]:
        return (self.value,)


class Not(Changed):
    """A truth value turned round."""

    __slots__ = ()


class Cast(Changed):
    """A number as another element type."""

    __slots__ = ()


class Bits(Changed):
    """The same bits as another element type."""

    __slots__ = ()


class Spread(Changed):
    """A number in every lane."""

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
"""A test for each operator: does an element type have it?"""


def constant(number: float, element: Element, lanes: int = 1) -> Value:
    """A number of this type."""
    if isinstance(number, (Value, Extent)):
        raise CompileError(f"{number} is no number that is known now")
    if element.kind != "float" and number != int(number):
        raise CompileError(f"{number!r} is no {element}")
    return Constant(type_of(element, lanes), float(number) if element.kind == "float" else int(number))


def as_index(value: Operand) -> Value:
    """The number as an index: a position or a count."""
    return typed(value, type_of(index))


def parts_of(size: Operand, each: int) -> Operand:
    """How many parts of so many a size has, the last of which may be smaller."""
    return -(-size // each) if isinstance(size, int) else (as_index(size) + (each - 1)) // each


def arithmetic(operator: str, left: Operand, right: Operand) -> Value:
    """Both sides joined; they have one type."""
    a, b = same_type(operator, left, right)
    element = a.type.element
    if not _TAKES[operator](element):
        raise CompileError(f"{element} has no operator {operator}: {a} {operator} {b}")
    return Binary(a.type, operator, a, b)


def compare(operator: str, left: Operand, right: Operand) -> Value:
    """Truth values, lane by lane."""
    a, b = same_type(operator, left, right)
    return Binary(type_of(boolean, a.type.lanes), operator, a, b)


def typed(value: Operand, wanted: Type) -> Value:
    """A plain number or an extent as this type; a value has to have it."""
    if isinstance(value, Extent):
        return value_of_extent(value).cast(wanted.element).spread(wanted.lanes)
    if isinstance(value, Value):
        if value.type is not wanted:
            raise CompileError(f"{value} is {value.type}, where {wanted} is needed")
        return value
    return constant(value, wanted.element, wanted.lanes)


def same_type(operator: str, left: Operand, right: Operand) -> tuple[Value, Value]:
    """Both operands as values of one type; a plain number takes the type of the other."""
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
