"""Integer vectors whose elements are sizes: what shape arithmetic makes of them, as extents."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from partita.accelerators.errors import CompileError
from partita.accelerators.tvm.sizes.extent import Extent, Indivisible, is_multiple, known_least
from partita.graph.node import Node

if TYPE_CHECKING:
    from partita.accelerators.tvm.sizes.reading import Reading

Vector = np.ndarray[Any, Any]
"""An object array of at most two dimensions: numbers, extents and truth values; None where an element is not known."""

DEEPEST = 2
"""The most dimensions of what is followed: amounts of padding stand in pairs, where torch's older exporter turns them round."""

LONGEST = 64
"""Vectors of more elements are not followed."""

FEW_SIZES = 64
"""So many sizes may be left to be compiled by themselves for a division that others have a form for."""


def vector_made(reading: Reading, node: Node) -> Vector | None:
    """The elements of the node's output; None where no rule says them."""
    rule = _RULES.get(str(node.op)) if not node.domain else None
    return None if rule is None else rule(reading, node)


def _given(reading: Reading, node: Node) -> list[Vector] | None:
    vectors = [reading.known(entry) for entry in node.inputs if entry is not None]
    return None if any(vector is None for vector in vectors) else [vector for vector in vectors if vector is not None]


def _shape(reading: Reading, node: Node) -> Vector | None:
    sizes = reading.sizes(node.inputs[0])
    return _vector(sizes[node.attrs.get("start", 0) : node.attrs.get("end", len(sizes))])


def _size(reading: Reading, node: Node) -> Vector | None:
    return _scalar(math.prod(reading.sizes(node.inputs[0])))


def _gather(reading: Reading, node: Node) -> Vector | None:
    given = _given(reading, node)
    if given is None or given[0].ndim != 1 or not _all_numbers(given[1]):
        return None
    taken = given[0][given[1].astype(np.int64)]
    return taken if isinstance(taken, np.ndarray) else _scalar(taken)


def _slice(reading: Reading, node: Node) -> Vector | None:
    entries, usual = (*node.inputs, None, None)[:5], (None, None, 0, 1)
    data = reading.known(entries[0])
    numbers = [number if entry is None else _only(reading.known(entry)) for entry, number in zip(entries[1:], usual)]
    if data is None or not data.ndim or None in numbers:
        return None
    start, end, axis, step = numbers
    assert axis is not None
    return data[(slice(None),) * (axis % data.ndim) + (slice(start, end, step),)]


def _concat(reading: Reading, node: Node) -> Vector | None:
    vectors = [reading.known(entry) for entry in node.reads]
    if all(vector is None for vector in vectors):
        return None
    parts = []
    for vector, entry in zip(vectors, node.reads, strict=True):
        length = reading.sizes(entry)
        if len(length) != 1 or not isinstance(length[0], int) or length[0] > LONGEST:
            return None
        parts.append(np.full(length, None, object) if vector is None else vector)
    return np.concatenate(parts)


def _moved(reading: Reading, node: Node) -> Vector | None:
    """One that holds the same elements under another shape."""
    vector = reading.known(node.inputs[0])
    if vector is None:
        return None
    shape = reading.sizes(node[0])
    numbers = tuple([size for size in shape if isinstance(size, int)])
    return vector.reshape(numbers) if len(numbers) == len(shape) <= DEEPEST else None


def _turned(reading: Reading, node: Node) -> Vector | None:
    vector = reading.known(node.inputs[0])
    return None if vector is None else vector.transpose(node.attrs.get("perm"))


def _cast(reading: Reading, node: Node) -> Vector | None:
    dtype = getattr(node[0].type, "dtype", "")
    return reading.known(node.inputs[0]) if dtype in ("int64", "int32") else None


def _joined(join: Callable[[Any, Any], Any]) -> Callable[[Reading, Node], Vector | None]:
    def rule(reading: Reading, node: Node) -> Vector | None:
        given = _given(reading, node)
        if given is None or len(given) != 2:
            return None
        pairs = np.broadcast(*given)
        values = [None if a is None or b is None else _or_none(reading, join, a, b) for a, b in pairs]
        return _vector(values).reshape(pairs.shape)

    return rule


