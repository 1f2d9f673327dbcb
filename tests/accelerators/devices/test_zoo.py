"""The models of the zoo on each device alone, against onnxruntime's outputs."""

from __future__ import annotations

import numpy as np
import pytest

import partita as pt
from partita.accelerators.interface.registry import accelerator
from partita.graph.graph import Graph
from partita.passes.infer import infer

pytest.importorskip("onnxruntime", reason="the extra [onnxruntime] is not installed")

MODELS = "bvlc_alexnet densenet121 inception_v1 inception_v2 resnet50 shufflenet squeezenet vgg19 zfnet512".split()

REFUSED = {("zfnet512", "openvino"): {"n2", "n6"}}
"""The ops that a device leaves to others: openvino's LRN takes another bias than these have."""


def without_softmax(g: Graph) -> Graph:
    """Compare before a final softmax, which hides differences."""
    node = g.outputs[0].node
    return g.evolve(outputs=[node.inputs[0]], nodes=(), output_names=None) if node.op == "Softmax" else g


def check(name: str, device: str) -> None:
    if device != "reference":
        pytest.importorskip(device, reason=f"the extra [{device}] is not installed")
    g = infer(without_softmax(pt.load(f"zoo:{name}")))
    refused = {node: why for node, why in accelerator(device).query(g).items() if why is not True}
    assert refused.keys() == REFUSED.get((name, device), set())
    device = f"HETERO:{device},reference" if refused else device
    random = np.random.default_rng(0)
    shape = g.inputs[0][0].type.shape  # type: ignore[union-attr]
    a, b = (random.normal(size=shape).astype(np.float32) for _ in range(2))
    mine, oracle = (pt.compile(g, d) for d in (device, "onnxruntime"))
    wanted, other = oracle(a)[0], oracle(b)[0]
    assert np.abs(wanted - other).max() > 1e-3 * np.abs(wanted).max(), "two inputs must give different outputs"
    error = np.abs(mine(a)[0] - wanted).max() / np.abs(wanted).max()
    assert error < 1e-4


@pytest.mark.parametrize("device", ["reference", "openvino"])
def test_squeezenet(device: str) -> None:
    check("squeezenet", device)


@pytest.mark.slow
@pytest.mark.parametrize("device", ["reference", "openvino"])
@pytest.mark.parametrize("name", MODELS)
def test_every_model(name: str, device: str) -> None:
    check(name, device)
