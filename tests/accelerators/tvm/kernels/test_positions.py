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
