"""Threads: how many by default, several callers at once, and processes that fork."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import partita as pt
from partita.accelerators.process import cores
from partita.accelerators.tvm.code.linking import tools
from partita.accelerators.tvm.run.threads import Turns
from partita.onnxruntime_plugin.machine_code import SharedTurns, build

pytest.importorskip("tvm")

ROOT = Path(__file__).resolve().parents[3]
RNG = np.random.default_rng(2)


def product(columns: int) -> pt.Graph:
    """Enough work for several threads."""
    x = pt.variable("x", "float32", (64, 128))
    weight = RNG.standard_normal((128, columns)).astype("float32")
    return pt.Graph([pt.op("Relu", pt.op("MatMul", x, pt.constant(weight)))], inputs=[x])


def test_several_callers_of_the_same_and_of_other_models() -> None:
    configs = [{"NUM_THREADS": 2}, {"NUM_THREADS": 3}, {"NUM_THREADS": 1}, {}]
    models = [pt.compile(product(320 + 8 * i), "cpu", config=config) for i, config in enumerate(configs)]
    inputs = [RNG.standard_normal((64, 128)).astype("float32") for _ in range(4)]
    wanted = [[model(x)[0] for x in inputs] for model in models]

    def caller(number: int) -> bool:
        right = True
        for i in range(40):
            model, x = (number + i) % len(models), (number * i) % len(inputs)
            right &= np.array_equal(models[model](inputs[x])[0], wanted[model][x])
        return right

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(caller, range(8)))


def test_turns_are_taken_in_order_as_far_as_there_are_cores() -> None:
    turns, inside, most, order = Turns(4), [0], [0], []
    guard = threading.Lock()

    def runs(number: int, threads: int) -> None:
        with turns.turn(threads):
            with guard:
                order.append(number)
                inside[0] += threads
                most[0] = max(most[0], inside[0])
            if number == 0:
                while len(order) + len(turns._waiting) < 10:
                    time.sleep(0.001)
            time.sleep(0.02)
            with guard:
                inside[0] -= threads

    with ThreadPoolExecutor(16) as pool:
        for number, threads in enumerate([4, 2, 2, 3, 1, 4, 1, 1, 1, 1]):
            pool.submit(runs, number, threads)
            while len(order) + len(turns._waiting) <= number:
                time.sleep(0.001)
    assert most[0] == 4
    assert [sorted(order[a:b]) for a, b in ((0, 1), (1, 3), (3, 5), (5, 6), (6, 10))] == [[0], [1, 2], [3, 4], [5], [6, 7, 8, 9]]


@pytest.fixture(params=["Python", "machine code"])
def turns(request: pytest.FixtureRequest, tmp_path: Path) -> Turns:
    """Turns of two cores; those of machine code are in a library of their own."""
    if request.param == "Python":
        return Turns(2)
    programs = tools()
    if programs is None or not programs.compile or not build(tmp_path / "compute.so", *programs.compile):
        pytest.skip("needs a C compiler")
    return SharedTurns(ctypes.CDLL(str(tmp_path / "compute.so")), 2)


def test_more_threads_than_cores_are_one_turn(turns: Turns) -> None:
    with turns.turn(16):
        pass
    with turns.turn(2):
        pass


def test_a_run_within_a_run_does_not_wait_for_itself(turns: Turns) -> None:
    with turns.turn(2), turns.turn(2):
        pass
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(lambda _: turns.take(1), range(1))) == [None]


def test_runs_pause_while_a_process_forks(turns: Turns) -> None:
    """The one that has cores runs to its end, further ones wait, and the thread that pauses gives its own cores."""
    events = []

    def runs(name: str) -> None:
        with turns.turn(2):
            events.append(f"{name} begins")
            time.sleep(0.05)
            events.append(f"{name} ends")

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(runs, "first")
        while not events:
            time.sleep(0.001)
        turns.pause()
        events.append("pause")
        second = pool.submit(runs, "second")
        time.sleep(0.05)
        events.append("resume")
        turns.resume()
        first.result()
        second.result()
    assert events == ["first begins", "first ends", "pause", "resume", "second begins", "second ends"]
    turns.take(2)
    turns.pause()
    turns.resume()


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there are no such signals here")
def test_an_interrupt_leaves_the_cores_to_others(turns: Turns) -> None:
    """The main thread is interrupted at odd moments, most of all while it waits."""
    stop, interrupts = threading.Event(), [0]

    def interrupt(*_: object) -> None:
        interrupts[0] += 1  # Where Python throws the error away, as in a destructor, the loop below ends nevertheless.
        raise KeyboardInterrupt

    def runs() -> None:
        while not stop.is_set():
            with turns.turn(2):
                time.sleep(0.001)

    before = signal.signal(signal.SIGALRM, interrupt)
    others = [threading.Thread(target=runs) for _ in range(2)]
    for other in others:
        other.start()
    try:
        for i in range(200):
            with contextlib.suppress(KeyboardInterrupt):
                signal.setitimer(signal.ITIMER_REAL, 1e-4 * (1 + i % 40))
                while interrupts[0] <= i:
                    with turns.turn(1):
                        pass
    finally:
        signal.signal(signal.SIGALRM, before)
        stop.set()
        for other in others:
            other.join()
    with turns.turn(2):
        pass
    turns.pause()  # waits until all cores are free
    turns.resume()
    assert not turns._waiting and not turns._held


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_process_that_forks_while_another_thread_runs_the_model() -> None:
    code = """
