"""Each kernel is the one that is kept: a refactoring changes none, and what changes one is seen."""

from __future__ import annotations

from functools import cache

import pytest

pytest.importorskip("tvm")

from tests.accelerators.tvm.plan_graphs import GRAPHS
from tests.accelerators.tvm.planned import KEPT, line, machines_for


@cache
def kept() -> set[str]:
    return set(KEPT.read_text("utf-8").splitlines())


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.thinned(9)
def test_the_kernels_of_a_graph_are_those_that_are_kept(name: str) -> None:
    lines = [line(name, machine) for machine in machines_for(name)]
    assert not [one for one in lines if one not in kept()], "where this is meant: python -m tests.accelerators.tvm.planned"
