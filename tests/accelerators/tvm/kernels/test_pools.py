"""Pools of plain tensors of any rank, against the reference in double precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import partita as pt
from partita.graph.errors import PartitaError
from partita.graph.numerics.evaluate import evaluate
from partita.graph.types import numpy_dtype
from tests.accelerators.tvm.running import compiled, schedules
from tests.drawn import some

pytest.importorskip("tvm")
pytest.importorskip("ml_dtypes")

LIMITS = {"float32": 2e-6, "float64": 1e-13, "float16": 2**-11 * 1.02, "bfloat16": 2**-8 * 1.02, "int8": 0.0, "uint8": 0.0}
OPS = {"MaxPool": list(LIMITS), "AveragePool": list(LIMITS)[:4], "LpPool": list(LIMITS)[:4]}


@st.composite
def pools(draw: Any) -> tuple[str, str, list[int], dict[str, Any]]:
    """An op, an element type, the sizes of the image, and attributes of the op."""
    op, rank = draw(st.sampled_from(list(OPS))), draw(st.integers(1, 3))

    def each(low: int, high: int, count: int = rank) -> list[int]:
        return draw(st.lists(st.integers(low, high), min_size=count, max_size=count))

    attrs: dict[str, Any] = {"kernel_shape": each(1, 3), "strides": each(1, 3), "dilations": each(1, 2)}
    auto = draw(st.sampled_from(["NOTSET", "NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"]))
    if auto == "NOTSET":
        attrs["pads"] = [min(pad, k - 1) for pad, k in zip(each(0, 2, 2 * rank), attrs["kernel_shape"] * 2, strict=True)]
        attrs["ceil_mode"] = draw(st.integers(0, 1))
    else:
        attrs["auto_pad"] = auto
    if op == "AveragePool":
        attrs["count_include_pad"] = draw(st.integers(0, 1))
    if op == "LpPool":
        attrs["p"] = draw(st.sampled_from([1, 2]))
    return op, draw(st.sampled_from(OPS[op])), each(3, 11), attrs


@some
@given(pools(), st.integers(0, 2**32 - 1))
def test_any_windows(pool: tuple[str, str, list[int], dict[str, Any]], seed: int) -> None:
    op, dtype, sizes, attrs = pool
    x = pt.variable("x", dtype, (2, 3, *sizes))
    graph = pt.Graph([pt.op(op, x, name="pool", **attrs)], inputs=[x], opsets={"": 22})
    values = (np.random.default_rng(seed).standard_normal((2, 3, *sizes)) * 9).astype(numpy_dtype(dtype))
    try:
        typed = pt.apply_pass(graph, "InferShape")
    except PartitaError:
        assume(False)
    assume(0 not in typed.outputs[0].type.shape)
    model = compiled(graph)
    (output,) = model.run([values])
    wide = values if dtype.endswith("int8") else values.astype("float64")
    wanted = np.asarray(evaluate(op, [wide], attrs, version=22, n_outputs=1)[0], "float64")
    assert np.abs(output.astype("float64") - wanted).max() <= LIMITS[dtype] * max(np.abs(wanted).max(), 1)
    assert schedules(model) == ["plain pool"]
