"""ONNX's own node tests through `evaluate`, all of them."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from tests.numerics.driver import from_proto, run_model

EXCEPTIONS = Path(__file__).with_name("node_exceptions.txt")


def test_node_tests() -> None:
    excused = {line.split(":")[0] for line in EXCEPTIONS.read_text().splitlines() if line and line[0] != "#"}
    cases = _cases()
    failures = {case.name: reason for case in cases if (reason := _failure(case))}
    new = {name: reason for name, reason in failures.items() if name not in excused}
    assert not new, f"{len(new)} node tests fail that {EXCEPTIONS.name} does not list: {new}"
    assert len(cases) - len(failures) >= 0.97 * len(cases)


def _cases() -> list[Any]:
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return load_model_tests(kind="node")


def _failure(case: Any) -> str:
    """What goes wrong in one of ONNX's cases, or nothing."""
    try:
        for inputs, outputs in case.data_sets:
            result = run_model(case.model, [from_proto(x) for x in inputs])
            _same(result, [from_proto(y) for y in outputs], case.rtol, case.atol)
    except Exception as error:  # noqa: BLE001  every kind of failure is a failed case
        return f"{type(error).__name__}: {error}"
    return ""


def _same(result: Any, wanted: Any, rtol: float, atol: float) -> None:
    if isinstance(wanted, list):
        assert len(result) == len(wanted)
        for a, b in zip(result, wanted, strict=True):
            _same(a, b, rtol, atol)
    elif wanted is None or wanted.dtype == object:
        np.testing.assert_array_equal(result, wanted)
    else:
        assert result.dtype == wanted.dtype
        slack = _two_steps(wanted.dtype)
        kind = np.float32 if slack else wanted.dtype
        np.testing.assert_allclose(
            result.astype(kind), wanted.astype(kind), rtol=max(rtol, slack), atol=atol, strict=True
        )


def _two_steps(dtype: np.dtype) -> float:
    """Twice the relative step of a half type, as ONNX's runner allows for bfloat16; else zero."""
    return {"float16": 2**-9, "bfloat16": 2**-6}.get(dtype.name, 0.0)


def test_driver_reads_containers() -> None:
    """The loader gives protos in some cases."""
    array = np.arange(3)
    assert from_proto(None) is None
    np.testing.assert_array_equal(from_proto(onnx.numpy_helper.from_array(array)), array)
    np.testing.assert_array_equal(from_proto(onnx.numpy_helper.from_list([array]))[0], array)
