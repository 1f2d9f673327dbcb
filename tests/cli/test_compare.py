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


def test_quantized_values_may_be_one_step_apart() -> None:
    for dtype in ("int8", "uint8"):
        (near,) = compare(of_type(dtype), [array(100, 3, dtype=dtype)], [array(100, 2, dtype=dtype)])
        (far,) = compare(of_type(dtype), [array(100, 4, dtype=dtype)], [array(100, 2, dtype=dtype)])
        assert (near.worst, near.tolerance, near.ok) == (1.0, 1.0, True)
        assert (far.worst, far.where, far.ok) == (2.0, (1,), False)
    assert str(far).endswith(": 2 steps apart, at most 1: WRONG, worst at [1]")
    assert str(near).endswith(": 1 step apart, at most 1: ok")
    (wrap,) = compare(of_type("int8"), [array(-128, dtype="int8")], [array(127, dtype="int8")])
    assert wrap.worst == 255


def test_other_integers_and_booleans_have_no_tolerance() -> None:
    (labels,) = compare(of_type("int64"), [array(7, dtype="int64")], [array(8, dtype="int64")])
    (truth,) = compare(of_type("bool"), [array(1, dtype="bool")], [array(0, dtype="bool")])
    assert not labels.ok and not truth.ok and labels.tolerance == truth.tolerance == 0


def of_type(dtype: str) -> pt.Graph:
    return pt.Graph([pt.op("Identity", pt.variable("x", dtype, (2,)))])


@pytest.mark.parametrize(
    ("dtype", "error", "good"),
    [
        ("float32", 5e-3, False),
        ("float16", 5e-3, True),
        ("float16", 3e-2, False),
        ("bfloat16", 3e-2, True),
        ("bfloat16", 0.1, False),
    ],
)
def test_the_tolerance_is_that_of_the_element_type(dtype: str, error: float, good: bool) -> None:
    kind = np.dtype(dtype) if dtype != "bfloat16" else pytest.importorskip("ml_dtypes").bfloat16
    ours, expected = np.array([1 + error, 1], kind), np.array([1, 1], kind)
    (difference,) = compare(of_type(dtype), [ours], [expected])
    assert difference.ok is good, str(difference)
    assert compare(of_type(dtype), [ours], [expected], tolerance=1.0)[0].ok
    assert not compare(of_type(dtype), [ours], [expected], tolerance=1e-6)[0].ok


def test_types_on_the_way_count_as_well() -> None:
    """The output is float32, and what it is made of has eleven bits."""
    half = pt.op("Cast", pt.variable("x", "float32", (1,)), to=10)
    graph = pt.apply_pass(pt.Graph([pt.op("Cast", pt.op("Exp", half), to=1)]), "InferShape")
    assert compare(graph, [array(1.005)], [array(1)])[0].ok
    scale, zero = pt.constant(np.float32(0.1)), pt.constant(np.uint8(3))
    rounded = pt.op("QuantizeLinear", pt.variable("x", "float32", (1,)), scale, zero)
    assert compare(pt.Graph([pt.op("DequantizeLinear", rounded, scale, zero)]), [array(1.01)], [array(1)])[0].ok


def test_weights_that_are_stored_in_fewer_bits_change_nothing() -> None:
    weight = pt.op("Cast", pt.constant(np.ones(1, np.float16)), to=1)
    graph = pt.apply_pass(pt.Graph([pt.op("Mul", pt.variable("x", "float32", (1,)), weight)]), "InferShape")
    assert not compare(graph, [array(1.005)], [array(1)])[0].ok


def test_a_lower_precision_widens_the_tolerance() -> None:
    ours, expected = [array(1.02)], [array(1)]
    graph = of_type("float32")
    good = {name: compare(graph, ours, expected, precision=name)[0].ok for name in ("f32", "f16", "bf16", "fast", "tf32")}
    assert good == {"f32": False, "f16": False, "bf16": True, "fast": True, "tf32": False}


def test_a_difference_says_which_output_and_where() -> None:
    graph = of_type("float32")
    (difference,) = compare(graph, [array(1, 3)], [array(1, 2)])
    assert str(difference) == f"{graph.output_names[0]}: error 5.0e-01, at most 0.001: WRONG, worst at [1]"
    assert difference.as_data()["ok"] is False


def test_sequences() -> None:
    assert worst([array(1), array(2)], [array(1), array(2)]) == 0
    assert worst([array(1)], [array(1), array(2)]) == np.inf
    assert worst([array(1), None], [array(1), array(2)]) == np.inf
