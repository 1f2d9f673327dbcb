"""Where the largest number stands, along dimensions of any length."""

from __future__ import annotations

import numpy as np

import partita as pt
from tests.accelerators.tvm.any_size import check, random


def test_positions_of_any_length() -> None:
    """Few values, so that many are equal, and some that are none: sizes about those of strips and of two of them."""
    x = pt.variable("x", "float32", ("N", "S", "M"))
    outputs = [
        pt.op(kind, x, axis=axis, select_last_index=last)
        for kind, axis, last in (("ArgMax", 2, 0), ("ArgMin", 2, 1), ("ArgMax", 1, 1), ("ArgMin", 1, 0))
    ]
    feeds = []
    for n, s, m in [(1, 1, 1), (2, 3, 31), (1, 65, 64), (2, 2, 127), (1, 7, 128), (1, 130, 2), (3, 4, 300)]:
        data = random.integers(-4, 5, (n, s, m)).astype(np.float32)
        data[random.random(data.shape) < 0.01] = np.nan
        feeds.append({"x": data})
    model = check(pt.Graph(outputs, [x]), feeds)
    assert {kernel.schedule for kernel in model.kernels()} == {"positions"}


def test_one_at_the_largest_of_all_dimensions_from_the_axis_on_in_early_versions() -> None:
    x = pt.variable("x", "float32", (3, 5, 7))
    for attributes, rows in (({}, 3), ({"axis": 2}, 15), ({"axis": -1}, 15), ({"axis": 0}, 1)):
        graph = pt.Graph([pt.op("Hardmax", x, name="y", **attributes)], [x], opsets={"": 11})
        data = random.integers(-9, 9, (3, 5, 7)).astype(np.float32)
        model = pt.compile(graph, "cpu")
        assert [kernel.schedule for kernel in model.kernels()] == ["positions"]
        expected = np.zeros((rows, 105 // rows), np.float32)
        expected[np.arange(rows), data.reshape(rows, -1).argmax(axis=1)] = 1
        assert np.array_equal(model(data)[0], expected.reshape(data.shape))
