"""Expressions of a kernel other than operators: selects, loads, calls of intrinsics, and expressions that bind a value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import attrs

from partita.accelerators.errors import CompileError
from partita.accelerators.tvm.kernels.language.types import Type, bfloat16, boolean, index
from partita.accelerators.tvm.kernels.language.values import Binary, Operand, Value, Variable, same_type

if TYPE_CHECKING:
    from partita.accelerators.tvm.kernels.language.buffers import Buffer
    from partita.accelerators.tvm.kernels.language.intrinsics import Intrinsic


@attrs.frozen(slots=True, eq=False, repr=False, str=False)
class Choice(Value):
    """A select between two values."""

    type: Type
    condition: Value
    yes: Value
    no: Value
    guards: bool
    """True if only the chosen value is computed, so that the other may read out of bounds."""

    @property
    def parts(self) -> tuple[Value, ...]:
        return self.condition, self.yes, self.no


@attrs.frozen(slots=True, eq=False, repr=False, str=False)
class Load(Value):
    """Elements of a buffer: as many neighbours as the type has lanes."""

    type: Type
    buffer: Buffer
    position: tuple[Value, ...]

    @property
    def parts(self) -> tuple[Value, ...]:
        return self.position


@attrs.frozen(slots=True, eq=False, repr=False, str=False)
class Call(Value):
    """A call of an intrinsic of the processor or of TVM."""

    type: Type
    intrinsic: Intrinsic
    arguments: tuple[Value, ...]

    @property
    def parts(self) -> tuple[Value, ...]:
        return self.arguments


@attrs.frozen(slots=True, eq=False, repr=False, str=False)
class Named(Value):
    """An expression that uses a value several times and computes it once."""

    type: Type
    variable: Variable
    value: Value
    body: Value

    @property
    def parts(self) -> tuple[Value, ...]:
        return self.value, self.body


LARGE = 256
"""Maximum size, in expressions, of a value that is read several times and still inlined."""


def maximum(left: Operand, right: Operand) -> Value:
    """Lane by lane, the larger value. A NaN may be ignored: `at_least` in `shared/functions.py` keeps it."""
    a, b = same_type("max", left, right)
    return Binary(a.type, "max", a, b)


def minimum(left: Operand, right: Operand) -> Value:
    """Lane by lane, the smaller value. A NaN may be ignored, as in `maximum`."""
    a, b = same_type("min", left, right)
    return Binary(a.type, "min", a, b)


def select(condition: Value, yes: Operand, no: Operand) -> Value:
    """Lane by lane, one of two values; both are computed."""
    return _choice(condition, yes, no, guards=False)


def if_inside(condition: Value, yes: Operand, no: Operand) -> Value:
    """One of two values. Only that one is computed, so that the other may read out of bounds."""
    return _choice(condition, yes, no, guards=True)


def _choice(condition: Value, yes: Operand, no: Operand, guards: bool) -> Value:
    a, b = same_type("select", yes, no)
    if condition.type.element is not boolean or condition.type.lanes not in (1, a.type.lanes):
        raise CompileError(f"{condition} is {condition.type}, which cannot choose between values of type {a.type}")
    return Choice(a.type, condition, a, b, guards)


def named(value: Value, body: Callable[[Value], Value]) -> Value:
    """An expression that uses the value several times and computes it once."""
    variable = Variable(value.type, "t")
    inner = body(variable)
    return Named(inner.type, variable, value, inner)


def all_of(conditions: Sequence[Value]) -> Value:
    """The conjunction of these conditions."""
    joined = conditions[0]
    for condition in conditions[1:]:
        joined = joined & condition
    return joined


def walk(values: Sequence[Value]) -> Iterator[Value]:
    """These values and all their subexpressions, each object once."""
    waiting: list[Value] = list(values)
    seen: set[int] = set()
    while waiting:
        value = waiting.pop()
        if id(value) not in seen:
            seen.add(id(value))
            yield value
            waiting += value.parts


@attrs.frozen(slots=True, eq=False)
class Kept:
    """The subexpressions that are computed once, before the expression."""

    values: Mapping[Value, None]
    """Large values that are read several times, then the variables of all `Named` expressions, which these may read. Values that
    are computed only under a condition are left out."""
    size: int
    """The size of the remaining expression when inlined."""


def kept_in(root: Value, sizes: Mapping[Variable, int]) -> Kept:
    """The values of an expression to compute ahead, given the sizes of outer variables. Linear."""
    reads: Counter[Value] = Counter()
    always: dict[Value, None] = {}
    size: dict[Value, int] = {}
    kept: dict[Value, None] = {}

    def settle(value: Value, written: int, decides: Value) -> None:
        is_kept = False
        if written > LARGE:
            if not always:  # Rarely needed: few expressions are that large.
                always.update(dict.fromkeys(_always_computed(root)))
                reads.update(part for inner in walk([root]) for part in inner.parts)
            is_kept = decides in always and reads[value] > 1 and value.type.element not in (index, boolean, bfloat16)
        size[value] = 1 if is_kept else min(written, 2 * LARGE)
        if is_kept:
            kept[value] = None

    waiting: list[tuple[Value, Value | None]] = [(root, None)]
    while waiting:
        value, reader = waiting.pop()
        if value is reader:
            settle(value, 1 + sum([size[part] for part in value.parts]), value)
        elif isinstance(reader, Named):
            settle(value, size[reader.value], reader)
        elif value in size:
            continue
        elif isinstance(value, Variable) and value in sizes:
            size[value] = sizes[value]
        else:
            waiting.append((value, value))
            if isinstance(value, Named):
                waiting += [(value.body, None), (value.variable, value), (value.value, None)]
            else:
                waiting += [(part, None) for part in value.parts]
    if kept:
        kept |= {value.variable: None for value in always if isinstance(value, Named)}
    return Kept(kept, size[root])


def _always_computed(root: Value) -> Iterator[Value]:
    """The subexpressions that are not guarded by a condition, each once."""
    waiting, seen = [root], set[Value]()
    while waiting:
        value = waiting.pop()
        if value not in seen:
            seen.add(value)
            yield value
            waiting += value.parts[:1] if isinstance(value, Choice) and value.guards else value.parts
