"""`partita precision`."""

from __future__ import annotations

from pathlib import Path

import pytest

import partita as pt
from tests.accelerators.precision.priced_devices import Prices, priced
from tests.cli.conftest import Command
from tests.graphs.small_models import convolutions, sensitive


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


REFERENCE = "--devices reference --win memory"


def test_the_plan_is_shown_and_written(partita: Command) -> None:
    pt.save(sensitive(), "model.onnx")
    done = partita(f"precision model.onnx {REFERENCE} --tolerance 0.05 -o lowered.onnx --plan plan.json")
    assert done.status == 0
    assert "sensitive: 1 op in float32, 1 op in int8" in done.out
    plan = pt.PrecisionPlan.from_json(Path("plan.json").read_text("utf-8"))
    assert dict(plan) == {"steady": "int8", "delicate": "float32"}
    ops = [node.op for node in pt.load("lowered.onnx").nodes]
    assert ops.count("QuantizeLinear") == 1


def test_what_a_plan_locks_stays(partita: Command) -> None:
    graph = convolutions()
    pt.save(graph, "model.onnx")
    partita(f"precision model.onnx {REFERENCE} --tolerance 0.1 --lock first=float32 --plan plan.json")
    result = partita(f"precision model.onnx {REFERENCE} --tolerance 0.1 --lock-plan plan.json --json").json
    assert {row["node"]: row["precision"] for row in result["ops"]}["first"] == "float32"
    assert result["error"] <= 0.1


def test_a_plan_of_devices_is_explained_and_applied(partita: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    pt.save(sensitive(), "model.onnx")
    dear = Prices({"MatMul": 900.0})
    with priced(monkeypatch, dear=dear, cheap=Prices({"MatMul": 100.0}, {"MatMul": 10.0})) as devices:
        done = partita(f"precision model.onnx --devices {devices} --tolerance 0.05 --pin delicate=dear --plan plan.json")
        assert done.status == 0 and "on cheap" in done.out and "which is the choice" in done.out
        done = partita("precision model.onnx --apply plan.json --why delicate --why relu_0 -o lowered.onnx")
        assert done.status == 0 and "delicate (MatMul) runs in float32 on dear" in done.out and "relu_0 is on " in done.out
        assert "QuantizeLinear" in {node.op for node in pt.load("lowered.onnx").nodes}
        plan = pt.PrecisionPlan.from_json(Path("plan.json").read_text("utf-8"))
        plan.place("steady", "dear")
        Path("plan.json").write_text(plan.to_json(), "utf-8")
        done = partita(f"precision model.onnx --devices {devices} --tolerance 0.05 --lock-plan plan.json --json")
        assert {name: done.json["placed"]["placement"][name] for name in plan} == {"steady": "dear", "delicate": "dear"}
    done = partita("precision model.onnx --apply plan.json")
    assert done.status == 1 and "'dear'" in done.err


def test_wrong_precisions_are_met_with_near_ones(partita: Command) -> None:
    pt.save(sensitive(), "model.onnx")
    done = partita("precision model.onnx --devices reference --precisions int88")
    assert done.status == 1
    assert "there is no 'int88'" in done.err
    done = partita("precision model.onnx --devices reference --lock-plan nothing.json")
    assert done.status == 1
    assert "no plan can be read from it" in done.err
