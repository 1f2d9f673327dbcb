"""The verb that writes a placed model as a chain of stages."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import partita as pt
from tests.cli.conftest import Command

DEVICES = "--devices HETERO:onnxruntime,reference"
PINS = "--pin conv1=onnxruntime --pin relu1=reference --pin softmax1=onnxruntime"


def test_stages_are_those_of_a_plan_with_times_of_a_file(partita: Command, model: str) -> None:
    assert partita(f"place {model} {DEVICES} {PINS} --lock plan.json").status == 0
    times = {"onnxruntime": {"conv1": 5.0, "softmax1": 2.5}, "reference": {"relu1": 1.0}}
    pt.Costs(times, source="a file").save("costs.json")
    done = partita(f"export {model} --plan plan.json --costs costs.json --stages out --json").json
    assert [(row["device"], row["predicted_us"]) for row in done["stages"]] == [
        ("onnxruntime", 5.0), ("reference", 1.0), ("onnxruntime", 2.5),
    ]
    kept = json.loads(Path("out/stages.json").read_text("utf-8"))
    assert kept["times"] == "a file"
    x = value = np.ones((1, 3, 8, 8), np.float32)
    for row in kept["stages"]:
        (value,) = pt.import_model(Path("out") / row["file"])(value)
    assert value.tobytes() == pt.compile(pt.load(model), plan="plan.json")(x)[0].tobytes()


def test_times_are_measured_with_the_given_inputs(partita: Command, model: str) -> None:
    np.save("x.npy", np.ones((1, 3, 8, 8), np.float32))
    done = partita(f"export {model} --devices reference --stages out --form triton --input x.npy")
    assert done.status == 0 and "small: 1 stage, times measured with the inputs given" in done.out and "wrote out" in done.out
    assert Path("out/small_0/1/model.py").exists()
    partita(f"compile {model} --devices reference -o small.partita")
    assert partita("export small.partita --stages again --json").json["times"] == "measured with inputs made up"


@pytest.mark.parametrize("options, status, error", [
    ("small.onnx", 2, "the following arguments are required: --stages"),
    ("small.onnx --stages out --form onxx", 2, "invalid choice: 'onxx'"),
    ("small.onnx --stages small.onnx --devices reference", 1, "the folder cannot be created: File exists"),
    ("small.onnx --stages out --costs none.json", 1, "no costs can be read from it"),
    ("small.onnx --stages out --plan plan.json", 1, "no plan can be read from it"),
    ("small.partita --stages out --plan plan.json", 2, "the model is compiled: --plan comes too late"),
])
def test_wrong_options_are_refused(partita: Command, model: str, options: str, status: int, error: str) -> None:
    done = partita(f"export {options}")
    assert done.status == status and error in done.err
