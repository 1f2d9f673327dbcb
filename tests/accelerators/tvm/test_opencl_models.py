"""Whole models and ONNX's node tests on `opencl`, where its driver is not the simulator, which would take days.

Where it is one for the processor a few of them run; all with `--all-models`."""

from __future__ import annotations

import pytest

from partita.accelerators.errors import AcceleratorUnavailable
from partita.accelerators.tvm.run.opencl_driver import drivers
from tests.accelerators.devices.node_tests import case_names, exceptions, run_cases
from tests.accelerators.hetero.models import check

pytest.importorskip("tvm")
pytest.importorskip("onnxruntime")
try:
    DRIVER = drivers()[0]
except AcceleratorUnavailable as unavailable:
    pytest.skip(f"no OpenCL here: {unavailable.cause}", allow_module_level=True)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("Oclgrind" in DRIVER.name, reason="the only OpenCL driver here is a simulator"),
]

DEVICE = "HETERO:opencl,reference"
ZOO = "bvlc_alexnet densenet121 inception_v1 inception_v2 resnet50 shufflenet squeezenet vgg19 zfnet512".split()
MXNET = "many_ops mobilenet0.25 mobilenetv2_0.25 squeezenet1.1".split()
EXPORTS = "bert vit gpt2".split()
PARTS = 12
NAMES = (*(f"zoo:{name}" for name in ZOO), *MXNET, *(f"small:{name}" for name in EXPORTS))

FEW_NAMES, FEW_PARTS = ("zoo:squeezenet", "mobilenet0.25", "small:bert"), 1
"""What runs on a processor unless all is asked for."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The models, and the parts of the node tests, as many as the driver has time for."""
    are_all = DRIVER.is_gpu or metafunc.config.getoption("--all-models")
    if "name" in metafunc.fixturenames:
        metafunc.parametrize("name", NAMES if are_all else FEW_NAMES)
    if "part" in metafunc.fixturenames:
        metafunc.parametrize("part", range(PARTS if are_all else FEW_PARTS))


def test_models(name: str) -> None:
    check(name, (DEVICE,))


def test_onnx_node_tests(part: int, capsys: pytest.CaptureFixture[str]) -> None:
    names = case_names(DEVICE)[part::PARTS]
    outcome, known = run_cases(DEVICE, names), exceptions("exceptions_cpu.txt")
    with capsys.disabled():
        print(f"\n{DRIVER.name}: {len(outcome.passed)} of {len(names)} of ONNX's node tests pass")
    assert outcome.failed.keys() <= known.keys(), outcome.failed
