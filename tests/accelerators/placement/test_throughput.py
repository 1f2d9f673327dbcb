"""Placements for devices that work at the same time: against all assignments, and for several models within limits they share."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import partita as pt
from partita.accelerators.interface.device_list import Device
from partita.accelerators.placement import throughput
from partita.accelerators.placement.assignment import AssignmentProblem
from partita.accelerators.placement.fitting import Fitted, Fitting
from partita.accelerators.placement.throughput import CORES, Balanced, Balancing, Lane, lane_of, loads_of
from tests.accelerators.placement.problems import assignments, problem
from tests.accelerators.placement.test_place import SIZE, SLEEPS, Left, Planted, Right, chain, costed, narrow, planted  # noqa: F401


def balanced(problems: Sequence[AssignmentProblem], busy: np.ndarray, factors: np.ndarray | None = None) -> Balanced:
    """The result without limits; devices are independent if no factors are given."""
    count = problems[0].times.shape[1]
    if factors is None:
        factors = loads_of([Lane(str(device)) for device in range(count)], len(problems))[1]

    def solve(one: AssignmentProblem, earlier: object) -> Fitted:
        return Fitting(one, np.zeros(len(one.times)), np.full(count, np.inf), lambda chosen: np.zeros(count)).search()

    found = Balancing(problems, [solve] * len(problems), lambda chosen: True, busy, factors).search()
    assert found is not None
    return found


def test_the_busiest_device_has_the_least_load_of_all_assignments() -> None:
    for seed in range(12):
        rng = np.random.default_rng(seed)
        devices, models = int(rng.integers(2, 4)), int(rng.integers(1, 3))
        problems = [problem(rng, int(rng.integers(1, 7 - 2 * models)), devices) for _ in range(models)]
        busy = rng.integers(0, 10, devices).astype(float)
        loads = [np.array([one.loads(chosen) for chosen in assignments(*one.times.shape)]) for one in problems]
        least = min((sum(rows, busy)).max() for rows in itertools.product(*loads))
        found = balanced(problems, busy)
        ours = sum((one.loads(chosen) for one, chosen in zip(problems, found.chosen)), busy)
        assert found.cost == pytest.approx(ours.max())
        assert found.bound == pytest.approx(least, rel=1e-6) == found.cost, seed


@pytest.mark.parametrize("seed", range(12))
def test_devices_of_one_resource_add_up_and_requests_of_a_model_follow_one_another(seed: int) -> None:
    """The least greatest load of all assignments, where two devices share the cores and one has half of them."""
    rng = np.random.default_rng(seed)
    models = int(rng.integers(1, 3))
    problems = [problem(rng, int(rng.integers(1, 7 - 2 * models)), 3) for _ in range(models)]
    names, factors = loads_of([Lane(CORES, 0.5), Lane(CORES, 1.0), Lane("npu")], models)
    busy = np.where([name is not None for name in names], rng.integers(0, 10, len(names)), 0).astype(float)

    def greatest(chosen: Sequence[np.ndarray]) -> float:
        loads = [one.loads(own) for one, own in zip(problems, chosen)]
        shared = busy[names.index(CORES)] + sum(0.5 * load[0] + load[1] for load in loads)
        apart = busy[names.index("npu")] + sum(load[2] for load in loads)
        return float(max([shared, apart, *(load[0] + load[1] for load in loads)]))

    every = [assignments(*one.times.shape) for one in problems]
    found = balanced(problems, busy, factors)
    assert found.cost == pytest.approx(greatest(found.chosen))
    assert found.cost == pytest.approx(min(map(greatest, itertools.product(*every))))
    assert found.bound == pytest.approx(found.cost, rel=1e-6)


def test_loads_add_up_to_the_cost() -> None:
    rng = np.random.default_rng(0)
    one = problem(rng, 20, 3)
    one.times[np.isinf(one.times)] = 7.0
    for chosen in [rng.integers(0, 3, 20) for _ in range(5)]:
        assert one.loads(chosen).sum() == pytest.approx(one.cost(chosen))
        moved = chosen.copy()
        moved[7] = (moved[7] + 1) % 3
        change = one.change(chosen, 7, int(moved[7]), one.neighbours()[7])
        np.testing.assert_allclose(change, one.loads(moved) - one.loads(chosen))


@pytest.mark.slow
def test_bound_of_a_larger_graph_is_near() -> None:
    found = balanced([problem(np.random.default_rng(1), 100, 3)], np.zeros(3))
    assert found.bound <= found.cost <= 1.03 * found.bound


def test_a_pipeline_shares_the_work() -> None:
    graph = chain("Relu", "Neg", "Relu", "Neg", "Relu")  # 1 ms each on the left, 4 ms on the right
    latency = pt.place(graph, "HETERO:left,right", costs=costed(graph))
    assert set(latency.values()) == {"left"} and latency.certificate.objective == "latency"
    placement = pt.place(graph, "HETERO:left,right", costs=costed(graph, 0), objective="throughput")
    certificate = placement.certificate
    assert list(placement.values()).count("right") == 1
    assert (certificate.predicted_us, certificate.priority_us) == (pytest.approx(4000, abs=1), 5000)
    assert certificate.gap == pytest.approx(0, abs=1e-3)
    assert "µs on the busiest resource, " in str(placement) and certificate.to_dict()["objective"] == "throughput"
    faster = placement.what_if(speed={"right": 4.0})
    assert faster.certificate.predicted_us == pytest.approx(3000, abs=1)


@pytest.mark.slow
def test_a_running_pipeline_is_as_fast_as_predicted(monkeypatch: pytest.MonkeyPatch) -> None:
    """From one result to the next it takes as long as the busiest device sleeps; a busy machine has three tries."""
    for device, seconds in (("left", 0.1), ("right", 0.2)):
        monkeypatch.setitem(SLEEPS[device], "Relu", seconds)
        monkeypatch.setitem(SLEEPS[device], "Neg", seconds)
    graph = chain("Relu", "Neg", "Relu")
    placement = pt.place(graph, "HETERO:left,right", costs=costed(graph, 0), objective="throughput")
    predicted = placement.certificate.predicted_us / 1e6
    assert predicted == pytest.approx(0.2, abs=1e-3) and placement.certificate.priority_us == 300_000
    config = {"HETERO": {"PIPELINE": True, "NUM_REQUESTS": 3, "QUEUE_SIZE": 20}}
    measured = []
    with pt.compile(graph, plan=placement, config=config) as model:
        for _ in range(3):
            ends: list[float] = []
            for future in [model.start(np.ones(SIZE, np.float32)) for _ in range(10)]:
                future.result()
                ends.append(time.perf_counter())
            measured.append((ends[-1] - ends[0]) / (len(ends) - 1))
            if min(measured) < 1.1 * predicted:
                break
    assert 0.95 * predicted < min(measured) < 1.1 * predicted, measured


def test_models_that_run_together_share_devices_and_limits() -> None:
    graphs = [chain("Relu", "Neg"), chain("Tanh", "Neg", "Relu")]
    costs = [costed(graph, 100.0) for graph in graphs]
    alone = [pt.place(graph, "HETERO:left,right", costs=own, objective="throughput") for graph, own in zip(graphs, costs)]
    together = pt.place_many(graphs, "HETERO:left,right", costs=costs)
    first, second = (one.certificate for one in together)
    assert first.predicted_us == second.predicted_us >= max(one.certificate.predicted_us for one in alone)
    assert first.predicted_us == pytest.approx(4100, abs=1) and first.gap == pytest.approx(0, abs=1e-3)
    assert together[1]["tanh0"] == "right" and set(together[0].values()) == {"left"}
    again = together[0].what_if(limit={"right": 10**6})
    assert again.certificate.predicted_us == pytest.approx(first.predicted_us)
    assert [one.bytes["left"].total for one in together] == [768, 768]
    within = pt.place_many(graphs, "HETERO:left,right", costs=costs, limit={"left": 1000})
    assert sum(one.bytes["left"].total for one in within) <= 1000
    assert within[0].certificate.predicted_us > first.predicted_us
    with pytest.raises(pt.AcceleratorError, match="left lacks .*, beside 512 B of other models"):
        pt.place_many([chain("Relu"), chain("Relu", "Relu")], "left", limit={"left": 1000})


@pytest.mark.parametrize(("limit", "cuts"), [(70_000, 0), (60_000, 1), (35_000, 2)])
def test_models_are_cut_to_fit_beside_each_other(limit: int, cuts: int) -> None:
    """Either takes 32 KiB, or 16 if its input is freed before its middle value is made."""
    graphs = [narrow(f"narrow{i}") for i in range(2)]
    placed = pt.place_many(graphs, "reference", limit={"reference": limit})
    assert sum(len(one.cuts) for one in placed) == cuts
    assert sum(one.bytes["reference"].total for one in placed) <= limit
    again = placed[0].what_if(limit={"reference": limit})
    assert again.certificate.predicted_us == pytest.approx(placed[0].certificate.predicted_us)


def test_models_that_do_not_fit_beside_each_other_name_what_is_lacking() -> None:
    with pytest.raises(pt.AcceleratorError, match="reference lacks .*, beside .* of other models"):
        pt.place_many([narrow(f"narrow{i}") for i in range(2)], "reference", limit={"reference": 33_000})


def test_models_are_not_split_over_engines_that_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is predicted better than each model on its fastest device: the sum on all cores, or with half of them each the
    slower of the two."""
    for device in (Left, Right):
        monkeypatch.setattr(device, "resource", lambda self, device_id: None)
        monkeypatch.setattr(device, "config_keys", {"NUM_THREADS": 0})
    graphs = [chain("Relu", "Neg", "Relu"), chain("Tanh", "Tanh")]  # 3 ms on the left, 8 ms on the right
    costs = [costed(graph, 1.0) for graph in graphs]
    monkeypatch.setattr(throughput, "usable_cores", lambda: 4)
    for threads, predicted in ((0, 11_000), (2, 8_000)):
        config = {label: {"NUM_THREADS": threads} for label in ("left", "right")}
        placed = pt.place_many(graphs, "HETERO:left,right", costs=costs, config=config)
        assert [set(one.values()) for one in placed] == [{"left"}, {"right"}]
        assert [one.certificate.predicted_us for one in placed] == [pytest.approx(predicted, abs=1)] * 2
        assert placed[0].certificate.gap == pytest.approx(0, abs=1e-3)
        for one in placed:
            assert one.what_if(speed={"left": 1.0}).certificate.predicted_us == pytest.approx(predicted, abs=1)
    alone = pt.place(chain("Relu", "Neg", "Relu"), "HETERO:left,right", costs=costed(graphs[0], 1.0), objective="throughput")
    assert set(alone.values()) == {"left"} and alone.certificate.predicted_us == 3000


def test_devices_without_memory_of_their_own_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(Planted, "resource")
    assert pt.accelerator("left").resource("1") is None and pt.accelerator("reference").resource(None) is None
    monkeypatch.setattr(Left, "free_bytes", lambda self, device_id: 10**9)
    assert pt.accelerator("left").resource(None) == "left.0" and pt.accelerator("left").resource("1") == "left.1"


@pytest.mark.parametrize(("threads", "share"), [(2, 0.5), (64, 1.0), (0, 1.0), (-1, 1.0), ("all", 1.0), (None, 1.0)])
def test_a_plugin_may_count_threads_in_its_own_way(threads: Any, share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throughput, "usable_cores", lambda: 4)
    monkeypatch.setattr(Left, "resource", lambda self, device_id: None)
    device = Device("left", pt.accelerator("left"), None)
    assert lane_of(device, {"NUM_THREADS": threads}) == Lane(CORES, share)


@pytest.mark.parametrize(("answer", "error"), [
    (["npu"], r"resource of device 'wrong': it returned list, not str or None"),
    (ValueError("none"), r"resource of device 'wrong': it raised ValueError: none"),
])
def test_a_wrong_resource_names_its_device(answer: Any, error: str) -> None:
    class Wrong(pt.Accelerator):
        name = "wrong"

        def resource(self, device_id: str | None) -> str | None:
            if isinstance(answer, Exception):
                raise answer
            return answer  # type: ignore[no-any-return]

    with pytest.raises(pt.AcceleratorError, match=error):
        lane_of(Device("wrong", Wrong(), None), {})


WRONG: list[tuple[Any, str]] = [
    (lambda graph: pt.place(graph, "left", objective="speed"), "there is no objective 'speed'"),
    (lambda graph: pt.place(graph, "left", objective="throughput", even=True), "bytes are spread, or loads"),
    (lambda graph: pt.place_many(graph, "left"), "graphs are given as a list"),
    (lambda graph: pt.place_many([], "left"), "graphs are given as a list"),
    (lambda graph: pt.place_many([graph], "left", costs=[None, None]), "costs are given for each graph"),
]


def test_wrong_options_are_refused() -> None:
    for made, cause in WRONG:
        with pytest.raises(pt.AcceleratorError, match=cause):
            made(chain("Relu"))
