"""Calls across the change from the engine that answers first to kernels of `cpu`, which a process of its own compiles."""

from __future__ import annotations

import gc
import math
import os
import signal
import subprocess
import sys
import threading
from typing import NamedTuple

import numpy as np
import onnx
import pytest

import partita as pt
from partita.accelerators.api import begin
from partita.accelerators.engines.onnxruntime import whole_session
from partita.accelerators.runtime.starting import file_model
from partita.accelerators.runtime.starting.devices import Devices
from partita.accelerators.tvm.cpu import CpuAccelerator
from tests.accelerators.hetero.small_devices import Small, device
from tests.accelerators.package.models import ROOT
from tests.accelerators.starting.files import X, convolution
from tests.close import is_close

pytest.importorskip("onnxruntime")
pytest.importorskip("tvm")

INPUTS = [np.ascontiguousarray(np.roll(X, i, axis=2) * (i + 1)) for i in range(6)]


@pytest.fixture
def path(tmp_path):
    onnx.save(convolution(), tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


@pytest.fixture
def expected(path):
    model = pt.compile(pt.load(path), "reference")
    return [model(x)[0] for x in INPUTS]


@pytest.fixture
def model(path, tmp_path):
    opened = file_model.opened(str(path), "cpu", {"START": "now", "CACHE_DIR": str(tmp_path / "cache")}, 1, begin)
    assert opened is not None
    with opened:
        yield opened


@pytest.fixture
def late(path):
    """A model of a device that compiles in this process."""
    with device("late"):
        opened = file_model.opened(str(path), "late", {"HETERO": {"START": "now", "START_WITH": "onnxruntime"}}, 1, begin)
        assert opened is not None
        with opened:
            yield opened


@pytest.fixture
def changing(monkeypatch):
    """The change, which waits in its midst until it may go on."""
    reached, go_on, ready_after = threading.Event(), threading.Event(), Devices.ready_after

    def held(self, seconds):
        reached.set()
        assert go_on.wait(300)
        return ready_after(self, seconds)

    monkeypatch.setattr(Devices, "ready_after", held)
    yield reached, go_on
    go_on.set()


def right(model, expected, number: int) -> bool:
    answer = model(INPUTS[number])
    return len(answer) == 1 and is_close(answer["y"], expected[number], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("each", [60, pytest.param(1250, marks=pytest.mark.slow)])
def test_calls_of_eight_threads(each, model, expected, monkeypatch) -> None:
    """Each is answered right, and by one of the two alone."""
    by_engine, by_kernels = [], []
    outputs = whole_session.WholeSession.outputs

    def counted(self, *given):
        answer = outputs(self, *given)
        by_engine.extend([] if answer is None else [1])
        return answer

    monkeypatch.setattr(whole_session.WholeSession, "outputs", counted)
    compiled_class = CpuAccelerator().compiled_class()
    run = compiled_class.run
    monkeypatch.setattr(compiled_class, "run", lambda self, *given: by_kernels.append(1) or run(self, *given))
    wrong, calls, errors = [], [], []

    def call(thread: int) -> None:
        try:
            for count in range(each):
                if count == each // 2:
                    model.ready.result(300)
                calls.append(1)
                if not right(model, expected, (thread + count) % len(INPUTS)):
                    wrong.append((thread, count))
        except BaseException as error:
            errors.append(error)
            raise

    threads = [threading.Thread(target=call, args=(thread,)) for thread in range(8)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads) and not model.ready.done():
        calls.append(1)
        if not right(model, expected, 0):
            wrong.append("between")
        threads[0].join(0.005)
    for thread in threads:
        thread.join()
    assert (wrong, errors) == ([], []) and model.properties.devices == ("cpu",)
    assert len(by_engine) + len(by_kernels) == len(calls) >= 8 * each
    assert min(len(by_engine), len(by_kernels)) >= 3 * each
    assert "onnxruntime answered" in model.report.notes[-1]


def test_the_process_is_killed_in_the_midst(standing, model, expected) -> None:
    with pytest.warns(UserWarning, match="onnxruntime, reference goes on|onnxruntime goes on|does not compile"):
        while not standing or standing[0].current is None or not standing[0].current.is_asked:
            assert right(model, expected, 0)
        os.kill(standing[0].current.number, signal.SIGKILL)
        with pytest.raises(pt.PartitaError, match="its process ended"):
            model.wait(300)
    assert all(right(model, expected, i) for i in range(len(INPUTS)))
    assert model.properties.devices == ("onnxruntime",)


def test_kernels_that_cannot_be_taken_over(late, expected, monkeypatch) -> None:
    def broken(self, graph, config):
        raise RuntimeError("no room for its code")

    monkeypatch.setattr(Small, "compile", broken)
    assert right(late, expected, 0)
    with pytest.warns(UserWarning, match="onnxruntime goes on"), pytest.raises(pt.CompileError, match="no room for its code"):
        late.wait(300)
    assert all(right(late, expected, i) for i in range(len(INPUTS)))


def test_a_model_is_closed_in_the_midst(late, expected, changing) -> None:
    reached, go_on = changing
    assert right(late, expected, 0) and reached.wait(300)
    closing = threading.Thread(target=late.close)
    closing.start()
    go_on.set()
    closing.join()
    with pytest.raises(pt.RunError, match="the model is closed"):
        late(X)


def test_a_model_is_closed_before_its_kernels_are_taken_over(late, expected, monkeypatch) -> None:
    final, own = [], Devices._compile_own

    def closed_meanwhile(self):
        final.append(own(self))
        late.close()
        return final[0]

    monkeypatch.setattr(Devices, "_compile_own", closed_meanwhile)
    assert right(late, expected, 0)
    with pytest.raises(pt.RunError, match="the model is closed"):
        late.ready.result(300)
    with pytest.raises(pt.RunError, match="the model is closed"):
        late(X)
    assert final[0]._closed


def test_no_second_session_is_made_unless_it_is_needed(late, expected, changing, monkeypatch) -> None:
    reached, go_on = changing
    asked, starting = [], Devices.starting
    monkeypatch.setattr(Devices, "starting", lambda *given: asked.append(1) or starting(*given))
    assert right(late, expected, 0) and reached.wait(300)
    go_on.set()
    assert late.wait(300).properties.devices == ("late",) and asked == []
    assert "onnxruntime answered" in late.report.notes[-1] and late.settings.start == "wait"


def test_what_is_asked_before_the_change_is_told_of_the_engine(late, expected, monkeypatch) -> None:
    compiling, go_on, own = threading.Event(), threading.Event(), Devices._compile_own
    monkeypatch.setattr(Devices, "_compile_own", lambda self: compiling.set() or (go_on.wait(300) and own(self)))
    assert right(late, expected, 0) and compiling.wait(300)
    assert late.properties.devices == ("onnxruntime",) and right(late, expected, 1)
    go_on.set()
    assert late.wait(300).properties.devices == ("late",) and right(late, expected, 2)


def test_a_model_that_nobody_has_after_its_change_has_no_work_left(path, expected, monkeypatch) -> None:
    given_up = []
    monkeypatch.setattr(Devices, "give_up", lambda self: given_up.append(self))
    with device("late"):
        model = file_model.opened(str(path), "late", {"HETERO": {"START": "now", "START_WITH": "onnxruntime"}}, 1, begin)
        assert right(model.wait(300), expected, 0)
        devices = model._work.devices()
        del model
        gc.collect()
    assert given_up.count(devices) == 1


def test_a_fork_while_another_thread_holds_the_lock_of_a_file_s_model(late) -> None:
    with late._work.may_begin._cond:
        renew = (late._work.renew, late.renew, late.close)  # as a fork does it
        forked = threading.Thread(target=lambda: [step() for step in renew], daemon=True)
        forked.start()
        forked.join(60)
        assert not forked.is_alive()


def test_a_session_ends_once_its_calls_have_ended() -> None:
    engine = threading.Event(), threading.Event()

    class Slow:
        def get_inputs(self):
            return []

        get_outputs = get_inputs

        def run(self, names, arrays):
            engine[0].set()
            assert engine[1].wait(300)
            return []

    session = whole_session.WholeSession(Slow())
    answers: list[object] = []
    calling = threading.Thread(target=lambda: answers.append(session.outputs((), {})))
    calling.start()
    assert engine[0].wait(300)
    closing = threading.Thread(target=session.close)
    closing.start()
    while session._session is not None:
        closing.join(0.001)
    assert session.outputs((), {}) is None and closing.is_alive()
    engine[1].set()
    closing.join()
    calling.join()
    assert answers != [None]


class Doubling:
    """A session that adds b to twice a."""

    def get_inputs(self):
        return [Item("a", ["N", 2]), Item("b", ["N", None])]

    def get_outputs(self):
        return [Item("y", ["N", 2])]

    def run(self, names, arrays):
        return [2 * arrays["a"] + arrays["b"]]


class Item(NamedTuple):
    name: str
    shape: list[int | str | None]
    type: str = "tensor(float)"


def aligned(*shape: int) -> np.ndarray:
    room = np.zeros(math.prod(shape) * 4 + whole_session.ALIGNMENT, np.uint8)
    first = -room.ctypes.data % whole_session.ALIGNMENT
    return room[first : first + math.prod(shape) * 4].view(np.float32).reshape(shape)


def test_a_session_answers_calls_of_all_forms_that_fit() -> None:
    session = whole_session.WholeSession(Doubling())
    a, b = aligned(3, 2), aligned(3, 2)
    a[:], b[:] = 1, 5
    for args, named in (((a, b), {}), ((), {"b": b, "a": a}), (({"a": a, "b": b},), {}), (({"b": b},), {"a": a})):
        answer = session.outputs(args, named)
        assert answer is not None and answer["y"].tolist() == [[7, 7]] * 3
    for args, named in (
        ((a,), {}), ((a, b, b), {}), ((), {"a": a}), ((a,), {"b": b}), ((a, b), {"b": b}), ((), {"a": a, "b": b, "c": b}),
        (({"a": a, "b": b},), {"b": b}), ((a, aligned(2, 2)), {}), ((aligned(3, 1), b), {}), ((a.astype(np.float64), b), {}),
        ((a, b[0]), {}), ((a, aligned(0, 2)), {}), ((a.T.copy().T, b), {}), ((a.tolist(), b), {}),
        ((a, aligned(4, 2).reshape(-1)[1:7].reshape(3, 2)), {}),
    ):
        assert session.outputs(args, named) is None
    a, b = aligned(3, 2), aligned(3, 1)
    assert session.outputs((a, b), {}) is not None, "an axis without a name has any size"
    assert session.outputs((a, aligned(3, 3)[:, :2]), {}) is None, "rows that are apart are copied by the model itself"


def test_a_forked_process_reads_the_file_that_its_parent_had_just_read(model) -> None:
    first, second = (model._work._begin()._task.graph for _ in range(2))
    assert first.inputs[0].name == second.inputs[0].name == "x"


FORKS = """
import os, sys, threading
import numpy as np, partita as pt
from partita.accelerators.runtime.starting import file_model
model = pt.compile(sys.argv[1], "cpu", {"START": "now", "CACHE_DIR": sys.argv[2]})
assert type(model) is file_model.FileModel
x = np.ones((1, 3, 6, 6), np.float32)
reached, go_on, take_over = threading.Event(), threading.Event(), file_model.FileModel.take_over

def held(self, final, seconds):
    with self._guard.lock:
        reached.set()
        assert go_on.wait(300)
        return take_over(self, final, seconds)

file_model.FileModel.take_over = held
first = model(x)["y"]
assert reached.wait(300)
child = os.fork()
if child == 0:
    assert np.allclose(first, model(x)["y"], rtol=1e-4, atol=1e-5)
    assert model.wait(300).properties.devices == ("cpu",)
    assert np.allclose(first, model(x)["y"], rtol=1e-4, atol=1e-5)
    os._exit(7)
go_on.set()
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert model.wait(300).properties.devices == ("cpu",)
assert np.allclose(first, model(x)["y"], rtol=1e-4, atol=1e-5)
"""


@pytest.mark.slow
def test_a_process_is_forked_in_the_midst(path, tmp_path) -> None:
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKS, str(path), str(tmp_path / "cache")]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
