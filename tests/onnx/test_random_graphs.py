"""Random graphs with calls: saved and read they are the same, and onnxruntime agrees with numpy on them."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import partita.graph as pt
from partita.graph.inline import inline_calls
from partita.graph.interpret import interpret
from partita.graph.verify import verify
from tests.onnx.models import X, run_engine
from tests.onnx.test_writer import written

SIZES = st.sampled_from([1, 3, 400])


@st.composite
def graphs(draw, names=None, depth=0):
    """A graph of element-wise ops on vectors of three, constants small and large, and calls of such graphs."""
    names = names if names is not None else iter(range(10_000))
    values = [pt.variable(f"x{next(names)}", "float32", (3,)) for _ in range(draw(st.integers(1, 3)))]
    inputs = list(values)
    for _ in range(draw(st.integers(0, 6))):
        kind = draw(st.sampled_from(["Neg", "Add", "Sub", "constant", "large", "call"]))
        if kind == "constant":
            listed = [pt.constant(np.float32([1, 2, draw(st.integers(0, 3))]), f"w{next(names)}")[0]]
        elif kind == "large":
            big = pt.constant(np.full((draw(SIZES), 3), 2, np.float32), f"w{next(names)}")
            axes = pt.constant(np.int64([0]), f"w{next(names)}")
            listed = [pt.op("ReduceMax", big, axes, keepdims=0, name=f"n{next(names)}")[0]]
        elif kind == "call" and depth < 2:
            body = draw(graphs(names, depth + 1))
            read = [draw(st.sampled_from(values)) for _ in body.inputs]
            listed = list(pt.call(body, *read, name=f"c{next(names)}"))
        else:
            count = 1 if kind in ("Neg", "call") else 2
            op = "Neg" if kind == "call" else kind
            listed = [pt.op(op, *(draw(st.sampled_from(values)) for _ in range(count)), name=f"n{next(names)}")[0]]
        values += listed
    outputs = draw(st.lists(st.sampled_from(values), min_size=1, max_size=4))
    return pt.Graph(outputs, inputs, f"g{next(names)}", output_names=[f"o{next(names)}" for _ in outputs])


@settings(max_examples=150, deadline=None)
@given(graphs())
def test_saved_and_read_again(g):
    proto = written(g)
    given_values = [X + i for i, _ in enumerate(g.inputs)]
    expected = interpret(g, given_values)
    flat = inline_calls(g)
    verify(flat)
    for item in (run_engine(proto, *given_values), interpret(flat, given_values)):
        for a, b in zip(item, expected, strict=True):
            np.testing.assert_array_equal(a, b)
