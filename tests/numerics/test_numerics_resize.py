"""The positions that a resize reads: in single precision, as onnxruntime computes them, with exact middles."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import partita as pt
from partita.graph.numerics.resize import resize

COORDINATES = ("asymmetric", "half_pixel", "pytorch_half_pixel", "align_corners", "half_pixel_symmetric")

PAIRS = [(7, 4), (7, 2), (13, 4), (26, 28), (30, 9), (5, 29), (4, 38), (14, 19), (11, 93), (9, 107), (46, 95), (30, 36)]
"""Old sizes and new ones at which single precision falls to a side of a pixel's middle or border."""


def test_a_position_a_rounding_below_a_middle_is_the_middle() -> None:
    x = np.arange(7, dtype=np.float32)
    attributes = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric"}
    up = resize(x, None, None, np.array([4]), nearest_mode="round_prefer_ceil", **attributes)
    down = resize(x, None, None, np.array([4]), nearest_mode="round_prefer_floor", **attributes)
    assert up.tolist() == [0, 2, 4, 5]
    assert down.tolist() == [0, 2, 3, 5]


@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("nearest", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
def test_the_same_pixels_as_onnxruntime(coordinates: str, nearest: str) -> None:
    pytest.importorskip("onnxruntime", minversion="1.31", reason="older versions do not take what is nearly a middle for one")
    x = pt.variable("x", "float32", (1, 1, 1, "N"))
    sizes = pt.variable("s", "int64", (4,))
    how = {"mode": "nearest", "coordinate_transformation_mode": coordinates, "nearest_mode": nearest}
    graph = pt.Graph([pt.op("Resize", x, None, None, sizes, **how)], opsets={"": 19})
    model = pt.compile(graph, "onnxruntime")
    for old, new in (*PAIRS, *product((2, 3, 6), (1, 4, 7))):
        pixels = np.arange(old, dtype=np.float32).reshape(1, 1, 1, -1)
        wanted = np.array([1, 1, 1, new])
        result = model({"x": pixels, "s": wanted})[0]
        np.testing.assert_array_equal(result, resize(pixels, None, None, wanted, **how), f"{old} to {new}")
