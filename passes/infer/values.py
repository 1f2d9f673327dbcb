"""Elements of small integer vectors that hold sizes, computed from the elements of an op's inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from partita.graph.symbols import AnySize, Size, Sizes, divided, is_at_least, larger, least, quotient, smaller
from partita.graph.types import TensorType, numpy_dtype
from partita.passes.infer.rules import Unknown

if TYPE_CHECKING:
    from partita.passes.infer.reading import Context

LONGEST = 64
"""Maximum elements of a vector of sizes."""

FEW = 64
"""A dividend that may be less than that is not assumed to be positive."""

Elements = np.ndarray[Any, Any]
"""An object array of sizes, with None for unknown ones."""

Rule = Callable[["Context", Sizes], Sequence[Elements]]
"""The elements of an op's results, given the shape of the first; empty if they are unknown."""

_INTEGERS = frozenset(("int64", "int32", "INT64", "INT32", 7, 6))


def objects(items: Sequence[Any], shape: Sequence[AnySize]) -> Elements:
    """An object array of this shape."""
    array = np.empty(len(items), object)
    array[:] = items
    return array.reshape(tuple(shape))  # type: ignore[arg-type]


def within(elements: Elements, dtype: str) -> Elements:
    """The elements that this type can hold; others wrap around, and are unknown here."""
    limits = np.iinfo(numpy_dtype(dtype)) if dtype != "bool" else None
    low, high = (0, 1) if limits is None else (int(limits.min), int(limits.max))
    if not any(isinstance(item, int) and not low <= item <= high for item in elements.reshape(-1)):
        return elements
    items = [None if isinstance(item, int) and not low <= item <= high else item for item in elements.reshape(-1)]
    return objects(items, elements.shape)


def _count(shape: Sizes) -> int:
    """The number of elements; -1 if it is unknown, or too large for a vector of sizes."""
    if not all(isinstance(size, int) for size in shape):
        return -1
    count = math.prod(size for size in shape if isinstance(size, int))
    return count if count <= LONGEST else -1


def _small(shape: Sizes) -> bool:
    return _count(shape) >= 0


def _moved(move: Callable[..., Any]) -> Rule:
    """The rule of an op that moves elements, by numpy on an object array."""

    def values(c: Context, shape: Sizes) -> Sequence[Elements]:
        given = [c.elements(slot) for slot in range(len(c.node.inputs))]
        if not given or given[0] is None or not _small(shape):
            return ()
        result = move(c, shape, *given)
        return () if result is None else [np.asarray(result, object).reshape(shape)]

    return values


def _each(join: Callable[..., Any]) -> Rule:
    """The rule of an element-wise op; an unknown operand gives an unknown element."""

    def values(c: Context, shape: Sizes) -> Sequence[Elements]:
        given = [array for slot in range(len(c.node.inputs)) if (array := c.elements(slot)) is not None]
        if len(given) < len(c.node.inputs) or not _small(shape):
            return ()
        rows = zip(*[np.broadcast_to(array, shape).reshape(-1) for array in given], strict=True)  # type: ignore[arg-type]
        items = [None if None in row else join(*row) for row in rows]
        return [objects([None if isinstance(item, Size) and item.is_unwieldy else item for item in items], shape)]

    return values


def _shape(c: Context, shape: Sizes) -> Sequence[Elements]:
    sizes = c.shape(0)
    return [objects(sizes[c.attribute("start", 0) : c.attribute("end", len(sizes))], shape)]


def _concat(c: Context, shape: Sizes) -> Sequence[Elements]:
    arrays, shapes = [c.elements(slot) for slot in range(len(c.node.inputs))], c.shapes()
    if len(shape) != 1 or not _small(shape) or all(array is None for array in arrays):
        return ()
    return [np.concatenate([objects([None] * int(s[0]), s) if a is None else a for a, s in zip(arrays, shapes, strict=True)])]  # type: ignore[arg-type]


def _slice(c: Context, shape: Sizes, data: Elements, *_: Any) -> Any:
    starts, ends = c.values(1, "starts"), c.values(2, "ends")
    if starts is None or ends is None:
        return None
    axes, steps = c.values(3, "axes") or range(len(starts)), c.values(4) or [1] * len(starts)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        if not (isinstance(axis, int) and isinstance(start, int) and isinstance(end, int) and isinstance(step, int) and step):
            return None
        count = data.shape[axis]
        # ONNX clamps as Python does, except that a range with a negative step never starts before the first element.
        first = max(start, -count) if step < 0 else start
        last = None if step < 0 and end < -count else end
        data = data[(slice(None),) * (axis % data.ndim) + (slice(first, last, step),)]
    return data


def _gather(c: Context, shape: Sizes, data: Elements, positions: Elements | None, *_: Any) -> Any:
    if positions is None or not all(isinstance(position, int) for position in positions.reshape(-1)):
        return None
    return data.take(positions.astype(np.int64), axis=int(c.attribute("axis", 0)))


def _split(c: Context, shape: Sizes) -> Sequence[Elements]:
    data = c.elements(0)
    parts = c.values(1, "split") or [shape[0]] * c.results
    if data is None or data.ndim != 1 or not all(isinstance(part, int) for part in parts):
        return ()
    return np.split(data, np.cumsum(np.array(parts[:-1], np.int64)).tolist())


