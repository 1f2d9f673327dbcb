"""ONNX's own test models: each comes back from its text and from its JSON."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import onnx.backend.test
import pytest

from partita.graph.pictures import to_dot
from partita.graph.readers.nnvm import from_nnvm_json
from partita.graph.readers.onnx import load_onnx
from partita.graph.readers.text import parse
from partita.graph.summary import summarize
from partita.graph.writers.nnvm import to_nnvm_json
from tests.text.same import difference

FOLDER = Path(onnx.backend.test.__file__).parent / "data"


def check(model: Any, name: str) -> None:
    graph = load_onnx(model)
    text = str(graph)
    assert difference(graph, parse(text)) is None, name
    assert str(parse(text)) == text, name
    assert difference(graph, from_nnvm_json(to_nnvm_json(graph))) is None, name
    assert to_dot(graph).startswith("digraph"), name
    assert summarize(graph).inputs == tuple((node.name, node[0].type) for node in graph.inputs), name


def test_the_models_in_the_onnx_package() -> None:
    paths = [path for path in sorted(FOLDER.rglob("*.onnx")) if path.stat().st_size < 1_000_000]
    assert paths
    for path in paths:
        check(str(path), path.parent.name)


@pytest.mark.slow
def test_all_node_test_models() -> None:
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = load_model_tests(kind="node")
    for case in cases:
        check(case.model, case.name)
