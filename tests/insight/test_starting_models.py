"""Tools that look at a model's own devices wait for those of one that starts (START)."""

from __future__ import annotations

import time

import numpy as np
import pytest

import partita as pt
from partita.accelerators import CompiledSubgraph
from partita.graph.readers.text import parse
from partita.insight.capsules import _of_model
from partita.insight.trusted import Trusted
from partita.measuring.rounds import contender
from tests.accelerators.hetero.small_devices import device
from tests.cli.conftest import Command, partita  # noqa: F401  a fixture

NET = parse("graph net(x: float32[2, 3]) -> (y) { a = Relu(x)\n y = Exp(a) }")
NOW = {"HETERO": {"START": "now", "START_WITH": "reference"}}
X = np.ones((2, 3), np.float32)


class Wrong(CompiledSubgraph):
    """Takes its time to compile, and computes something else."""

    def __init__(self, graph):
        time.sleep(0.5)

    def run(self, inputs, out=None):
        return [inputs[0] + 100]


@pytest.fixture
def wrong():
    with device("wrong", subgraph_type=Wrong) as plugin:
        yield plugin


def test_bench_measures_the_devices_asked_for(wrong) -> None:
    assert contender("wrong", NET, NOW).call(X)[0][0, 0] == 101
    assert contender(None, pt.compile(NET, "wrong", NOW), {}).call(X)[0][0, 0] == 101


def test_tune_tunes_the_devices_asked_for(wrong) -> None:
    tuned = []
    type(wrong).tune = lambda self, body, config, until, shown: tuned.append(self.name)
    pt.tune(pt.compile(NET, "wrong", NOW), 0.0, progress=False)
    assert tuned == ["wrong"]


def test_diagnose_holds_the_devices_asked_for_against_the_trusted(wrong) -> None:
    assert not pt.diagnose(NET, "wrong", X, config=NOW).ok
    assert not pt.diagnose(pt.compile(NET, "wrong", NOW), inputs=X).ok


def test_a_capsule_is_of_the_devices_asked_for(wrong) -> None:
    assert _of_model(NET, 0, "wrong", X, Trusted("reference"), NOW, 0).device.label == "wrong"


def test_the_command_line_checks_the_devices_asked_for(wrong, partita: Command, tmp_path) -> None:  # noqa: F811
    pt.save(NET, tmp_path / "net.onnx")
    line = f"run {tmp_path / 'net.onnx'} --devices wrong --config START=now --config START_WITH=reference --check"
    assert partita(line).status == 1


def test_models_that_start_fill_the_cache(tmp_path) -> None:
    pytest.importorskip("tvm")
    (model,) = pt.compile_many([NET], "cpu", {**NOW, "cpu": {"CACHE_DIR": str(tmp_path)}}, workers=1)
    assert model(X)[0].shape == (2, 3) and list(tmp_path.glob("entries/*"))
