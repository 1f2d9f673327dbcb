"""Whole models on `cpu`, against onnxruntime: squeezenet and small exports always, the rest of the zoo and ONNX's node tests at
leisure."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import partita as pt
from partita.graph.types import TensorType
from tests.accelerators.tvm.running import compiled, error

pytest.importorskip("tvm")
onnxruntime = pytest.importorskip("onnxruntime")

EXPORTS = Path(__file__).resolve().parents[2] / "data" / "torch"
LIGHT = "bvlc_alexnet densenet121 inception_v1 inception_v2 resnet50 shufflenet vgg19 zfnet512".split()
LIMIT = 1e-4


def arrays(graph: pt.Graph, seed: int) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    listed = []
    for node in graph.inputs:
        kind = node.output_types[0]
        assert isinstance(kind, TensorType) and kind.is_static and kind.shape is not None
        if "int" in kind.dtype:
            listed.append(rng.integers(0, 2, kind.shape).astype(kind.dtype))
        else:
            listed.append(rng.standard_normal(kind.shape).astype(kind.dtype))
    return listed


def compare(graph: pt.Graph) -> None:
    from partita.graph.writers.onnx import to_model

    session = onnxruntime.InferenceSession(to_model(graph).SerializeToString(), providers=["CPUExecutionProvider"])
    model = compiled(graph)
    first, second = arrays(graph, 0), arrays(graph, 1)
    names = [node.output_names[0] for node in graph.inputs]
    wanted = session.run(None, dict(zip(names, first, strict=True)))
    assert max(map(error, model.run(first), wanted)) <= LIMIT
    pairs = zip(model.run(second), model.run(first), strict=True)
    assert any(error(a, b) > 100 * LIMIT for a, b in pairs), "two inputs, one output"


def test_squeezenet() -> None:
    compare(pt.load("zoo:squeezenet"))


@pytest.mark.parametrize("name", ["bert", "vit", "gpt2"])
@pytest.mark.thinned(2)
def test_exports(name: str) -> None:
    compare(pt.load(str(EXPORTS / f"{name}.onnx")))


@pytest.mark.slow
@pytest.mark.parametrize("name", LIGHT)
def test_the_zoo(name: str) -> None:
    compare(pt.load(f"zoo:{name}"))


@pytest.mark.slow
def test_node_cases() -> None:
    from tests.accelerators.tvm.node_cases import cases, outcome

    listed = {case.name: outcome(case) for case in cases()}
    count = Counter(kind for kind, _ in listed.values())
    assert count["kernels"] >= 0.62 * len(listed), count
    assert not [name for name, (kind, _) in listed.items() if kind == "wrong"]
