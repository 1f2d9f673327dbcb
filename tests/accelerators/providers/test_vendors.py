"""Providers that vendors ship as packages, where they are installed: a wrong op that is planted in each is found."""

from __future__ import annotations

import numpy as np
import pytest

import partita as pt
from tests.insight.planting import Plant, faulty

pytest.importorskip("onnxruntime")

VENDORS = {"nxrt_ep_cpu": "cpu_ep", "onnxruntime_ggml": "ggml", "onnxruntime_ep_openvino": "OpenVINOExecutionProvider"}
"""The packages of some providers that run on a processor, with onnxruntime's names for them."""


def graph() -> pt.Graph:
    """A product between activations, beside a Det, which no vendor takes."""
    x, square = pt.variable("x", "float32", (4, 16)), pt.variable("square", "float32", (3, 3))
    w = pt.constant(np.random.default_rng(0).standard_normal((16, 16), np.float32), name="w")
    product = pt.op("MatMul", pt.op("Relu", x, name="relu"), w, name="product")
    return pt.Graph([pt.op("Sigmoid", product, name="sigmoid"), pt.op("Det", square, name="det")], name="net")


@pytest.mark.slow
@pytest.mark.parametrize("package", VENDORS)
@pytest.mark.parametrize("node", ["relu", "product", "sigmoid"])
def test_a_planted_op_is_found(package: str, node: str) -> None:
    module = pytest.importorskip(package)
    library = getattr(module, "get_library_path", None) or module.library_path
    config = {"EP_LIBRARY": library(), "EP_NAME": VENDORS[package]}
    onnxruntime = pt.accelerator("onnxruntime")
    reason = onnxruntime.why_not_here(onnxruntime.full_config(config))
    if reason is not None:
        pytest.skip(reason)
    with faulty("onnxruntime", Plant("off", node)) as device:
        devices = f"HETERO:{device},reference"
        placement = pt.query(graph(), devices, config={device: config})
        assert placement == {"relu": device, "product": device, "sigmoid": device, "det": "reference"}
        diagnosis = pt.diagnose(graph(), devices, config={device: config}, tolerance=2e-3)
    assert diagnosis.fault is not None
    assert diagnosis.fault.nodes == (node,)
