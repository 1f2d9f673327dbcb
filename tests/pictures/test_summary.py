"""A graph in numbers."""

from __future__ import annotations

import numpy as np

from partita.graph import Graph, TensorType, call, constant, op, variable
from partita.graph.summary import summarize, summary_text

SHARED = np.zeros((4, 256), np.float32)


def network() -> Graph:
    a = variable("a", "float32", (4, "N"))
    body = Graph([op("Add", op("Mul", a, constant(SHARED, "k"), name="m"), constant(SHARED, "k2"), name="s")], name="f")
    x = variable("x", "float32", ("batch", "N"))
    one = call(body, x, name="one")
    return Graph([op("Add", one, call(body, one, name="two"), name="y")], name="net [bold]", output_names=["out"])


def test_bodies_and_shared_arrays_count_once() -> None:
    result = summarize(network())
    assert result.ops == {"Add": 2, "partita::Call": 2, "Mul": 1}
    assert (result.calls, result.bodies) == (2, 1)
    assert (result.constants, result.parameters, result.bytes) == (1, 1024, 4096)
    assert result.inputs == (("x", TensorType("float32", ("batch", "N"))),)
    assert result.outputs == (("out", None),)
    assert result.symbols == ("batch", "N")
    assert result.opsets == {"": 21}


def test_the_table() -> None:
    lines = [line.rstrip() for line in summary_text(summarize(network()), width=60).splitlines()]
    assert lines == [
        "net [bold]",
        "┌────────────┬──────────────────────────────────┐",
        "│ inputs     │ x: float32[batch, N]             │",
        "│ outputs    │ out                              │",
        "│ ops        │ 5: 2 Add, 2 partita::Call, 1 Mul │",
        "│ parameters │ 1,024 in 1 array, 4.0 KiB        │",
        "│ opsets     │ ai.onnx 21                       │",
        "│ bodies     │ 1, called in 2 places            │",
        "│ dynamic    │ batch, N                         │",
        "└────────────┴──────────────────────────────────┘",
    ]
