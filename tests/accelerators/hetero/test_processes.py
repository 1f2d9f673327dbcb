"""Forks, interrupts and the interpreter's end while models run: nothing hangs, and nothing dies by a signal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import partita as pt
from partita.accelerators.interface.registry import accelerator
from tests.accelerators.hetero.small_devices import Ran, device
from tests.accelerators.package.models import ROOT

SECONDS = 300
"""A process that takes longer hangs."""

DEVICES = ("cpu", "onnxruntime", "openvino", "reference")


def usable(name: str) -> str:
    try:
        accelerator(name)
    except pt.AcceleratorUnavailable as error:
        pytest.skip(str(error))
    return name


def run(code: str, *args: str, stop_after: float | None = None) -> subprocess.CompletedProcess[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HEAD + code, *args], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        if stop_after is not None:
            assert process.stdout.readline() == "ready\n"
            time.sleep(stop_after)
            process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
        process.wait()
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


HEAD = """
import os, signal, sys, threading, time
import numpy as np
import partita as pt

def net(size=128, width=32):
    h = pt.variable("x", "float32", (width, size))
    for i in range(3):
        weight = np.random.default_rng(i).standard_normal((size, size), np.float32) / 16
        h = pt.op("Relu", pt.op("MatMul", h, pt.constant(weight, name=f"w{i}")))
    return pt.Graph([h], name="net")

x = np.ones((32, 128), "float32")
"""

DAEMONS = """
m = pt.compile(net(), sys.argv[1])
m(x)
def calls():
    while True:
        m(x)
for _ in range(6):
    threading.Thread(target=calls, daemon=True).start()
time.sleep(0.2)
"""


@pytest.mark.parametrize("name", DEVICES)
@pytest.mark.thinned(2)
def test_the_interpreter_ends_while_daemon_threads_call(name: str) -> None:
    """Without a door a thread that returned from an engine aborted the process: "terminate called", SIGABRT."""
    done = run(DAEMONS, usable(name))
    assert (done.returncode, done.stderr) == (0, "")


def test_the_interpreter_ends_while_daemon_threads_compile_and_profile() -> None:
    code = """
def compiles(size):
    while True:
        size += 1
        m = pt.compile(net(size), "cpu", config={"CACHE_DIR": "off"})
        m.profile()
for i in range(3):
    threading.Thread(target=compiles, args=(100 * (i + 1),), daemon=True).start()
time.sleep(1)
"""
    usable("cpu")
    done = run(code)
    assert done.returncode == 0, done.stderr


def test_a_function_that_runs_at_exit_may_call_a_model() -> None:
    code = """
import atexit
m = pt.compile(net(), sys.argv[1])
atexit.register(lambda: print(m(x)[0].shape))
def calls():
    while True:
        m(x)
threading.Thread(target=calls, daemon=True).start()
time.sleep(0.1)
"""
    done = run(code, usable("cpu"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "(32, 128)\n", "")


def test_the_interpreter_waits_for_requests_in_flight() -> None:
    code = """
m = pt.compile(net(), sys.argv[1], config={"HETERO": {"NUM_REQUESTS": 2, "QUEUE_SIZE": 50}})
for i in range(20):
    m.start(x).add_done_callback(lambda done: print(done.result()[0].shape, flush=True))
"""
    done = run(code, usable("cpu"))
    assert (done.returncode, done.stdout.count("(32, 128)"), done.stderr) == (0, 20, "")


@pytest.mark.parametrize("compiled", [
    "pt.compile(net(), 'cpu')",
    "pt.compile(net(), 'cpu', {'START': 'now', 'START_WITH': 'reference'}).wait()",
    "pt.compile_many([net()], 'cpu', workers=1)[0]",
], ids=["wait", "now", "many"])
def test_a_thread_that_outlives_the_main_one_compiles(compiled: str) -> None:
    """Python gives its pools no more threads then: "cannot schedule new futures after interpreter shutdown"."""
    code = f"""
def compiles():
    threading.main_thread().join()
    m = {compiled}
    print(m.properties.devices, m(x)[0].shape)
threading.Thread(target=compiles).start()
"""
    usable("cpu")
    done = run(code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "('cpu',) (32, 128)\n", "")


def test_a_function_that_runs_at_exit_may_compile() -> None:
    code = """
import atexit
atexit.register(lambda: print(pt.compile(net(), "cpu")(x)[0].shape))
"""
    usable("cpu")
    done = run(code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "(32, 128)\n", "")


@pytest.mark.parametrize("way", ["calls", "requests"])
def test_an_interrupt_ends_a_process_whose_model_runs(way: str) -> None:
    code = """
m = pt.compile(net(), sys.argv[1])
print("ready", flush=True)
if sys.argv[2] == "calls":
    while True:
        m(x)
