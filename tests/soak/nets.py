"""Small models whose answers numpy knows."""

from __future__ import annotations

import numpy as np

import partita as pt


class Net:
    """A product and a Relu of a width and weights of its own."""

    def __init__(self, number: int, width: int = 16) -> None:
        random = np.random.default_rng(number)
        self.weight = random.integers(-4, 5, (width, width)).astype(np.float32)
        self.x = random.integers(-4, 5, (3, width)).astype(np.float32)

    def graph(self, rows: int | str = 3) -> pt.Graph:
        """The model."""
        x = pt.variable("x", "float32", (rows, len(self.weight)))
        product = pt.op("MatMul", x, pt.constant(self.weight, name="weight"), name="product")
        return pt.Graph([pt.op("Relu", product, name="relu")], name="net")

    def is_right(self, answer: np.ndarray, x: np.ndarray | None = None) -> bool:
        """Whole numbers: every device has to have them to the bit."""
        given = self.x if x is None else x
        return bool(np.array_equal(answer, np.maximum(given @ self.weight, 0)))