import os, signal, sys, threading
import numpy as np
from tests.accelerators.tvm.test_threads import product, pt
m = pt.compile(product(512), "cpu", config={"CACHE_DIR": "off", "NUM_THREADS": 3})
x = np.ones((64, 128), "float32")
wanted, stop = m.start(x).result()[0], threading.Event()
def runs():
    while not stop.is_set():
        m(x)
other = threading.Thread(target=runs)
other.start()
codes = []
for _ in range(8):
    if os.fork() == 0:
        signal.alarm(240)
        os._exit(0 if all(np.array_equal(run(x)[0], wanted) for run in (m, m, lambda x: m.start(x).result())) else 1)
    codes.append(os.waitstatus_to_exitcode(os.wait()[1]))
stop.set()
other.join()
sys.exit(max(map(abs, codes)))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_process_that_forks() -> None:
    code = """
import os, signal, sys
import numpy as np
from tests.accelerators.tvm.test_threads import product, pt
m = pt.compile(product(512), "cpu", config={"CACHE_DIR": "off", "NUM_THREADS": 3})
x = np.ones((64, 128), "float32")
wanted = m(x)[0]
if os.fork() == 0:
    signal.alarm(240)
    os._exit(0 if all(np.array_equal(m(x)[0], wanted) for _ in range(3)) else 1)
assert np.array_equal(m(x)[0], wanted)
sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("name", "value", "wanted"), [("TVM_NUM_THREADS", "3", 3), ("OMP_NUM_THREADS", "5,2", 5)])
def test_a_user_may_say_how_many(name: str, value: str, wanted: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TVM_NUM_THREADS", raising=False)
    monkeypatch.setenv(name, value)
    assert cores.default_threads() == wanted


def test_as_many_threads_work_as_were_asked_for() -> None:
    code = """
from partita.accelerators.process.cores import default_threads, usable_cores
from partita.accelerators.tvm.run.runtime import function
from partita.accelerators.tvm.run.threads import set_tvm_threads
import os
for count in range(1, (os.cpu_count() or 1) + 1):
    set_tvm_threads(count)
    assert function("runtime.NumThreads")() == count, count
assert default_threads() == usable_cores()
"""
    bare = {key: value for key, value in os.environ.items() if key not in ("TVM_NUM_THREADS", "OMP_NUM_THREADS")}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, env=bare, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine of eight processors, two to a core, without limits."""
    for number in range(8):
        folder = tmp_path / "cpu" / f"cpu{number}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{number % 4},{number % 4 + 4}\n")
    monkeypatch.setattr(cores, "_CPUS", tmp_path / "cpu")
    monkeypatch.setattr(cores, "_ROOT", tmp_path / "groups")
    monkeypatch.setattr(cores, "_OWN", tmp_path / "own")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    for name in ("TVM_NUM_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    for cached in (cores._physical, cores._core, cores._quota):
        cached.cache_clear()
        monkeypatch.setattr(cores, cached.__name__, cached.__wrapped__)
    return tmp_path


@pytest.mark.parametrize(
    ("said", "count", "fast"),
    [
        ({"hw.perflevel0.physicalcpu": "6\n", "hw.physicalcpu": "8\n"}, 10, 6),
        ({"hw.physicalcpu": "8\n"}, 10, 8),
        ({"hw.perflevel0.physicalcpu": "1"}, 10, 1),
        ({"hw.perflevel0.physicalcpu": "0"}, 10, 1),
        ({"hw.perflevel0.physicalcpu": "many"}, 10, 10),
        ({}, None, 1),
        ({}, 1, 1),
    ],
)
def test_the_fast_cores_of_a_mac(monkeypatch: pytest.MonkeyPatch, said: dict[str, str], count: int | None, fast: int) -> None:
    def run(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, int(command[-1] not in said), said.get(command[-1], ""))

    monkeypatch.setattr(cores.subprocess, "run", run)
    monkeypatch.setattr(os, "cpu_count", lambda: count)
    assert cores._reported.__wrapped__() == fast


def test_of_two_threads_of_a_core_one(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cores.default_threads() == 4
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 2, 5}, raising=False)
    assert cores.default_threads() == 2


def test_all_but_one_core_are_without_both_threads_of_the_first(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cores.all_but_one_core() == {1, 2, 3, 5, 6, 7}
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {2, 6}, raising=False)
    assert cores.all_but_one_core() == frozenset()


def test_a_container_s_share(machine: Path) -> None:
    (machine / "own").write_text("0::/a/b\n")
    inner = machine / "groups" / "a" / "b"
    inner.mkdir(parents=True)
    (inner / "cpu.max").write_text("max 100000\n")
    assert cores.default_threads() == 4
    (inner.parent / "cpu.max").write_text("200000 100000\n")
    assert cores.default_threads() == 2


def test_a_container_s_share_in_the_older_system(machine: Path) -> None:
    (machine / "own").write_text("5:memory:/x\n4:cpu,cpuacct:/docker/x\n")
    folder = machine / "groups" / "cpu"
    folder.mkdir(parents=True)
    (folder / "cpu.cfs_quota_us").write_text("50000\n")
    (folder / "cpu.cfs_period_us").write_text("100000\n")
    assert cores.default_threads() == 1
