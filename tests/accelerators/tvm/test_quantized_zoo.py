"""The light models of the zoo, quantized by onnxruntime, against ONNX's reference: squeezenet always, the others at length.

Where a number lies next to the middle of two steps, a flipped rounding in an early layer spreads. So the reference is asked how
far its own answer moves if the input is multiplied by 1.000001, and the bound is twice that, of the logits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import partita as pt
from benchmarks.models.files import Model
from benchmarks.models.quantized import quantize_file
from benchmarks.models.zoo import zoo_model
from partita.graph.interpret import interpret
from partita.graph.types import Array
from tests.accelerators.tvm.running import compiled

pytest.importorskip("tvm")
pytest.importorskip("onnxruntime.quantization")

OTHERS = "bvlc_alexnet densenet121 inception_v1 inception_v2 resnet50 shufflenet vgg19 zfnet512".split()


def logits(name: str, folder: Path) -> tuple[pt.Graph, list[Array]]:
    """The quantized model up to its last Softmax, and an input."""
    given, path = Model(name, 1, folder / "given.onnx"), folder / "quantized.onnx"
    pt.save(zoo_model(name, 1), given.path)
    quantize_file(given, path)
    graph = pt.apply_pass(pt.load(path), "InferShape")
    ends = [node for node in graph.nodes if node.op == "Softmax"]
    output = ends[-1].inputs[0] if ends else graph.outputs[0]
    assert output is not None
    inputs = given.inputs(5)
    return pt.Graph([output], graph.inputs, name, graph.opsets), [inputs[node.name] for node in graph.inputs]


def check(name: str, folder: Path) -> None:
    graph, inputs = logits(name, folder)
    model = compiled(graph)
    (wanted,) = interpret(graph, inputs)
    result = np.asarray(model.run(inputs, [None])[0])
    moved = [np.asarray(interpret(graph, [x * np.float32(1 + way * 1e-6) for x in inputs])[0]) for way in (-1, 1)]
    step = float(np.diff(np.unique(wanted)).min())
    assert np.abs(result - wanted).max() <= max(1.001 * step, *(2 * np.abs(other - wanted).max() for other in moved))
    assert np.abs(result - wanted).mean() <= max(0.1 * step, *(2 * np.abs(other - wanted).mean() for other in moved))
    assert result.argmax() == wanted.argmax()


@pytest.mark.slow
def test_quantized_squeezenet_is_as_close_to_the_reference_as_this_to_itself(tmp_path: Path) -> None:
    check("squeezenet", tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_the_quantized_zoo_is_as_close_to_the_reference_as_this_to_itself(name: str, tmp_path: Path) -> None:
    check(name, tmp_path)
