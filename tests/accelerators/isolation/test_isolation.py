"""Devices in child processes: the same answers, and a crash or a hang is one error."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

import partita as pt
from partita.accelerators.errors import AcceleratorError, Returns, named
from partita.accelerators.interface.isolation import process as processes
from partita.accelerators.interface.isolation.process import Limit, end_processes, process_of
from partita.accelerators.interface.registry import accelerator
from tests.waiting import is_running, until

from . import fragile

ROOT = str(Path(__file__).parents[3])
A = np.arange(12, dtype="float32").reshape(3, 4)


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    pt.register_accelerator(fragile.Fragile, replace=True)
    yield
    pt.unregister_accelerator("fragile")


def net(op: str = "Relu", shape: Any = (3, 4), dtype: str = "float32") -> pt.Graph:
    x = pt.variable("x", dtype, shape)
    return pt.Graph([pt.op(op, x, name="r")], inputs=[x], name="net")


def compiled(breaks: str = "", graph: pt.Graph | None = None, seconds: float = 300.0, **more: Any) -> pt.CompiledModel:
    config = {"ISOLATE": True, "ISOLATE_SECONDS": seconds, "BREAKS": breaks, **more}
    return pt.compile(graph or net(), "fragile", config=config)


def child_id() -> int:
    child = process_of("fragile", fragile.Fragile).current
    assert child is not None
    return child.number


def in_haste_only(doing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit of time counts for what is done so alone: on a busy machine the steps before it may take longer."""
    ask = processes.DeviceChild.asked

    def patient(self: processes.DeviceChild, question: Any, packing: Any, task: processes.ChildTask) -> Any:
        return ask(self, question, packing, task if task.doing == doing else attrs.evolve(task, limit=Limit(300.0)))

    monkeypatch.setattr(processes.DeviceChild, "asked", patient)


# -- the same as without -----------------------------------------------------------------------------------


def test_another_process_runs_it() -> None:
    with compiled("who") as model:
        assert model(A)[0][0, 0] == child_id() != os.getpid()


def test_answers_are_the_same() -> None:
    x = pt.variable("x", "float32", (3, 4))
    part = pt.call(pt.Graph([pt.op("Tanh", pt.variable("p", "float32", (3, 4)), name="in")], name="part"), name="k")
    g = pt.Graph([pt.op("Relu", part.evolve(inputs=(x[0],)), name="r"), pt.op("Tanh", x, name="t")], name="net")
    there, here = (pt.query(g, "HETERO:fragile,reference", config={"fragile": {"ISOLATE": i}}) for i in (True, False))
    assert dict(there) == dict(here) == {"in": "reference", "r": "fragile", "t": "reference"}
    assert there.why("t") == here.why("t") and "it has no Tanh" in str(there.why("t"))
    assert there.why("in") == here.why("in")


@pytest.mark.parametrize("breaks", ["", "out"])
def test_outputs_belong_to_the_caller(breaks: str) -> None:
    with compiled(breaks) as model:
        first = model(A)[0]
        second = model(A * 2)[0]
        out = np.empty_like(A)
        assert model(A * 3, out=[out])[0] is out
    np.testing.assert_array_equal(first, A + 1)
    np.testing.assert_array_equal(second, A * 2 + 1)
    np.testing.assert_array_equal(out, A * 3 + 1)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "int4", "bool", "float64", "complex64", "uint64"])
def test_every_element_type(dtype: str) -> None:
    from partita.graph.types import numpy_dtype

    with compiled(graph=net("Identity", (5,), dtype)) as model:
        given = np.array([0, 1, 0, 1, 1]).astype(numpy_dtype(dtype))
        result = model(given)[0]
    assert result.dtype == given.dtype
    np.testing.assert_array_equal(result, given + np.ones((), given.dtype))


@pytest.mark.parametrize("words", [["a", "é", ""], [b"\xff\0", b"", b"x"], ["\udcff", "b", "c"]])
def test_strings(words: list[Any]) -> None:
    given = np.array(words, object)
    with compiled(graph=net("Identity", (3,), "string")) as model:
        assert model(given)[0].tolist() == words


