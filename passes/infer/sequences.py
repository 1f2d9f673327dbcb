"""Types of sequences and optional values, and of what is taken from them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import attrs

from partita.graph.types import OptionalType, SequenceType, SparseTensorType, TensorType, Type
from partita.passes.infer.result_types import Kind, kinds, named
from partita.passes.infer.rules import axis_of

if TYPE_CHECKING:
    from partita.passes.infer.reading import Context


def common(types: Iterable[Type | None]) -> Type | None:
    """The most specific type that all these types agree on; None if there is none, or one of them is unknown."""
    first, *others = types
    for other in others:
        if first != other:
            first = _common_of_two(first, other)
    return first


def _common_of_two(a: Type | None, b: Type | None) -> Type | None:
    if isinstance(a, (SequenceType, OptionalType)) and type(a) is type(b):
        assert isinstance(b, (SequenceType, OptionalType))
        return attrs.evolve(a, element=common((a.element, b.element)))
    if type(a) is not type(b) or not isinstance(a, (TensorType, SparseTensorType)):
        return None
    assert isinstance(b, (TensorType, SparseTensorType))
    if a.dtype != b.dtype:
        return None
    if a.shape is None or b.shape is None or len(a.shape) != len(b.shape):
        return attrs.evolve(a, shape=None)
    return attrs.evolve(a, shape=tuple(m if m == n else None for m, n in zip(a.shape, b.shape, strict=True)))


def _element(given: Type | None) -> Type | None:
    return given.element if isinstance(given, (SequenceType, OptionalType)) else None


@kinds("SequenceConstruct")
def _constructed(c: Context) -> Sequence[Kind]:
    return [SequenceType(common(map(c.type, range(len(c.node.inputs)))))]


@kinds("SequenceEmpty")
def _empty(c: Context) -> Sequence[Kind]:
    return [SequenceType(TensorType(named(c, "dtype", "float32") or "float32", None))]


@kinds("SequenceInsert")
def _inserted(c: Context) -> Sequence[Kind]:
    given = c.type(0)
    if not isinstance(given, SequenceType):
        return [given]
    return [SequenceType(common((given.element, c.type(1))))]


@kinds("SequenceAt")
def _at(c: Context) -> Sequence[Kind]:
    return [_element(c.type(0))]


@kinds("ConcatFromSequence")
def _joined(c: Context) -> Sequence[Kind]:
    element = _element(c.type(0))
    if not isinstance(element, TensorType) or element.shape is None:
        return [element]
    shape, is_new = list(element.shape), bool(c.attribute("new_axis", 0))
    axis = axis_of(c, len(shape) + is_new, 0)
    shape[axis : axis + (not is_new)] = [None]
    return [TensorType(element.dtype, shape)]


@kinds("SplitToSequence")
def _split(c: Context) -> Sequence[Kind]:
    given = c.type(0)
    if not isinstance(given, TensorType):
        return [None]
    if given.shape is None:
        return [SequenceType(given)]
    shape, axis = list(given.shape), axis_of(c, len(given.shape), 0)
    if c.has(1):
        parts = c.values(1)
        sizes, whole = set(parts or [None]), shape[axis]
        is_single = parts is not None and len(c.shape(1)) == 0
        same = sizes.pop() if len(sizes) == 1 else None
        exact = not is_single or (isinstance(whole, int) and isinstance(same, int) and same > 0 and whole % same == 0)
        shape[axis] = same if isinstance(same, int) and exact else None
    elif c.attribute("keepdims", 1):
        shape[axis] = 1
    else:
        del shape[axis]
    return [SequenceType(TensorType(given.dtype, shape))]


@kinds("Optional")
def _optional(c: Context) -> Sequence[Kind]:
    given = c.type(0) if c.has(0) else c.attribute("type")
    return [OptionalType(given) if given is not None else None]


@kinds("OptionalGetElement")
def _element_of(c: Context) -> Sequence[Kind]:
    given = c.type(0)
    return [given.element if isinstance(given, OptionalType) else given]
