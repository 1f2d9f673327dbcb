"""Whole models and ONNX's node tests on `opencl`, where its driver is not the simulator, which would take days."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import partita as pt
from accelerators.errors import AcceleratorUnavailable
from accelerators.tvm.run.opencl_driver import drivers
from graph.types import TensorType
from tests.accelerators.devices.node_tests import case_names, exceptions, run_cases

pytest.importorskip("tvm")
try:
    DRIVER = drivers()[0]
except AcceleratorUnavailable as unavailable:
    pytest.skip(f"no OpenCL here: {unavailable.cause}", allow_module_level=True)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("Oclgrind" in DRIVER.name, reason="the only OpenCL driver here is a simulator"),
]

DEVICE = "HETERO:opencl,reference"
EXPORTS = Path(__file__).resolve().parents[2] / "data" / "torch"
ZOO = "bvlc_alexnet densenet121 inception_v1 inception_v2 resnet50 shufflenet squeezenet vgg19 zfnet512".split()
PARTS = 12
LIMIT = 1e-4


def arrays(graph: pt.Graph, seed: int) -> list[np.ndarray[Any, Any]]:
    """Random numbers for the inputs; truth values or tokens for those of whole numbers."""
    rng, listed = np.random.default_rng(seed), []
    for node in graph.inputs:
        kind = node.output_types[0]
        assert isinstance(kind, TensorType) and kind.is_static and kind.shape is not None
        numbers = rng.integers(0, 2, kind.shape) if "int" in kind.dtype else rng.standard_normal(kind.shape)
        listed.append(numbers.astype(kind.dtype))
    return listed


@pytest.mark.parametrize("name", [*(f"zoo:{name}" for name in ZOO), *(f"{name}.onnx" for name in ("bert", "vit", "gpt2"))])
def test_models(name: str) -> None:
    graph = pt.load(name if name.startswith("zoo:") else str(EXPORTS / name))
    model, peer = pt.compile(graph, DEVICE), pt.compile(graph, "HETERO:onnxruntime,reference")
    first, second = arrays(graph, 0), arrays(graph, 1)
    outputs, others = list(model(*first)), list(model(*second))
    for ours, wanted, other in zip(outputs, peer(*first), others, strict=True):
        assert np.abs(ours - wanted).max() <= LIMIT * np.abs(wanted).max()
        assert np.abs(ours - other).max() > LIMIT * np.abs(wanted).max(), "two inputs, one output"


@pytest.mark.parametrize("part", range(PARTS))
def test_onnx_node_tests(part: int, capsys: pytest.CaptureFixture[str]) -> None:
    names = case_names(DEVICE)[part::PARTS]
    outcome, known = run_cases(DEVICE, names), exceptions("exceptions_cpu.txt")
    with capsys.disabled():
        print(f"\n{DRIVER.name}: {len(outcome.passed)} of {len(names)} of ONNX's node tests pass")
    assert outcome.failed.keys() <= known.keys(), outcome.failed
