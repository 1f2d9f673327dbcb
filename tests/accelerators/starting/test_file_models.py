"""Models of files that answer before they are read."""

from __future__ import annotations

import copy
import gc
import subprocess
import sys
import threading
import weakref

import numpy as np
import onnx
import pytest

import partita as pt
from partita.accelerators import api
from partita.accelerators.runtime.starting import file_model, work
from tests.accelerators.hetero.small_devices import device
from tests.accelerators.package.models import ROOT
from tests.accelerators.starting.files import X, convolution
from tests.close import assert_close, is_close

pytest.importorskip("onnxruntime")

NOW = {"HETERO": {"START": "now", "START_WITH": "reference"}}


@pytest.fixture
def path(tmp_path):
    onnx.save(convolution("N"), tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


@pytest.fixture
def expected(path):
    return pt.compile(pt.load(path), "reference")(X)[0]


@pytest.fixture
def late(monkeypatch):
    """A device, and models that nobody makes before they are asked for."""
    monkeypatch.setattr(work, "HELD_BACK", 1e6)
    with device("late") as plugin:
        yield plugin


def begin(*given):
    return api.begin(*given)


def opened(path, name: str = "late"):
    model = file_model.opened(str(path), name, NOW, 1, begin)
    assert model is not None
    return model


def close_to(outputs, expected) -> bool:
    return is_close(outputs["y"], expected, rtol=1e-4)


def test_it_answers_before_the_file_is_read(path, expected, late, monkeypatch) -> None:
    is_read, reading = threading.Event(), file_model._read
    monkeypatch.setattr(file_model, "_read", lambda *args: is_read.set() or reading(*args))
    model = opened(path)
    assert not is_read.wait(0.05)
    assert close_to(model(X), expected) and close_to(model({"x": X}), expected) and close_to(model(x=X), expected)
    assert model.wait(300) is model and is_read.is_set()
    assert isinstance(model, pt.CompiledModel) and model.properties.devices == ("late",)
    assert close_to(model(X), expected)


def test_a_graph_of_a_file_answers_before_it_is_compiled(path, expected, late, monkeypatch) -> None:
    is_begun, compiled = threading.Event(), api.begin
    monkeypatch.setattr(api, "begin", lambda *args: is_begun.set() or compiled(*args))
    model = file_model.opened_graph(pt.load(path), "late", NOW, 1, begin)
    assert not is_begun.wait(0.05)
    assert close_to(model(X), expected)
    assert model.wait(300).properties.devices == ("late",) and close_to(model(X), expected)


def _placed(graph):
    graph.nodes[-1].affinity = "late"
    return graph


@pytest.mark.parametrize("other", [
    _placed,
    lambda graph: graph.evolve(name="other"),
    lambda graph: graph.evolve(attrs={"mine": 1}),
    lambda graph: pt.apply_pass(graph, "InferShape"),
    copy.deepcopy,
], ids=["an affinity", "a name", "an attribute", "a pass", "a copy"])
def test_a_graph_that_is_not_just_what_its_file_holds(path, other) -> None:
    assert file_model.opened_graph(other(pt.load(path)), "cpu", NOW, 1, begin) is None


def test_a_graph_that_is_changed_once_its_model_answers(path, expected, late) -> None:
    graph = pt.load(path)
    model = file_model.opened_graph(graph, "late", NOW, 1, begin)
    graph.attrs["mine"], graph.nodes[-1].affinity = 1, "reference"
    assert model.wait(300).properties.devices == ("late",) and close_to(model(X), expected)


def test_a_configuration_that_is_changed_once_the_model_answers(path, late) -> None:
    config = copy.deepcopy(NOW)
    of_file = file_model.opened(str(path), "late", config, 1, begin)
    of_graph = file_model.opened_graph(pt.load(path), "late", config, 1, begin)
    config["HETERO"]["START"] = "never"
    assert of_file.wait(300).properties.devices == of_graph.wait(300).properties.devices == ("late",)


@pytest.mark.parametrize("load", [
    lambda path: pt.load(path, shapes={"x": (1, 3, 6, 6)}),
    lambda path: pt.load(path, inline=True),
    lambda path: pt.load(path.read_bytes()),
], ids=["shapes", "inline", "bytes"])
def test_a_graph_that_is_not_the_whole_file(path, load) -> None:
    assert load(path).file is None


def test_a_graph_whose_file_was_changed(path) -> None:
    graph = pt.load(path)
    assert graph.file is not None and graph.file.path == str(path)
    path.write_bytes(path.read_bytes() + b"\x1a\x00")
    assert file_model.opened_graph(graph, "cpu", NOW, 1, begin) is None
    path.unlink()
    assert file_model.opened_graph(graph, "cpu", NOW, 1, begin) is None


def test_the_first_answer_lets_the_model_be_made(path, late, monkeypatch) -> None:
    is_made, compiled = threading.Event(), api.begin
    monkeypatch.setattr(api, "begin", lambda *args: is_made.set() or compiled(*args))
    model = opened(path)
    assert not is_made.wait(0.05)
    model(X)
    assert is_made.wait(300)
    model.wait(300)


def test_whoever_asks_for_the_future_waits_for_nothing(path, late, expected, monkeypatch) -> None:
    gate, compiled = threading.Event(), api.begin
    monkeypatch.setattr(api, "begin", lambda *args: gate.wait(300) and compiled(*args))
    model = opened(path)
    ready = model.ready
    assert not ready.done() and not ready.cancel() and close_to(model(X), expected)
    gate.set()
    assert ready.result(300) is model and model.ready.done() and model.properties.devices == ("late",)


def test_the_future_of_a_model_that_is_none(path, late) -> None:
    model = opened(path)
    path.write_bytes(path.read_bytes() + b"\x1a\x00")
    with pytest.raises(pt.ReadError, match="the file was changed while it was opened"):
        model.ready.result(300)


@pytest.mark.parametrize("end", [file_model.FileModel.close, lambda model: None], ids=["closed", "gone"])
def test_the_future_of_a_model_that_ends(path, late, end) -> None:
    model = opened(path)
    ready = model._work.ready
    end(model)
    del model
    gc.collect()
    with pytest.raises(pt.RunError, match="the model is closed"):
        ready.result(300)


@pytest.mark.parametrize(("given", "message"), [
    ((X[:, :2],), r"dimension 1 is 3"),
    ((X.astype(np.float64),), "it is float32, and the array given float64"),
    (({"z": X},), "there is no input 'z'"),
    ((X, X), "2 inputs were given for 1"),
    ((), "input 'x' is missing"),
])
def test_what_does_not_fit_is_the_models_own_error(path, late, given, message) -> None:
    with pytest.raises(pt.InputError, match=message):
        opened(path)(*given)


def test_what_fits_otherwise_is_the_models_own_answer(path, late, expected) -> None:
    model, room = opened(path), np.empty_like(expected)
    assert model(X, out=room)["y"] is room and is_close(room, expected, rtol=1e-4)
    assert opened(path)(np.zeros((0, 3, 6, 6), np.float32))["y"].shape == (0, 4, 4, 4)
    assert close_to(opened(path)(np.asfortranarray(X)), expected)


def test_what_is_interrupted_while_it_compiles_goes_on_from_there(path, expected, late, monkeypatch) -> None:
    """By Ctrl-C, say; as a forked process does whose parent was compiling."""
    compiled, begun = api.begin, []

    def interrupted_once(*args):
        begun.append(1)
        if len(begun) == 1:
            raise KeyboardInterrupt
        return compiled(*args)

    monkeypatch.setattr(api, "begin", interrupted_once)
    model = opened(path)
    with pytest.raises(KeyboardInterrupt):
        model.report
    assert model.wait(300).properties.devices == ("late",) and close_to(model(X), expected) and len(begun) == 2


def test_a_file_that_is_gone(path, expected, late) -> None:
    model = opened(path)
    path.unlink()
    assert close_to(model(X), expected) and model.wait(300).properties.devices == ("late",)
    assert close_to(model(X), expected)


def test_a_file_that_was_changed(path, late) -> None:
    model = opened(path)
    path.write_bytes(path.read_bytes() + b"\x1a\x00")
    with pytest.raises(pt.ReadError, match="the file was changed while it was opened"):
        model.wait(300)
    with pytest.raises(pt.ReadError, match="the file was changed while it was opened"):
        model(X)


def test_a_file_that_claims_wrong_sizes(tmp_path, late) -> None:
    proto = convolution()
    proto.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 5
    onnx.save(proto, tmp_path / "net.onnx")
    model = opened(tmp_path / "net.onnx")
    assert "the value 'y' is declared float32" in model.wait(300).report.notes[0]
    assert_close(model(X)[0], pt.compile(pt.load(convolution()), "reference")(X)[0], rtol=1e-4)


def test_waiting_for_no_longer_than_that(path, late, monkeypatch) -> None:
    gate, compiled = threading.Event(), api.begin
    monkeypatch.setattr(api, "begin", lambda *args: gate.wait(300) and compiled(*args))
    model = opened(path)
    with pytest.raises(TimeoutError):
        model.wait(0.01)
    gate.set()
    assert model.wait(300) is model


def test_a_model_that_is_closed(path, late) -> None:
    model = opened(path)
    model.close()
    with pytest.raises(pt.RunError, match="the model is closed"):
        model(X)
    with opened(path) as model:
        model.wait(300)
    with pytest.raises(pt.RunError, match="the model is closed"):
        model(X)


def test_a_model_that_nobody_has_goes(path, late) -> None:
    model = opened(path)
    reference = weakref.ref(model)
    del model
    gc.collect()
    assert reference() is None


def test_calls_of_many_threads_while_it_is_made(path, expected, late) -> None:
    model, wrong = opened(path), []

    def call() -> None:
        for _ in range(250):
            if not close_to(model(X), expected):
                wrong.append(1)

    threads = [threading.Thread(target=call) for _ in range(8)]
    for thread in threads:
        thread.start()
    model.wait(300)
    for thread in threads:
        thread.join()
    assert wrong == [] and model.properties.devices == ("late",)


def test_a_file_is_compiled_as_its_graph_is(path, expected) -> None:
    model = pt.compile(path, "reference", shapes={"x": (1, 3, 6, 6)}, name="other")
    assert model.graph.name == "other" and np.array_equal(model(X)[0], expected)
    assert np.array_equal(pt.compile(str(path), "reference")(X)[0], expected)
    with pytest.raises(pt.ReadError, match="there is no such file"):
        pt.compile(path.with_name("none.onnx"), "cpu", {"START": "now"})


@pytest.mark.parametrize(("device", "config", "threads"), [
    ("cpu", {"START": "now"}, 0),
    ("cpu", {"START": "now", "NUM_THREADS": 2, "CACHE_DIR": "cache"}, 2),
    (None, {"HETERO": {"START": "now", "START_WITH": "onnxruntime"}, "cpu": {"NUM_THREADS": 3}}, 3),
    ("HETERO:cpu,reference", {"START": "now", "cpu": {}}, 0),
    ("HETERO:cpu,reference", {"START": "now", "NUM_THREADS": 2}, None),
    ("cpu", {"START": "wait"}, None),
    ("cpu", {"NUM_THREADS": 2}, None),
    ("cpu", None, None),
    ("cpu", {"START": "now", "NUM_THREADS": "many"}, None),
    ("cpu", {"START": "now", "NUM_THREADS": 2, "cpu": {"NUM_THREADS": 1}}, None),
    ("cpu", {"START": "now", "PRECISION": "bf16"}, None),
    ("cpu", {"START": "now", "HETERO": {"RECORD": "nan"}}, None),
    ("cuda", {"START": "now"}, None),
    (["cpu"], {"START": "now"}, None),
])
def test_what_may_be_asked_for_without_a_look(device, config, threads) -> None:
    assert api._threads(device, config) == threads


def test_a_name_that_is_no_text_is_left_to_the_reader(tmp_path, capfd) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(convolution().SerializeToString().replace(b"\n\x01w", b"\n\x01\xc8"))
    assert file_model.opened(str(path), "cpu", NOW, 1, begin) is None
    assert capfd.readouterr() == ("", "")
    with pytest.raises(pt.ReadError, match="which nothing defines"):
        pt.compile(path, "reference", NOW)


ANSWERS = """
import sys
import numpy as np, partita as pt
from partita.accelerators.runtime.starting import file_model, work
work.HELD_BACK = 1e6
model = pt.compile(sys.argv[1], "cpu", {"START": "now", "CACHE_DIR": sys.argv[2]})
assert type(model) is file_model.FileModel, type(model)
ours = {"partita.graph.graph", "partita.passes", "partita.partition", "partita.accelerators.compiling"}
heavy = {"onnx", "attr", "difflib", "importlib.abc"} | ours
assert not heavy & set(sys.modules)
first = model(np.ones((1, 3, 6, 6), np.float32))["y"]
"""

LOADS = """
import sys
import numpy as np, partita as pt
from partita.accelerators.runtime.starting import file_model, work
work.HELD_BACK = 1e6
model = pt.compile(pt.load(sys.argv[1]), "cpu", {"START": "now", "CACHE_DIR": sys.argv[2]})
assert type(model) is file_model.FileModel, type(model)
assert not {"partita.passes", "partita.partition", "partita.accelerators.compiling"} & set(sys.modules)
model(np.ones((1, 3, 6, 6), np.float32))
"""

STAYS = ANSWERS + """
import os
child = os.fork()
if child == 0:
    assert np.allclose(first, model(np.ones((1, 3, 6, 6), np.float32))["y"], rtol=1e-4, atol=1e-5)
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert isinstance(model, pt.CompiledModel) and model.wait(300) is model
assert model.properties.devices == ("cpu",), model
assert np.allclose(first, model(np.ones((1, 3, 6, 6), np.float32))["y"], rtol=1e-4, atol=1e-5)
"""


@pytest.mark.parametrize(
    "code", [ANSWERS, LOADS, pytest.param(STAYS, marks=pytest.mark.slow)], ids=["answers", "loads", "stays"]
)
def test_a_fresh_process(code, path, tmp_path) -> None:
    pytest.importorskip("tvm")
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code, str(path), str(tmp_path / "cache")]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
