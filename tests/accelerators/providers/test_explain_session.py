"""`explain_session` says which provider runs each node of a session, and what is known about why the preferred one does not."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import partita as pt
from partita.accelerators.onnxruntime.taking import why_not
from tests.accelerators.providers import foreign
from tests.accelerators.providers.test_providers import graph, pytestmark  # noqa: F401  it holds for this file too

onnxruntime = pytest.importorskip("onnxruntime")

CPU = "CPUExecutionProvider"
AZURE = "AzureExecutionProvider"
"""A provider of onnxruntime's wheel that takes no node."""

NEITHER = "alone it does not take it either; it does not say why"


@pytest.fixture(scope="module", autouse=True)
def _registered() -> None:
    foreign.register()


def session_of(model: Any, *providers: str, records: bool = True, level: str = "ORT_ENABLE_ALL") -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    if records:
        options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    return onnxruntime.InferenceSession(model, options, providers=[*(providers or [foreign.EP]), CPU])


@pytest.fixture
def path(tmp_path: Path) -> str:
    file = str(tmp_path / "net.onnx")
    pt.save(graph(), file)
    return file


@pytest.mark.parametrize("records", [True, False])
def test_each_node_has_its_provider_and_the_known_reasons(path: str, records: bool) -> None:
    why = pt.explain_session(session_of(path, records=records))
    assert dict(why) == {"cos": CPU, "mul": foreign.EP, "relu": foreign.EP, "turn": foreign.EP, "back": CPU}
    assert why.why("cos") == f"cos (Cos) is on {CPU}\n  not on {foreign.EP}: {foreign.EP} takes no Cos here; {NEITHER}"
    assert why.why("relu").endswith(f"is on {foreign.EP}, the first device asked for, which runs it")
    assert f"takes 1 other Transpose here, and none whose attribute perm is [1, 0]; {NEITHER}" in why.why("back")
    assert f"{foreign.EP} runs 3 subgraphs" in why.notes
    assert any(note.startswith("opened again") for note in why.notes) is not records


def test_it_is_text_data_and_a_page(path: str, tmp_path: Path) -> None:
    why = pt.explain_session(session_of(path))
    assert str(why).splitlines()[:3] == ["net: 5 ops", f"  {foreign.EP}: 3 ops", f"  {CPU}: 2 ops"]
    assert list(why.to_dict()["refusals"]) == ["cos", "back"]
    assert foreign.EP in why._repr_mimebundle_()["text/html"]
    page = pt.report_page(why, tmp_path / "why.html").read_text("utf-8")
    assert f"not on {foreign.EP}" in page


def test_a_node_that_only_its_neighbours_keep_away(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign, "APART", ("Mul", "Relu"))
    why = pt.explain_session(session_of(path))
    assert "takes no Relu here; alone it takes it, so that its neighbours decide; it does not say why" in why.why("relu")
    quick = pt.explain_session(session_of(path), alone=False)
    assert quick.why("relu").endswith("takes no Relu here; it does not say why")


def test_types_and_sizes_that_differ_are_named() -> None:
    x, n = pt.variable("x", "float32", (2, 3)), pt.variable("n", "float64", ("rows", 3))
    g = pt.Graph([pt.op("Relu", x, name="relu"), pt.op("Relu", n, name="wide")])
    differences = "type of input 0 is float64, shape of input 0 is dynamic"
    assert why_not(g["wide"], [g["relu"]], "Npu") == f"Npu takes 1 other Relu here, and none whose {differences}"
    assert why_not(g["relu"], [g["relu"]], "Npu") == "Npu takes 1 other Relu here, of the same types and attributes"


def to_bytes(g: pt.Graph) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        pt.save(g, f"{folder}/net.onnx")
        return Path(folder, "net.onnx").read_bytes()


def test_nodes_without_names_are_told_apart_by_opening_the_model_again() -> None:
    import onnx

    model = onnx.ModelProto.FromString(to_bytes(graph()))
    for node in model.graph.node:
        node.name = ""
    why = pt.explain_session(session_of(model.SerializeToString()))
    assert sorted(why.values()) == sorted([CPU, CPU, foreign.EP, foreign.EP, foreign.EP])
    assert any(note.startswith("opened again") for note in why.notes)


def test_folded_nodes_are_computed_and_fused_ones_gone() -> None:
    x, w = pt.variable("x", "float32", (2, 3)), pt.constant(np.ones((3, 4), np.float32), name="w")
    folded = pt.op("Neg", w, name="neg")
    fused = pt.op("Add", pt.op("MatMul", x, folded, name="product"), pt.constant(np.ones(4, np.float32), name="b"), name="sum")
    why = pt.explain_session(session_of(to_bytes(pt.Graph([fused]))))
    assert "computed while compiling" in why.why("neg")
    assert list(why.unsupported) == ["product", "sum"]
    assert "fused it with others, before it asked the providers" in why.why("sum")
    assert any("Gemm ×1" in note and note.endswith("made by onnxruntime") for note in why.notes)


def test_a_provider_that_takes_nothing(path: str) -> None:
    why = pt.explain_session(session_of(path, AZURE))
    assert set(why.values()) == {CPU}
    assert f"not on {AZURE}: 5 ops: {AZURE} takes no node here; {NEITHER}" in str(why)


def test_a_session_that_has_lost_its_model(path: str) -> None:
    session = session_of(path)
    session._model_path = None
    with pytest.raises(pt.AcceleratorError, match=r"does not keep its model(.|\n)*explain_session\(session, model\)"):
        pt.explain_session(session)
    assert pt.explain_session(session, pt.load(path))["cos"] == CPU
