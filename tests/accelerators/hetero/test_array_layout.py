"""Arrays in memory: those that a device reads in place, those that are copied, and the owner of a result."""

from __future__ import annotations

import numpy as np
import pytest

from partita.accelerators.arrays import layout
from partita.graph.types import OptionalType, SequenceType, TensorType, Type, numpy_dtype


def at(offset: int, count: int = 8) -> np.ndarray:
    """Floats so many bytes after an address that is a multiple of 64."""
    array = layout.aligned_block(4 * count + 64, 64)[offset : offset + 4 * count].view(np.float32)
    array[...] = np.arange(count)
    return array


def address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


@pytest.mark.parametrize(
    ("array", "alignments"),
    [
        (np.zeros((3, 4), np.float32), [1, 2, 16]),
        (np.zeros((3, 4), np.float32).T, []),
        (np.zeros(8, np.float32)[::2], []),
        (at(0), [1, 2, 16, 64]),
        (at(32), [1, 2, 16]),
        (at(4), [1, 2]),
    ],
)
def test_arrays_that_are_read_in_place(array: np.ndarray, alignments: list[int]) -> None:
    found = [alignment for alignment in (1, 2, 16) if layout.is_laid_out(array, alignment)]
    assert found == [alignment for alignment in alignments if alignment <= 16]
    if array.base is not None:
        assert layout.is_laid_out(array, 64) is (64 in alignments)
    for alignment in (1, 2, 16, 64):
        same = layout.laid_out(array, alignment)
        assert np.array_equal(same, array) and same.flags.c_contiguous and address(same) % alignment == 0
        assert (same is array) is layout.is_laid_out(array, alignment)


def test_arrays_that_are_only_read_are_copied_for_wide_alignments() -> None:
    array = at(0)
    array[...], array.flags.writeable = 1, False
    assert layout.is_laid_out(array, 16) and not layout.is_laid_out(array, 32)
    copy = layout.laid_out(array, 32)
    assert copy is not array and copy.flags.writeable and np.array_equal(copy, array)


def test_values_that_are_no_numbers_are_laid_out_too() -> None:
    texts = np.array([["a", "b"], ["c", None]], object).T
    copy = layout.laid_out(texts, 64)
    assert copy.flags.c_contiguous and copy.tolist() == [["a", "c"], ["b", None]]
    values = ["a", None, [np.zeros(2)]]
    assert all(layout.laid_out(value, 64) is value for value in values)


@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (5, 7)])
@pytest.mark.parametrize("alignment", [1, 16, 64, 4096])
def test_new_arrays_are_aligned(shape: tuple[int, ...], alignment: int) -> None:
    for make in (layout.aligned_empty, layout.aligned_zeros):
        array = make(shape, np.dtype("f8"), alignment)
        assert (array.shape, array.dtype) == (shape, np.float64) and (not array.size or address(array) % alignment == 0)
        assert array.flags.c_contiguous and array.flags.writeable
    assert not array.any()


FLOATS = TensorType("float32", (2, 3))


@pytest.mark.parametrize(
    ("kind", "dtype", "shape"),
    [
        (FLOATS, "float32", (2, 3)),
        (TensorType("bfloat16", (4,)), "bfloat16", (4,)),
        (TensorType("bool", ()), "bool", ()),
        (TensorType("int64", (0, 2)), "int64", (0, 2)),
        (TensorType("float32", ("n", 3)), None, None),
        (TensorType("float32", None), None, None),
        (TensorType("string", (2,)), None, None),
        (SequenceType(FLOATS), None, None),
        (OptionalType(FLOATS), None, None),
        (None, None, None),
    ],
    ids=str,
)
def test_types_of_which_arrays_are_made_ahead(kind: Type | None, dtype: str | None, shape: tuple[int, ...] | None) -> None:
    assert layout.array_layout(kind) == (None if dtype is None else (numpy_dtype(dtype), shape))


def test_results_are_in_memory_that_nothing_else_uses() -> None:
    fresh, whole, out = np.arange(6.0), np.arange(12.0), np.zeros(6)
    view, turned = whole[:6], np.arange(6.0).reshape(2, 3).T
    foreign = {id(whole)}
    made = layout.owned([fresh, fresh, view, whole, turned, "text", [fresh]], foreign)
    assert made[0] is fresh and made[5] == "text"
    arrays = [made[0], made[1], made[2], made[3], made[4], made[6][0]]
    assert all(np.array_equal(a, b) for a, b in zip(arrays, (fresh, fresh, view, whole, turned, fresh), strict=True))
    assert all(array.flags.owndata and array.flags.c_contiguous for array in arrays)
    assert len({address(array) for array in arrays}) == 6 and foreign >= {id(array) for array in arrays}
    for target, is_taken in ((out, True), (np.zeros(5), False), (np.zeros(6, np.float32), False), (None, False)):
        (result,) = layout.owned([fresh], {id(fresh)}, [target])
        assert np.array_equal(result, fresh) and result is not fresh and (result is target) is is_taken


def test_arrays_inside_sequences_have_owners_too() -> None:
    a, b, c = np.zeros(1), np.zeros(2), np.zeros(3)
    assert layout.array_ids([a, [b, [c]]]) == {id(a), id(b), id(c)}
