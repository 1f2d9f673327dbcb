"""`partita precision`."""

from __future__ import annotations

from pathlib import Path

import pytest

import partita as pt
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


def test_wrong_precisions_are_met_with_near_ones(partita: Command) -> None:
    pt.save(sensitive(), "model.onnx")
    done = partita("precision model.onnx --devices reference --precisions int88")
    assert done.status == 1
    assert "there is no 'int88'" in done.err
    done = partita("precision model.onnx --devices reference --lock-plan nothing.json")
    assert done.status == 1
    assert "no plan can be read from it" in done.err
