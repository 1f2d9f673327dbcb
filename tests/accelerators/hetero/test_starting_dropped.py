"""START=now: a model that nobody holds any more is freed at once, whatever is being done for it, and that ends."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator

import numpy as np
import onnx
import pytest

import partita as pt
from partita.accelerators.api import begin
from partita.accelerators.runtime.starting import file_model
from partita.graph.readers.text import parse
from tests.accelerators.hetero.small_devices import Small, device
from tests.accelerators.starting.files import X, convolution
from tests.waiting import is_running, until

pytestmark = pytest.mark.usefixtures("without_collector")

NET = parse("graph net(x: float32[2, 3]) -> (y) { a = Relu(x)\n y = Exp(a) }")
NOW = {"HETERO": {"START": "now", "START_WITH": "reference"}}


@pytest.fixture
def path(tmp_path):
    pytest.importorskip("onnxruntime")
    onnx.save(convolution(), tmp_path / "net.onnx")
    return str(tmp_path / "net.onnx")


@pytest.fixture
def gate() -> Iterator[tuple[threading.Event, threading.Event]]:
    """What is done for a model, which waits in its midst until it may go on."""
    reached, opened = threading.Event(), threading.Event()
    yield reached, opened
    opened.set()


def opened(path: str):
    model = file_model.opened(path, "late", {"HETERO": {"START": "now", "START_WITH": "onnxruntime"}}, 1, begin)
    assert model is not None
    return model


def working() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name in ("partita-start", "partita-open")]


def test_a_model_that_is_ready() -> None:
    with device("late"):
        model = pt.compile(NET, "late", NOW).wait(300)
        assert until(lambda: not working()) and model.ready.result() is model
        left, compiled = weakref.ref(model), weakref.ref(model.units[0].compiled)
        del model
        assert left() is None and compiled() is None


def test_the_future_holds_a_model_that_is_ready() -> None:
    with device("late"):
        model = pt.compile(NET, "late", NOW)
        ready = model.ready
        left = weakref.ref(model.wait(300))
        del model
        assert until(lambda: not working()) and ready.result() is left()
        del ready
        assert left() is None


def test_a_model_whose_devices_do_not_compile_it() -> None:
    with device("late", breaks="Exp"), pytest.warns(UserWarning, match="its own devices are not ready"):
        model = pt.compile(NET, "late", NOW)
        assert isinstance(model.ready.exception(300), pt.CompileError) and until(lambda: not working())
        left = weakref.ref(model)
        del model
        assert left() is None


def test_a_model_that_is_being_compiled(gate) -> None:
    def compile_late(self, graph, config):
        gate[0].set()
        assert gate[1].wait(300)
        return Small.compile(self, graph, config)

    with device("late", compile=compile_late):
        model = pt.compile(NET, "late", NOW)
        assert gate[0].wait(300)
        left = weakref.ref(model)
        del model
        assert left() is None


def test_a_model_of_a_file_that_is_ready(path) -> None:
    with device("late"):
        model = opened(path).wait(300)
        assert until(lambda: not working()) and model.ready.result() is model
        left, compiled = weakref.ref(model), weakref.ref(model.units[0].compiled)
        del model
        assert left() is None and compiled() is None


def test_a_model_of_a_file_that_is_being_read(path, gate, monkeypatch) -> None:
    reading = file_model._read

    def read_late(*given):
        gate[0].set()
        assert gate[1].wait(300)
        return reading(*given)

    monkeypatch.setattr(file_model, "_read", read_late)
    with device("late") as plugin:
        plugin.compile = lambda *given: pytest.fail("it is compiled")
        model = opened(path)
        model(X)
        assert gate[0].wait(300)
        left, session = weakref.ref(model), weakref.ref(model._session)
        ready = model.ready
        del model
        assert left() is None and session() is None
        gate[1].set()
        assert isinstance(ready.exception(300), pt.RunError)


def test_a_model_of_a_file_whose_workshop_is_at_work(path, standing, tmp_path) -> None:
    model = file_model.opened(path, "cpu", {"START": "now", "CACHE_DIR": str(tmp_path / "cache")}, 1, begin)
    assert model is not None and np.shape(model(X)[0])
    assert until(lambda: bool(standing) and standing[0].current is not None)
    number, left = standing[0].current.number, weakref.ref(model)
    work, devices = weakref.ref(model._work), weakref.ref(model._work.devices())
    del model
    assert left() is None and until(lambda: not is_running(number)) and until(lambda: not working())
    assert work() is None and devices() is None


def test_a_model_whose_workshop_is_at_work(standing) -> None:
    model = pt.compile(NET, "cpu", NOW)
    assert until(lambda: bool(standing) and standing[0].current is not None)
    number, left, work = standing[0].current.number, weakref.ref(model), weakref.ref(model._work.devices())
    del model
    assert left() is None and until(lambda: not is_running(number)) and until(lambda: not working())
    assert work() is None
