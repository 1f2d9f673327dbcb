"""Execution providers in libraries of their own are devices: placed on, asked why, diagnosed, exported, mailed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import partita as pt
from partita.cli import exits
from partita.cli.main import main
from tests.accelerators.providers import foreign
from tests.insight.test_capsules import ROOT, rerun

onnxruntime = pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.skipif(not foreign.RUNS_HERE, reason="the provider's library is for Linux on x86-64")

PACKAGE = foreign.__name__
CONFIG = {"EP_PACKAGE": PACKAGE, "EP_NAME": foreign.EP}
HETERO = "HETERO:onnxruntime,reference"


def graph(wrong: bool = False) -> pt.Graph:
    """Cos, which the provider does not know, among ops that it takes; a Transpose with an attribute, which it does not take."""
    x = pt.variable("x", "float32", (3, 8))
    two = pt.constant(np.full((8,), 2, np.float32), name="two")
    product = pt.op("Mul", pt.op("Cos", x, name="cos"), two, name="mul")
    middle = pt.op("Tanh", product, name="tanh") if wrong else product
    turned = pt.op("Transpose", pt.op("Relu", middle, name="relu"), name="turn")
    return pt.Graph([pt.op("Transpose", turned, name="back", perm=[1, 0])], name="net")


X = np.linspace(-2, 2, 24, dtype=np.float32).reshape(3, 8)
EXPECTED = np.maximum(np.cos(X) * 2, 0)


@pytest.mark.parametrize("isolate", [False, True])
def test_nodes_are_placed_by_the_answers_of_the_provider(isolate: bool) -> None:
    config = {"onnxruntime": {**CONFIG, "ISOLATE": isolate}}
    placement = pt.query(graph(), HETERO, config=config)
    assert dict(placement) == {
        "cos": "reference", "mul": "onnxruntime", "relu": "onnxruntime", "turn": "onnxruntime", "back": "reference",
    }
    assert placement.why("cos").splitlines()[1] == (
        f"  not on onnxruntime: {foreign.EP} takes no Cos here; alone it does not take it either; it does not say why"
    )
    assert f"{foreign.EP} takes 1 other Transpose here, and none whose attribute perm is [1, 0]" in placement.why("back")
    model = pt.compile(graph(), HETERO, config=config)
    np.testing.assert_allclose(model(X)[0], EXPECTED, rtol=1e-6)


def test_a_name_behind_the_dot_is_the_provider() -> None:
    label = f"onnxruntime.{foreign.EP}"
    devices = f"HETERO:{label},onnxruntime"
    model = pt.compile(graph(), devices, {label: {"EP_PACKAGE": PACKAGE}}, pin={"mul": "onnxruntime"}, forbid={"Relu": label})
    assert {name: model.report.placement[name] for name in ("mul", "relu", "turn")} == {
        "mul": "onnxruntime", "relu": "onnxruntime", "turn": label,
    }
    np.testing.assert_allclose(model(X)[0], EXPECTED, rtol=1e-6)
    listed = {device.name: str(device) for device in pt.devices()}
    assert listed[label] == f"{label}: {foreign.EP} 1.2.3 of foreigners, on CPU"
    assert pt.query(graph(), devices)["relu"] == label  # it is registered in this process now


def test_a_wrong_op_is_found_and_mailed_without_the_path_of_the_library(tmp_path: Path) -> None:
    diagnosis = pt.diagnose(graph(wrong=True), HETERO, config={"onnxruntime": CONFIG})
    assert diagnosis.fault is not None
    assert diagnosis.fault.nodes == ("tanh",)
    folder = pt.capsule(diagnosis.fault, tmp_path / "tanh")
    told = json.loads((folder / "capsule.json").read_text())
    assert told["config"] == {"EP_NAME": foreign.EP}
    path = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
    for options in (["--ep-package", PACKAGE], ["--ep-package", PACKAGE, "--plain"]):
        status, printed = rerun(folder, *options, path=path)
        assert (status, printed.splitlines()[-1]) == (1, "wrong: tanh")
    status, printed = rerun(folder, path=path)
    assert "no provider of that name is registered in this process" in printed


def test_an_export_does_not_name_the_library(tmp_path: Path) -> None:
    file = str(tmp_path / "net.partita")
    pt.compile(graph(), HETERO, config={"onnxruntime": CONFIG}).export(file)
    code = f"""
import numpy as np, partita as pt
x = np.linspace(-2, 2, 24, dtype=np.float32).reshape(3, 8)
try:
    pt.import_model({file!r})
except pt.PartitaError as error:
    print(error)
