"""How far outputs are apart."""

from __future__ import annotations

import numpy as np
import pytest

import partita as pt
from partita.compare import compare


def worst(a: object, b: object, op: str = "Relu") -> float:
    x = pt.variable("x", "float32", (2,))
    (difference,) = compare(pt.Graph([pt.op(op, x)]), [a], [b])
    return difference.worst


def array(*values: float, dtype: str = "float32") -> np.ndarray:
    return np.array(values, dtype)


def test_the_largest_difference_over_the_largest_value() -> None:
    assert worst(array(1, 4.5), array(1, 4)) == pytest.approx(0.125)
    assert worst(array(0, 0), array(0, 0)) == 0
    assert worst(array(), array()) == 0


def test_of_a_softmax_the_logarithms_are_compared() -> None:
    assert worst(array(1, 1e-4), array(1, 2e-4)) == pytest.approx(1e-4)
    assert worst(array(1, 1e-4), array(1, 2e-4), "Softmax") == pytest.approx(np.log(2) / -np.log(2e-4))


def test_nan_and_infinities_have_to_be_in_the_same_places() -> None:
    assert worst(array(np.nan, np.inf), array(np.nan, np.inf)) == 0
    assert worst(array(np.nan, 1), array(1, 1)) == np.inf
    assert worst(array(1, -np.inf), array(1, np.inf)) == np.inf


def test_other_sizes_and_types_are_infinitely_far() -> None:
    assert worst(array(1), array(1, 1)) == np.inf
    assert worst(array(1, dtype="float64"), array(1)) == np.inf


def test_integers_are_equal_or_not() -> None:
    assert worst(array(1, 2, dtype="int64"), array(1, 2, dtype="int64")) == 0
    assert worst(array(1, 3, dtype="int64"), array(1, 2, dtype="int64")) == 1


def test_sequences() -> None:
    assert worst([array(1), array(2)], [array(1), array(2)]) == 0
    assert worst([array(1)], [array(1), array(2)]) == np.inf
    assert worst([array(1), None], [array(1), array(2)]) == np.inf
