"""The child process in which kernels are tried before they are compiled here."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import partita as pt
from partita.accelerators.errors import AcceleratorUnavailable, CompileError
from partita.accelerators.interface.registry import accelerator
from partita.accelerators.process import messages
from partita.accelerators.process.memory import Packing
from partita.accelerators.tvm.query import isolated_trials, support
from partita.accelerators.tvm.query.isolated_trials import TrialProcess
from partita.accelerators.tvm.run import opencl_driver

pytest.importorskip("tvm")

ROOT = Path(__file__).parents[3]


WORDS = """
def sleep(file):
    open(file, "w").close()
    time.sleep(600)
def answer(request):
    words = {"end": lambda: os._exit(0), "abort": os.abort, "sleep": lambda: sleep(request["file"])}
    return words.get(request.get("word"), lambda: f"{request.get('word')} by {os.getpid()}")()
"""
"""Answers each request with the request's word."""


@pytest.fixture
def trials(fake_trials: Callable[[str], TrialProcess]) -> TrialProcess:
    """A process of its own, whose child answers each request with the request's word and ends at the word "end"."""
    return fake_trials(WORDS)


def said(trials: TrialProcess, word: str) -> tuple[str, str]:
    """The word that comes back, and the child that said it."""
    answer, lasting = trials.ask({"word": word}, Packing(), 60)
    assert lasting and answer is not None
    first, _, process = answer.partition(" by ")
    return first, process


def test_one_child_answers_all_requests(trials: TrialProcess) -> None:
    first, second = said(trials, "a"), said(trials, "b")
    assert (first[0], second[0]) == ("a", "b") and first[1] == second[1] != str(os.getpid())


def test_a_child_that_ended_is_replaced(trials: TrialProcess) -> None:
    _, before = said(trials, "a")
    assert trials.current is not None
    trials.current.kill()
    trials.current._process.wait()
    word, after = said(trials, "b")
    assert word == "b" and after != before


def test_a_child_that_ends_by_itself_is_asked_again_once(trials: TrialProcess) -> None:
    assert trials.ask({"word": "end"}, Packing(), 60) == (isolated_trials.RETIRED, False)
    assert said(trials, "a")[0] == "a"


def test_a_crash_is_told_and_the_next_request_has_a_new_child(trials: TrialProcess) -> None:
    answer, lasting = trials.ask({"word": "abort"}, Packing(), 60)
    assert answer == "TVM's compiler died (signal 6, SIGABRT)" and not lasting
    assert said(trials, "a")[0] == "a"


def test_an_answer_that_nobody_waits_for_is_not_taken_for_the_next_one(
    trials: TrialProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    said(trials, "a")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(messages, "receive", interrupted)
        with pytest.raises(KeyboardInterrupt):
            trials.ask({"word": "late"}, Packing(), 60)
    assert said(trials, "b")[0] == "b"


def test_a_child_that_hangs_ends_with_its_parent(trials: TrialProcess, tmp_path: Path) -> None:
    """However the parent ends, the system closes its end of the pipe."""
    said(trials, "a")
    child = trials.current
    assert child is not None
    asleep = tmp_path / "asleep"
    thread = threading.Thread(target=trials.ask, args=({"word": "sleep", "file": str(asleep)}, Packing(), 600))
    thread.start()
    limit = time.monotonic() + 60
    while not asleep.exists() and time.monotonic() < limit:
        time.sleep(0.01)
    other = os.open(os.devnull, os.O_RDONLY)
    os.dup2(other, child._life)
    os.close(other)
    assert child._process.wait(60) == -signal.SIGKILL
    thread.join()


def test_ctrl_c_is_not_for_the_child(trials: TrialProcess) -> None:
    """A program that goes on after Ctrl-C, as servers do, would be told that TVM's compiler died of what was being tried."""
    _, process = said(trials, "a")
    assert os.getpgid(int(process)) == int(process) != os.getpgrp()


def test_where_no_process_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolated_trials, "COMMAND", ["/no/such/program"])
    answer, lasting = TrialProcess().ask({}, Packing(), 60)
    assert answer is not None and answer.startswith("no process can be started to try it in") and "ISOLATE: False" in answer
    assert not lasting


@pytest.mark.parametrize("device", ["cuda", "opencl"])
def test_what_tvm_schedules_for_a_gpu_is_tried_in_a_child_unless_told_otherwise(
    device: str, fake_trials: Callable[[str], TrialProcess]
) -> None:
    """The child crashes here. Kernels of ours do not need it; the op that TVM's own rules schedule is refused."""
    if device == "opencl":
        try:
            opencl_driver.drivers()
        except AcceleratorUnavailable as unavailable:
            pytest.skip(f"no OpenCL here: {unavailable.cause}")
    try:
        config = accelerator(device).full_config({})
    except AcceleratorUnavailable as unavailable:
        pytest.skip(f"no {device} here: {unavailable.cause}")
    assert config["ISOLATE"] is None and accelerator("cpu").full_config({})["ISOLATE"] is False
    x = pt.variable("x", "float32", (5, 7))
    ours = pt.Graph([pt.op("MatMul", x, pt.constant(np.ones((7, 3), "float32")), name="product")])
    theirs = pt.Graph([pt.op("Softmax", x, axis=0, name="softmax")])
    fake_trials("answer = lambda request: request and os.abort()")
    assert [kernel.schedule for kernel in accelerator(device).compile(ours, config).kernels()] == ["gpu_gemm"]
    with pytest.raises(CompileError, match=r"'softmax' \(Softmax\)[^$]*TVM's compiler died \(signal 6, SIGABRT\)"):
        accelerator(device).compile(theirs, config)
    support.forget()
    answers = accelerator(device).query(theirs)
    support.forget()
    assert answers == {"softmax": "TVM's compiler died (signal 6, SIGABRT)"}


@pytest.mark.slow
def test_half_precision_products_on_a_gpu_do_not_crash() -> None:
    """With apache-tvm-ffi 0.1.15 this ended Python by a signal, in TVM's Schedule.tensorize and in tvm.ir.save_json. And TVM read
    the sources of all callers for each of its 500 intrinsics, which took it 17 seconds."""
    code = """
import inspect
import partita as pt
frame_info, lines_read = inspect.getframeinfo, set()
def noted(frame, context=1):
    lines_read.add(context)
    return frame_info(frame, context)
inspect.getframeinfo = noted
from partita.accelerators.tvm.bodies.body import make_body
from partita.accelerators.tvm.lower.lowering import lower
from partita.accelerators.tvm.machine.library import tvm
from partita.accelerators.tvm.machine.machine import gpu_machine
x, y = (pt.variable(name, "float16", (128, 128)) for name in "xy")
lowered = lower(make_body(pt.Graph([pt.op("MatMul", x, y)])), gpu_machine("sm_80"))
assert tvm().ir.save_json(lowered.module)
print(*lowered.schedules.values(), len(lines_read))
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "dlight.Matmul 0"), done.stderr
