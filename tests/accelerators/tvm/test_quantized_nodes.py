"""ONNX's node tests of quantized ops and of casts: all are right, and the notes say which run on `cpu` itself."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from tests.accelerators.tvm.quantized_node_cases import all_ran, table

pytest.importorskip("tvm")

PAGE = Path(__file__).resolve().parents[3] / "benchmarks" / "notes" / "quantized.md"

NARROW = "int4 uint4 int2 uint2 float4_e2m1fn float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu".split()
"""The element types that kernels do not take."""


@pytest.mark.slow
def test_all_are_right_and_all_of_whole_bytes_run_on_cpu() -> None:
    outcomes = all_ran()
    assert not [outcome.name for outcome in outcomes if not outcome.is_right]
    others = [(o.name, why) for o in outcomes for why in o.refusals if not any(f"element type {kind}," in why for kind in NARROW)]
    assert not others
    text = PAGE.read_text("utf-8")
    if f"those of onnx {onnx.__version__.rpartition('.')[0]}," in text:
        assert text.partition("<!-- node-tests -->\n")[2].partition("<!-- /node-tests -->")[0] == table(outcomes)