while True:
    m.start(x)
"""
    done = run(code, usable("cpu"), way, stop_after=0.5)
    assert "KeyboardInterrupt" in done.stderr
    assert done.returncode in (1, -signal.SIGINT), done.stderr


# -- forks -----------------------------------------------------------------------------------------------------

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")


def answer_of_child(call) -> int:
    """The exit status of a forked process that calls; -14 if it hangs."""
    child = os.fork()
    if child == 0:
        signal.alarm(240)
        os._exit(0 if call() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class Slow(Ran):
    """Says when a thread is inside, and stays there until it is let out."""

    entered, leave = threading.Event(), threading.Event()
    here = os.getpid()

    def run(self, inputs, out=None):
        if os.getpid() == self.here:
            self.entered.set()
            assert self.leave.wait(300)
        self.inside = 0
        return super().run(inputs, out)


@forks
@pytest.mark.parametrize("shape", [(4,), ("N",)])
def test_a_fork_while_a_thread_is_inside_a_device_that_runs_one_at_a_time(shape) -> None:
    """The child's first call waited for ever for the lock that a thread of its parent held."""
    Slow.entered.clear(), Slow.leave.clear()
    graph = pt.Graph([pt.op("Relu", pt.variable("x", "float32", shape), name="y")])
    x = np.float32([-1, 0, 1, 2])
    with device("slow", subgraph_type=Slow, dynamic_shapes=False):
        m = pt.compile(graph, "slow")
        other = threading.Thread(target=m, args=(x,))
        other.start()
        assert Slow.entered.wait(300)
        status = answer_of_child(lambda: np.array_equal(m(x)[0], np.maximum(x, 0)))
        Slow.leave.set()
        other.join()
    assert status == 0


@forks
def test_a_fork_finds_each_guard_free() -> None:
    from partita.accelerators.process.forking import Guard

    for kind in (threading.Lock, threading.RLock):
        guard, held, done = Guard(kind), threading.Event(), threading.Event()

        def hold(guard=guard, held=held, done=done):
            with guard.lock:
                held.set()
                done.wait(300)

        other = threading.Thread(target=hold)
        other.start()
        held.wait(300)
        assert answer_of_child(lambda guard=guard: guard.lock.acquire(timeout=300)) == 0
        done.set()
        other.join()
        with guard.lock:
            pass


@forks
def test_a_fork_shares_no_lock_file_with_its_parent(tmp_path) -> None:
    """A lock file stays locked until all who share it have closed it: the child would wait for itself."""
    from partita.accelerators.store.store import Store

    store, held, done = Store(tmp_path / "here"), threading.Event(), threading.Event()

    def hold() -> None:
        with store.locked("ab" * 32):
            held.set()
            done.wait(300)

    def taken() -> bool:
        with store.locked("ab" * 32):
            return True

    other = threading.Thread(target=hold)
    other.start()
    assert held.wait(300)
    child = os.fork()
    if child == 0:
        signal.alarm(240)
        time.sleep(0.3)
        os._exit(0 if taken() else 1)
    done.set()
    other.join()
    assert taken()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_no_lock_is_outside_the_care_of_forks() -> None:
    """Each lock of ours is a Guard, belongs to one call alone, or is made anew by its holder's `renew`."""
    import ast

    makers = {"threading.Lock", "threading.RLock", "threading.Condition", "threading.Semaphore", "threading.BoundedSemaphore"}
    known = {
        "accelerators/process/forking.py", "accelerators/process/exit_barrier.py", "accelerators/tvm/run/threads.py",
        "accelerators/runtime/compiled_model.py", "accelerators/runtime/executor.py", "accelerators/runtime/requests.py",
        "accelerators/runtime/multi.py", "accelerators/tvm/compiled/subgraph.py", "accelerators/building/units.py",
        "passes/infer/onnx_inference.py", "accelerators/runtime/recording.py", "accelerators/runtime/pipeline.py",
        "accelerators/tvm/compiled/stepwise.py", "partita/mapping/processes.py", "accelerators/building/replicas.py",
        "accelerators/tvm/machine/tvm_errors.py", "accelerators/runtime/starting/work.py",
    }
    listed = set()
    for folder in ("partita", "accelerators", "partition", "passes", "graph"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.Attribute) and ast.unparse(node) in (*makers, "functools.cached_property"):
                    listed.add(path.relative_to(ROOT).as_posix())
                if isinstance(node, ast.ImportFrom) and any(alias.name == "cached_property" for alias in node.names):
                    listed.add(path.relative_to(ROOT).as_posix() + " (cached_property)")
    reentrant = {"interface/registry.py", "runtime/starting/file_model.py", "tvm/machine/library.py"}
    assert listed - known - {f"accelerators/{path}" for path in reentrant} == set()
