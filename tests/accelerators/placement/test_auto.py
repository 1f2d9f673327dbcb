"""The choice among placements by measuring: on planted devices, which sleep by a known law."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import partita as pt
from partita.accelerators.interface.accelerator import PRECISIONS
from partita.accelerators.interface.keys import Key, one_of
from partita.accelerators.precision import auto, measured_costs
from partita.accelerators.precision.auto import AutoChoice
from tests.accelerators.placement.test_measure import brief  # noqa: F401  planted devices
from tests.accelerators.placement.test_place import SIZE, SLEEPS, Left, Sleeping, chain

X = np.linspace(-1, 1, SIZE, dtype=np.float32)


@pytest.fixture(autouse=True)
def long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Devices that sleep so long that nothing else counts, and few calls."""
    monkeypatch.setattr(measured_costs, "CALLS", 2)
    monkeypatch.setattr(auto, "MORE", 1)
    for device in ("left", "right"):
        for op, seconds in list(SLEEPS[device].items()):
            monkeypatch.setitem(SLEEPS[device], op, 8 * seconds)


def test_the_fastest_is_chosen_and_kept(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    graph = chain("Tanh", "Tanh")  # 192 ms on the left, 64 ms on the right
    choice = pt.auto(graph, "HETERO:left,right", seconds=600)
    assert choice.rows[0].title == "by priority" and len(choice.rows) == 2
    assert choice.rows[0].ops == {"left": 2} and choice.rows[1].ops == {"right": 2}
    assert choice.chosen == 1 and choice.rows[1].times > 1.02 and choice.rows[1].us < choice.rows[0].us
    assert "times as fast as by priority, in the median of" in choice.reason
    capsys.readouterr()
    assert pt.auto(graph, "HETERO:left,right") == choice
    model = pt.compile(graph, "AUTO:left,right")
    assert capsys.readouterr().err == ""
    assert model.properties.devices == ("right",)
    np.testing.assert_allclose(model(X)[0], np.tanh(np.tanh(X)), rtol=1e-6)
    choice.lock(tmp_path / "plan.json")
    assert pt.compile(graph, plan=tmp_path / "plan.json").properties.devices == ("right",)
    assert choice.reason in str(choice) and json.loads(json.dumps(choice.to_dict()))["chosen"] == 1


@pytest.mark.slow
def test_priority_stays_unless_another_is_faster() -> None:
    choice = pt.auto(chain("Neg", "Relu"), "HETERO:left,right", seconds=600)  # four times as long on the right
    assert choice.chosen == 0
    assert choice.reason.startswith("by priority: no other one was more than 2% faster, in the median of")


@pytest.mark.slow
def test_the_budget_ends_compiling() -> None:
    choice = pt.auto(chain("Tanh"), "HETERO:left,right", seconds=1e-3)
    assert choice.chosen == 0 and [row.note for row in choice.rows] == ["", "the budget of 0.001 s was used up"]
    assert choice.is_short
    assert pt.auto(chain("Tanh"), "HETERO:left,right", seconds=1e-3) == choice
    longer = pt.auto(chain("Tanh"), "HETERO:left,right", seconds=600)
    assert not longer.is_short and longer.chosen == 1
    assert pt.auto(chain("Tanh"), "HETERO:left,right", seconds=1e-3) == longer


@pytest.mark.slow
def test_pins_are_obeyed() -> None:
    choice = pt.auto(chain("Tanh", "Tanh"), "HETERO:left,right", pin={"tanh0": "left"}, seconds=600)
    assert all(row.ops.get("left") for row in choice.rows)


@pytest.mark.filterwarnings("ignore:.*moved to right")
def test_a_placement_that_cannot_be_compiled_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(self: Left, graph: pt.Graph, config: object) -> None:
        raise pt.CompileError("no")

    monkeypatch.setattr(Left, "compile", refuse)
    graph = chain("Tanh")
    choice = pt.auto(graph, "HETERO:right,left", seconds=600)
    assert choice.chosen == 0 and [row.title for row in choice.rows] == ["by priority", "left first"]
    assert choice.rows[1].note == "left cannot compile what it would take"
    assert "hand-overs between right and left have the default: left cannot compile it" in capsys.readouterr().err


class Rounding(Sleeping):
    """Takes half the time in bf16, and is off by a thousandth."""

    def __init__(self, graph: pt.Graph, device: str, precision: str) -> None:
        super().__init__(graph, device)
        self._factor = 1.001 if precision == "bf16" else 1.0
        self._seconds /= 2 if precision == "bf16" else 1

    def run(self, inputs: Sequence[Any], out: Sequence[Any] | None = None) -> Sequence[Any]:
        return [array * np.float32(self._factor) for array in super().run(inputs)]


def test_a_lower_precision_is_recommended_if_it_is_allowed_and_near(monkeypatch: pytest.MonkeyPatch) -> None:
    able = {"AVAILABLE_DEVICES": ["0"], "FULL_DEVICE_NAME": "left", "OPTIMIZATION_CAPABILITIES": ["FP32", "BF16"]}
    monkeypatch.setattr(Left, "config_keys", {"PRECISION": Key("f32", one_of(*PRECISIONS))})
    monkeypatch.setattr(Left, "metrics", lambda self: able)
    monkeypatch.setattr(Left, "compile", lambda self, graph, config: Rounding(graph, "left", config["PRECISION"]))
    graph = chain("Neg", "Neg")
    full = pt.auto(graph, "HETERO:left,right", seconds=600)
    assert [row.title for row in full.rows] == ["by priority", "right first"] and full.config == {}
    choice = pt.auto(graph, "HETERO:left,right", seconds=600, precisions=["f32", "bf16"])
    row = choice.rows[choice.chosen]
    assert [one.precision for one in choice.rows] == ["f32", "f32", "bf16"] and row.title == "left first, bf16"
    assert row.error == pytest.approx(1e-3, rel=0.1) and row.times > 1.2 and choice.rows[1].error == 0
    assert "off by 0.001, where 0.01 is allowed" in choice.reason and choice.config == {"left": {"PRECISION": "bf16"}}
    assert "0.001" in rendered(choice.to_table()) and AutoChoice.from_json(choice.to_json().encode(), "chain") == choice
    model = pt.compile(graph, "AUTO:left,right", config={"AUTO": {"SECONDS": 600, "PRECISIONS": ["bf16"]}})
    np.testing.assert_allclose(model(X)[0], 1.001 * X, rtol=1e-5)
    strict = pt.auto(graph, "HETERO:left,right", seconds=600, precisions=["bf16"], tolerance=1e-4)
    assert strict.chosen == 0 and strict.rows[2].error == pytest.approx(1e-3, rel=0.1)
    for key in ("PRECISION", "KEY_PRECISION"):
        alone = pt.auto(graph, "left", seconds=600, precisions=["bf16"], config={key: "f32"})
        assert alone.rows[1].error == pytest.approx(1e-3, rel=0.1)
        assert auto._with_precision({key: "f32"}, "left", "bf16") == {"left": {"PRECISION": "bf16"}}


def rendered(table: Any) -> str:
    out = io.StringIO()
    Console(file=out, width=200).print(table)
    return out.getvalue()


def test_costs_that_cannot_be_measured_are_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise pt.RunError("out of order")

    monkeypatch.setattr(measured_costs._OnThisMachine, "_of_units", fail)
    choice = pt.auto(chain("Tanh"), "HETERO:left,right", seconds=600)
    assert choice.chosen == 1 and [row.predicted_us for row in choice.rows] == [0, 0]


def test_wrong_options_are_refused() -> None:
    graph = chain("Tanh")
    with pytest.raises(pt.AcceleratorError, match="option seconds: 0 is not a time"):
        pt.auto(graph, "left", seconds=0)
    with pytest.raises(pt.BadConfig, match="option config: 5 is not a mapping"):
        pt.compile(graph, "AUTO:left,right", 5)  # type: ignore[arg-type]
    with pytest.raises(pt.AcceleratorError, match="option precisions: 'bf16' are not precisions"):
        pt.auto(graph, "left", precisions="bf16")
    with pytest.raises(pt.AcceleratorError, match=r"option precisions: \[\['bf16'\]\] are not precisions"):
        pt.auto(graph, "left", precisions=[["bf16"]])  # type: ignore[list-item]
    with pytest.raises(pt.AcceleratorError, match="option tolerance: -1 is not an error"):
        pt.auto(graph, "left", tolerance=-1)
    with pytest.raises(pt.BadConfig, match="it has the keys SECONDS, PRECISIONS and TOLERANCE"):
        pt.compile(graph, "AUTO:left,right", config={"AUTO": {"MINUTES": 1}})
    with pytest.raises(pt.AcceleratorError, match="plan, optimize, min_subgraph_size and example_inputs have no meaning"):
        pt.compile(graph, "AUTO:left,right", optimize=True)
