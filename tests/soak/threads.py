"""Many threads on one model, and many models at once: answers are right, and memory, threads and files stay flat."""

from __future__ import annotations

import gc
import threading
import time
from typing import Any

import numpy as np

import partita as pt
from partita.accelerators.interface.registry import accelerator
from tests.soak.children import files_open, resident
from tests.soak.figures import Figures, rounds_for
from tests.soak.nets import Net

THREADS = 64
MODELS = 100

GROWTH = 24 << 20
"""More bytes than this beyond those of the first round are a leak: allocators keep some."""

DEVICES = ("cpu", "onnxruntime", "openvino", "reference", "HETERO:cpu,reference")


def attack(seconds: float, seed: int, threads: int = THREADS, models: int = MODELS, calls: int = 400) -> Figures:
    """Threads on the model of each device that is here, then models that come and go; round by round."""
    figures = Figures()
    devices = [name for name in DEVICES if all(map(_is_here, name.removeprefix("HETERO:").split(",")))]
    ready: list[tuple[str, Net, pt.CompiledModel]] = []
    for number, name in enumerate(devices):
        net = Net(seed + number)
        ready.append((name, net, _compiled(net, name, 3)))
        if name == "cpu":
            ready.append(("cpu, sizes that vary", net, _compiled(net, name, "N")))
    before: tuple[int, int, int] | None = None
    for number in rounds_for(seconds, at_least=2):
        for name, net, model in ready:
            _call(figures, name, net, model, threads, calls)
        _come_and_go(figures, seed + number, models, devices[0])
        before = _flat(figures, before, number)
    return figures


def _is_here(name: str) -> bool:
    try:
        accelerator(name)
    except pt.AcceleratorUnavailable:
        return False
    return True


def _compiled(net: Net, name: str, rows: int | str) -> pt.CompiledModel:
    where: dict[str, Any] = {"forbid": {"Relu": "cpu"}} if name.startswith("HETERO") else {}
    return pt.compile(net.graph(rows), name, **where)


def _call(figures: Figures, name: str, net: Net, model: pt.CompiledModel, threads: int, calls: int) -> None:
    """Call the model from several threads, each with an input of its own; some of the calls are requests."""
    done, guard = [0, 0], threading.Lock()
    symbolic = not model.graph.inputs[0][0].type.is_static  # type: ignore[union-attr]

    def work(number: int) -> None:
        x = np.roll(net.x, number % 7, axis=1)
        x = x[: 1 + number % 3] if symbolic else x
        wanted = np.maximum(x @ net.weight, 0)
        right = wrong = 0
        for i in range(calls):
            result = model.start(x).result(300)[0] if i % 16 == 0 else model(x)[0]
            if np.array_equal(result, wanted):
                right += 1
            else:
                wrong += 1
        with guard:
            done[0] += right
            done[1] += wrong

    running = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(threads)]
    for thread in running:
        thread.start()
    end = time.monotonic() + 600
    for thread in running:
        thread.join(max(0.0, end - time.monotonic()))
    figures.calls += sum(done)
    if any(thread.is_alive() for thread in running):
        figures.failed("hangs", f"{threads} threads on {name} did not end in 600 s")
    elif done[0] != threads * calls:
        errors = threads * calls - sum(done)
        figures.failed("differences", f"{threads} threads on {name}: {done[1]} wrong answers, {errors} errors")


def _come_and_go(figures: Figures, seed: int, models: int, device: str) -> None:
    """Compile so many models at once, call each, and drop them all."""
    nets = [Net(seed * models + number, 8 + number % 5) for number in range(models)]
    alive = [pt.compile(net.graph(), device, config={"CACHE_DIR": "off"}) for net in nets]
    for _ in range(3):
        for net, model in zip(nets, alive, strict=True):
            figures.calls += 1
            if not net.is_right(model.start(net.x).result(300)[0]):
                figures.failed("differences", f"one of {models} models at once on {device}")
    figures.tried += models


def _flat(figures: Figures, before: tuple[int, int, int] | None, number: int) -> tuple[int, int, int]:
    """Compare memory, threads and open files with those after the first round."""
    gc.collect()
    end = time.monotonic() + 60  # Threads of request queues go after a second, or later on a busy machine.
    while time.monotonic() < end and any(thread.name.startswith("partita-request") for thread in threading.enumerate()):
        time.sleep(0.05)
    now = resident(), threading.active_count(), files_open()
    if before is None:
        return now
    for what, first, last, more in zip(("bytes", "threads", "files"), before, now, (GROWTH, 2, 2), strict=True):
        if last > first + more:
            figures.failed("leaks", f"{last - first} {what} more after round {number + 1} than after the first")
    return before
