"""Shapes of inputs given by the caller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from partita.graph.errors import ReadError, did_you_mean
from partita.graph.readers.onnx.reading import Reading
from partita.graph.types import Dim, TensorType, Type


def given_types(
    reading: Reading, proto: Any, constants: set[str], shapes: Mapping[str, Sequence[Dim]]
) -> dict[str, Type]:
    """The types of inputs with given shapes, checked against the file's; symbols that get a size are replaced everywhere."""
    if not shapes:
        return {}
    declared = {item.name: reading.types.read(item.type, f"{reading.title}, input {item.name!r}") for item in proto.input}
    types: dict[str, Type] = {}
    for name, shape in shapes.items():
        where = f"{reading.title}, input {name!r}"
        if name in constants or name not in declared:
            cause = "it is a constant, not an input" if name in constants else "the model has no such input"
            inputs = [known for known in declared if known not in constants]
            raise ReadError(cause, where=where, remedy=did_you_mean(name, inputs) or f"It has {', '.join(inputs) or 'none'}")
        types[name] = _given(declared[name], shape, where, reading.types.symbols)
    reading.types.forget()
    return types


def _given(declared: Type | None, shape: Sequence[Dim], where: str, symbols: dict[str, int]) -> TensorType:
    if declared is not None and not isinstance(declared, TensorType):
        raise ReadError(f"a value of type {declared} has no shape to give", where=where)
    wanted = TensorType(declared.dtype if declared is not None else "float32", shape)
    if declared is None or declared.shape is None or wanted.shape is None:
        return wanted
    if len(wanted.shape) != len(declared.shape):
        raise ReadError(
            f"the shape given has {len(wanted.shape)} dimensions, and the model says {declared}",
            where=where,
            remedy="Give one size for each dimension",
        )
    for axis, (new, old) in enumerate(zip(wanted.shape, declared.shape, strict=True)):
        if isinstance(old, int) and new != old:
            raise ReadError(f"dimension {axis} is {old} in the model and cannot become {new}", where=where)
        if isinstance(old, str) and isinstance(new, int) and symbols.setdefault(old, new) != new:
            raise ReadError(
                f"dimension {axis} is {old!r} in the model, which is given as {symbols[old]} and as {new}", where=where
            )
    return wanted
