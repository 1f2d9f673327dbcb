"""Every case again in the other types its op allows: the right output type, and the value that float64 gives."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import onnx
import pytest

from partita.graph.numerics import evaluate
from partita.graph.numerics.registry import find
from tests.numerics.case import Case
from tests.numerics.cases_elementwise import ELEMENTWISE, REDUCTIONS
from tests.numerics.cases_layers import NORMS, RECURRENT
from tests.numerics.cases_layout import SHAPES
from tests.numerics.cases_windows import RESIZE, WINDOWED

CASES = [*ELEMENTWISE, *REDUCTIONS, *NORMS, *RECURRENT, *SHAPES, *RESIZE, *WINDOWED]
TYPES = [np.float16, ml_dtypes.bfloat16, np.float64, np.int8, np.uint8, np.int32, np.int64]
SLACK = {"float16": 2**-6, "bfloat16": 2**-3, "float32": 1e-5, "float64": 1e-9}
# One step of a half type changes which element, pixel or number these choose.
CHOOSING = {
    "ArgMax",
    "ArgMin",
    "Cast",
    "GridSample",
    "Mod",
    "Resize",
    "RoiAlign",
    "TopK",
    "Unique",
    "Upsample",
}

WIDENED = set(
    """Abs|Add 7|AveragePool|Ceil|Conv|ConvTranspose|Cos|CumSum|DeformConv|Det|Div 7|Elu|Exp|Floor|GRU|Gelu|Gemm|GlobalAveragePool
GlobalLpPool|GridSample|GroupNormalization|GroupNormalization 21|HardSigmoid|HardSwish|InstanceNormalization|LRN|LSTM|LeakyRelu
Log|LogSoftmax|LogSoftmax 13|LpNormalization|LpPool|MatMul|MaxPool|MaxRoiPool|Mean|MeanVarianceNormalization|Mish|Mul 7|Neg
PRelu 7|Pow 7|RNN|Reciprocal|ReduceL1|ReduceL1 18|ReduceL2|ReduceL2 18|ReduceLogSum|ReduceLogSumExp|ReduceLogSumExp 18
ReduceMax|ReduceMax 18|ReduceMean|ReduceMean 18|ReduceMin|ReduceMin 18|ReduceProd|ReduceProd 18|ReduceSum|ReduceSum 13
ReduceSumSquare|ReduceSumSquare 18|Resize|Resize 11|RoiAlign|Round|Scatter|ScatterElements|ScatterND|Sigmoid|Sign|Sin
Softmax|Softmax 13|Softplus|Softsign|Sqrt|Sub 7|Sum|Tanh|Upsample 7|Upsample 9""".replace("\n", "|").split("|")
)
"""Implementations that compute in float32, each with its first version."""


@pytest.mark.parametrize("dtype", TYPES, ids=lambda t: np.dtype(t).name)
def test_types(dtype: type) -> None:
    tried = sum(_check(case, np.dtype(dtype)) for case in CASES)
    assert tried >= 90, "shape inference refused nearly every model: the models are wrong"


def _check(case: Case, dtype: np.dtype) -> bool:
    """Compare one case in one type; False where the op does not allow it."""
    arrays = [None if x is None else np.asarray(x) for x in case.inputs]
    with np.errstate(invalid="ignore"):  # infinities become some integer
        changed = [x.astype(dtype) if x is not None and x.dtype == np.float32 else x for x in arrays]
    version = max(case.versions())
    model = replace(case, inputs=changed).model(version)
    try:
        typed = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
    except onnx.shape_inference.InferenceError:
        return False
    outputs = evaluate(case.op, changed, case.attrs, version=version, n_outputs=case.outputs)
    for y, value in zip(outputs, typed.graph.output, strict=True):
        wanted = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        assert y.dtype == wanted, f"{case.op} {case.attrs} gives {y.dtype}, ONNX says {wanted}"
    if dtype.kind not in "iu" and case.op not in CHOOSING:
        wide = [x.astype(np.float64) if x is not None and x.dtype == dtype else x for x in changed]
        exact = evaluate(case.op, wide, case.attrs, version=version, n_outputs=case.outputs)
        for y, z in zip(outputs, exact, strict=True):
            slack = SLACK.get(y.dtype.name, 0)
            a, b = y.astype(np.float64), z.astype(np.float64)
            np.testing.assert_allclose(a, b, rtol=slack, atol=slack, err_msg=f"{case.op} {case.attrs}")
    return True


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=lambda t: np.dtype(t).name)
def test_what_is_widened_is_rounded_once(dtype: type) -> None:
    """The result in two bytes is that in float32, rounded: nothing between is."""
    tried = set()
    for case in CASES:
        arrays = [None if x is None else np.asarray(x) for x in case.inputs]
        narrow = [x.astype(dtype) if x is not None and x.dtype == np.float32 else x for x in arrays]
        wide = [x.astype(np.float32) if x is not None and x.dtype == dtype else x for x in narrow]
        for version in case.versions():
            meaning = find(case.op, "", version)
            if meaning is None or not meaning.widen:
                continue
            tried.add(case.op if meaning.since == 1 else f"{case.op} {meaning.since}")
            given, wanted = (
                evaluate(case.op, inputs, case.attrs, version=version, n_outputs=case.outputs) for inputs in (narrow, wide)
            )
            for y, x in zip(given, wanted, strict=True):
                np.testing.assert_array_equal(y, x.astype(y.dtype), f"{case.op} {case.attrs}")
    assert tried == WIDENED
