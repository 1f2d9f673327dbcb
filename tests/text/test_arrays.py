"""How arrays are spelled, around the numbers of elements at which that changes."""

from __future__ import annotations

import numpy as np
import pytest

from partita.graph.text.arrays import PACKED, from_base64, print_payload
from partita.graph.types import TensorType


@pytest.mark.parametrize(
    ("array", "spelled"),
    [
        (np.array(3), "3"), (np.array([3]), "[3]"), (np.zeros(0, np.float32), "[]"),
        (np.array([[1, -2], [3, 4]], np.int8), "[1, -2, 3, 4]"),
        (np.array([True, False]), "[true, false]"), (np.array([0.1, 1e30, -0.0], np.float32), "[0.1, 1e+30, -0.0]"),
        (np.array([0.1, 1 / 3]), "[0.1, 0.3333333333333333]"), (np.array([1 + 2j], np.complex64), "[(1.0, 2.0)]"),
        (np.array(["a", 'b"'], object), r'["a", "b\""]'),
    ],
)
def test_small_arrays(array: np.ndarray, spelled: str) -> None:
    assert print_payload(array, 4) == print_payload(array, None) == spelled


def test_arrays_of_more_elements_than_are_written() -> None:
    array = np.arange(5, dtype=np.uint8)
    assert print_payload(array, 5) == "[0, 1, 2, 3, 4]"
    assert print_payload(array, 4).startswith("#")


def test_arrays_in_full() -> None:
    array = np.zeros(PACKED + 1, np.uint8)
    assert print_payload(array[1:], None) == "[" + ", ".join(["0"] * 64) + "]"
    assert print_payload(array, None) == 'base64 "' + "A" * 87 + '="'
    assert print_payload(np.array(["a"] * 65, object), None) == "[" + ", ".join(['"a"'] * 65) + "]"


@pytest.mark.parametrize(
    ("kind", "text", "values"),
    [
        (TensorType("uint8", (3,)), "AAEC", [0, 1, 2]), (TensorType("int16", (1, 2)), "AQD//w==", [[1, -1]]),
        (TensorType("bool", (2,)), "AAE=", [False, True]), (TensorType("float32", ()), "AACAPw==", 1.0),
        (TensorType("int8", (0,)), "", []),
    ],
)
def test_bytes_of_arrays(kind: TensorType, text: str, values: object) -> None:
    array = from_base64(kind, text)
    assert (array.tolist(), array.dtype.name, array.shape) == (values, kind.dtype, kind.shape)


@pytest.mark.parametrize(
    ("kind", "text", "said"),
    [
        (TensorType("uint8", (2,)), "AAEC", "3 bytes, which do not make uint8[2]"),
        (TensorType("int16", (2,)), "AAEC", "3 bytes, which do not make int16[2]"),
        (TensorType("bool", (2,)), "AAI=", "a byte that is neither true nor false"),
        (TensorType("string", (1,)), "AA==", "bytes for strings"),
        (TensorType("uint8", (1,)), "A", "text that is not base64"),
        (TensorType("uint8", (1,)), "A A=", "text that is not base64"),
    ],
)
def test_bytes_that_make_no_array(kind: TensorType, text: str, said: str) -> None:
    with pytest.raises(ValueError) as refused:
        from_base64(kind, text)
    assert str(refused.value) == said
