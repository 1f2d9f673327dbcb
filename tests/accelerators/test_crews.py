"""Calls of a subgraph for any size run at the same time, whatever their sizes."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

import partita as pt
from partita.accelerators.building.replicas import MOST, SideBySide
from partita.accelerators.building.specialized import SpecializedSubgraph
from partita.accelerators.interface.accelerator import CompiledSubgraph
from tests.close import is_close

random = np.random.default_rng(4)


class Counted(CompiledSubgraph):
    """Counts how many of it there are; it may have no others."""

    def __init__(self, alone: bool = False, born: list[int] | None = None) -> None:
        self.alone = alone
        self.born = [] if born is None else born
        self.born.append(1)

    def run(self, inputs: Sequence[Any], out: Sequence[Any] | None = None) -> Sequence[Any]:
        return inputs

    def another(self) -> Counted | None:
        return None if self.alone else Counted(False, self.born)


def test_callers_do_not_wait_for_one_another() -> None:
    crew, together = SideBySide(Counted()), threading.Barrier(MOST, timeout=300)

    def call() -> int:
        with crew.lent() as mine:
            together.wait()  # Nobody leaves before all have come: those that took turns would wait here in vain.
            return id(mine)

    with ThreadPoolExecutor(MOST) as pool:
        assert len({job.result() for job in [pool.submit(call) for _ in range(MOST)]}) == MOST


def test_no_more_are_made_than_run_at_once() -> None:
    first = Counted()
    crew = SideBySide(first)
    for _ in range(5):
        with crew.lent() as one:
            assert one is first
    with crew.lent(), crew.lent():
        pass
    with crew.lent(), crew.lent():
        pass
    assert len(first.born) == 2

    def call(_: int) -> None:
        with crew.lent():
            pass

    with ThreadPoolExecutor(4 * MOST) as pool:
        list(pool.map(call, range(400)))
    assert len(first.born) <= MOST


def test_one_that_has_no_others_takes_turns() -> None:
    crew, inside = SideBySide(Counted(alone=True)), list[int]()

    def call(_: int) -> int:
        with crew.lent():
            inside.append(1)
            count = len(inside)
            inside.pop()
            return count

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(call, range(200))) == {1}


def test_a_forked_process_has_its_own() -> None:
    first = Counted()
    crew = SideBySide(first)
    with crew.lent() as one:
        assert one is first
        crew.renew()  # what a fork does
        with crew.lent() as own:
            assert own is first
    with crew.lent() as own, crew.lent() as other:
        assert own is first and other is not first, "what was borrowed before the fork is not given back to those after it"


def test_sizes_are_computed_at_the_same_time() -> None:
    x = pt.variable("x", "float32", ("N", 24))
    weight = random.standard_normal((24, 32)).astype(np.float32)
    model = pt.compile(pt.Graph([pt.op("Relu", pt.op("MatMul", x, pt.constant(weight)))]), "cpu")
    (unit,) = model.units
    assert isinstance(unit.compiled, SpecializedSubgraph) and unit.compiled.any_size is not None
    one = unit.compiled.any_size.compiled
    other = one.another()
    assert other is not None and other is not one
    data = {n: random.standard_normal((n, 24)).astype(np.float32) for n in (1, 5, 17, 64)}
    for given in data.values():
        np.testing.assert_array_equal(one.run([given])[0], other.run([given])[0])

    def call(number: int) -> bool:
        given = data[list(data)[number % len(data)]]
        return is_close(model(given)[0], np.maximum(given @ weight, 0), atol=1e-4)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(call, range(200)))
    assert unit.compiled.sizes == ()
