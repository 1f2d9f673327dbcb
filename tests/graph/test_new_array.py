"""Arrays whose memory is their own."""

from __future__ import annotations

import weakref

import ml_dtypes
import numpy as np
import pytest

from partita.graph.mapped_arrays import LARGE, has_own_memory, new_array


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.int8])
def test_large_and_small_arrays_can_be_filled(dtype):
    for shape in [(3, 5), (), (0, 4), (LARGE, 17)]:
        array = new_array(shape, dtype)
        assert (array.shape, array.dtype) == (shape, np.dtype(dtype))
        array[...] = 3
        assert (array == 3).all()
        assert array.flags.writeable and array.flags.c_contiguous


def test_memory_of_its_own_is_known_through_every_view():
    array = new_array((LARGE, 2), np.float32)
    assert has_own_memory(array) and has_own_memory(array.T[1:].reshape(-1))
    assert not has_own_memory(np.zeros((LARGE, 2), np.float32))
    assert not has_own_memory(new_array((2,), np.float32))


def test_it_is_freed_with_its_last_view():
    array = new_array((LARGE, 2), np.float32)
    memory, view = weakref.ref(array.base), array.reshape(-1)
    del array
    assert memory() is not None
    del view
    assert memory() is None
