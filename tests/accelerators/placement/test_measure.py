"""Measured costs of planted devices, which sleep by a known law, and of onnxruntime."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import partita as pt
from partita.accelerators.placement.by_cost import Setting
from partita.accelerators.precision import measured_costs
from partita.accelerators.precision.measured_costs import _OnThisMachine, busy_neighbour, in_turns
from partita.accelerators.precision.options import Target
from tests.accelerators.placement.test_place import SLEEPS, Left, Right, chain


@pytest.fixture(autouse=True)
def brief(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Planted devices, few calls, and a cache of one's own."""
    monkeypatch.setattr(measured_costs, "SECONDS", 0.01)
    monkeypatch.setattr(measured_costs, "FEWEST", 2)
    monkeypatch.setattr(measured_costs, "FITS", 1)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for device in (Left, Right):
        pt.register_accelerator(device)
    yield
    for device in (Left, Right):
        pt.unregister_accelerator(device.name)


def test_times_of_devices_that_report_no_ops_follow_their_law(capsys: pytest.CaptureFixture[str]) -> None:
    graph = chain("Relu", "Tanh", "Exp", "Neg")
    costs = pt.measure(graph, "HETERO:left,right")
    assert costs.times.keys() == {"left", "right"}
    assert costs.times["left"].keys() == {"relu0", "tanh1", "exp2", "neg3"} == {*costs.times["right"], "exp2"}
    assert costs.times["left"]["tanh1"] > costs.times["left"]["relu0"]
    slept = sum(1e6 * SLEEPS["left"][op] for op in ("Relu", "Tanh", "Exp", "Neg"))
    assert sum(costs.times["left"].values()) >= slept
    assert costs.hand_overs.keys() == {("left", "right"), ("right", "left")}
    assert costs.source.startswith("measured on ")
    told = capsys.readouterr().err
    assert "measuring 'chain': left (1 of 2 devices)\n" in told
    assert "hand-overs between left and right (1 of 1 pair)\n" in told
    assert pt.measure(graph, "HETERO:left,right") == costs
    assert capsys.readouterr().err == ""


def test_the_cache_is_for_the_same_graph_and_neighbour(capsys: pytest.CaptureFixture[str]) -> None:
    costs = pt.measure(chain("Relu"), "left")
    assert pt.measure(chain("Relu", "Neg"), "left").times["left"].keys() == {"relu0", "neg1"}
    busy = pt.measure(chain("Relu"), "left", busy=True)
    assert busy.source == f"{costs.source}, beside a busy neighbour"
    capsys.readouterr()
    assert pt.measure(chain("Relu"), "left") == costs
    assert capsys.readouterr().err == ""
    pt.measure(chain("Relu"), "left", again=True)
    assert "left (1 of 1 device)" in capsys.readouterr().err


def test_devices_that_report_ops_have_a_time_for_each() -> None:
    x = pt.variable("x", "float32", (8, 64))
    weight = pt.constant(np.ones((64, 64), np.float32), name="w")
    graph = pt.Graph([pt.op("Softmax", pt.op("MatMul", x, weight, name="product"), name="softmax")], name="net")
    costs = pt.measure(graph, "HETERO:onnxruntime,reference", inputs=np.ones((8, 64), np.float32))
    assert {label: set(times) for label, times in costs.times.items()} == {
        label: {"product", "softmax"} for label in ("onnxruntime", "reference")
    }
    assert pt.place(graph, "HETERO:onnxruntime,reference", costs=costs).certificate.source == costs.source