model = pt.import_model({file!r}, config={{"onnxruntime": {CONFIG}}})
print(model(x)[0].sum())
"""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    *error, total = done.stdout.splitlines()
    assert "no provider of that name is registered in this process" in "\n".join(error)
    assert float(total) == pytest.approx(EXPECTED.sum(), rel=1e-5)


def test_one_that_cannot_be_loaded_is_passed_over_with_the_reason(tmp_path: Path) -> None:
    name = "BrokenExecutionProvider"
    config: dict[str, Any] = {"EP_LIBRARY": str(tmp_path / "libnone.so"), "EP_NAME": name}
    why = pt.query(graph(), HETERO, config={"onnxruntime": config}).why("relu")
    assert "onnxruntime cannot load its library" in why
    assert "libnone.so" in why
    with pytest.raises(pt.AcceleratorUnavailable, match="cannot load its library"):
        pt.compile(graph(), "onnxruntime", config)
    listed = {device.name: device for device in pt.devices()}
    assert not listed[f"onnxruntime.{name}"].usable
    assert "cannot load its library" in listed[f"onnxruntime.{name}"].detail


def test_mistakes_in_the_configuration_have_remedies(tmp_path: Path) -> None:
    with pytest.raises(pt.BadConfig, match="both EP_LIBRARY and EP_PACKAGE"):
        pt.compile(graph(), "onnxruntime", {**CONFIG, "EP_LIBRARY": "lib.so"})
    with pytest.raises(pt.BadConfig, match=r"no name(.|\n)*Set EP_NAME, or name the device onnxruntime.NAME"):
        pt.compile(graph(), "onnxruntime", {"EP_PACKAGE": PACKAGE})
    with pytest.raises(pt.AcceleratorUnavailable, match=r"pip install no-such-provider"):
        pt.compile(graph(), "onnxruntime.x", {"EP_PACKAGE": "no_such_provider"})
    with pytest.raises(pt.AcceleratorUnavailable, match=f"offers no provider 'Other'(.|\n)*{foreign.EP}"):
        pt.compile(graph(), "onnxruntime", {"EP_PACKAGE": PACKAGE, "EP_NAME": "Other"})
    with pytest.raises(pt.AcceleratorUnavailable, match=r"no device 'NPU'(.|\n)*0 \(CPU\)"):
        pt.compile(graph(), "onnxruntime", {**CONFIG, "EP_DEVICE": "NPU"})


def test_a_node_that_it_leaves_to_others_in_the_subgraph_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Alone it takes a Relu, and beside a Mul it does not: nothing of a subgraph runs on another provider unseen."""
    monkeypatch.setattr(foreign, "APART", ("Mul", "Relu"))
    with pytest.warns(UserWarning, match="moved to reference"):
        model = pt.compile(graph(), HETERO, config={"onnxruntime": CONFIG})
    assert model.report.placement["mul"] == "onnxruntime"
    (move,) = model.report.moves
    assert "does not take 'relu', which it takes in the model or alone" in str(move)
    np.testing.assert_allclose(model(X)[0], EXPECTED, rtol=1e-6)


def test_the_command_line_finds_the_wrong_op_of_a_provider(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    pt.save(graph(wrong=True), "net.onnx")
    package = ["--ep-package", PACKAGE]
    assert main(["diagnose", "net.onnx", "--ep", foreign.EP, *package, "--capsule", "wrong", "--json"]) == exits.NO
    assert json.loads(capsys.readouterr().out)["fault"]["nodes"] == ["tanh"]
    assert (tmp_path / "wrong" / "run.py").exists()
    assert main(["why", "net.onnx", "--providers", foreign.EP, *package, "--report", "why.html", "--json"]) == exits.OK
    assert set(json.loads(capsys.readouterr().out)["refusals"]) == {"cos", "back"}
    assert (tmp_path / "why.html").exists()
    second = ["--providers", f"CPUExecutionProvider,{foreign.EP}", "--ep-package", f"{foreign.EP}={PACKAGE}"]
    assert main(["why", "net.onnx", *second, "--json"]) == exits.OK
    assert json.loads(capsys.readouterr().out)["devices"] == ["CPUExecutionProvider", foreign.EP]
    assert main(["why", "net.onnx", "--providers", "CPUExecutionProvider", "--ep-option", "Other.level=2"]) == exits.USAGE
    assert main(["diagnose", "net.onnx", "--ep", "NoProvider"]) == exits.NO
    assert "no provider of that name is registered" in capsys.readouterr().err
    assert main(["diagnose", "net.onnx", "--ep", foreign.EP, "--devices", "cpu"]) == exits.USAGE
    assert main(["why", "net.onnx", "--providers", "CPUExecutionProvide"]) == exits.NO
    assert "Did you mean 'CPUExecutionProvider'" in capsys.readouterr().err


def test_no_provider_is_asked_about_a_graph_that_brings_compiled_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """An EPContext node may name a file, which the provider would open."""
    from onnx import helper

    from partita.insight.explaining import explain_model

    monkeypatch.setattr(onnxruntime, "InferenceSession", lambda *given, **options: pytest.fail("a session was created"))
    info = helper.make_tensor_value_info
    names = {"embed_mode": 0, "ep_cache_context": "/etc/passwd", "source": "Foreign", "main_context": 1}
    node = helper.make_node("EPContext", ["x"], ["y"], domain="com.microsoft", **names)
    whole = helper.make_graph([node], "brings", [info("x", 1, [4])], [info("y", 1, [4])])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    brings = pt.load(helper.make_model(whole, opset_imports=opsets, ir_version=9))
    placement = pt.query(brings, HETERO, config={"onnxruntime": CONFIG}, partial=True)
    assert "which no graph may bring along" in placement.why(brings.nodes[-1].name)
    with pytest.raises(pt.PartitaError, match="explain_model: EPContext holds or names code"):
        explain_model(brings, {foreign.EP: {}})
