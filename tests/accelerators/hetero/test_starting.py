"""START=now: a model answers on devices that start fast, until its own are ready."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest

import partita as pt
from partita.accelerators.interface.isolation import process
from partita.accelerators.process.background import lowered
from partita.accelerators.runtime.starting import devices, work
from partita.graph.readers.text import parse
from tests.accelerators.hetero.small_devices import Ran, Small, device
from tests.accelerators.package.models import ROOT

NET = parse("graph net(x: float32[2, 3]) -> (y) { a = Relu(x)\n y = Exp(a) }")
ANY = parse("graph net(x: float32[N, 3]) -> (y) { a = Relu(x)\n y = Exp(a) }")
NOW = {"HETERO": {"START": "now", "START_WITH": "reference"}}
X = np.arange(-3, 3, dtype=np.float32).reshape(2, 3)
Y = np.exp(np.maximum(X, 0))


class Gate:
    """Lets a device compile when the test says so."""

    def __init__(self) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()


class Many(Ran):
    """NET, for any number of threads at once."""

    concurrent = True

    def run(self, inputs, out=None):
        return [np.exp(np.maximum(inputs[0], 0))]


@pytest.fixture
def gate():
    opened = Gate()
    yield opened
    opened.opened.set()


@pytest.fixture
def slow(gate):
    """A device that compiles only once the gate is open."""

    def compile_late(self, graph, config):
        gate.reached.set()
        assert gate.opened.wait(300)
        return Small.compile(self, graph, config)

    with device("slow", compile=compile_late) as plugin:
        yield plugin


def test_it_answers_before_its_device_is_ready(slow, gate) -> None:
    model = pt.compile(NET, "slow", NOW)
    assert gate.reached.wait(300) and not model.ready.done()
    assert np.array_equal(model(X)[0], Y)
    assert model.properties.devices == ("reference",)
    assert "reference answers until the model's own devices are ready" in model.report.notes
    gate.opened.set()
    assert model.wait(300) is model and model.ready.result() is model
    assert model.properties.devices == ("slow",) and [unit.device.label for unit in model.units] == ["slow"]
    assert np.array_equal(model(X)[0], Y)
    assert any(note.endswith("while it was compiled, reference answered") for note in model.report.notes)
    assert {row.device for row in model.profile(X).rows} <= {"slow"}


def test_the_first_answer_comes_before_the_work_in_the_background(slow, gate, monkeypatch) -> None:
    monkeypatch.setattr(work, "HELD_BACK", 1e6)
    model = pt.compile(NET, "slow", NOW)
    assert not gate.reached.wait(0.2)
    assert np.array_equal(model(X)[0], Y)
    assert gate.reached.wait(30)


def test_a_model_that_is_closed_before_its_first_answer_is_not_compiled(slow, gate, monkeypatch) -> None:
    monkeypatch.setattr(work, "HELD_BACK", 1e6)
    model = pt.compile(NET, "slow", NOW)
    model.close()
    with pytest.raises(pt.RunError, match="the model is closed"):
        model.ready.result(300)
    assert not gate.reached.is_set()


def test_no_workshop_is_sought_before_the_first_answer(monkeypatch) -> None:
    monkeypatch.setattr(work, "HELD_BACK", 1e6)
    asked = []
    monkeypatch.setattr(devices.Workshops, "devices", lambda self, task: asked.append(task.graph.name) or task.devices)
    with device("late"):
        model = pt.compile(NET.evolve(name="unasked"), "late", NOW)
        assert "unasked" not in asked  # models of other tests may ask
        assert np.array_equal(model(X)[0], Y)
        model.wait(300)
    assert asked.count("unasked") == 1


def test_whoever_waits_for_a_model_lets_it_begin(slow, gate, monkeypatch) -> None:
    monkeypatch.setattr(work, "HELD_BACK", 1e6)
    gate.opened.set()
    assert pt.compile(NET, "slow", NOW).wait(300).properties.devices == ("slow",)


def test_a_model_that_waits_is_ready() -> None:
    model = pt.compile(NET, "reference")
    assert model.ready.done() and model.wait() is model


def test_what_its_device_cannot_compile_stays_where_it_began() -> None:
    with device("slow", breaks="Exp"), pytest.warns(UserWarning, match="its own devices are not ready, and reference goes on"):
        model = pt.compile(NET, "slow", NOW)
        with pytest.raises(pt.CompileError, match="cannot compile Exp"):
            model.wait(300)
    assert np.array_equal(model(X)[0], Y)
    assert "reference goes on" in model.report.notes[-1]


def test_an_op_that_no_device_runs_is_told_by_the_future(alpha) -> None:
    graph = parse("graph net(x: float32[2, 3]) -> (y) { y = Tanh(x) }")
    with pytest.warns(UserWarning, match="reference goes on"):
        model = pt.compile(graph, "alpha", NOW)
        with pytest.raises(pt.NotSupported, match="alpha has no Tanh"):
            model.wait(300)
    assert np.allclose(model(X)[0], np.tanh(X))


def test_what_no_starter_runs_is_waited_for(slow, gate) -> None:
    gate.opened.set()
    graph = parse("graph net(x: float32[2, 3]) -> (y) { y = own.domain.Odd(x) }")
    model = pt.compile(graph, "slow", NOW)
    assert model.ready.done() and model.properties.devices == ("slow",)


def test_forbidden_ops_are_forbidden_to_those_that_answer_first(slow) -> None:
    pytest.importorskip("onnxruntime")
    now = {"HETERO": {"START": "now", "START_WITH": "onnxruntime"}}
    model = pt.compile(NET, "HETERO:slow,onnxruntime", now, forbid={"Exp": "onnxruntime"})
    assert [(unit.device.label, unit.ops) for unit in model.units] == [("onnxruntime", ("a",)), ("reference", ("y",))]


def test_affinities_hold_for_the_models_own_devices(slow, gate, beta) -> None:
    graph = parse("graph net(x: float32[2, 3]) -> (y) { a = Relu(x) @slow\n y = Exp(a) @beta }")
    model = pt.compile(graph, "HETERO:beta,slow", NOW)
    assert np.array_equal(model(X)[0], Y)
    gate.opened.set()
    assert [unit.device.label for unit in model.wait(300).units] == ["slow", "beta"]


def test_affinities_that_are_set_later_are_not_the_model_s(slow, gate, monkeypatch) -> None:
    monkeypatch.setattr(work, "HELD_BACK", 1e6)
    graph = pt.apply_pass(NET, "InferShape")
    model = pt.compile(graph, "slow", NOW)
    graph["a"].affinity = "reference"
    gate.opened.set()
    try:
        assert model.wait(300).properties.devices == ("slow",)
    finally:
        graph["a"].affinity = None


def test_a_device_that_compiles_at_once_starts_with_itself() -> None:
    pytest.importorskip("onnxruntime")
    model = pt.compile(NET, "onnxruntime", NOW)
    assert model.ready.done() and model.properties.devices == ("onnxruntime",)


def test_calls_of_many_threads_across_the_change(slow, gate) -> None:
    slow.made = Many
    model = pt.compile(NET, "slow", NOW)
    wrong, done = [], threading.Event()

    def call(seed: int) -> None:
        numbers = np.random.default_rng(seed)
        count = 0
        while count < 1250 or not done.is_set():
            x = numbers.standard_normal((2, 3), np.float32)
            if not np.array_equal(model(x)[0], np.exp(np.maximum(x, 0))):
                wrong.append(seed)
            count += 1

    threads = [threading.Thread(target=call, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    gate.opened.set()
    model.wait(300)
    done.set()
    for thread in threads:
        thread.join()
    assert wrong == [] and model.properties.devices == ("slow",)


def test_requests_across_the_change(slow, gate) -> None:
    model = pt.compile(NET, "slow", NOW)
    before = [model.start(X) for _ in range(3)]
    gate.opened.set()
    model.wait(300)
    assert all(np.array_equal(future.result(300)[0], Y) for future in [*before, model.start(X)])


def test_the_settings_of_the_model_hold_from_the_start(slow, gate) -> None:
    config = {"HETERO": {**NOW["HETERO"], "NUM_REQUESTS": 1, "QUEUE_SIZE": 2, "QUEUE_FULL": "error", "RECORD": "nan"}}
    model = pt.compile(NET, "slow", config)
    settings = model.settings
    assert (settings.requests, settings.queue, settings.full) == (1, 2, "error")
    model(X)
    assert model.recorded is not None and model.recorded.calls == 1


def test_requests_take_turns_once_there_are_several_devices(slow, gate, beta) -> None:
    graph = parse("graph net(x: float32[2, 3]) -> (y) { a = Relu(x) @slow\n y = Exp(a) @beta }")
    model = pt.compile(graph, "HETERO:beta,slow", {"HETERO": {**NOW["HETERO"], "PIPELINE": True}})
    assert model.pipelined is False  # one device answers
    before = [model.start(X) for _ in range(3)]
    gate.opened.set()
    assert model.wait(300).pipelined is True
    assert all(np.array_equal(future.result(300)[0], Y) for future in [*before, *(model.start(X) for _ in range(3))])


def test_a_request_of_one_plan_passes_by_the_stages_of_another() -> None:
    with device("one", "Relu"), device("two", "Exp"):
        model, other = (pt.compile(NET, "HETERO:one,two", {"HETERO": {"PIPELINE": True}}) for _ in range(2))
        other._pipeline = model._pipeline  # as after a change of devices, with a request that was started before
        assert np.array_equal(other.start(X).result(300)[0], Y)


def test_a_closed_model_takes_nothing_over(slow, gate) -> None:
    model = pt.compile(NET, "slow", NOW)
    assert gate.reached.wait(300)
    model.close()
    gate.opened.set()
    with pytest.raises(pt.RunError, match="the model is closed"):
        model.wait(300)
    with pytest.raises(pt.RunError, match="the model is closed"):
        model(X)


def test_a_model_that_nobody_has_goes(slow, gate) -> None:
    model = pt.compile(NET, "slow", NOW)
    assert gate.reached.wait(300)
    ready, reference = model.ready, weakref.ref(model)
    del model
    gc.collect()
    assert reference() is None
    gate.opened.set()
    with pytest.raises(pt.RunError, match="the model is closed"):
        ready.result(300)


def test_sizes_are_compiled_behind_the_calls(slow, gate) -> None:
    type(slow).dynamic_shapes = False
    model = pt.compile(ANY, "slow", NOW).wait(300)
    assert np.array_equal(model(X)[0], Y) and gate.reached.wait(300)
    compiled = model.units[0].compiled
    assert compiled.sizes == () and compiled.stood_in == 1
    gate.opened.set()
    while not compiled.sizes:
        model(X)
    served = compiled.stood_in
    assert np.array_equal(model(X)[0], Y) and compiled.stood_in == served


def test_a_rule_about_another_device_is_an_error_at_once(slow) -> None:
    with pytest.raises(pt.UnknownDevice, match="none of the devices asked for"):
        pt.compile(NET, "slow", NOW, forbid={"Exp": "onnxruntime"})


@pytest.mark.parametrize("config", [{"START": "soon"}, {"START_WITH": "nowhere", "START": "now"}])
def test_settings_that_are_none(config, slow) -> None:
    with pytest.raises(pt.PartitaError, match="soon|nowhere"):
        pt.compile(NET, "slow", {"HETERO": config})


def test_several_models_do_not_start_at_once() -> None:
    with pytest.raises(pt.NotSupported, match="a model on MULTI does not start at once"):
        pt.compile(NET, "MULTI:reference,onnxruntime", NOW)


# -- cpu, which compiles in a process of its own ----------------------------------------------------------


def test_kernels_are_compiled_elsewhere_and_run_here(workshops, tmp_path) -> None:
    model = pt.compile(NET, "HETERO:cpu,reference", NOW)
    assert np.array_equal(model(X)[0], Y)
    model.wait(300)
    assert model.properties.devices == ("cpu",) and model.kernels()
    assert np.allclose(model(X)[0], Y, rtol=1e-6)
    assert [shop.is_over and shop.current is None for shop in workshops] == [True]
    model.export(tmp_path / "net.partita")
    assert np.allclose(pt.import_model(tmp_path / "net.partita")(X)[0], Y, rtol=1e-6)


def test_an_export_waits(workshops, tmp_path) -> None:
    model = pt.compile(NET, "HETERO:cpu,reference", NOW)
    model.export(tmp_path / "net.partita")
    assert pt.import_model(tmp_path / "net.partita").properties.devices == ("cpu",)


def test_a_workshop_that_is_killed_leaves_a_model_that_answers(standing) -> None:
    with pytest.warns(UserWarning, match="reference goes on|does not compile"):
        model = pt.compile(NET, "cpu", NOW)
        while not standing or standing[0].current is None or not standing[0].current.is_asked:
            model(X)
        os.kill(standing[0].current.number, signal.SIGKILL)
        with pytest.raises(pt.PartitaError, match="its process ended"):
            model.wait(300)
    assert np.array_equal(model(X)[0], Y)


def test_a_workshop_that_starts_slowly_is_waited_for(workshops, monkeypatch) -> None:
    monkeypatch.setattr(process, "STARTING", 1e-6)
    model = pt.compile(NET, "HETERO:cpu,reference", NOW)
    assert model.wait(300).properties.devices == ("cpu",) and np.allclose(model(X)[0], Y, rtol=1e-6)


def test_a_workshop_gives_way_to_the_calls(standing) -> None:
    model = pt.compile(NET, "cpu", NOW)
    while not standing or standing[0].current is None:
        model(X)
    number = standing[0].current.number
    assert os.getpriority(os.PRIO_PROCESS, number) == lowered() > os.getpriority(os.PRIO_PROCESS, os.getpid())
    assert os.getsid(number) == os.getsid(0) and os.getpgid(number) == number  # Ctrl-C is not for it, and the priority counts
    model.close()


def test_a_closed_model_ends_its_workshop(standing) -> None:
    model = pt.compile(NET, "cpu", NOW)
    while not standing or standing[0].current is None:
        model(X)
    model.close()
    with pytest.raises(pt.PartitaError):
        model.wait(300)
    assert standing[0].current is None


ENDS = """
import numpy as np, partita as pt
from partita.graph.readers.text import parse
net = parse("graph net(x: float32[2, 3]) -> (y) { y = Exp(x) }")
model = pt.compile(net, "cpu", {"START": "now", "START_WITH": "reference"})
print(model(np.zeros((2, 3), np.float32))[0].sum())
"""

FORKS = ENDS + """
import os
child = os.fork()
if child == 0:
    assert model.wait(300).properties.devices == ("cpu",)
    assert model(np.zeros((2, 3), np.float32))[0].sum() == 6
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
model.wait(300)
"""


@pytest.mark.parametrize("code", [ENDS, FORKS])
def test_a_process_that_ends_or_forks_meanwhile(code) -> None:
    pytest.importorskip("tvm")
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "6.0\n", "")