def test_unmeasured_pairs_have_the_default(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured_costs, "FIRST", "Exp")
    assert pt.measure(chain("Relu"), "HETERO:left,right").hand_overs == {}
    assert "hand-overs between left and right have the default: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("inputs", "match"),
    [
        (np.ones(64, np.int64), "it is float32, and the array given int64"),
        (np.ones((1, 64), np.float32), "it has 1 dimensions"),
        (np.ones(63, np.float32), "dimension 0 is 64"),
        ({"x": None}, "it is None"),
        ([], "no inputs are given"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(inputs: object, match: str) -> None:
    for question in (pt.measure, pt.auto):
        with pytest.raises(pt.AcceleratorError, match=match):
            question(chain("Relu"), "left", inputs=inputs)


@pytest.mark.filterwarnings("ignore:.*moved to right")
def test_failures_are_not_kept(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(*arguments: object) -> None:
        raise pt.RunError("out of order")

    with monkeypatch.context() as patch:
        patch.setattr(Left, "compile", fail)
        assert pt.measure(chain("Relu"), "HETERO:left,right").times["left"] == {}
    with monkeypatch.context() as patch:
        patch.setattr(measured_costs._OnThisMachine, "_of_units", fail)
        assert pt.measure(chain("Relu"), "HETERO:left,right").times == {"left": {}, "right": {}}
    assert "left is left out: out of order" in capsys.readouterr().err
    assert pt.measure(chain("Relu"), "HETERO:left,right").times["left"].keys() == {"relu0"}


@pytest.mark.parametrize("question", [pt.measure, pt.auto])
def test_progress_is_quiet_or_lost(
    question: Callable[..., object], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    question(chain("Relu"), "HETERO:left,right", progress=False)
    assert capsys.readouterr() == ("", "")
    for stream in (None, (tmp_path / "log").open("w")):
        if stream is not None:
            stream.close()
        monkeypatch.setattr("sys.stderr", stream)
        question(chain("Relu"), "HETERO:left,right", again=True)
        assert capsys.readouterr().out == ""


def test_calls_take_turns() -> None:
    order = []
    times = in_turns([lambda: order.append("a"), lambda: order.append("b")], 0)
    assert order == ["a", "b"] * 3 and [len(taken) for taken in times] == [2, 2]


def test_the_neighbour_ends() -> None:
    with busy_neighbour() as processes:
        assert processes and all(process.poll() is None for process in processes)
    assert all(process.poll() is not None for process in processes)


def test_wrong_options_are_refused() -> None:
    with pytest.raises(pt.AcceleratorError, match="option busy: 'no' is neither True nor False"):
        pt.measure(chain("Relu"), "left", busy="no")
    with pytest.raises(pt.AcceleratorError, match="there is no input 'z'"):
        pt.measure(chain("Relu"), "left", inputs={"z": np.ones(64, np.float32)})


def test_hand_overs_have_what_is_lost_at_borders(monkeypatch: pytest.MonkeyPatch) -> None:
    """Subgraphs on the left take as long as their longest op, by law: each border costs a whole op."""
    def laps(self: object, model: pt.CompiledModel, batch: object) -> tuple[dict[str, float], float]:
        by_law = {
            unit.name: combined[unit.device.label](us[unit.device.label] for _ in unit.ops) for unit in model.units
        }
        return by_law, sum(by_law.values()) + 100.0 * (len(by_law) - 1)

    combined: dict[str, Any] = {"left": max, "right": sum}
    us = {"left": 60.0, "right": 20.0}
    monkeypatch.setattr(measured_costs, "FITS", 6)
    monkeypatch.setattr(measured_costs._OnThisMachine, "_of_units", laps)
    graph, target = chain("Tanh", "Tanh", "Relu", "Tanh", "Tanh", "Relu"), Target("HETERO:left,right", None)
    base = pt.query(graph, "HETERO:left,right", forbid={"relu2": "right"})
    machine = _OnThisMachine(base, target, None, target.labels, math.inf, False, {})
    times = {"left": dict.fromkeys(base, 10.0), "right": {**dict.fromkeys(base, 5.0), "tanh3": 20.0, "tanh4": 20.0}}
    free = dict.fromkeys([("left", "right"), ("right", "left")], pt.HandOver(1.0, 1e9))
    able = {name: base.able(name) for name in base}
    mixed, fitted = (
        Setting(base, pt.Costs(times, over), able, dict.fromkeys(base.devices, math.inf)).placed()
        for over in (free, machine._fitted(times, free))
    )
    assert set(mixed.values()) == {"left", "right"} and mixed.certificate.predicted_us < 60
    assert set(fitted.values()) == {"left"} and fitted.certificate.predicted_us == 60
