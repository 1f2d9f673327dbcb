"""The verbs that place a model by cost, and check a locked plan."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import partita as pt
from partita.page.reading import read_page
from tests.cli.conftest import Command

DEVICES = "--devices HETERO:onnxruntime,reference"


def test_a_model_is_placed_within_limits_and_its_plan_is_checked(partita: Command, model: str) -> None:
    done = partita(f"place {model} {DEVICES} --limit onnxruntime=4KiB --lock plan.json --wishes")
    assert done.status == 0
    assert "proven to be optimal" in done.out and "onnxruntime: " in done.out and " of 4.0 KiB" in done.out
    assert "wrote plan.json" in done.err + done.out
    done = partita(f"plan --check plan.json {model}")
    assert (done.status, done.out) == (0, "the plan holds: 3 ops on onnxruntime, reference\n")
    placed = partita(f"place {model} {DEVICES} --limit onnxruntime=4KiB --json").json
    assert placed["certificate"]["gap"] == 0 and placed["wishes"] == []
    assert {name: row["device"] for name, row in json.loads(Path("plan.json").read_text())["nodes"].items()} == placed["nodes"]


def test_a_plan_that_no_longer_holds_has_status_one(partita: Command, model: str) -> None:
    partita(f"place {model} {DEVICES} --lock plan.json")
    graph = pt.load(model)
    pt.save(pt.Graph([pt.op("Sigmoid", graph["softmax1"], name="more")], name="small", output_names=["y"]), "other.onnx")
    done = partita("plan --check plan.json other.onnx")
    assert (done.status, done.out) == (1, "+ more (Sigmoid): the plan lacks it\n")
    done = partita("plan --check plan.json other.onnx --json")
    assert (done.status, done.json) == (1, {"holds": False, "differences": ["+ more (Sigmoid): the plan lacks it"]})


def test_costs_of_a_file_decide(partita: Command, model: str) -> None:
    times = {"onnxruntime": {"conv1": 1.0, "relu1": 1.0, "softmax1": 500.0}, "reference": {"softmax1": 2.0}}
    pt.Costs(times, source="a file").save("costs.json")
    placed = partita(f"place {model} {DEVICES} --costs costs.json --json").json
    assert placed["nodes"] == {"conv1": "onnxruntime", "relu1": "onnxruntime", "softmax1": "reference"}
    assert placed["certificate"]["source"] == "a file"


@pytest.mark.parametrize("options, status, error", [
    ("--limit onnxruntime=4KiB --limit-free", 2, "--limit and --limit-free exclude each other"),
    ("--limit onnxruntime", 2, "'onnxruntime' is not a limit: write DEVICE=22GiB"),
    ("--limit onnxruntime=much", 1, "'much' is not an amount of memory"),
    ("--limit cuda=1GiB", 1, "'cuda' is none of the devices asked for"),
    ("--costs none.json", 1, "no costs can be read from it"),
    ("--limit onnxruntime=1 --limit reference=1", 1, "no placement within the limits is found"),
])
def test_wrong_options_are_refused(partita: Command, model: str, options: str, status: int, error: str) -> None:
    done = partita(f"place {model} {DEVICES} {options}")
    assert done.status == status and error in done.err


def test_a_file_that_is_no_plan_is_refused(partita: Command, model: str) -> None:
    Path("plan.json").write_text("{}")
    done = partita(f"plan --check plan.json {model}")
    assert done.status == 1 and "it is not a locked plan: it has no 'partita_lock'" in done.err


def test_placements_are_measured_and_the_best_is_locked(
    partita: Command, model: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    done = partita(f"auto {model} {DEVICES} --seconds 60 --lock plan.json")
    assert done.status == 0 and "by priority" in done.out and "times as fast" in done.out
    assert "measuring 'small': onnxruntime (1 of 1 device)" in done.err
    assert partita(f"plan --check plan.json {model}").status == 0
    again = partita(f"auto {model} {DEVICES} --json")
    assert "measuring" not in again.err
    assert again.json["rows"][0]["title"] == "by priority" and again.json["rows"][0]["ops"] == {"onnxruntime": 3}


def test_two_plans_are_compared_by_time_in_turns(partita: Command, model: str) -> None:
    partita(f"place {model} {DEVICES} --pin conv1=onnxruntime --pin relu1=onnxruntime --pin softmax1=onnxruntime --lock a.json")
    partita(f"place {model} {DEVICES} --pin conv1=onnxruntime --pin relu1=reference --pin softmax1=onnxruntime --lock b.json")
    done = partita(f"compare {model} --plan a.json --other-plan b.json --seconds 0.05 --json").json
    assert done["sides"] == {
        "A": "small.onnx on onnxruntime by a.json", "B": "small.onnx on onnxruntime, reference by b.json",
    }
    assert done["ok"] and [layer["name"] for layer in done["layers"]] == ["y"]
    first, second = done["times"]["contenders"]
    assert (first["devices"], first["subgraphs"], second["devices"], second["subgraphs"]) == ("A", 1, "B", 3)
    assert first["ratio"] == 1 and second["ratio"] > 0 and first["runs"] >= 3 <= second["runs"]
    shown = partita(f"compare {model} --plan a.json --other-devices reference --seconds 0.05")
    assert shown.status == 0 and "times the first" in shown.out and "small.onnx on reference" in shown.out
    partita(f"compile {model} --devices reference -o small.partita")
    assert partita(f"compare {model} small.partita --plan a.json --json").json["sides"]["B"] == "small.partita on reference"
    assert "times" not in partita(f"compare {model} --plan a.json --json").json


def test_the_page_shows_the_certificate_and_the_bottlenecks(partita: Command, model: str) -> None:
    times = {"onnxruntime": {"conv1": 1.0, "relu1": 1.0, "softmax1": 500.0}, "reference": {"softmax1": 2.0}}
    pt.Costs(times, source="a file").save("costs.json")
    assert partita(f"place {model} {DEVICES} --costs costs.json --report page.html").status == 0
    scene = read_page("page.html")
    facts = dict(scene.facts)
    assert (facts["predicted"], facts["proven bound"], facts["by priority"]) == ("24.1 µs", "24.1 µs", "502.0 µs")
    assert facts["bottleneck"] == "relu1: onnxruntime to reference, 20.1 µs"
    assert any(note.startswith("onnxruntime: ") and "of weights" in note for note in scene.notes)
    assert any(note.startswith("predicted 24.1 µs, ") for note in scene.notes)
    pt.report_page(pt.query(pt.load(model), "reference"), "plain.html")
    assert "predicted" not in dict(read_page("plain.html").facts)
