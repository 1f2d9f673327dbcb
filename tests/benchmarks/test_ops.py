"""The benchmark over the ops, on small cases."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("tvm")
pytest.importorskip("onnxruntime")

from benchmarks.op_list import cases, chains
from benchmarks.ops import Row, main


def test_tiny(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "rows.json"
    names = ["Relu 4x64", "chain axpy 4x64", "Transpose 64x64", "ArgMax 4x64"]
    assert main([*names, "--tiny", "--threads", "1", "--json", str(file)]) == 0
    rows = json.loads(file.read_text())
    assert {row["rival"] for row in rows} == {"tvm", "onnxruntime"}
    assert {row["schedules"] for row in rows} >= {"chain", "positions", "copies"}
    assert f"{len(rows)} comparisons" in capsys.readouterr().out


def test_every_case_is_a_graph_of_known_sizes() -> None:
    listed = [*cases(), *chains()]
    assert len({case.name for case in listed}) == len(listed) > 500
    for case in listed[::20]:
        assert all(entry.type.is_static for entry in case.graph().outputs)


def test_what_is_slow() -> None:
    assert Row("Relu", 1, "tvm", 12.0, 10.0, "chain").is_slow
    assert not Row("Relu", 1, "tvm", 1.4, 1.0, "chain").is_slow, "within the slack"
    assert not Row("Relu", 1, "onnxruntime", 11.9, 10.0, "chain").is_slow
