"""A profile that is built by hand, and all that is printed and written of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs
import pytest

from partita.accelerators.runtime.profile import Profile, Row, Span

FIRST = Row("cpu_0", 1, "conv", "EXECUTED", "Conv", 1234.56, 1000.04, "cpu", "vnni", "float32")
INNER = Row("cpu_0", 2, "relu", "OPTIMIZED_OUT", "Relu", 0.0, 0.0, "cpu", "", "")
WHOLE = Row("ort_1", 1, "ort_1", "EXECUTED", "Subgraph", 20.0, 10.0, "onnxruntime", "ort", "float32")
UNUSED = Row("", 1, "unused", "NOT_RUN", "Neg", 0.0, 0.0, "", "")
OUTSIDE = Row("", 1, "in no row", "EXECUTED", "Overhead", 5.44, 1.0, "", "")
SPANS = (Span("cpu_0", "cpu", 0.0, 1234.56, (FIRST, INNER)), Span("ort_1", "onnxruntime", 1234.56, 20.0, (WHOLE,)))
PROFILE = Profile("net", "inputs made up", 1254.56, SPANS, (UNUSED,), 1260.0, 1, OUTSIDE)


def cells(profile: Profile, slowest: int | None = None) -> dict[str, list[str]]:
    table = profile.to_table(slowest)
    return {str(column.header): [str(cell) for cell in column.cells] for column in table.columns}


def test_the_table() -> None:
    table = PROFILE.to_table()
    assert (str(table.title), table.caption) == ("net (inputs made up)", "total: 1,255 µs of 1,260 µs on the clock")
    assert cells(PROFILE) == {
        "subgraph": ["cpu_0", "cpu_0", "ort_1", "", ""],
        "#": ["1", "2", "1", "1", "1"],
        "node": ["conv", "relu", "ort_1", "unused", "in no row"],
        "status": ["EXECUTED", "OPTIMIZED_OUT", "EXECUTED", "NOT_RUN", "EXECUTED"],
        "layer_type": ["Conv", "Relu", "Subgraph", "Neg", "Overhead"],
        "real µs": ["1,234.6", "0.0", "20.0", "0.0", "5.4"],
        "cpu µs": ["1,000.0", "0.0", "10.0", "0.0", "1.0"],
        "device": ["cpu", "cpu", "onnxruntime", "", ""],
        "exec_type": ["vnni", "", "ort", "", ""],
    }
    assert [str(column.header) for column in table.columns if column.justify == "right"] == ["#", "real µs", "cpu µs"]


def test_the_slowest_rows_come_first() -> None:
    assert cells(PROFILE, 3)["node"] == ["conv", "ort_1", "in no row"]


def test_several_calls_and_other_types_are_told() -> None:
    narrow = attrs.evolve(FIRST, types="bfloat16")
    profile = attrs.evolve(PROFILE, calls=3, spans=(attrs.evolve(SPANS[0], rows=(narrow, INNER)), SPANS[1]))
    assert str(profile.to_table().title) == "net (inputs made up), median of 3 calls"
    assert cells(profile)["types"] == ["bfloat16", "", "float32", "", ""]
    assert str(profile).splitlines()[0].endswith(" exec_type: vnni types: bfloat16")


def test_the_text() -> None:
    assert str(PROFILE).splitlines() == [
        "cpu_0: 1. conv: EXECUTED layer_type: Conv real: 1235 cpu: 1000 device: cpu exec_type: vnni",
        "cpu_0: 2. relu: OPTIMIZED_OUT layer_type: Relu real: 0 cpu: 0 device: cpu exec_type: ",
        "ort_1: 1. ort_1: EXECUTED layer_type: Subgraph real: 20 cpu: 10 device: onnxruntime exec_type: ort",
        ": 1. unused: NOT_RUN layer_type: Neg real: 0 cpu: 0 device:  exec_type: ",
        ": 1. in no row: EXECUTED layer_type: Overhead real: 5 cpu: 1 device:  exec_type: ",
        "total: 1255 microseconds",
    ]
    assert repr(PROFILE) == "<Profile of 'net': 4 rows, 1,255 µs>"
    assert attrs.evolve(PROFILE, outside=None).listed == PROFILE.rows == (FIRST, INNER, WHOLE, UNUSED)


def test_what_is_printed_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    long = attrs.evolve(FIRST, node="a" * 300)
    attrs.evolve(PROFILE, spans=(attrs.evolve(SPANS[0], rows=(long,)),)).print()
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) == 130 and any("1,234.6" in line for line in lines)
    PROFILE.print(1)
    assert "ort_1" not in capsys.readouterr().out


def test_the_files(tmp_path: Path) -> None:
    data: dict[str, Any] = json.loads(PROFILE.to_json())
    rows = data.pop("rows")
    assert data == {"model": "net", "inputs": "inputs made up", "total_us": 1254.56, "elapsed_us": 1260.0, "calls": 1}
    assert [row["node"] for row in rows] == ["conv", "relu", "ort_1", "unused", "in no row"]
    PROFILE.to_chrome_trace(tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text("utf-8"))
    assert trace["displayTimeUnit"] == "ms"
    shown = [(e["ph"], e["tid"], e["name"], e.get("cat"), e.get("ts"), e.get("dur")) for e in trace["traceEvents"]]
    assert shown == [
        ("M", 0, "thread_name", None, None, None),
        ("M", 1, "thread_name", None, None, None),
        ("X", 0, "cpu_0", "subgraph", 0.0, 1234.56),
        ("X", 0, "conv", "node", 0.0, 1234.56),
        ("X", 1, "ort_1", "subgraph", 1234.56, 20.0),
    ]
