"""m.profile(): rows, total, and the forms of both."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest

import partita as pt
from partita.accelerators import ProfileRow
from tests.accelerators.hetero.small_devices import Ran, device
from tests.graphs.topologies import alternating

X = np.array([-1.0, 0.5, 2.0, 3.0], np.float32)


def test_rows_of_every_subgraph_and_the_total(alpha, beta):
    profile = pt.compile(alternating(), "HETERO:alpha,beta").profile(X)
    assert [(r.subgraph, r.index, r.node, r.status, r.layer_type, r.device, r.exec_type) for r in profile.rows] == [
        ("alpha_0", 1, "a", "EXECUTED", "Relu", "alpha", "numpy"),
        ("beta_1", 1, "b", "EXECUTED", "Softmax", "beta", "numpy"),
        ("alpha_2", 1, "c", "EXECUTED", "Exp", "alpha", "numpy"),
        ("beta_3", 1, "d", "EXECUTED", "Softmax", "beta", "numpy"),
    ]
    assert all(row.real_us == 5.0 and row.cpu_us == 4.0 for row in profile.rows)
    assert profile.total_us == pytest.approx(sum(span.real_us for span in profile.spans))
    assert str(profile).splitlines()[-1] == f"total: {profile.total_us:.0f} microseconds"


def test_what_the_device_does_not_mention_was_optimized_out(beta):
    rows = pt.compile(alternating(), "beta").profile(X).rows
    assert [(row.node, row.status) for row in rows] == [
        ("a", "EXECUTED"),
        ("b", "OPTIMIZED_OUT"),
        ("c", "OPTIMIZED_OUT"),
        ("d", "OPTIMIZED_OUT"),
    ]


def test_a_device_that_tells_nothing_has_one_row():
    silent = type("Silent", (Ran,), {"profile_rows": lambda self: ()})
    with device("silent", subgraph_type=silent):
        (row,) = pt.compile(alternating(), "silent").profile(X).rows
    assert (row.node, row.layer_type, row.exec_type) == ("silent_0", "Subgraph", "4 ops") and row.real_us > 0


def test_rows_that_the_device_did_not_run():
    result = (ProfileRow("a", "Relu", "NOT_RUN", 0.0, 0.0, "unknown"),)
    with device("lazy", subgraph_type=type("Lazy", (Ran,), {"profile_rows": lambda self: result})):
        assert pt.compile(alternating(), "lazy").profile(X).rows[0].status == "NOT_RUN"


def test_without_inputs_it_makes_some_up_or_tells_of_the_last_call(beta):
    assert pt.compile(alternating(), "beta").profile().inputs == "inputs made up"
    m = pt.compile(alternating(), "beta", {"PERF_COUNT": "YES"})
    m(X)
    assert m.profile().inputs == "the last call"
    assert m.profile(X).inputs == "the inputs given"


def test_perf_count_goes_to_every_device(alpha, beta):
    m = pt.compile(alternating(), "HETERO:alpha,beta", {"PERF_COUNT": True, "beta": {"PERF_COUNT": False}})
    assert [config["PERF_COUNT"] for config in (*alpha.configs, *beta.configs)] == [True, True, False, False]
    m(X)
    assert m.profile().inputs == "the last call"


def test_inputs_that_cannot_be_made_up(beta):
    s = pt.variable("s", type=pt.SequenceType(pt.TensorType("float32", (2,))))
    m = pt.compile(pt.Graph([pt.op("SequenceLength", s, name="n")]), "beta")
    assert m([np.ones(2, np.float32)])[0] == 1
    with pytest.raises(pt.RunError, match="input 's': no value can be made up for a sequence"):
        m.profile()


def test_inputs_that_are_larger_than_memory(beta):
    x = pt.variable("x", "float32", (2**40, 2**20))
    with pytest.raises(pt.RunError, match="input 'x': there is no memory for numbers of shape"):
        pt.compile(pt.Graph([pt.op("Relu", x)]), "beta").example_inputs()


def test_the_model_itself_stays_unmeasured(beta):
    m = pt.compile(alternating(), "beta")
    m.profile(X)
    assert [config["PERF_COUNT"] for config in beta.configs] == [False, True]
    m.profile(X)
    assert len(beta.configs) == 2, "compiled once for all profiles"


def test_as_data_table_and_trace(alpha, beta, tmp_path):
    profile = pt.compile(alternating(), "HETERO:alpha,beta").profile(X)
    data = json.loads(profile.to_json())
    assert data["model"] == "chain" and data["rows"][0]["node"] == "a" and data["total_us"] == profile.total_us
    assert profile.to_table().row_count == 5, "and a row for the time that is in none of them"
    assert [row["node"] for row in data["rows"]] == ["a", "b", "c", "d", "in no row"]
    profile.to_chrome_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert [e["args"]["name"] for e in events if e["ph"] == "M"] == ["alpha", "beta"]
    spans = [e for e in events if e["ph"] == "X" and e["cat"] == "subgraph"]
    assert [e["name"] for e in spans] == ["alpha_0", "beta_1", "alpha_2", "beta_3"]
    assert all(a["ts"] + a["dur"] <= b["ts"] + 1e-6 for a, b in pairwise(spans))
    with pytest.raises(pt.PartitaError, match="the file cannot be written: No such file"):
        profile.to_chrome_trace(tmp_path / "none" / "trace.json")
    assert [path.name for path in tmp_path.iterdir()] == ["trace.json"]


def test_rows_are_medians_of_several_calls():
    """A call that is slow once, as when another program gets the processor, shows in no row."""
    times = iter([5.0, 900.0, *[7.0] * 7, 8.0])

    class Uneven(Ran):
        def profile_rows(self):
            return (ProfileRow("a", "Relu", "EXECUTED", next(times), 1.0, "numpy"),)

    with device("uneven", subgraph_type=Uneven):
        profile = pt.compile(alternating(), "uneven").profile(X)
    assert (profile.calls, profile.rows[0].real_us) == (9, 7.0)
    assert "median of 9 calls" in str(profile.to_table().title)


def test_a_slow_model_is_measured_once(monkeypatch, beta):
    monkeypatch.setattr("partita.accelerators.runtime.compiled_model.SECONDS", 0.0)
    assert pt.compile(alternating(), "beta").profile(X).calls == 3, "one slow call does not move the median"
    monkeypatch.setattr("partita.accelerators.runtime.compiled_model.LONGEST", 0.0)
    assert pt.compile(alternating(), "beta").profile(X).calls == 1


def test_what_is_in_no_row_has_one_of_its_own(beta):
    profile = pt.compile(alternating(), "beta").profile(X)
    outside = profile.outside
    assert outside is not None and (outside.subgraph, outside.layer_type, outside.device) == ("", "Overhead", "")
    assert outside.real_us == pytest.approx(profile.elapsed_us - profile.total_us)
    assert sum(row["real_us"] for row in profile.to_dict()["rows"]) == pytest.approx(profile.elapsed_us)
    assert str(profile).splitlines()[-2].startswith(": 1. in no row: EXECUTED layer_type: Overhead real: ")


def test_a_device_that_gives_one_row_leaves_nothing_out():
    silent = type("Silent", (Ran,), {"profile_rows": lambda self: ()})
    with device("silent", subgraph_type=silent):
        profile = pt.compile(alternating(), "silent").profile(X)
    assert profile.calls == 9 and [row.node for row in profile.listed] == ["silent_0"]


def test_the_report(alpha, beta):
    report = pt.compile(alternating(), "HETERO:alpha,beta").report
    assert str(report).splitlines()[:2] == ["chain: 4 ops in 4 subgraphs, placed by priority", "  alpha_0 on alpha: 1 op"]
    data = json.loads(json.dumps(report.to_dict()))
    assert data["placement"]["nodes"]["b"] == "beta" and len(data["subgraphs"]) == 4 and data["moves"] == []
    assert report.to_table().row_count == 4


def test_a_device_may_call_its_kernels_subgraphs(beta, tmp_path):
    rows = (ProfileRow("a", "Subgraph", "EXECUTED", 5.0, 4.0, "jit"),)
    with device("jit", "Relu", subgraph_type=type("Told", (Ran,), {"profile_rows": lambda self: rows})):
        profile = pt.compile(alternating(), "HETERO:jit,beta").profile(X)
        profile.to_chrome_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text("utf-8"))["traceEvents"]
    assert [event["name"] for event in events if event.get("cat") == "node" and event["args"]["exec_type"] == "jit"] == ["a"]
