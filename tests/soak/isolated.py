"""A device in a child process that crashes, hangs or is killed at random: each call is a right answer or one error."""

from __future__ import annotations

import random
import threading
import time

import numpy as np

import partita as pt
from partita.accelerators.interface.isolation.process import end_processes, process_of
from tests.accelerators.isolation.fragile import Fragile
from tests.soak.children import files_open
from tests.soak.figures import Figures, rounds_for

STAGES = ("query", "compile", "run")
WAYS = ("", "abort", "exit", "raise", "sleep", "hang")

THREADS = 4
CALLS = 20

X = np.arange(12, dtype="float32").reshape(3, 4)


def attack(seconds: float, seed: int) -> Figures:
    """A break of each kind at each stage, and calls by several threads whose child is killed."""
    figures, chance = Figures(), random.Random(seed)
    kinds = [(stage, way) for stage in STAGES for way in WAYS]
    pt.register_accelerator(Fragile, replace=True)
    before = 0
    try:
        for number in rounds_for(seconds, at_least=len(kinds)):
            _broken(figures, *kinds[number % len(kinds)])
            _killed(figures, chance)
            if number == len(kinds):
                before = files_open()
            elif before and files_open() > before + 4:
                figures.failed("leaks", f"{files_open() - before} files more after round {number}")
    finally:
        end_processes()
        pt.unregister_accelerator("fragile")
    return figures


def _model(breaks: str, seconds: float) -> pt.CompiledModel:
    x = pt.variable("x", "float32", X.shape)
    graph = pt.Graph([pt.op("Relu", x, name="r")], name="net")
    return pt.compile(graph, "fragile", config={"ISOLATE": True, "ISOLATE_SECONDS": seconds, "BREAKS": breaks})


def _broken(figures: Figures, stage: str, way: str) -> None:
    """One error that names the device, in time."""
    figures.tried += 1
    start = time.monotonic()
    try:
        result = _model(f"{stage}:{way}", 0.3 if way in ("sleep", "hang") else 60.0)(X)[0]
        if way or not np.array_equal(result, X + 1):
            figures.failed("differences", f"a device that breaks ({way} in {stage}) gives {result}")
    except pt.AcceleratorError as error:
        if not way or "'fragile'" not in str(error):
            figures.failed("differences", f"{way} in {stage} is told as: {error}")
    figures.calls += 1
    if time.monotonic() - start > 60:
        figures.failed("hangs", f"{way} in {stage} took {time.monotonic() - start:.0f} s")


def _killed(figures: Figures, chance: random.Random) -> None:
    """Threads call; the child is killed once."""
    wrong: list[str] = []

    def work(number: int) -> None:
        for i in range(CALLS):
            given = X + number * CALLS + i
            try:
                if not np.array_equal(model(given)[0], given + 1):
                    wrong.append("another answer")
            except pt.RunError as error:
                if "SIGKILL" not in str(error):
                    wrong.append(str(error))

    model = _model("", 60.0)
    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    time.sleep(chance.random() * 0.02)
    child = process_of("fragile", Fragile).current
    if child is not None:
        child.kill()
        figures.kills += 1
    for thread in threads:
        thread.join(120)
    while child is not None and child.is_alive:  # else the next round would meet a process that is about to end
        time.sleep(0.001)
    if any(thread.is_alive() for thread in threads):
        figures.failed("hangs", "threads did not end after their device's process was killed")
    for line in wrong:
        figures.failed("differences", f"after a kill: {line}")
    figures.calls += THREADS * CALLS
    figures.tried += 1
