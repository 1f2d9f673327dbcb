"""Forks, interrupts and the end of the interpreter at random moments, while other threads call models."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.soak.children import HANG
from tests.soak.figures import Figures, rounds_for

ROOT = Path(__file__).parents[2]

CODE = """
import os, signal, sys, threading, time
import partita as pt
from tests.soak.nets import Net
device, way, pause = sys.argv[1], sys.argv[2], float(sys.argv[3])
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job begins with interrupts ignored
net = Net(5, 32)
where = {"forbid": {"Relu": "cpu"}} if device.startswith("HETERO") else {}
m = pt.compile(net.graph("N" if way == "sizes" else 3), device, **where)
assert net.is_right(m(net.x)[0])

def calls():
    while True:
        assert net.is_right(m(net.x)[0] if way != "requests" else m.start(net.x).result()[0])

for _ in range(6):
    threading.Thread(target=calls, daemon=True).start()
print("ready", flush=True)
time.sleep(pause)
if way in ("fork", "sizes"):
    for _ in range(4):
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            os._exit(0 if all(net.is_right(m(net.x)[0]) for _ in range(20)) and net.is_right(m.start(net.x).result()[0]) else 3)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status:
            sys.exit(f"the child ended with {status}")
if way == "interrupt":
    time.sleep(60)
"""

FORKING = ("cpu", "reference", "HETERO:cpu,reference")
"""What survives a fork; engines with threads of their own do not promise it."""

ENDING = (*FORKING, "onnxruntime", "openvino")


def attack(seconds: float, seed: int) -> Figures:
    """One process after the other."""
    figures, chance = Figures(), random.Random(seed)
    ways = ("fork", "end", "interrupt", "requests", "sizes")
    for number in rounds_for(seconds, at_least=len(ways)):
        way = ways[number % len(ways)]
        device = chance.choice(FORKING if way in ("fork", "sizes") else ENDING)
        one_process(figures, device, way, chance.random() * 0.3)
    return figures


def one_process(figures: Figures, device: str, way: str, pause: float) -> None:
    """A process that does one of these, and is held against what it should end with."""
    command = [sys.executable, "-c", CODE, device, way, str(pause)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    started = process.stdout.readline()
    if way == "interrupt" and started:
        time.sleep(pause)
        process.send_signal(signal.SIGINT)
    figures.tried += 1
    what = f"python -c CODE {device} {way} {pause}"
    try:
        _, result = process.communicate(timeout=HANG)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        figures.failed("hangs", what)
        return
    status = process.returncode
    expected = (-signal.SIGINT, 1, 130) if way == "interrupt" else (0,)
    if status not in expected or (way == "interrupt" and "KeyboardInterrupt" not in result):
        figures.failed("crashes" if status < 0 else "differences", f"{what}: status {status}: {result[-300:]}")
