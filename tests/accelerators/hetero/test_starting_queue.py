"""START=now: many models at once are compiled one after another, as many at a time as cores and memory allow."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import partita as pt
from partita.accelerators.interface.isolation import background_worker
from partita.accelerators.process.compile_slots import Places
from partita.graph.readers.text import parse
from tests.accelerators.package.models import ROOT
from tests.waiting import is_running, until

NET = parse("graph net(x: float32[2, 3]) -> (y) { a = Relu(x)\n y = Exp(a) }")
NOW = {"HETERO": {"START": "now", "START_WITH": "reference"}}
X = np.arange(-3, 3, dtype=np.float32).reshape(2, 3)
Y = np.exp(np.maximum(X, 0))


@pytest.fixture
def alone(monkeypatch) -> Places:
    """A queue with a single place."""
    queue = Places(lambda: 1, lambda: None)
    monkeypatch.setattr(background_worker, "places", queue)
    return queue


def begun(count: int, queue: Places) -> list[pt.CompiledModel]:
    """Models of which one is being compiled, and the others wait in this order."""
    models: list[pt.CompiledModel] = []
    while len(models) < count:
        models.append(pt.compile(NET.evolve(name=f"net{len(models)}"), "HETERO:cpu,reference", NOW))
        assert np.array_equal(models[-1](X)[0], Y)
        assert until(lambda: len(queue._inside) == 1 and len(queue._waiting) == len(models) - 1)
    return models


def numbers(standing) -> list[int]:
    """The processes that there are."""
    return [shop.current.number for shop in standing if shop.current is not None]


def test_one_at_a_time(alone, standing) -> None:
    models = begun(4, alone)
    assert until(lambda: len(numbers(standing)) == 1)
    first = numbers(standing)[0]
    models[2].close()
    with pytest.raises(pt.RunError, match="the model is closed"):
        models[2].wait(300)
    assert numbers(standing) == [first] and is_running(first)
    del models[1]
    assert until(lambda: len(alone._waiting) == 1) and numbers(standing) == [first]
    models[0].close()
    assert until(lambda: numbers(standing) not in ([], [first])) and not is_running(first)
    assert np.array_equal(models[-1](X)[0], Y) and not models[-1].ready.done()
    models[-1].close()


@pytest.mark.slow
def test_all_of_a_queue_become_ready(alone, workshops) -> None:
    for model in begun(3, alone):
        assert model.wait(300).properties.devices == ("cpu",) and np.allclose(model(X)[0], Y, rtol=1e-6)
    assert not alone._inside and not alone._waiting


def test_what_hangs_is_ended_and_the_next_has_its_place(alone, workshops, monkeypatch) -> None:
    new_child = background_worker.Workshop.new_child

    def first_hangs(workshop: background_worker.Workshop):
        child = new_child(workshop)
        if workshop is workshops[0]:
            os.kill(child.number, signal.SIGSTOP)
        return child

    monkeypatch.setattr(background_worker.Workshop, "new_child", first_hangs)
    with pytest.warns(UserWarning, match="reference goes on"):
        hangs = pt.compile(NET, "cpu", {"HETERO": {**NOW["HETERO"], "START_SECONDS": 1}})
        assert np.array_equal(hangs(X)[0], Y) and until(lambda: bool(alone._inside))
        follows = pt.compile(NET.evolve(name="follows"), "cpu", NOW)
        assert np.array_equal(follows(X)[0], Y)
        with pytest.raises(pt.PartitaError, match=r"it took more than 1 s .*, and its process was ended\n.*START_SECONDS"):
            hangs.wait(300)
    assert follows.wait(300).properties.devices == ("cpu",) and np.array_equal(hangs(X)[0], Y)


def test_a_size_waits_for_its_turn_and_an_idle_process_makes_room(alone, workshops, monkeypatch) -> None:
    monkeypatch.setattr("partita.accelerators.tvm.device.TvmAccelerator.any_size", lambda *given: "each size by itself")
    dynamic = parse("graph any(x: float32[N, 3]) -> (y) { a = Relu(x)\n y = Exp(a) }")
    model = pt.compile(dynamic, "HETERO:cpu,reference", NOW).wait(300)
    compiled = model.units[0].compiled
    assert np.allclose(model(X)[0], Y, rtol=1e-6) and until(lambda: bool(compiled.sizes)) and not alone._inside
    assert until(lambda: workshops[0].current is not None)
    with alone.place(background_worker.SlotSeeker(), 0):
        assert np.allclose(model(X[:1])[0], Y[:1], rtol=1e-6)
        assert until(lambda: alone.is_wanted) and len(compiled.sizes) == 1
        workshops[0].rest()
        assert workshops[0].current is None
    assert until(lambda: len(compiled.sizes) == 2) and np.allclose(model(X[:1])[0], Y[:1], rtol=1e-6)


ENDS = """
import numpy as np, partita as pt
from partita.graph.readers.text import parse
models = []
for number in range(3):
    net = parse(f"graph net{number}(x: float32[2, 3]) -> (y) {{ y = Exp(x) }}")
    models.append(pt.compile(net, "cpu", {"START": "now", "START_WITH": "reference"}))
    print(models[-1](np.zeros((2, 3), np.float32))[0].sum())
"""


def test_a_process_ends_while_models_wait() -> None:
    pytest.importorskip("tvm")
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", ENDS]
    begin = time.monotonic()
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "6.0\n6.0\n6.0\n", "") and time.monotonic() - begin < 300
