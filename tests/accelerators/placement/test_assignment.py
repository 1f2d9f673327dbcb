"""Assignments of least cost: exact against all assignments, and against an integer program."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from partita.accelerators.placement import assignment
from partita.accelerators.placement.assignment import Assigner, AssignmentProblem, cut
from tests.accelerators.placement.problems import assignments, problem

DATA = Path(__file__).resolve().parents[4] / "shared" / "data" / "placement"


@pytest.mark.parametrize("seed", range(200))
def test_small_problems_are_solved_exactly(seed: int) -> None:
    rng = np.random.default_rng(seed)
    devices = int(rng.integers(2, 4))
    one = problem(rng, int(rng.integers(1, 7)), devices)
    least = min(one.cost(chosen) for chosen in assignments(*one.times.shape))
    (solved,) = Assigner(one).solve(one.times[np.newaxis])
    assert (solved.bound, one.cost(solved.chosen)) == (least, least)


@pytest.mark.parametrize("seed", range(100))
def test_cut_of_two_devices_is_exact_for_wide_graphs_too(seed: int) -> None:
    rng = np.random.default_rng(seed)
    one = problem(rng, int(rng.integers(1, 10)), 2, near=9)
    least = min(one.cost(chosen) for chosen in assignments(*one.times.shape))
    solved = cut(one.times, one.charges())
    assert (solved.bound, one.cost(solved.chosen)) == (least, least)


@pytest.mark.parametrize("seed", range(60))
def test_bound_of_expansion_moves_holds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    one = problem(rng, int(rng.integers(1, 6)), int(rng.integers(3, 5)), near=9)
    least = min(one.cost(chosen) for chosen in assignments(*one.times.shape))
    solved = Assigner(one)._expanded(one.times)
    assert solved.bound <= least <= one.cost(solved.chosen) <= 1.5 * least


def test_wide_graph_of_two_devices_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    one = problem(np.random.default_rng(3), 60, 2)
    (narrow,) = Assigner(one).solve(one.times[np.newaxis])
    monkeypatch.setattr(assignment, "elimination", lambda sizes, pairs: None)
    (wide,) = Assigner(one).solve(one.times[np.newaxis])
    assert one.cost(wide.chosen) == wide.bound == narrow.bound


def test_thousands_of_nodes_on_three_devices_are_placed_exactly() -> None:
    one = problem(np.random.default_rng(0), 3000, 3)
    (solved,) = Assigner(one).solve(one.times[np.newaxis])
    assert one.cost(solved.chosen) == pytest.approx(solved.bound, rel=1e-12)


def costed(path: Path) -> AssignmentProblem:
    """A graph of the repository msr-fiddle/dnn-partitioning, on a processor and one accelerator."""
    data = json.loads(path.read_text())
    numbers = {node["id"]: i for i, node in enumerate(data["nodes"])}
    times = np.array([[n["cpuLatency"], n["fpgaLatency"] if n["supportedOnFpga"] else np.inf] for n in data["nodes"]], float)
    readers, costs = defaultdict(set), defaultdict(float)
    for edge in data["edges"]:
        source = numbers[edge["sourceId"]]
        readers[source].add(numbers[edge["destId"]])
        costs[source] = max(costs[source], edge["cost"])
    tables = np.array([[[0.0, costs[one]], [costs[one], 0.0]] for one in readers])
    return AssignmentProblem(times, np.array(list(readers)), [tuple(sorted(nodes)) for nodes in readers.values()], tables)


@pytest.mark.skipif(not DATA.is_dir(), reason="the costed graphs are not here")
def test_costed_graphs_have_no_gap_to_an_integer_program() -> None:
    optimize = pytest.importorskip("scipy.optimize")
    sparse = pytest.importorskip("scipy.sparse")
    paths = sorted(DATA.glob("*.json"))
    assert len(paths) == 16
    for path in paths:
        one = costed(path)
        count, tensors = len(one.times), len(one.readers)
        first, second = np.where(np.isfinite(one.times), one.times, 1e9).T
        cost = np.concatenate([second - first, one.hand_overs[:, 0, 1]])  # x: on the second device; z: handed over
        rows = []
        for i, (producer, nodes) in enumerate(zip(one.producers.tolist(), one.readers)):
            rows += [(producer, node, count + i) for node in nodes] + [(node, producer, count + i) for node in nodes]
        entries = [(r, c, v) for r, (a, b, z) in enumerate(rows) for c, v in ((z, 1.0), (a, -1.0), (b, 1.0))]
        numbers, columns, values = zip(*entries)
        matrix = sparse.csr_array((values, (numbers, columns)), shape=(len(rows), count + tensors))
        solved = optimize.milp(
            cost, integrality=np.ones(count + tensors), bounds=optimize.Bounds(0, 1),
            constraints=optimize.LinearConstraint(matrix, 0), options={"mip_rel_gap": 0},
        )
        (ours,) = Assigner(one).solve(one.times[np.newaxis])
        theirs = one.cost(np.round(solved.x[:count]).astype(np.intp))  # solved.fun is of variables that are nearly integers
        assert one.cost(ours.chosen) == pytest.approx(theirs, rel=1e-6), path.name
        assert ours.bound == pytest.approx(one.cost(ours.chosen), rel=1e-9), path.name


@pytest.mark.slow
def test_thousands_of_graphs_on_two_devices_are_solved_exactly() -> None:
    for seed in range(2000):
        rng = np.random.default_rng(seed)
        one = problem(rng, int(rng.integers(1, 9)), 2, near=int(rng.integers(1, 9)))
        least = min(one.cost(chosen) for chosen in assignments(*one.times.shape))
        for solved in (*Assigner(one).solve(one.times[np.newaxis]), cut(one.times, one.charges())):
            assert (solved.bound, one.cost(solved.chosen)) == (least, least), seed


@pytest.mark.slow
@pytest.mark.parametrize("nodes, seconds", [(1000, 0.2), (50_000, 10.0)])
def test_time_of_large_graphs(nodes: int, seconds: float) -> None:
    one = problem(np.random.default_rng(0), nodes, 2)
    start = time.process_time()
    (solved,) = Assigner(one).solve(one.times[np.newaxis])
    assert time.process_time() - start < seconds
    assert one.cost(solved.chosen) == pytest.approx(solved.bound, rel=1e-12)