def _cast(c: Context, shape: Sizes, data: Elements, *_: Any) -> Any:
    kind = c.node[0].type
    to = c.attribute("to") if c.op == "Cast" else kind.dtype if isinstance(kind, TensorType) else None
    return data if to in _INTEGERS else None


def _filled(c: Context, shape: Sizes) -> Sequence[Elements]:
    value = c.attribute("value")
    if not _small(shape) or value is None or np.asarray(value).dtype.kind not in "iub":
        return ()
    return [objects([np.asarray(value).reshape(-1)[0].item()] * _count(shape), shape)]


def _product(c: Context, shape: Sizes, data: Elements, *_: Any) -> Any:
    if data.shape == shape:  # Only dimensions of 1 are reduced.
        return data
    items = data.reshape(-1).tolist()
    return math.prod(items) if _count(shape) == 1 and None not in items else None


def _range(c: Context, shape: Sizes) -> Sequence[Elements]:
    start, _, step = ((c.values(slot) or [None])[0] for slot in range(3))
    if not _small(shape) or start is None or not isinstance(step, int):
        return ()
    return [objects([start + i * step for i in range(_count(shape))], shape)]


def _divided(c: Context, a: Any, b: Any) -> Any:
    """Division that rounds towards 0, as in ONNX. A dividend that is rarely negative is assumed not to be."""
    if is_at_least(b, 1):
        exact = divided(a, b)
        if exact is not None:
            return exact
        if is_at_least(0, a):
            return -quotient(-a, b)
        low = least(a)
        return quotient(a, b) if low is not None and low >= -FEW and _is_usual(c, a, 0) else None
    return quotient(a, b) if is_at_least(a, 0) and is_at_least(b, 0) and isinstance(b, Size) else None


def _remainder(c: Context, a: Any, b: Any) -> Any:
    """The result has the divisor's sign, or with `fmod` the dividend's. Positions are assumed to be less than their number."""
    if not is_at_least(b, 1) or (c.attribute("fmod", 0) and not is_at_least(a, 0)):
        return None
    if isinstance(a, int) and isinstance(b, Size) and _is_usual(c, b, -a if a < 0 else a + 1):
        return b + a if a < 0 else a
    return a - quotient(a, b) * b


def _is_usual(c: Context, a: Any, b: Any) -> bool:
    """True for a >= b, or if that is assumed."""
    try:
        return c.usually(a, b)
    except Unknown:
        return False


def _same(a: Any, b: Any) -> bool | None:
    return True if a == b else False if is_at_least(a, b) is False or is_at_least(b, a) is False else None


def _chosen(c: Context, shape: Sizes) -> Sequence[Elements]:
    """An unknown element is no matter where the other one is chosen."""
    given = [c.elements(slot) for slot in range(3)]
    if not _small(shape) or any(array is None for array in given):
        return ()
    rows = zip(*[np.broadcast_to(array, shape).reshape(-1) for array in given], strict=True)  # type: ignore[arg-type]
    return [objects([None if test is None else a if test else b for test, a, b in rows], shape)]


VALUES: dict[str, Rule] = {
    "Shape": _shape,
    "Size": lambda c, shape: [objects([math.prod(c.shape(0))], ())],
    "Concat": _concat,
    "ConstantOfShape": _filled,
    "Gather": _moved(_gather),
    "Slice": _moved(_slice),
    "Transpose": _moved(lambda c, shape, data, *_: data.transpose(c.attribute("perm"))),
    "Expand": _moved(lambda c, shape, data, *_: np.broadcast_to(data, shape)),
    "ReduceProd": _moved(_product),
    "Split": _split,
    "Range": _range,
    **dict.fromkeys(("Cast", "CastLike"), _moved(_cast)),
    **dict.fromkeys("Identity Reshape Squeeze Unsqueeze Flatten".split(), _moved(lambda c, shape, data, *_: data)),
    "Add": _each(lambda a, b: a + b),
    "Sub": _each(lambda a, b: a - b),
    "Mul": _each(lambda a, b: a * b),
    "Div": lambda c, shape: _each(partial(_divided, c))(c, shape),
    "Mod": lambda c, shape: _each(partial(_remainder, c))(c, shape),
    "Neg": _each(lambda a: -a),
    "Equal": _each(_same),
    "Max": _each(lambda *sizes: reduce(larger, sizes)),
    "Min": _each(lambda *sizes: reduce(smaller, sizes)),
    "Where": _chosen,
    "GreaterOrEqual": _each(is_at_least),
    "LessOrEqual": _each(lambda a, b: is_at_least(b, a)),
    "Greater": _each(lambda a, b: None if (known := is_at_least(b, a)) is None else not known),
    "Less": _each(lambda a, b: None if (known := is_at_least(a, b)) is None else not known),
    "Not": _each(lambda a: not a),
    "And": _each(lambda a, b: a and b),
    "Or": _each(lambda a, b: a or b),
}
"""The rules by op. They only handle integers: a vector of floats has no elements here."""
