"""Calls of ever new sizes leave no memory behind."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

import partita as pt
from partita.accelerators.tvm.run.runtime import CALLS, LEAST, KeptMemory
from tests.accelerators.tvm.any_size import specialized


class Counted(KeptMemory):
    """One that counts how often the pool is emptied."""

    freed = 0

    def _free(self) -> None:
        super()._free()
        self.freed += 1


def resident() -> int:
    """The bytes of the process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def columns() -> pt.Graph:
    """A few large values between kernels."""
    x = pt.variable("x", "float32", ("N", 512))
    y = x[0]
    for axis in (0, 1, 0):
        y = pt.op("Softmax", y, axis=axis)[0]
    return pt.Graph([pt.op("ReduceMax", y, keepdims=0)], [x])


def test_a_pool_that_keeps_what_two_calls_need() -> None:
    kept = Counted()
    for _ in range(3):
        for size in range(CALLS):
            kept.note(size, LEAST)
    assert kept.freed == 0, "sizes that come again find their memory"
    kept.note("another", LEAST)
    assert kept.freed == 1
    kept.note("larger", CALLS * LEAST)
    kept.note("small", LEAST)
    assert kept.freed == 1, "the largest counts"


def test_small_sizes_stay_however_many_there_are() -> None:
    kept = Counted()
    for size in range(1000):
        kept.note(size, LEAST // 1000)
    assert kept.freed == 0


def test_calls_of_ever_new_sizes_take_no_more_memory() -> None:
    model, given = pt.compile(columns(), "cpu"), np.ones((2064, 512), np.float32)
    model(given)
    before = resident()
    for rows in range(2000, 2064):
        assert model(given[:rows].copy())[0] == pytest.approx(1 / rows)
    assert specialized(model).sizes == () and resident() - before < 200 << 20, "the sizes' values are 800 MB"


def test_memory_is_freed_while_others_run() -> None:
    model, wrong = pt.compile(columns(), "cpu"), list[int]()
    kept = specialized(model).any_size
    assert kept is not None

    def calls(first: int) -> None:
        for rows in range(first, first + 60):
            if abs(float(model(np.ones((rows, 512), np.float32))[0]) - 1 / rows) > 1e-6:
                wrong.append(rows)

    threads = [threading.Thread(target=calls, args=(first,)) for first in (1, 100, 200, 300)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        kept.compiled.let_go()
    assert wrong == []


def test_a_size_that_is_kept_no_more_frees_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    model, freed = pt.compile(columns(), "cpu", config={"ANY_SIZE": False}), list[int]()
    compiled = specialized(model)
    monkeypatch.setattr("partita.accelerators.building.specialized.KEPT", 1)
    monkeypatch.setattr("partita.accelerators.building.specialized.LONG", 60.0)
    monkeypatch.setattr("partita.accelerators.tvm.compiled.subgraph.kept_memory.free", lambda: freed.append(len(compiled.sizes)))
    for rows in (1, 2):
        model(np.ones((rows, 512), np.float32))
    assert freed == [1]


def test_a_pool_is_emptied_before_it_holds_more_than_the_least() -> None:
    kept = Counted()
    for size, needed in (("half", LEAST // 2), ("rest", LEAST - LEAST // 2)):
        kept.note(size, needed)
    assert kept.freed == 0
    kept.note("one", 1)
    assert kept.freed == 1
    kept.note("half", LEAST // 2)
    assert kept.freed == 1, "it was forgotten, and is counted again"
    kept.note("all", LEAST)
    assert kept.freed == 1, "two of the largest fit"
