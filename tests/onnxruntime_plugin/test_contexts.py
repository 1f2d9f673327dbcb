"""Compiled models: EPContext nodes that hold what Partita compiled."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

onnxruntime = pytest.importorskip("onnxruntime", reason="the extra [onnxruntime] is not installed")

import partita as pt  # noqa: E402
from partita.onnxruntime_plugin import context  # noqa: E402
from partita.onnxruntime_plugin.api import NOT_APPLICABLE, OPTIMAL, PREFERS_RECOMPILATION, UNSUPPORTED  # noqa: E402
from partita.onnxruntime_plugin.options import ProviderOptions  # noqa: E402
from tests.onnxruntime_plugin.models import ROOT, devices_of, model, provider, session  # noqa: E402

X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)

WEIGHTS = np.linspace(-1, 1, 8, dtype=np.float32).reshape(4, 2)

NODES = [
    helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Neg", ["m"], ["n"]), helper.make_node("Relu", ["m"], ["y"]),
]


def written(name: str, path: Path, rows: int | str = "n") -> onnx.ModelProto:
    """The model with a compiled subgraph."""
    settings = onnxruntime.SessionOptions()
    settings.add_session_config_entry("ep.context_enable", "1")
    settings.add_session_config_entry("ep.context_file_path", str(path))
    settings.add_session_config_entry("ep.context_embed_mode", "1")
    content = model(NODES, {"x": [rows, 4]}, ["n", "y"], {"w": WEIGHTS})
    running = session(content, name, settings=settings)
    check(running)
    return onnx.load(path)


def check(running: onnxruntime.InferenceSession) -> None:
    n, y = running.run(None, {"x": X})
    np.testing.assert_allclose(n, -(X @ WEIGHTS), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(y, np.maximum(X @ WEIGHTS, 0), rtol=1e-5, atol=1e-6)


def attribute(proto: onnx.ModelProto, name: str) -> onnx.AttributeProto:
    (node,) = proto.graph.node
    return next(one for one in node.attribute if one.name == name)


def test_a_written_model_holds_the_export_and_loads_without_compiling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with provider("HETERO:cpu,reference", "Written") as name:
        proto = written(name, tmp_path / "net.onnx")
        (node,) = proto.graph.node
        assert (node.domain, node.op_type) == ("com.microsoft", "EPContext")
        assert attribute(proto, "source").s == b"Partita" and attribute(proto, "ep_cache_context").s[:2] == b"PK"
        assert not proto.graph.initializer
        monkeypatch.setattr("partita.onnxruntime_plugin.provider.compiled", None)
        check(session(proto.SerializeToString(), name))


LOADS = """
import sys
from pathlib import Path
import partita as pt
from partita.onnxruntime_plugin import provider
from tests.onnxruntime_plugin.test_contexts import check, session
provider.compiled = None
name = pt.register_with_onnxruntime("Written", "HETERO:cpu,reference")
check(session(Path(sys.argv[1]).read_bytes(), name))
"""


def test_a_fresh_process_loads_it(tmp_path: Path) -> None:
    with provider("HETERO:cpu,reference", "Written") as name:
        written(name, tmp_path / "net.onnx")
    command = [sys.executable, "-X", "dev", "-W", "ignore::DeprecationWarning", "-c", LOADS, str(tmp_path / "net.onnx")]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_the_model_compiler_writes_it_too(tmp_path: Path) -> None:
    with provider() as name:
        settings = onnxruntime.SessionOptions()
        settings.add_provider_for_devices(devices_of(name), {})
        content = model(NODES, {"x": ["n", 4]}, ["n", "y"], {"w": WEIGHTS})
        compiler = onnxruntime.ModelCompiler(settings, content, embed_compiled_data_into_model=True)
        held = compiler.compile_to_bytes()
        assert attribute(onnx.ModelProto.FromString(held), "source").s == b"Partita"
        check(session(held, name))


def test_a_node_that_names_a_file_is_refused(tmp_path: Path) -> None:
    with provider() as name:
        proto = written(name, tmp_path / "net.onnx")
        attribute(proto, "embed_mode").i = 0
        attribute(proto, "ep_cache_context").s = b"/bin/sh"
        with pytest.raises(Exception, match="it names a file instead of holding a compiled subgraph"):
            session(proto.SerializeToString(), name)


@pytest.mark.parametrize("damage", [b"", b"PK", b"nonsense"])
def test_damaged_contents_are_an_error(tmp_path: Path, damage: bytes) -> None:
    with provider() as name:
        proto = written(name, tmp_path / "net.onnx")
        attribute(proto, "ep_cache_context").s = damage
        with pytest.raises(Exception, match="(?s)EPContext node '.*Copy the file once more"):
            session(proto.SerializeToString(), name)


def test_what_was_made_elsewhere_is_refused_or_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with provider("HETERO:cpu,reference", "Written") as name:
        content = written(name, tmp_path / "net.onnx", rows=3).SerializeToString()
        monkeypatch.setattr(type(pt.accelerator("cpu")), "misfit", lambda *ignored: "it was compiled for another processor")
        with pytest.raises(Exception, match="(?s)compiled for another processor.*recompile=1"):
            session(content, name)
        check(session(content, name, {"recompile": "1"}))


def test_only_what_is_signed_runs_under_a_key(tmp_path: Path) -> None:
    with provider(name="Unsigned") as name:
        unsigned = written(name, tmp_path / "net.onnx")
    with provider(name="Signed", key=b"secret") as name:
        check(session(written(name, tmp_path / "signed.onnx").SerializeToString(), name))
        with pytest.raises(Exception, match="sign"):
            session(unsigned.SerializeToString(), name)


def test_compatibility_is_told_before_loading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with provider("HETERO:cpu,reference", "Written") as name:
        proto = written(name, tmp_path / "net.onnx")
    (info,) = [item.value for item in proto.metadata_props if item.key.startswith("ep_compatibility_info")]
    options = ProviderOptions()
    assert context.compatibility(info, options) == OPTIMAL
    assert context.compatibility(info.replace('"format": 1', '"format": 0'), options) == UNSUPPORTED
    assert context.compatibility(info.replace('"cpu"', '"nowhere"'), options) == UNSUPPORTED
    assert context.compatibility("of somebody else's", options) == NOT_APPLICABLE
    monkeypatch.setattr(type(pt.accelerator("cpu")), "misfit", lambda *ignored: "it was compiled for another processor")
    assert context.compatibility(info, options) == UNSUPPORTED
    assert context.compatibility(info, ProviderOptions(recompile=True)) == PREFERS_RECOMPILATION


def test_what_a_model_tells_follows_from_the_configuration() -> None:
    one, all_cores = (context.information(ProviderOptions("cpu", config)) for config in ({"NUM_THREADS": 1}, {}))
    threads = pt.accelerator("cpu").full_config({})
    assert json.loads(one)["devices"]["cpu"] == pt.accelerator("cpu").identity({**threads, "NUM_THREADS": 1})
    assert json.loads(all_cores)["devices"]["cpu"] == pt.accelerator("cpu").identity(threads)


@pytest.mark.parametrize(
    "told", ["[" * 200_000, '{"format": 1, "devices": 5}', '{"format": 1, "devices": {"HETERO:cpu,reference": {}}}']
)
def test_a_model_may_tell_anything(told: str) -> None:
    assert context.compatibility(told, ProviderOptions()) in (NOT_APPLICABLE, UNSUPPORTED)


@pytest.mark.parametrize("side", ["input", "output"])
def test_types_around_a_context_are_those_that_were_compiled(tmp_path: Path, side: str) -> None:
    """A signature is of the compiled subgraph alone, and its kernels take memory by their own types."""
    with provider(name="Signed", key=b"secret") as name:
        proto = written(name, tmp_path / "signed.onnx")
        for value in getattr(proto.graph, side):
            value.type.tensor_type.elem_type = onnx.TensorProto.INT8
        with pytest.raises(Exception, match=rf"its {side}s have other types than those that were compiled"):
            session(proto.SerializeToString(), name)


def test_a_context_of_another_provider_is_left_alone() -> None:
    node = helper.make_node("EPContext", ["x"], ["y"], domain="com.microsoft", source="Other", embed_mode=1, ep_cache_context=b"")
    proto = onnx.ModelProto.FromString(model([node], {"x": [2]}, ["y"]))
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", 1, [2]))
    with provider() as name, pytest.raises(Exception, match="EPContext") as raised:
        session(proto.SerializeToString(), name)
    assert "Partita" not in str(raised.value)
