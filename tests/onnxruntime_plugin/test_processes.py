"""Dangers to the process, in processes of their own: random graphs, exits, threads, forks, signals."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("onnxruntime", reason="the extra [onnxruntime] is not installed")

from tests.onnxruntime_plugin.models import ROOT


def run(*command: str) -> subprocess.CompletedProcess[str]:
    whole = [sys.executable, "-X", "dev", "-W", "ignore::DeprecationWarning", *command]
    return subprocess.run(whole, cwd=ROOT, capture_output=True, text=True, check=False)


def check(script: str, devices: str = "reference", printed: str = "") -> None:
    """The script runs after a session `s` was made, without a warning."""
    ran = run("-c", BEGIN.replace("DEVICES", devices) + script)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, printed, "")


BEGIN = """
import atexit, gc, os, signal, sys, threading, time
import numpy as np, onnxruntime, partita as pt
from onnx import helper
from tests.onnxruntime_plugin.models import chain, model, session
name = pt.register_with_onnxruntime("Child", "DEVICES")
x = np.linspace(-2, 2, 24, dtype=np.float32).reshape(3, 8)
s = session(chain("Abs", "Sqrt", "Neg"), name)
run = lambda: s.run(None, {"x": x})[0]
wanted = run()
"""


def test_a_sample_of_random_graphs_has_no_refused_group() -> None:
    ran = run("-m", "tests.onnxruntime_plugin.random_graphs", "12")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


@pytest.mark.slow
def test_500_random_graphs_have_no_refused_group() -> None:
    ran = run("-m", "tests.onnxruntime_plugin.random_graphs", "500")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


BOTH = pytest.mark.parametrize("devices", ["reference", "cpu"])
"""With Python in each run, and without it."""


@BOTH
@pytest.mark.parametrize("end", ["sys.modules['kept'] = s", "atexit.register(run)", "raise SystemExit(0)"])
def test_the_interpreter_ends(end: str, devices: str) -> None:
    check(end, devices)


@BOTH
def test_daemon_threads_do_not_hinder_the_end(devices: str) -> None:
    """Before 3.13 Python ends threads that return to it, which ends the process in onnxruntime's own code, with any provider."""
    loops = (
        "def loop():\n    while True: run()\n"
        "for _ in range(4): threading.Thread(target=loop, daemon=True).start()\n"
        "time.sleep(0.2)\n"
    )
    ran = run("-c", BEGIN.replace("DEVICES", devices) + loops)
    assert ran.returncode == 0 or (ran.returncode == -6 and "terminate called without an active exception" in ran.stderr)


FORKS = """
mine = session(chain("Abs", "Sqrt", "Neg"), name)
for _ in range(2): mine.run(None, {"x": x})
ended = threading.Event()

def loop():
    while not ended.is_set(): run()

loops = [threading.Thread(target=loop) for _ in range(THREADS)]
for one in loops: one.start()
for _ in range(COUNT):
    child = os.fork()
    if not child: os._exit(0 if np.array_equal(mine.run(None, {"x": x})[0], wanted) else 3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
ended.set()
for one in loops: one.join()
child = os.fork()
if not child: os._exit(0 if np.array_equal(run(), wanted) else 3)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
"""Threads run a session while the process forks, and the children run another: a session has locks of onnxruntime's own, which
stay held in a child if a thread of the parent holds them, with any provider. The children end by os._exit: otherwise onnxruntime
waits for threads that they lack."""


@BOTH
def test_forked_processes_run_a_session(devices: str) -> None:
    check(FORKS.replace("THREADS", "3").replace("COUNT", "3"), devices)


@pytest.mark.slow
@BOTH
def test_500_forks_while_8_threads_run(devices: str) -> None:
    check(FORKS.replace("THREADS", "8").replace("COUNT", "500"), devices)


@BOTH
def test_sessions_leave_nothing(devices: str) -> None:
    """The memory of a later session is that of an earlier one."""
    check(SESSIONS.replace("COUNT", "30"), devices)


@pytest.mark.slow
@BOTH
def test_200_sessions_leave_nothing(devices: str) -> None:
    check(SESSIONS.replace("COUNT", "200"), devices)


SESSIONS = """
content = model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": ["n", 512]}, ["y"], {"w": np.ones((512, 512), "f")})
rows = np.ones((1, 512), "f")

def pages():
    with open("/proc/self/statm") as file: return int(file.read().split()[1])

for i in range(COUNT):
    made = session(content, name)
    for _ in range(2): assert made.run(None, {"x": rows})[0][0, 0] == 512
    del made
    gc.collect()
    if i == 9: first = pages(), len(os.listdir("/proc/self/fd")), threading.active_count()
now = pages(), len(os.listdir("/proc/self/fd")), threading.active_count()
assert now[0] < first[0] + 2000 and now[1:] == first[1:], (first, now)
"""


@BOTH
def test_signals_during_runs_are_errors_or_interrupts(devices: str) -> None:
    """A signal's exception is never lost so that a wrong result is returned."""
    check(SIGNALS, devices)


SIGNALS = """
sys.unraisablehook = lambda told: None
armed, interrupts, stopped = False, 0, 0

def alarm(*ignored):
    global armed
    if armed:
        armed = False
        raise KeyboardInterrupt

def interrupt(*ignored):
    global interrupts
    interrupts += 1

signal.signal(signal.SIGALRM, alarm)
signal.signal(signal.SIGINT, interrupt)
for i in range(300):
    armed = True
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0002 + i * 1e-6)
        while armed:
            result = run()
            assert np.array_equal(result, wanted)
    except KeyboardInterrupt:
        stopped += 1
    except Exception as error:
        assert "KeyboardInterrupt" in str(error) or "stopped Partita's provider" in str(error), error
        stopped += 1
assert stopped == 300, stopped
"""


def test_a_library_of_another_processor_is_told() -> None:
    import partita as pt
    from partita.onnxruntime_plugin.library import library_file

    with pytest.raises(pt.PartitaError, match="'riscv64' processor"):
        library_file("riscv64")


def test_a_value_of_too_many_dimensions_is_an_error() -> None:
    check(
        "texts = [helper.make_node('Cast', ['x'], ['t'], to=8), helper.make_node('Reshape', ['t', 's'], ['r']),\n"
        "         helper.make_node('Cast', ['r'], ['f'], to=1), helper.make_node('Relu', ['f'], ['y'])]\n"
        "info = helper.make_tensor_value_info\n"
        "graph = helper.make_graph(texts, 'deep', [info('x', 1, [4]), info('s', 7, ['k'])], [info('y', 1, None)])\n"
        "whole = helper.make_model(graph, opset_imports=[helper.make_opsetid('', 18)], ir_version=9).SerializeToString()\n"
        "quiet = onnxruntime.SessionOptions()\n"
        "quiet.log_severity_level = 4\n"
        "deep = onnxruntime.InferenceSession(whole, quiet, providers=[name, 'CPUExecutionProvider'])\n"
        "for rank in (65, 50_000):\n"
        "    try: deep.run(None, {'x': np.ones(4, 'float32'), 's': np.array([4] + [1] * (rank - 1))})\n"
        "    except Exception as error: print(f'input 0 has {rank} dimensions' in str(error))\n",
        printed="True\nTrue\n",
    )
