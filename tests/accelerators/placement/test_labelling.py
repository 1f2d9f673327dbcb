"""Dynamic programming over labels: assignments and bounds against all assignments, with little space too."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from partita.accelerators.placement import labelling
from partita.accelerators.placement.assignment import AssignmentProblem
from partita.accelerators.placement.fitting import Fitting
from partita.accelerators.placement.labelling import Labelling, Resources
from tests.accelerators.placement.problems import assignments, equal_layers, problem

DATA = Path(__file__).resolve().parents[4] / "shared" / "data" / "placement"


def drawn(seed: int) -> tuple[AssignmentProblem, Resources, float]:
    """A problem with limits, of one load or of one for each device, and the least cost of all assignments within them."""
    rng = np.random.default_rng(seed)
    nodes, devices = int(rng.integers(2, 7)), int(rng.integers(2, 5))
    one, shares = problem(rng, nodes, devices), rng.integers(0, 100, nodes).astype(float)
    if rng.random() < 0.6:
        one, shares = equal_layers(rng, nodes, devices)
    limits = np.full(devices, float(rng.integers(60, 400)))
    limits[rng.random(devices) < 0.3] = np.inf
    loads = np.eye(devices) if rng.random() < 0.5 else np.ones((1, devices))
    busy = rng.integers(0, 3, len(loads)).astype(float)
    within = [c for c in assignments(nodes, devices) if (np.bincount(c, shares, devices) <= limits).all()]
    least = min(((loads @ one.loads(c) + busy).max() for c in within if one.cost(c) < np.inf), default=np.inf)
    factors = np.repeat(loads[:, np.newaxis], nodes, axis=1)
    return one, Resources(factors, busy, shares, limits, np.zeros(nodes)), least


def checked(seed: int, most: int, merge: bool) -> bool:
    """Checks the bound and the assignments of one pass. True if no label was dropped or merged."""
    one, resources, least = drawn(seed)
    made = Labelling(one, resources)
    assert made.bound <= least * (1 + 1e-9), seed
    found = made.search(most, np.inf, merge)
    assert found.bound <= least * (1 + 1e-9), seed
    if found.is_exact:
        assert found.bound == pytest.approx(least), seed
    for chosen in () if merge else found.chosen:
        held = np.bincount(chosen, resources.shares, one.times.shape[1])
        assert (held <= resources.limits).all() and one.cost(chosen) < np.inf, seed
    if found.is_exact and np.isfinite(least):
        loads = resources.factors[:, 0] @ one.loads(found.chosen[0]) + resources.busy
        assert loads.max() == pytest.approx(least), seed
    return found.is_exact


@pytest.mark.parametrize("merge", [False, True])
@pytest.mark.parametrize("most", [4, 1000])
def test_bounds_hold_and_passes_with_space_enough_are_exact(most: int, merge: bool) -> None:
    exact = [checked(seed, most, merge) for seed in range(24)]
    assert all(exact) if most == 1000 else not all(exact)


def test_bounds_hold_where_labels_are_bounded_by_a_smaller_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labelling, "MOST_STATES", 40)
    assert all(checked(seed, 1000, False) for seed in range(20))


def test_labels_of_other_states_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labelling, "LEADERS", 2)
    assert all(checked(seed, 1000, False) for seed in range(24))


def costed(name: str, accelerators: int) -> tuple[AssignmentProblem, np.ndarray, float]:
    """A graph of the repository msr-fiddle/dnn-partitioning on a processor and equal accelerators, its bytes, and the limit."""
    data = json.loads((DATA / f"{name}.json").read_text())
    numbers = {node["id"]: i for i, node in enumerate(data["nodes"])}
    times = np.array([[node["cpuLatency"], *[node["fpgaLatency"]] * accelerators] for node in data["nodes"]])
    readers, costs = defaultdict(set), defaultdict(float)
    for edge in data["edges"]:
        source = numbers[edge["sourceId"]]
        readers[source].add(numbers[edge["destId"]])
        costs[source] = max(costs[source], edge["cost"])
    tables = np.array([costs[one] * (1 - np.eye(accelerators + 1)) for one in readers])
    one = AssignmentProblem(times, np.array(list(readers)), [tuple(sorted(nodes)) for nodes in readers.values()], tables)
    return one, np.array([node["size"] for node in data["nodes"]]), data["maxSizePerFPGA"]


@pytest.mark.skipif(not DATA.is_dir(), reason="the costed graphs are not here")
@pytest.mark.parametrize("name, accelerators, least", [
    ("latency_layers_bert24", 2, 220.28218970), ("latency_layers_bert24", 3, 96.31225), ("latency_layers_resnet50", 2, None),
])
def test_costed_layers_are_placed_exactly_on_equal_accelerators(name: str, accelerators: int, least: float | None) -> None:
    """The least costs are those of an integer program."""
    one, shares, limit = costed(name, accelerators)
    limits = np.array([np.inf, *[limit] * accelerators])
    found = Fitting(one, shares, limits, lambda chosen: np.bincount(chosen, shares, len(limits))).search()
    assert found.chosen is not None and (np.bincount(found.chosen, shares, len(limits)) <= limits).all()
    assert found.bound == pytest.approx(found.cost, rel=1e-8)
    assert least is None or found.cost == pytest.approx(least)