@pytest.mark.parametrize("shape", [(), (0, 4), (1,), (300, 1000)])
def test_sizes(shape: tuple[int, ...]) -> None:
    given = np.full(shape, 2.0, "float32")
    with compiled(graph=net(shape=shape)) as model:
        np.testing.assert_array_equal(model(given)[0], given + 1)


def test_views_and_other_orders_of_memory() -> None:
    given = np.arange(48, dtype="float32").reshape(8, 6)
    with compiled() as model:
        for array in (given[::3, ::2][:, :4][:3], given.T[:3, :4], np.asfortranarray(A)):
            fitting = np.broadcast_to(array[:, :1], (3, 4)) if array.shape != (3, 4) else array
            np.testing.assert_array_equal(model(fitting)[0], fitting + 1)


def test_sizes_that_vary() -> None:
    with compiled(graph=net(shape=("N", 4))) as model:
        for rows in (1, 3, 200, 2):
            given = np.full((rows, 4), 5.0, "float32")
            np.testing.assert_array_equal(model(given)[0], given + 1)


@pytest.mark.parametrize("breaks", ["", "numpy"])
def test_a_profile(breaks: str) -> None:
    with compiled(breaks, PERF_COUNT=True) as model:
        model(A)
        (row,) = [row for row in model.profile().rows if row.node == "r"]
    assert (row.real_us, row.exec_type) == (1.5, "plus one")


def test_an_export_and_an_import(tmp_path: Path) -> None:
    with compiled() as model:
        model.export(tmp_path / "m.partita")
    with pt.import_model(tmp_path / "m.partita") as again:
        np.testing.assert_array_equal(again(A)[0], A + 1)
        child = process_of("fragile", fragile.Fragile).current
        assert child is not None
        child.kill()
        child._process.wait()
        np.testing.assert_array_equal(again(A)[0], A + 1)


def test_large_weights_are_handed_over_once(tmp_path: Path) -> None:
    x, w = pt.variable("x", "float32", (1, 256)), pt.constant(np.ones((256, 256), "float32"), name="w")
    g = pt.Graph([pt.op("Add", pt.op("MatMul", x, w), pt.op("MatMul", x, w), name="s")], name="two")
    with pt.compile(g, "reference", config={"ISOLATE": True}) as model:
        np.testing.assert_array_equal(model(np.ones((1, 256), "float32"))[0], np.full((1, 256), 512, "float32"))
        child = process_of("reference", type(accelerator("reference"))).current
        assert child is not None and os.fstat(child.requests.file).st_size < 300_000


@pytest.mark.parametrize("device", ["reference", "onnxruntime", "openvino"])
def test_engines(device: str) -> None:
    try:
        accelerator(device)
    except pt.AcceleratorUnavailable:
        pytest.skip(f"{device} is not installed")
    x, w = pt.variable("x", "float32", ("N", 4)), pt.constant(np.arange(400, dtype="float32").reshape(4, 100), name="w")
    g = pt.Graph([pt.op("Relu", pt.op("MatMul", x, w, name="m"), name="r")], name="net")
    with pt.compile(g, device) as here, pt.compile(g, device, config={"ISOLATE": True}) as there:
        for rows in (1, 3):
            given = np.linspace(-1, 1, 4 * rows, dtype="float32").reshape(rows, 4)
            np.testing.assert_array_equal(there(given)[0], here(given)[0])


