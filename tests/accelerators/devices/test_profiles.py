"""Profiles of the engines: rows under the graph's names, whose sum is the total, and nothing but the run under the clock."""

from __future__ import annotations

import time
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import partita as pt

RNG = np.random.default_rng(5)
ENGINES = ("onnxruntime", "openvino")


def net() -> pt.Graph:
    """An image net whose ops the engines take apart, merge and lay out anew."""
    x = pt.variable("image", "float32", (1, 3, 24, 24))

    def weights(*shape: int) -> pt.Node:
        return pt.constant(RNG.standard_normal(shape).astype("float32"))

    y = pt.op("Conv", x, weights(16, 3, 3, 3), weights(16), name="first/conv", pads=[1, 1, 1, 1])
    scales = [weights(16), weights(16), weights(16), pt.constant(np.ones(16, "float32"))]
    y = pt.op("Relu", pt.op("BatchNormalization", y, *scales, name="norm"), name="relu")
    y = pt.op("Conv", y, weights(16, 8, 3, 3), name="grouped", group=2)
    y = pt.op("Flatten", pt.op("GlobalAveragePool", y, name="pool"), name="flat")
    return pt.Graph([pt.op("Softmax", y, name="softmax", opset=11, axis=1)], opsets={"": 11}, name="net")


def taken_apart() -> pt.Graph:
    """Ops that engines expand, merge and rewrite."""
    x = pt.variable("tokens", "float32", (1, 8, 16))

    def weights(*shape: int) -> pt.Node:
        return pt.constant(RNG.standard_normal(shape).astype("float32"))

    y = pt.op("Add", pt.op("MatMul", x, weights(16, 16), name="product"), weights(16), name="bias")
    y = pt.op("LayerNormalization", pt.op("Add", x, y, name="residual"), weights(16), weights(16), name="norm")
    mean = pt.op("ReduceMean", pt.op("Gelu", y, name="gelu"), pt.constant(np.array([1])), keepdims=0, name="mean")
    return pt.Graph([pt.op("TopK", mean, pt.constant(np.array([3])), name="top", n_outputs=2)[1]], name="net")


@pytest.mark.parametrize("device", ["HETERO:cpu,reference", "HETERO:openvino,reference"])
def test_parts_of_an_op_bear_its_name(device: str) -> None:
    pytest.importorskip("tvm" if "cpu" in device else "openvino")
    g = taken_apart()
    rows = pt.compile(g, device).profile(RNG.standard_normal((1, 8, 16)).astype("float32")).rows
    names = {node.name for node in g.nodes}
    assert [row.node for row in rows if row.node not in names] == []
    assert {row.node for row in rows if row.node not in ("tokens",)} == {node.name for node in g.nodes if node.is_op}


@pytest.mark.parametrize("device", ["cpu", *ENGINES, "reference"])
def test_rows_bear_the_graph_s_names_and_their_sum_is_the_total(device: str) -> None:
    if device in ENGINES:
        pytest.importorskip(device)
    if device == "cpu":
        pytest.importorskip("tvm")
    g = net()
    profile = pt.compile(g, device).profile(RNG.standard_normal((1, 3, 24, 24)).astype("float32"))
    names = {node.name for node in g.nodes} | {"ReorderInput", "ReorderOutput"}
    assert [row.node for row in profile.rows if row.node not in names] == []
    assert profile.total_us == pytest.approx(sum(row.real_us for row in profile.rows))
    assert profile.total_us == pytest.approx(sum(span.real_us for span in profile.spans))
    assert profile.to_dict()["elapsed_us"] == profile.elapsed_us > 0
    caption = f"total: {profile.total_us:,.0f} µs of {profile.elapsed_us:,.0f} µs on the clock"
    assert profile.to_table().caption == caption


def test_no_session_is_built_under_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    from partita.accelerators.engines.onnxruntime import device, session

    slow, running, built = session.session_of, [], []

    def building(*args: Any) -> Any:
        built.append(bool(running))
        return slow(*args)

    def run(self: Any, *args: Any, **named: Any) -> Any:
        running.append(1)
        try:
            return seen(self, *args, **named)
        finally:
            running.pop()

    seen = session.CompiledSession.run
    monkeypatch.setattr(device, "session_of", building)
    monkeypatch.setattr(session.CompiledSession, "run", run)
    image = RNG.standard_normal((1, 3, 24, 24)).astype("float32")
    g = net()
    model = pt.compile(g, "onnxruntime")
    for _ in range(3):
        rows = model.profile(image).rows
        assert any(row.status == "EXECUTED" for row in rows)
    counted = pt.compile(g, "onnxruntime", config={"PERF_COUNT": True})
    for _ in range(2):
        assert counted.profile(image).rows and np.array_equal(counted(image)[0], model(image)[0])
    assert len(built) > 5 and not any(built)


def info(real: int) -> Any:
    return SimpleNamespace(
        node_name="n0", node_type="Relu", status="Status.EXECUTED", exec_type="jit",
        real_time=timedelta(microseconds=real), cpu_time=timedelta(microseconds=real),
    )


def test_openvino_s_means_are_taken_apart() -> None:
    from partita.accelerators.engines.openvino.profile import KEPT, Times

    times, spent, listed = Times(), 0, []
    for run in range(1, 2 * KEPT):
        spent += 900 if run == 1 else 10 + run
        mean = info(spent // run)
        times = times.after([mean])
        listed.append(times.of(mean)[0])
    assert listed[0] == 900
    assert all(abs(value - 10 - run) <= run for run, value in enumerate(listed[1:KEPT], 2))
    assert max(listed[1:]) < 2 * KEPT + 20, "the first run is in none of them"
    assert times.of(SimpleNamespace(**{**vars(info(7)), "node_name": "new"})) == (7.0, 7.0)


def test_times_on_our_clock_hold_what_no_row_tells() -> None:
    from tests.accelerators.hetero.small_devices import Ran, device

    class Slow(Ran):
        def run(self, inputs: Any, out: Any = None) -> Any:
            time.sleep(0.02)
            return super().run(inputs, out)

    x = pt.variable("x", "float32", (2,))
    with device("slow", subgraph_type=type("Told", (Slow,), {"__init__": lambda self, graph: Ran.__init__(self, graph, True)})):
        profile = pt.compile(pt.Graph([pt.op("Relu", x)]), "slow").profile(np.ones(2, "float32"))
    assert profile.total_us == 5.0 and profile.elapsed_us >= 20_000
