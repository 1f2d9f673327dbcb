"""START=now where sizes are open: each size is compiled behind the calls, while a device that takes any size answers."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

import partita as pt
from partita.accelerators import CompiledSubgraph
from partita.accelerators.building.specialized import KEPT
from partita.graph.readers.text import parse
from tests.accelerators.hetero.small_devices import Small, device

ANY = parse("graph net(x: float32[N, 3]) -> (y) { a = Relu(x)\n y = Exp(a) }")
NOW = {"HETERO": {"START": "now", "START_WITH": "reference"}}


class Gate:
    """Counts the sizes that are being compiled, none of which ends before it is opened."""

    def __init__(self) -> None:
        self.begun: list[object] = []
        self.opened = threading.Event()


@pytest.fixture
def gate():
    gate = Gate()
    yield gate
    gate.opened.set()


@pytest.fixture
def sized(gate):
    """A device that compiles each size once the gate is open."""

    def compile_late(self, graph, config):
        gate.begun.append(graph.inputs[0][0].type.shape)
        assert gate.opened.wait(300)
        return Small.compile(self, graph, config)

    with device("sized", compile=compile_late) as plugin:
        type(plugin).dynamic_shapes = False
        yield plugin


def of_rows(rows: int) -> np.ndarray:
    return np.arange(rows * 3, dtype=np.float32).reshape(rows, 3) / (rows * 3)


def right(model, rows: int) -> bool:
    return np.allclose(model(of_rows(rows))[0], np.exp(of_rows(rows)))


def until(condition) -> None:
    waiting = threading.Event()
    while not condition():
        waiting.wait(0.001)


def sizing_threads() -> int:
    return sum(thread.name == "partita-size" for thread in threading.enumerate())


def test_another_size_with_each_call(sized, gate) -> None:
    before = sizing_threads()
    model = pt.compile(ANY, "sized", NOW).wait(300)
    assert all(right(model, rows) for rows in range(1, 101))
    compiled = model.units[0].compiled
    assert sizing_threads() - before == 1 and compiled.stood_in == 100
    gate.opened.set()
    until(lambda: compiled.sizes)
    assert gate.begun == [(1, 3)] and right(model, 1) and compiled.stood_in == 100
    for rows in range(2, 2 * KEPT):
        until(lambda: not compiled._at_work)
        assert right(model, rows)
    until(lambda: not compiled._at_work)
    assert len(compiled.sizes) == KEPT
    assert all(right(model, rows) for rows in range(1, 2 * KEPT))


def test_a_size_that_does_not_compile_makes_room_for_others(sized, gate, monkeypatch) -> None:
    def broken(self, graph, config):
        raise RuntimeError("no such size")

    model = pt.compile(ANY, "sized", NOW).wait(300)
    monkeypatch.setattr(Small, "compile", broken)
    gate.opened.set()
    compiled = model.units[0].compiled
    for rows in range(1, 3 * KEPT):
        assert right(model, rows)
        until(lambda: not compiled._at_work)
    assert len(compiled._kept) <= KEPT
    with pytest.warns(UserWarning, match="does not compile for .* and runs otherwise"):
        assert right(model, 3 * KEPT - 1)


def test_a_device_that_answers_for_open_sizes_runs_one_call_at_a_time(sized) -> None:
    class Alone(CompiledSubgraph):
        """Says when two threads are inside."""

        def __init__(self, graph):
            self.inside = threading.Lock()

        def run(self, inputs, out=None):
            assert self.inside.acquire(blocking=False), "two threads are in one subgraph"
            time.sleep(0.001)
            self.inside.release()
            return [np.exp(inputs[0])]

    with device("first", subgraph_type=Alone):
        model = pt.compile(ANY, "sized", {"HETERO": {"START": "now", "START_WITH": "first"}}).wait(300)
        wrong: list[object] = []

        def call(rows: int) -> None:
            try:
                wrong.extend(count for count in range(20) if not right(model, rows))
            except pt.RunError as error:
                wrong.append(error)

        threads = [threading.Thread(target=call, args=(rows,)) for rows in range(1, 5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []
