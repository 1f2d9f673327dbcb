"""The timeline of real calls: requests, devices, threads and hand-overs as they were."""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np
import pytest

import partita as pt
from partita.accelerators.runtime import real_runs
from tests.insight.small_devices import device_of

ONES = np.ones((2, 4), np.float32)


def chain() -> pt.Graph:
    """An op for one device, one for the other, one for the first."""
    x = pt.variable("x", "float32", (2, 4))
    return pt.Graph([pt.op("Exp", pt.op("Tanh", pt.op("Exp", x, name="a"), name="b"), name="c")], name="chain")


def compiled(device: str, **config: Any) -> pt.CompiledModel:
    return pt.compile(chain(), f"HETERO:{device},reference", {"HETERO": config}, forbid={"b": device})


def kernel(node: pt.Node, inputs: Any) -> Any:
    return [np.exp(inputs[0])]


def test_each_step_of_each_call_with_its_device_and_thread() -> None:
    with device_of(kernel, "Exp") as device:
        model = compiled(device)
        model(ONES)
        with model.timeline() as timeline:
            model(ONES)
            model.start(ONES).result()
        model(ONES)
    assert [(lap.request, lap.name, lap.device) for lap in timeline.laps] == [
        (number, name, device)
        for number in (1, 2)
        for name, device in (("small_0", "small"), ("reference_1", "reference"), ("small_2", "small"))
    ]
    assert {lap.thread for lap in timeline.laps if lap.request == 1} == {threading.current_thread().name}
    assert {lap.thread for lap in timeline.laps if lap.request == 2} == {"partita-request"}
    assert [(one.request, one.source.device, one.target.device) for one in timeline.handovers] == [
        (1, "small", "reference"), (1, "reference", "small"), (2, "small", "reference"), (2, "reference", "small"),
    ]
    text = str(timeline).split("\n")
    assert text[0].startswith("chain: 2 requests in ") and text[0].endswith("at most 1 at once, on 2 threads, 4 hand-overs")
    assert text[1].startswith("  small: 4 steps, ")
    assert timeline.to_dict()["laps"][0]["request"] == 1


def test_requests_overlap_where_they_did() -> None:
    """Two requests meet inside the first device, so that they overlap whatever the machine's speed is."""
    together = threading.Barrier(2, timeout=300)

    def meeting(node: pt.Node, inputs: Any) -> Any:
        if node.name == "a":
            together.wait()
        return kernel(node, inputs)

    with device_of(meeting, "Exp") as device:
        model = compiled(device, NUM_REQUESTS=2)
        for unit in model.units:
            unit.compiled.concurrent = True
        with model.timeline() as timeline:
            for future in [model.start(ONES) for _ in range(2)]:
                future.result()
    first, second = [lap for lap in timeline.laps if lap.name == "small_0"]
    assert second.start_us < first.start_us + first.us
    assert timeline.most_at_once == 2
    assert {first.thread, second.thread} == {"partita-request", "partita-request #2"}


def test_a_request_of_a_pipeline_waits_for_its_stage() -> None:
    with device_of(kernel, "Exp") as device:
        model = compiled(device, PIPELINE=True, NUM_REQUESTS=3)
        with model.timeline() as timeline:
            outputs = [future.result()[0] for future in [model.start(ONES) for _ in range(3)]]
    assert len(timeline.laps) == 9 and all(lap.waited_us >= 0 for lap in timeline.laps)
    assert {lap.request for lap in timeline.laps} == {1, 2, 3}
    ends: dict[str, float] = {}
    for lap in sorted(timeline.laps, key=lambda lap: lap.request):
        assert lap.start_us >= ends.get(lap.name, 0.0)
        ends[lap.name] = lap.start_us + lap.us
    assert all(output.tobytes() == outputs[0].tobytes() for output in outputs)


def test_independent_subgraphs_stay_side_by_side() -> None:
    x = pt.variable("x", "float32", (2, 4))
    branches = [pt.op("Exp", pt.op("Tanh", x, name=f"b{i}"), name=f"a{i}") for i in range(2)]
    graph = pt.Graph([pt.op("Add", *branches, name="sum")], name="wide")
    with device_of(kernel, "Exp") as device:
        forbidden = dict.fromkeys(("b0", "b1", "sum"), device)
        model = pt.compile(graph, f"HETERO:{device},reference", {"HETERO": {"PARALLEL": True}}, forbid=forbidden)
        with model.timeline() as timeline:
            model(ONES)
    assert sorted(lap.name for lap in timeline.laps) == sorted(unit.name for unit in model.units)
    widest = max(len(level) for level in model.runs._levels)  # type: ignore[attr-defined]
    here = threading.current_thread().name
    assert (widest > 1) == any(lap.thread != here for lap in timeline.laps)


def test_multi_and_a_second_timeline() -> None:
    graph = chain()
    model = pt.compile(graph, "MULTI:reference,onnxruntime")
    with model.timeline() as timeline:
        model(ONES)
        with pytest.raises(pt.RunError, match="a timeline is open already"), model.timeline():
            pass
    assert [lap.device for lap in timeline.laps] == ["reference"]
    with model.timeline() as again:
        pass
    assert str(again) == "chain: 0 requests in 0 µs, at most 0 at once, on 0 threads, 0 hand-overs"


def test_a_forked_process_notes_nothing_for_its_parent() -> None:
    model = pt.compile(chain(), "reference")
    with model.timeline() as timeline:
        model(ONES)
        child = os.fork()
        if not child:
            try:
                model(ONES)
                with model.timeline() as own:
                    model(ONES)
                os._exit(0 if (len(timeline.laps), len(own.laps)) == (1, 1) else 1)
            finally:
                os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
    assert len(timeline.laps) == 1


def test_a_timeline_keeps_so_many_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real_runs, "MOST", 2)
    model = pt.compile(chain(), "reference")
    with model.timeline() as timeline:
        for _ in range(5):
            model(ONES)
    assert (len(timeline.laps), timeline.left_out) == (2, 3)
    assert str(timeline).endswith("\n  3 steps left out")


def test_a_thread_is_not_called_by_the_name_of_one_that_has_ended() -> None:
    """The system gives a new thread the identity of one that has ended."""
    with device_of(kernel, "Exp") as device:
        model = compiled(device)
        with model.timeline() as timeline:
            for name in ("first", "second", "second #2"):
                thread = threading.Thread(target=model, args=(ONES,), name=name)
                thread.start()
                thread.join()
    assert {lap.request: lap.thread for lap in timeline.laps} == {1: "first", 2: "second", 3: "second #2"}
