"""Two types of one value, merged."""

from __future__ import annotations

import pytest

from partita.graph.errors import TypeMismatch
from partita.graph.types import MapType, OptionalType, SequenceType, SparseTensorType, TensorType, Type
from partita.passes.infer.dim_symbols import merged

ROWS, WIDE = TensorType("float32", ("N", 3)), TensorType("float32", (2, "M"))
BOTH, WHOLE = TensorType("float32", (2, 3)), TensorType("int64", (2, 3))


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (None, ROWS, ROWS),
        (ROWS, None, ROWS),
        (ROWS, WIDE, BOTH),
        (TensorType("float32", None), ROWS, ROWS),
        (SparseTensorType("float32", ("N", 3)), SparseTensorType("float32", (2, None)), SparseTensorType("float32", (2, 3))),
        (SequenceType(ROWS), SequenceType(WIDE), SequenceType(BOTH)),
        (SequenceType(None), SequenceType(WIDE), SequenceType(WIDE)),
        (OptionalType(SequenceType(ROWS)), OptionalType(SequenceType(WIDE)), OptionalType(SequenceType(BOTH))),
        (MapType("int64", ROWS), MapType("int64", WIDE), MapType("int64", BOTH)),
    ],
)
def test_what_both_know(a: Type | None, b: Type | None, expected: Type) -> None:
    assert merged(a, b) == expected


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (ROWS, WHOLE),
        (ROWS, SequenceType(ROWS)),
        (ROWS, SparseTensorType("float32", ("N", 3))),
        (SequenceType(ROWS), OptionalType(ROWS)),
        (SequenceType(ROWS), SequenceType(WHOLE)),
        (MapType("int64", ROWS), MapType("string", ROWS)),
        (MapType("int64", ROWS), SequenceType(ROWS)),
    ],
)
def test_types_that_contradict_each_other(a: Type, b: Type) -> None:
    for first, second in ((a, b), (b, a)):
        with pytest.raises(TypeMismatch, match="contradict each other"):
            merged(first, second)
