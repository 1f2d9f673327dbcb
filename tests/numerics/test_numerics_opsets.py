"""Each op, at each opset at which it changed, computes what onnxruntime does."""

from __future__ import annotations

import numpy as np
import pytest

from partita.graph.numerics import evaluate
from tests.numerics.case import Case
from tests.numerics.cases_elementwise import ELEMENTWISE, QUANTIZED, REDUCTIONS
from tests.numerics.cases_layers import NORMS, RECURRENT
from tests.numerics.cases_layout import SHAPES
from tests.numerics.cases_windows import RESIZE, WINDOWED

ort = pytest.importorskip(
    "onnxruntime", reason="onnxruntime, an extra, is the judge here: pip install onnxruntime"
)

FAMILIES = {
    "elementwise": ELEMENTWISE,
    "quantized": QUANTIZED,
    "reductions": REDUCTIONS,
    "norms": NORMS,
    "recurrent": RECURRENT,
    "shapes": SHAPES,
    "resize": RESIZE,
    "windows": WINDOWED,
}
RUNS = [
    pytest.param(case, version, id=f"{family}-{case.op}-{i}-opset{version}")
    for family, cases in FAMILIES.items()
    for i, case in enumerate(cases)
    for version in case.versions()
]


def test_most_cases_reach_onnxruntime() -> None:
    """A case that onnxruntime refuses tests nothing: few may be refused."""
    reached = sum(_expected(*run.values) is not None for run in RUNS)
    assert reached >= 0.96 * len(RUNS), f"onnxruntime ran {reached} of {len(RUNS)} cases"


@pytest.mark.parametrize(("case", "version"), RUNS)
def test_equals_onnxruntime(case: Case, version: int) -> None:
    expected = _expected(case, version)
    if expected is None:
        pytest.skip(f"onnxruntime has no kernel for {case.op} at opset {version}, or leaves its result unwritten")
    arrays = [None if x is None else np.asarray(x) for x in case.inputs]
    before = [None if x is None else x.copy() for x in arrays]
    results = evaluate(case.op, arrays, case.attrs, version=version, n_outputs=case.outputs)
    for item, wanted in zip(results, expected, strict=True):
        assert item.dtype == wanted.dtype
        np.testing.assert_allclose(item, wanted, rtol=1e-4, atol=1e-5, strict=True)
    for x, copy in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(x, copy, err_msg="an input was written to")


def test_a_convolution_without_channels_is_its_bias() -> None:
    image, weight, bias = np.ones((1, 0, 5, 4), "float32"), np.ones((2, 0, 3, 3), "float32"), np.array([3, -1], "float32")
    (result,) = evaluate("Conv", [image, weight, bias], {}, version=11, n_outputs=1)
    np.testing.assert_array_equal(result, np.broadcast_to(bias[None, :, None, None], (1, 2, 3, 2)))


def _expected(case: Case, version: int) -> list[np.ndarray] | None:
    """onnxruntime's outputs, or None where it has no kernel, or a convolution without channels, whose result it does not write:
    what was in its memory before is added to the bias."""
    if case.op == "Conv" and not np.size(case.inputs[1]):
        return None
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    model = case.model(version).SerializeToString()
    try:
        session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except (ort.capi.onnxruntime_pybind11_state.NotImplemented, ort.capi.onnxruntime_pybind11_state.Fail):
        return None
    feeds = {f"x{i}": np.asarray(x) for i, x in enumerate(case.inputs) if x is not None}
    return session.run(None, feeds)
