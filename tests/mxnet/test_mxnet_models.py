"""Whole networks against MXNet's own outputs."""

from __future__ import annotations

import numpy as np
import pytest

from partita.graph import Graph, TensorType
from partita.graph.readers.mxnet import load_mxnet
from partita.graph.verify import verify
from partita.graph.writers.onnx import to_model
from tests.mxnet.data import FOLDER, SHARED, TOLERANCE, error, run, seeded, zoo, zoo_model

pytest.importorskip("onnxruntime")


def loaded(name, **options):
    folder = FOLDER if (FOLDER / f"{name}-symbol.json").exists() else SHARED
    if not folder.exists():
        pytest.skip("the shared models are not here")
    with np.load(folder / f"{name}-io.npz") as arrays:
        recorded = dict(arrays)
    data = recorded.pop("data")
    return (
        load_mxnet(folder / f"{name}-symbol.json", folder / f"{name}-0000.params", **options),
        data,
        recorded,
    )


@pytest.mark.parametrize("name", ["mobilenet0.25", "mobilenetv2_0.25", "squeezenet1.1"])
@pytest.mark.parametrize("size", [None, 64, 224])
def test_shared_models(name, size):
    """The signal dies in the recorded weights of the two mobilenets; the model zoo below has weights in which it lives."""
    recorded_at = 224 if name == "squeezenet1.1" else 64
    if size not in (None, recorded_at):
        pytest.skip("recorded at another size")
    graph, data, recorded = loaded(name, shapes={"data": (1, 3, size, size)} if size else None)
    verify(graph)
    (output,) = run(graph, {"data": data})
    assert error(output, recorded["output"]) < TOLERANCE


@pytest.mark.parametrize("shapes", [None, {"data": (2, 3, 16, 16)}])
def test_many_ops(shapes):
    """MXNet's plain kernels say what is right: the recording was made with oneDNN, and holds for the second output only."""
    graph, data, recorded = loaded("many_ops", shapes=shapes)
    outputs = run(graph, {"data": data})
    with np.load(FOLDER / "many_ops-plain.npz") as plain:
        assert error(outputs[0], plain["output0"]) < TOLERANCE
        assert error(outputs[1], plain["output1"]) < TOLERANCE
    assert error(outputs[1], recorded["output1"]) < TOLERANCE


def test_many_ops_recorded_without_the_square():
    """MXNet 1.9.1 with oneDNN fuses fc1 and square0, though sm reads fc1 as well, and loses the square: what is recorded as
    exp(sm) + sqrt(fc1² + 1) is exp(sm) + sqrt(fc1 + 1)."""
    graph, data, recorded = loaded("many_ops")
    parts = Graph([graph["fc1"], graph["exp0"], graph["square0"]], graph.inputs)
    fc1, exp, square = run(parts, {"data": data})
    assert error(exp + np.sqrt(fc1 + 1), recorded["output0"]) < TOLERANCE
    assert error(exp + np.sqrt(square + 1), recorded["output0"]) > 0.1


def test_many_ops_in_the_reference_evaluator():
    from onnx.reference import ReferenceEvaluator

    graph, data, _ = loaded("many_ops")
    outputs = ReferenceEvaluator(to_model(graph)).run(None, {"data": data})
    with np.load(FOLDER / "many_ops-plain.npz") as plain:
        assert error(outputs[0], plain["output0"]) < TOLERANCE


def test_weights_left_out_are_inputs():
    symbols, expected = zoo()
    graph = load_mxnet(symbols["mobilenet0.25"], shapes={"data": (2, 3, 64, 64)})
    names = [node.name for node in graph.inputs]
    assert names[:3] == ["data", "net_conv0_weight", "net_batchnorm0_gamma"]
    assert graph.inputs[1].output_types == (TensorType("float32", (8, 3, 3, 3)),)
    data = np.random.RandomState(0).randn(2, 3, 64, 64).astype(np.float32)
    weights = {
        node.name: seeded(node.name, node.output_types[0].shape)
        for node in graph.inputs
        if node.name != "data"
    }
    (output,) = run(graph, {"data": data, **weights})
    assert error(output, expected["mobilenet0.25"]) < TOLERANCE


LARGE = ("alexnet", "vgg11", "vgg11_bn")


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n in LARGE)) for n in zoo()[0]])
@pytest.mark.thinned(2)
def test_model_zoo(name):
    """The weights are drawn by name on both sides."""
    graph, data, expected = zoo_model(name)
    verify(graph)
    (output,) = run(graph, {"data": data})
    assert error(output, expected) < TOLERANCE
    assert error(output[:1], output[1:]) > 10 * TOLERANCE
