"""Whole models on the device `cpu`, alone and beside others, against onnxruntime's outputs for the model as it is."""

from __future__ import annotations

import pytest

from partita.graph.readers.zoo import zoo_names
from tests.accelerators.hetero.models import check

pytest.importorskip("tvm")
pytest.importorskip("onnxruntime")
pytest.importorskip("openvino")

SETTINGS = (
    "cpu",
    "HETERO:cpu,reference",
    "HETERO:onnxruntime,cpu",
    "HETERO:openvino,cpu",
    "cpu, every seventh node on reference",
    "cpu, every seventh node on onnxruntime",
    "openvino, every seventh node on cpu",
)

MXNET = ("many_ops", "squeezenet1.1", "mobilenet0.25", "mobilenetv2_0.25")
TRANSFORMERS = ("bert", "vit", "gpt2")
SMALL = ["many_ops", "small:bert", *(pytest.param(f"small:{name}", marks=pytest.mark.slow) for name in TRANSFORMERS[1:])]


@pytest.mark.parametrize("name", SMALL)
def test_small_models(name: str) -> None:
    check(name, SETTINGS)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*(f"zoo:{name}" for name in zoo_names()), *MXNET, *(f"torch:{name}" for name in TRANSFORMERS)])
def test_models(name: str) -> None:
    check(name, SETTINGS)
