"""`explain_session` says which provider runs each node of a session, and what is known about why the preferred one does not."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import partita as pt
from partita.accelerators.engines.onnxruntime.taking import asked, why_not
from partita.cli.main import main
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


class WithoutCos(pt.Accelerator):
    """Refuses Cos, and a Relu without neighbours; compiles nothing."""

    name = "without_cos"

    def query(self, graph: pt.Graph) -> dict[str, bool | str]:
        ops = [node for node in graph.nodes if node.is_op]
        alone = len(ops) > 1 or "it is alone"
        return {node.name: "it has no Cos" if node.op == "Cos" else node.op != "Relu" or alone for node in ops}

    def compile(self, graph: pt.Graph, config: object) -> pt.CompiledSubgraph:
        return pt.accelerator("reference").compile(graph, {})


@pytest.fixture
def ours() -> Iterator[str]:
    from tests.onnxruntime_plugin.models import provider

    pt.register_accelerator(WithoutCos)
    with provider("without_cos", "Explained") as name:
        yield name
    pt.unregister_accelerator("without_cos")


@pytest.mark.parametrize("records", [True, False])
def test_partitas_own_provider_gives_its_reasons(path: str, ours: str, records: bool) -> None:
    why = pt.explain_session(session_of(path, ours, records=records))
    assert dict(why) == {"cos": CPU, "mul": ours, "relu": ours, "turn": ours, "back": ours}
    assert why.why("cos").endswith(f"  not on {ours}: without_cos: it has no Cos")


def test_partitas_own_reasons_are_of_a_subgraph_or_of_its_reader(ours: str) -> None:
    x, words = pt.variable("x", "float32", (2, 3)), pt.variable("words", "string", (2,))
    alone = pt.op("Relu", pt.op("Cos", x, name="cos"), name="alone")
    g = pt.Graph([pt.op("Cos", alone, name="end"), pt.op("Identity", words, name="echo")])
    why = pt.explain_session(session_of(to_bytes(g), ours, level="ORT_DISABLE_ALL"))
    assert set(why.values()) == {CPU}
    assert why.why("alone").endswith(f"not on {ours}: in its subgraph without_cos: it is alone")
    assert "holds strings, which providers in Python cannot read" in why.why("echo")


def test_partitas_own_provider_compiles_nothing_to_be_asked(
    path: str, ours: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*ignored: object) -> None:
        raise AssertionError

    monkeypatch.setattr(WithoutCos, "compile", fails)
    assert main(["why", path, "cos", "--providers", ours, "--quiet"]) == 0
    assert f"not on {ours}: without_cos:" in capsys.readouterr().out
    with asked() as reasons:
        session = session_of(path, ours)
    assert reasons == {ours: {"cos": "without_cos: it has no Cos"}}
    with pytest.raises(Exception, match="made to be asked only"):
        session.run(None, {"x": np.ones((3, 8), np.float32)})