def _or_none(reading: Reading, join: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
    try:
        return join(a, b)
    except Indivisible as error:
        reading.indivisible = error
        return None
    except CompileError:  # an extent that cannot say
        return None


def _divided(reading: Reading, node: Node) -> Vector | None:
    """ONNX rounds towards nothing. What is less than nothing for a few small sizes alone is taken not to be."""

    def quotient(a: Any, b: Any) -> Any:
        if isinstance(a, int) and isinstance(b, int):
            return a // b if a >= 0 and b > 0 else None
        if isinstance(b, int) and b > 0 and not is_multiple(a, b) and known_least(a) >= -FEW_SIZES:
            reading.assume(a)
            return reading.divide(a, b)
        return a // b if a % b == 0 else None

    return _joined(quotient)(reading, node)


def _negated(reading: Reading, node: Node) -> Vector | None:
    vector = reading.known(node.inputs[0])
    if vector is None:
        return None
    return _vector([None if size is None else -size for size in vector.reshape(-1)]).reshape(vector.shape)


def _larger(a: Any, b: Any) -> Any:
    """The larger of two sizes, where that is the same one whatever the symbols are."""
    return a if known_least(a - b) >= 0 else b if known_least(b - a) >= 0 else None


def _smaller(a: Any, b: Any) -> Any:
    """The smaller of two sizes, where that is the same one whatever the symbols are."""
    return b if known_least(a - b) >= 0 else a if known_least(b - a) >= 0 else None


def _remainder(reading: Reading, node: Node) -> Vector | None:
    def rest(a: Any, b: Any) -> Any:
        if isinstance(b, int):
            return a - reading.divide(a, b) * b if b > 0 else None
        if not isinstance(a, int):
            return None
        reading.assume(b + a if a < 0 else b - a - 1)  # Positions are moved round by less than there are.
        return b + a if a < 0 else a

    return None if node.attrs.get("fmod", 0) else _joined(rest)(reading, node)


def _equal(a: Any, b: Any) -> bool | None:
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    if isinstance(a, Extent) and isinstance(b, Extent):
        return True if a == b else None
    extent, number = (a, b) if isinstance(a, Extent) else (b, a)
    return False if known_least(extent) > number else None


def _where(reading: Reading, node: Node) -> Vector | None:
    given = _given(reading, node)
    if given is None:
        return None
    triples = np.broadcast(*given)
    return _vector([None if test is None else yes if test else no for test, yes, no in triples]).reshape(triples.shape)


def _constant_of_shape(reading: Reading, node: Node) -> Vector | None:
    sizes, value = reading.sizes(node[0]), node.attrs.get("value")
    if len(sizes) > 1 or not all(isinstance(size, int) and size <= LONGEST for size in sizes):
        return None
    if value is not None and value.dtype.kind not in "iu":
        return None
    filled = np.empty(sizes, object)
    filled.fill(0 if value is None else int(value.reshape(-1)[0]))
    return filled


def _product(reading: Reading, node: Node) -> Vector | None:
    vector = reading.known(node.inputs[0])
    if vector is None or any(item is None for item in vector.reshape(-1)):
        return None
    shape = reading.sizes(node[0])
    if shape == vector.shape:  # None of its dimensions is reduced, or only such of one.
        return vector
    if any(size != 1 for size in shape):
        return None
    return _vector([math.prod(vector.reshape(-1).tolist())]).reshape(tuple([1] * len(shape)))


def _vector(values: Any) -> Vector:
    """The values as an object array of one dimension."""
    listed = list(values)
    vector = np.empty(len(listed), object)
    vector[:] = listed
    return vector


def _scalar(value: Any) -> Vector:
    """The value as an object array of no dimension."""
    return _vector([value]).reshape(())


def _only(vector: Vector | None) -> int | None:
    """The only element of the vector, where there is one and it is a number."""
    number = vector.reshape(-1)[0] if vector is not None and vector.size == 1 else None
    return number if isinstance(number, int) else None


def _all_numbers(vector: Vector) -> bool:
    return all(isinstance(item, int) for item in vector.reshape(-1))


_RULES: Mapping[str, Callable[[Reading, Node], Vector | None]] = {
    "Shape": _shape, "Size": _size, "Gather": _gather, "Slice": _slice, "Concat": _concat, "Where": _where,
    "Cast": _cast, "CastLike": _cast, "Transpose": _turned,
    "Equal": _joined(_equal), "ConstantOfShape": _constant_of_shape, "ReduceProd": _product, "Div": _divided, "Mod": _remainder,
    "Add": _joined(lambda a, b: a + b), "Sub": _joined(lambda a, b: a - b), "Mul": _joined(lambda a, b: a * b),
    "Max": _joined(_larger), "Min": _joined(_smaller), "Neg": _negated,
    **dict.fromkeys("Identity Reshape Squeeze Unsqueeze".split(), _moved),
}
