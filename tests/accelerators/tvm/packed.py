"""Many small ops as the outputs of one graph, compiled once for `cpu` and compared with the device `reference`."""

from __future__ import annotations

from typing import Any

import numpy as np

import partita as pt
from partita.graph.types import Array
from tests.close import assert_close


class Packed:
    """Ops that are collected, and compared together."""

    def __init__(self, opset: int = 21) -> None:
        self.opset = opset
        self.inputs: list[pt.Node] = []
        self.arrays: list[Array] = []
        self.outputs: list[Any] = []

    def given(self, array: Array) -> pt.Node:
        """An input of the graph, and what it is given."""
        node = pt.variable(f"x{len(self.inputs)}", array.dtype.name, array.shape)
        self.inputs.append(node)
        self.arrays.append(array)
        return node

    def op(self, name: str, *read: Any, n_outputs: int = 1, **attrs: Any) -> pt.Node:
        """An op; arrays become inputs."""
        nodes = [self.given(value) if isinstance(value, np.ndarray) else value for value in read]
        return pt.op(name, *nodes, opset=self.opset, n_outputs=n_outputs, **attrs)

    def add(self, name: str, *read: Any, n_outputs: int = 1, **attrs: Any) -> None:
        """An op whose outputs are compared."""
        self.outputs += self.op(name, *read, n_outputs=n_outputs, **attrs).outputs

    def graph(self) -> pt.Graph:
        """The whole graph."""
        return pt.Graph(self.outputs, inputs=self.inputs, opsets={"": self.opset})

    def check(self, rtol: float = 0.0) -> None:
        """Every op runs on `cpu`, and makes what the reference makes; NaN where it does."""
        graph = self.graph()
        placed = pt.query(graph, "HETERO:cpu,reference")
        assert not [f"{name}: {placed.why(name)}" for name, device in dict(placed).items() if device != "cpu"]
        mine, wanted = (list(pt.compile(graph, device)(*self.arrays)) for device in ("cpu", "reference"))
        for entry, a, b in zip(self.outputs, mine, wanted, strict=True):
            said = f"{entry.node.op} of {[str(e.type) for e in entry.node.reads]} {dict(entry.node.attrs)}"
            assert a.dtype == b.dtype, said
            if rtol and a.dtype.kind not in "iub":
                a, b = a.astype("float64"), b.astype("float64")
                assert_close(a, b, atol=rtol, rtol=rtol, err_msg=said)
            else:
                np.testing.assert_array_equal(a, b, err_msg=said)


def fixed(values: Any, dtype: str = "int64") -> pt.Node:
    """A constant."""
    return pt.constant(np.asarray(values, dtype))