# -- a device that breaks ----------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", ["query", "compile", "run"])
@pytest.mark.parametrize(
    ("how", "cause"),
    [
        ("abort", r"its process ended {doing} \(signal 6, SIGABRT\)"),
        ("exit", r"its process ended {doing} \(exit status 3\)"),
        ("sleep", r"it took more than 0\.5 s {doing}, and its process was ended"),
        ("hang", r"it took more than 0\.5 s {doing}, and its process was ended"),
        ("raise", r"ZeroDivisionError: by design"),
        ("mute", r"MuteError: \(its message cannot be read: ZeroDivisionError\)"),
        ("path", r"/nowhere: by design"),
    ],
)
@pytest.mark.thinned(4)
def test_a_device_that_breaks(
    stage: str, how: str, cause: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One error with cause, place and remedy; and what comes next is answered by a process that is started anew."""
    doing = {"query": "in query", "compile": "while it compiled", "run": "while it ran"}[stage]
    kind = {"query": pt.AcceleratorError, "compile": pt.CompileError, "run": pt.RunError}[stage]
    (switch := tmp_path / "broken").touch()
    in_haste_only(doing, monkeypatch)
    with pytest.raises(kind, match=cause.format(doing=doing)) as caught:
        compiled(f"{stage}:{how}:{switch}", seconds=0.5 if how in ("sleep", "hang") else 300)(A)
    assert how == "path" or "'fragile'" in str(caught.value.where)
    assert how in ("raise", "mute", "path") or caught.value.remedy
    switch.unlink()
    np.testing.assert_array_equal(compiled(f"{stage}:{how}:{switch}")(A)[0], A + 1)


@pytest.mark.parametrize("stage", ["query", "compile", "run"])
def test_a_device_that_ends_while_a_process_of_its_own_goes_on(stage: str, tmp_path: Path) -> None:
    """The other process holds the same files; the end of the device is noticed nevertheless, and ends it too."""
    (switch := tmp_path / "helper").touch()
    with pytest.raises(pt.AcceleratorError, match=r"its process ended [a-z ]+ \(exit status 3\)"):
        compiled(f"{stage}:fork:{switch}", seconds=300)(A)
    assert until(lambda: not is_running(int(switch.read_text())))


@pytest.mark.parametrize("own", [False, True])
def test_a_device_that_is_asked_directly(own: bool) -> None:
    """Its own configuration decides, whether the class has a `query` of its own or not."""
    name = "fragile-own" if own else "fragile"
    pt.register_accelerator(fragile.OwnQuery, replace=True)
    device = pt.accelerator(name)
    device.set_config({"ISOLATE": True})
    assert device.query(net()) == {"r": True}
    device.set_config({"BREAKS": "query:abort"})
    with pytest.raises(pt.AcceleratorError, match=r"its process ended in query \(signal 6, SIGABRT\)"):
        device.query(net())
    device.set_config({"ISOLATE": False, "BREAKS": "query:raise"})
    with pytest.raises(pt.AcceleratorError, match=f"of device '{name}': it raised ZeroDivisionError: by design"):
        device.query(net())
    pt.unregister_accelerator("fragile-own")


def test_an_answer_that_cannot_be_handed_over_is_an_error() -> None:
    useless = r"its answer is of no use: it holds object, which cannot be handed to another process"
    with compiled("rows", PERF_COUNT=True) as model, pytest.raises(pt.RunError, match=useless):
        model(A)


@pytest.mark.parametrize("seconds", [1e10, 0, float("inf")])
def test_a_time_that_nobody_can_wait(seconds: float) -> None:
    with pytest.raises(pt.BadConfig, match=r"ISOLATE_SECONDS cannot be .*\n.*Give a number of seconds, at most 9\.2"):
        compiled(seconds=seconds)


def test_a_backend_asks_in_the_child_too() -> None:
    """The device's own configuration decides where no other is given."""
    pt.accelerator("fragile").set_config({"ISOLATE": True, "BREAKS": "query:abort"})
    with pytest.raises(pt.PartitaError, match=r"its process ended in query \(signal 6, SIGABRT\)"):
        pt.apply_pass(net(), "PartitionGraph", backend="fragile")
    with pytest.raises(pt.AcceleratorError, match=r"its process ended in query \(signal 6, SIGABRT\)"):
        pt.query(net(), "fragile")


def test_the_model_goes_on_after_a_crash(tmp_path: Path) -> None:
    """The subgraph is compiled again in the next process, once; another model of the device too."""
    switch = tmp_path / "broken"
    with compiled(f"run:abort:{switch}") as model, compiled() as other:
        first = child_id()
        np.testing.assert_array_equal(model(A)[0], A + 1)
        switch.touch()
        for _ in range(2):
            with pytest.raises(pt.RunError, match="its process ended while it ran"):
                model(A)
        switch.unlink()
        np.testing.assert_array_equal(other(A)[0], A + 1)
        second = child_id()
        np.testing.assert_array_equal(model(A)[0], A + 1)
        assert first != second == child_id() and not is_running(first)


def test_another_device_takes_over() -> None:
    config = {"fragile": {"ISOLATE": True, "BREAKS": "compile:abort"}}
    with pt.compile(net(), "HETERO:fragile,reference", config=config) as model:
        np.testing.assert_array_equal(model(A)[0], np.maximum(A, 0))
        (move,) = model.report.moves
    assert move.to == {"r": "reference"} and "signal 6, SIGABRT" in move.reason


def test_a_process_that_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    end_processes()
    monkeypatch.setattr(processes, "COMMAND", [sys.executable, "-c", "import time; time.sleep(600)"])
    monkeypatch.setattr(processes, "STARTING", 0.2)
    with pytest.raises(pt.AcceleratorError, match=r"it took more than 0\.2 s while it was started"):
        compiled()
    monkeypatch.undo()
    compiled().close()


def test_a_constructor_that_ends_the_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARTITA_TEST_PARENT", str(os.getpid()))
    pt.register_accelerator(fragile.FragileStart)
    try:
        with pytest.raises(pt.AcceleratorError, match=r"its process ended while it was started \(signal 6, SIGABRT\)"):
            pt.compile(net(), "fragile-start", config={"ISOLATE": True})
    finally:
        pt.unregister_accelerator("fragile-start")


def test_a_class_that_no_other_process_finds() -> None:
    class Local(fragile.Fragile):
        name = "local"

    pt.register_accelerator(Local)
    try:
        result = r"its class .*Local cannot be found by another process\n  Define the class at the top level of a module"
        with pytest.raises(pt.AcceleratorError, match=result):
            pt.compile(net(), "local", config={"ISOLATE": True})
    finally:
        pt.unregister_accelerator("local")


def test_a_value_that_cannot_be_handed_over() -> None:
    compiled(ANY={"a": [1, (2.5, None)], "path": Path("/x")}).close()
    with pytest.raises(pt.BadConfig, match="ANY is function, which cannot be handed to another process"):
        compiled(ANY=lambda: 1)


# -- threads, forks, the end -------------------------------------------------------------------------------


def test_many_threads(tmp_path: Path) -> None:
    """Eight threads; meanwhile the child is killed now and then, which is one error each time, or none."""
    right, errors = [], []
    with compiled() as model, compiled(graph=net(shape=("N", 4))) as other:

        def work(number: int) -> None:
            for i in range(40):
                given = np.full((3, 4), number * 100.0 + i, "float32")
                try:
                    right.append(bool((model if i % 2 else other)(given)[0][0, 0] == given[0, 0] + 1))
                except pt.RunError as error:
                    errors.append(str(error))

        threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for _ in range(3):
            time.sleep(0.05)
            child = process_of("fragile", fragile.Fragile).current
            if child is not None:
                child.kill()
        for thread in threads:
            thread.join(300)
    assert all(right) and len(right) + len(errors) == 320 and len(errors) <= 6
    assert all("signal 9, SIGKILL" in error for error in errors)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")
def test_a_forked_process_starts_a_child_of_its_own() -> None:
    with compiled("who") as model:
        mine = model(A)[0][0, 0]
        pid = os.fork()
        if not pid:
            status = 2
            try:
                its = int(model(A)[0][0, 0])
                end_processes()
                status = 0 if its != mine and not is_running(its) else 1
            finally:
                os._exit(status)
        assert os.waitpid(pid, 0)[1] == 0
        assert model(A)[0][0, 0] == mine, "the parent's child is still there"


def test_subgraphs_that_nobody_uses_go() -> None:
    """The child keeps no more of them than there are."""
    compiled().close()
    child = process_of("fragile", fragile.Fragile).current
    assert child is not None
    models = [compiled() for _ in range(5)]
    del models
    gc.collect()
    assert len(child.dropped) > 1
    with compiled() as model:
        model(A)
        assert len(child.dropped) == 0


ENDING = """
import os, sys, threading, time
import numpy as np
import partita as pt
from partita.accelerators.interface.isolation.process import process_of
from tests.accelerators.isolation.fragile import Fragile
pt.register_accelerator(Fragile)
x = pt.variable("x", "float32", (3,))
g = pt.Graph([pt.op("Relu", x)])
m = pt.compile(g, "fragile", config={"ISOLATE": True, "BREAKS": sys.argv[1]})
print(process_of("fragile", Fragile).current.number, flush=True)
a = np.zeros(3, "float32")
if sys.argv[1]:
    threading.Thread(target=m, args=(a,), daemon=True).start()
    time.sleep(0.3)
"""


def started(breaks: str, then: str) -> tuple[subprocess.Popen[bytes], int]:
    """A process that uses a device in a child, and the child's number. What it prints later is not read ahead."""
    completed = subprocess.Popen(
        [sys.executable, "-c", ENDING + then, breaks], stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": ROOT},
    )
    assert completed.stdout is not None
    return completed, int(completed.stdout.readline())


@pytest.mark.parametrize("breaks", ["", "run:sleep", "run:hang"])
@pytest.mark.parametrize("then", ["os._exit(0)", "os.kill(os.getpid(), 9)", "time.sleep(600)"])
@pytest.mark.thinned(6)
def test_no_child_is_left_behind(breaks: str, then: str) -> None:
    """However the process ends, and whatever the device is doing: a hang that keeps the interpreter's lock too."""
    result, child = started(breaks, then)
    if "sleep" in then:
        time.sleep(0.4)
        result.send_signal(signal.SIGKILL)
    result.communicate(timeout=300)
    assert until(lambda: not is_running(child))


def test_the_end_of_the_interpreter_ends_the_child() -> None:
    result, child = started("", "m(a); print('done')")
    out, err = result.communicate(timeout=300)
    assert (out, err, result.returncode) == (b"done\n", b"", 0) and not is_running(child)


def test_an_interrupt_ends_the_child_and_the_next_call_is_right() -> None:
    then = """
m = pt.compile(g, "fragile", config={"ISOLATE": True, "BREAKS": "run:sleep:" + sys.argv[0] + "/../setup.cfg"})
open("/dev/stdout", "w").write("")
os.environ["X"] = "1"
import signal
path = os.path.join(os.getcwd(), "setup.cfg")
m = pt.compile(g, "fragile", config={"ISOLATE": True, "BREAKS": "run:sleep:" + path})
try:
    print("calling", flush=True)
    m(a)
except KeyboardInterrupt:
    n = pt.compile(g, "fragile", config={"ISOLATE": True})
    print("interrupted", n(a)[0].tolist(), flush=True)
"""
    result, child = started("", then)
    assert result.stdout is not None and result.stdout.readline() == b"calling\n"
    time.sleep(0.3)
    result.send_signal(signal.SIGINT)
    out, _ = result.communicate(timeout=300)
    assert out == b"interrupted [1.0, 1.0, 1.0]\n"
    assert until(lambda: not is_running(child))


def test_a_class_of_the_script_that_runs(tmp_path: Path) -> None:
    script = tmp_path / "mine.py"
    script.write_text("""
import os
import numpy as np
import partita as pt

class Mine(pt.Accelerator):
    name = "mine"
    def supports(self, node, graph): return True
    def compile(self, graph, config): return Compiled()

class Compiled(pt.CompiledSubgraph):
    def run(self, inputs, out=None): return [np.full_like(inputs[0], os.getpid())]

if __name__ == "__main__":
    pt.register_accelerator(Mine)
    x = pt.variable("x", "float64", (1,))
    m = pt.compile(pt.Graph([pt.op("Relu", x)]), "mine", config={"ISOLATE": True})
    print(int(m(np.zeros(1))[0][0]) != os.getpid())
""")
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": ROOT}
    )
    assert (done.stdout, done.stderr) == ("True\n", "")


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("device 'mine' in a process of its own", "query of device 'mine' in a process of its own"),
        ("device 'mine', node 'r'", "query of device 'mine', node 'r'"),
        ("device 'mine'", "query of device 'mine'"),
        (None, "query of device 'mine'"),
    ],
)
def test_the_place_of_an_error_names_hook_and_device_once(where: str | None, expected: str) -> None:
    def query(self: object) -> None:
        raise AcceleratorError("it is ill", where=where)

    with pytest.raises(AcceleratorError) as error:
        named(query, "query", Returns(), lambda _: "device 'mine'")(None)
    assert error.value.where == expected
