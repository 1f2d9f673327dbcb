"""A bounded queue, cancellation and time limits in each kind of model: each has a queue, or runs, of its own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import partita as pt
from partita.accelerators.runtime import requests
from partita.accelerators.runtime.starting.work import Starting
from partita.graph.interpret import interpret
from tests.accelerators.hetero.small_devices import Ran, device
from tests.accelerators.hetero.test_load import Clock

LONG = 300
"""Seconds after which a test that hangs is given up."""

KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("HETERO:gated,reference", {}),
    "pipeline": ("HETERO:gated,reference", {"PIPELINE": True}),
    "multi": ("MULTI:gated,beside", {}),
    "started": ("HETERO:gated,reference", {"START": "now", "START_WITH": "reference"}),
}
"""The devices of each kind of model, and what it is set to."""


class Gated:
    """A model whose calls wait at a gate, and the numbers that went through."""

    def __init__(self, model: pt.CompiledModel, gate: threading.Event, ran: list[float]) -> None:
        self.model, self.gate, self.ran = model, gate, ran

    def start(self, number: float) -> Future[Any]:
        """A request of this number."""
        return self.model.start(np.full(2, number, np.float32))

    def start_many(self) -> list[Future[Any]]:
        """Requests of 1, 2, 3 until the queue is full."""
        started: list[Future[Any]] = []
        with pytest.raises(pt.QueueFull, match="the queue is full"):
            while len(started) < 100:
                started.append(self.start(len(started) + 1))
        return started


@contextmanager
def gated(kind: str, **settings: Any) -> Iterator[Gated]:
    gate, ran = threading.Event(), list[float]()

    def run(self: Any, inputs: Any, out: Any = None) -> Any:
        assert gate.wait(LONG)
        ran.append(float(abs(inputs[0][0])))
        return interpret(self.graph, inputs)

    members = {"subgraph_type": type("Waiting", (Ran,), {"run": run, "concurrent": True})}
    devices, kind_settings = KINDS[kind]
    x = pt.variable("x", "float32", (2,))
    graph = pt.Graph([pt.op("Neg", pt.op("Abs", x, name="first"), name="second")], name="two")
    config = {"HETERO": {"NUM_REQUESTS": 2, "QUEUE_SIZE": 2, **kind_settings, **settings}}
    ops = None if kind == "multi" else "Abs"
    with device("gated", ops, **members), device("beside", **members), pt.compile(graph, devices, config) as model:
        if isinstance(model, Starting):
            model.wait(LONG)
        try:
            yield Gated(model, gate, ran)
        finally:
            gate.set()


def answer(future: Future[Any]) -> float:
    return float(future.result(LONG)[0][0])


@pytest.mark.parametrize("kind", KINDS)
def test_a_full_queue_refuses_and_all_that_it_took_are_answered(kind: str) -> None:
    with gated(kind, QUEUE_FULL="error") as load:
        started = load.start_many()
        load.gate.set()
        assert [answer(future) for future in started] == [-number for number in range(1, len(started) + 1)]
        assert answer(load.start(50)) == -50


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_cancelled_while_it_waits_never_runs(kind: str) -> None:
    with gated(kind, QUEUE_FULL="error") as load:
        started = load.start_many()
        assert started[-1].cancel()
        further = load.start(60)
        load.gate.set()
        kept = [future for future in started if not future.cancelled()]
        assert [answer(future) for future in kept] == [-number for number in range(1, len(kept) + 1)]
        assert answer(further) == -60
        assert float(len(started)) not in load.ran


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    stands = Clock()
    monkeypatch.setattr(requests, "time", stands)
    return stands


@pytest.mark.parametrize("kind", KINDS)
def test_a_request_ends_at_its_limit_and_the_model_serves_again(kind: str, clock: Clock) -> None:
    with gated(kind, REQUEST_SECONDS=0.2) as load:
        started = [load.start(number) for number in (1, 2, 3)]
        clock.run()
        for future in started:
            with pytest.raises(pt.RequestTimeout, match=r"start: it still (ran|waited) after 0.2 s"):
                future.result(LONG)
        clock.stop()
        load.gate.set()
        assert answer(load.start(70)) == -70
