"""Activation functions where they bend, and far from there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from partita.graph.numerics import evaluate

ABOVE = float(np.nextafter(np.float32(1), np.float32(2)))
CASES: list[tuple[str, dict[str, Any], dict[float, float]]] = [
    ("Relu", {}, {-2: 0, 0: 0, 0.5: 0.5, 3: 3}),
    ("LeakyRelu", {"alpha": 0.25}, {-3: -0.75, 0: 0, 0.5: 0.5, 3: 3}),
    ("Elu", {"alpha": 2.0}, {-100: -2, -1: -1.2642411, 0: 0, 0.5: 0.5, 1000: 1000}),
    ("Selu", {"alpha": 2.0, "gamma": 3.0}, {-100: -6, 0: 0, 2: 6}),
    ("Celu", {"alpha": 2.0}, {-400: -2, 0: 0, 3: 3}),
    ("ThresholdedRelu", {"alpha": 1.0}, {-2: 0, 0.5: 0, 1: 0, ABOVE: ABOVE, 2: 2}),
    ("Sigmoid", {}, {-1000: 0, 0: 0.5, 0.5: 0.62245935, 1: 0.7310586, -1: 0.26894143, 1000: 1}),
    ("HardSigmoid", {"alpha": 0.25, "beta": 0.5}, {-3: 0, -2: 0, -1: 0.25, 0: 0.5, 1: 0.75, 2: 1, 3: 1}),
    ("HardSwish", {}, {-4: 0, -3: 0, -1.5: -0.375, 0: 0, 1.5: 1.125, 3: 3, 4: 4}),
    ("Softplus", {}, {-1000: 0, 0: 0.6931472, 1: 1.3132616, 1000: 1000}),
    ("Softsign", {}, {-1: -0.5, 0: 0, 3: 0.75}),
    ("Mish", {}, {-1000: 0, 0: 0, 1: 0.86509836, 1000: 1000}),
    ("Gelu", {}, {-100: 0, 0: 0, 1: 0.84134475, -1: -0.15865525, 100: 100}),
    ("Gelu", {"approximate": "tanh"}, {-100: 0, 0: 0, 1: 0.841192, -1: -0.158808, 100: 100}),
    ("Shrink", {"lambd": 1.0, "bias": 0.25}, {-2: -1.75, -1: 0, 0: 0, 1: 0, 2: 1.75}),
]


@pytest.mark.parametrize(("op", "attributes", "values"), CASES)
def test_where_an_activation_bends(op: str, attributes: dict[str, Any], values: dict[float, float]) -> None:
    given = np.array(list(values), np.float32)
    (result,) = evaluate(op, [given], attributes, version=22, n_outputs=1)
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, list(values.values()), rtol=3e-7, atol=1e-40)


def test_a_slope_for_each_channel() -> None:
    given, slope = np.array([[-3, -3], [0.5, 3]], np.float32), np.array([0.25, -1], np.float32)
    (result,) = evaluate("PRelu", [given, slope], {}, version=16, n_outputs=1)
    np.testing.assert_array_equal(result, np.array([[-0.75, 3], [0.5, 3]], np.float32), strict=True)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(-1, 2, [-1, -1, 0, 2, 2]), (None, 2, [-3, -1, 0, 2, 2]), (-1, None, [-1, -1, 0, 2, 4]), (3, 1, [1, 1, 1, 1, 1])],
)
def test_numbers_between_two_bounds_of_which_the_upper_wins(low: int | None, high: int | None, expected: list[int]) -> None:
    given = np.array([-3, -1, 0, 2, 4], np.float32)
    bounds = [None if bound is None else np.float32(bound) for bound in (low, high)]
    named = {name: float(bound) for name, bound in (("min", low), ("max", high)) if bound is not None}
    for (result,) in (
        evaluate("Clip", [given, *bounds], {}, version=13, n_outputs=1), evaluate("Clip", [given], named, version=6, n_outputs=1),
    ):
        np.testing.assert_array_equal(result, np.array(expected, np.float32), strict=True)
