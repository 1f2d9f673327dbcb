"""What the benchmarks are made of: figures, files, tables, models, processes."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import partita as pt
from benchmarks import compare, contest, processes, publish, results, tables
from benchmarks.agreement import error
from benchmarks.decoding import torch_ratios
from benchmarks.models.own import OWN, unet
from benchmarks.models.zoo import zoo_model
from benchmarks.partition import hopeless
from benchmarks.partition_scale import measure
from benchmarks.partitioners import LIMIT
from benchmarks.processes import CutOff, Failed, run_json, run_together
from benchmarks.results import Row, Section
from benchmarks.shapes import SHAPES
from benchmarks.timing import Ratio, Times, clock_for, geometric_mean, interleaved, interval, mean, ratio, spread, summary
from benchmarks.venvs import Environment, PeerMissing, python_of
from benchmarks.work import flops, traffic
from partita.measuring import rounds

ABOUT = {
    "processor": "a processor", "cores": 4, "memory_gib": 16.0, "system": "Linux x86_64", "versions": {"python": "3.12"},
    "commit": "abc", "date": "2026-01-02T03:04+00:00", "others_cores": 0.1,
}


def row(engine: str, milliseconds: float | None, over: float | None = None, wide: float = 0.02, **more: object) -> Row:
    times = None if milliseconds is None else Times(milliseconds / 1e3, milliseconds / 1e3, 0.05, 9)
    case = {"model": "net", "batch": 1, "threads": 1}
    return Row(case, engine, times, None if over is None else Ratio(over, wide), **more)  # type: ignore[arg-type]


def section(*rows: Row) -> Section:
    return Section(rows, ABOUT)


# -- figures ---------------------------------------------------------------------------------------------


def test_summary_and_spread() -> None:
    rounds = [[3.0, 1.0], [2.0], []]
    assert summary(rounds) == Times(2.0, 1.0, spread([1.0, 2.0, 3.0]), 3, processes=(2.0, 2.0))
    assert spread([1.0] * 10) == 0
    assert spread([1.0]) == 0.15  # a single one shows none


def test_what_disturbs_a_round_cancels_out() -> None:
    theirs = [1.0, 5.0, 2.0, 9.0, 1.0]
    result = ratio([[0.5 * t for t in theirs]], [theirs])
    assert (result.value, result.spread, str(result)) == (0.5, 0.02, "0.50 ±0.01")


def test_interval_of_the_median() -> None:
    assert interval([3.0, 1.0, 2.0]) == (1.0, 3.0)
    assert interval(list(range(1, 9))) == (1, 8)
    assert interval(list(range(1, 10))) == (2, 8)
    assert interval(list(range(1, 61))) == (22, 39)  # the table of the sign test


def test_the_interval_holds_the_median_nearly_always() -> None:
    random = np.random.default_rng(0)
    ends = [interval(list(random.lognormal(0, 0.5, 20))) for _ in range(500)]
    assert sum(low <= 1 <= high for low, high in ends) > 0.93 * 500


def test_a_ratio_with_outliers_is_worth_something() -> None:
    assert spread([1.0, 1.01, 0.99] * 6 + [9.0] * 3) > 1  # one round in seven was disturbed
    assert ratio([[1.0, 1.01, 0.99] * 6 + [9.0] * 3], [[1.0] * 21]).spread == 0.02


def test_a_wild_ratio_is_not_shown() -> None:
    result = ratio([[1.0, 9.0, 1.0, 9.0, 1.0, 9.0]], [[1.0] * 6])
    assert result.is_inconclusive and str(result).startswith("inconclusive (±")


def test_processes_that_differ_make_a_ratio_uncertain() -> None:
    steady = [1.0, 1.001] * 10
    assert ratio([steady] * 3, [[1.0] * 20] * 3).spread == 0.02
    result = ratio([steady, steady, [1.5] * 20], [[1.0] * 20] * 3)
    assert result.value == pytest.approx(1, abs=0.01) and result.spread == pytest.approx(0.5, abs=0.01)


def test_mean_of_ratios() -> None:
    result = mean([Ratio(0.5, 0.1), Ratio(2.0, 0.1)])
    assert result.value == pytest.approx(1) and result.spread == pytest.approx(0.1 / 2**0.5)


def test_everybody_has_a_turn_in_each_round() -> None:
    order: list[str] = []

    def contestant(name: str):
        def seconds(count: int) -> list[float]:
            order.append(name)
            return [1.0] * count

        return seconds

    result = interleaved({name: contestant(name) for name in "abc"}, budget=0, fewest=3)
    assert result == {name: [1.0] * 3 for name in "abc"}
    assert "".join(order) == "abc" + "bca" + "cab"  # the first calls are long: they are a round


def test_first_calls_do_not_count() -> None:
    times = itertools.chain([0.2], itertools.repeat(0.02))
    assert interleaved({"a": lambda count: [next(times) for _ in range(count)]}, budget=0, fewest=1) == {"a": [0.02]}


def test_threads_that_spin_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    used = itertools.chain([0.0, 0.004, 0.004, 0.008, 0.012, 0.0121], itertools.repeat(1.0))  # before and after each look
    slept: list[float] = []
    monkeypatch.setattr(rounds.time, "process_time", lambda: next(used))
    monkeypatch.setattr(rounds.time, "sleep", slept.append)
    rounds.settle()
    assert slept == [rounds.PAUSE] * 3


def test_geometric_mean() -> None:
    assert geometric_mean([0.5, 2.0]) == pytest.approx(1)


def test_who_is_not_asked_at_the_next_size() -> None:
    def row(nodes: int, seconds: float | None, note: str = "") -> Row:
        return Row({"shape": "holes", "nodes": nodes}, "peer", seconds and Times(seconds, seconds, 0, 1), note=note)  # type: ignore[arg-type]

    sizes = (1_000, 10_000, 100_000)
    assert hopeless(row(10_000, None, "over 60 s"), [], sizes, 60) == "over 60 s at 10,000 nodes already"
    assert hopeless(row(10_000, 5.8), [row(1_000, 0.07)], sizes, 60) == (
        "not tried: 10,000 nodes took 83 times as long as 1,000; 481 s expected"
    )
    assert hopeless(row(10_000, 5.8), [row(1_000, 0.5)], sizes, 60) == ""  # 67 s: who knows
    assert hopeless(row(100_000, 50), [row(10_000, 0.5)], sizes, 60) == ""  # there is no next size


def test_error_is_relative_and_before_a_softmax() -> None:
    assert error([np.float32([1, 2, 4])], [np.float32([1, 2, 4.4])]) == pytest.approx(0.4 / 4.4)
    assert error([np.zeros(3)], [np.zeros(4)]) == float("inf")
    assert error([np.float32([np.nan])], [np.float32([1])]) == float("inf")
    logits = np.array([[0.0, 1.0, 30.0]])
    softmax = np.exp(logits - 30) / np.exp(logits - 30).sum()
    moved = np.exp(logits + [0, 1, 0] - np.array(30)) / np.exp(logits + [0, 1, 0] - np.array(30)).sum()
    assert np.abs(softmax - moved).max() < 1e-11 and error([softmax], [moved]) > 0.03


def test_work_of_a_layer() -> None:
    x = pt.variable("x", "float32", (1, 3, 8, 8))
    w = pt.constant(np.ones((4, 3, 3, 3), np.float32), name="w")
    conv = pt.op("Conv", x, w, name="conv", kernel_shape=[3, 3])
    graph = pt.apply_pass(pt.Graph([pt.op("Relu", conv, name="relu")]), "InferShape")
    nodes = [graph["conv"], graph["relu"]]
    assert flops(nodes) == 4 * 36 * 27 * 2 + 4 * 36
    assert traffic(graph, nodes) == 4 * (3 * 64 + 4 * 27 + 4 * 36)


# -- files -----------------------------------------------------------------------------------------------


def test_results_come_back(tmp_path: Path) -> None:
    result = section(row("partita", 1.5, error=1e-6), row("openvino", 2, 0.75), row("tvm", None, note="over 6 s"))
    path = tmp_path / "run.json"
    results.write("latency", result, path)
    results.write("compile", section(), path)
    assert results.read(path) == {"latency": result, "compile": section()}
    assert results.newest("latency", tmp_path) == result and results.newest("gpu", tmp_path) is None


def test_no_run_writes_over_another(tmp_path: Path) -> None:
    names = []
    for _ in range(3):
        path = results.fresh(tmp_path)
        results.write("compile", section(), path)
        names.append(path.stem)
    assert names == [names[0], f"{names[0]}-2", f"{names[0]}-3"]


def test_latency_table() -> None:
    rows = [row("partita", 1.5), row("onnxruntime", 3, 0.5), row("openvino", 2, 0.75), row("tvm", 300, 0.005)]
    said = tables.latency(section(*rows, row("torch", None, note="ModuleNotFoundError: no torch")))
    assert "| net            | 1.5 (1.5) |       3 (3) |    2 (2) | 300 (300) |   [1] | 0.75 ±0.01 |" in said
    assert "| geometric mean |           |             |          |           |       | 0.75 ±0.01 |" in said
    assert "[1]: ModuleNotFoundError: no torch" in said


def test_a_wrong_engine_counts_for_no_ratio() -> None:
    said = tables.latency(section(row("partita", 1.5), row("fast", 1, 1.5, note="wrong: 3e-02"), row("right", 2, 0.75)))
    assert "0.75 ±0.01" in said and "1 (1) wrong: 3e-02" in said


def test_an_inconclusive_ratio_is_left_out_of_the_mean() -> None:
    said = tables.latency(section(row("partita", 1.5), row("openvino", 2, 0.75, wide=0.5)))
    assert "inconclusive (±50%)" in said and "(0 of 1)" not in said and "–" in said


def test_put_writes_between_the_markers_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- bench:latency -->\nold\n<!-- /bench:latency -->\nafter\n")
    for _ in range(2):
        publish.put(page, {"latency": r"new \1", "gpu": "nowhere"})
    assert page.read_text() == "before\n<!-- bench:latency -->\n\nnew \\1\n\n<!-- /bench:latency -->\nafter\n"


def test_compare() -> None:
    old = {"latency": section(row("partita", 1.5), row("openvino", 2, 0.75), row("onnxruntime", 3, 0.50))}
    new = {"latency": section(row("partita", 1.5), row("openvino", 2, 0.76), row("onnxruntime", None, note="wrong: 1e-01"))}
    assert compare.report(old, new, everything=False) == (
        "1 of 1 ratios agree within their spreads; on average they are +1.3%.\n\n"
        "1 of 1 times agree within their spreads; on average they are +0.0%.\n\n"
        "latency: net, batch 1, threads 1: onnxruntime: fine -> wrong: 1e-01\n\n"
        "The two runs agree."
    )
    new = {"latency": section(row("openvino", 2, 0.60))}
    said = compare.report(old, new, everything=False)
    assert "| latency: net, batch 1, threads 1: openvino | ratio | 0.75 | 0.6 |   -20% |        |" in said
    assert "0 of 1 ratios agree" in said
    assert said.endswith("The two runs differ: 1 of 1 ratios changed by more than their spreads explain.")


def test_one_difference_in_twenty_is_chance() -> None:
    def ratios(first: float) -> list[compare.Change]:
        return [compare.Change("latency", "net", "ratio", 1.0, first if i == 0 else 1.0, 0.02) for i in range(20)]

    assert compare.verdict(ratios(1.0)) == "The two runs agree."
    assert compare.verdict(ratios(1.5)) == "The two runs agree; 1 of 20 that differ are no more than chance explains."
    assert compare.verdict(ratios(1.5)[:19]).startswith("The two runs differ: 1 of 19")
    assert compare.verdict([]).startswith("Nothing to compare")


def test_threads_table_says_how_many_processes_are_slow() -> None:
    def times(*processes: float) -> Times:
        return Times(processes[0], min(processes), 0.0, len(processes), processes)

    case, ours = {"model": "net", "threads": 4, "situation": "alone"}, times(0.002, *[0.001] * 9, *[0.002] * 10)
    rows = [
        Row(case, "partita", ours, extra={"over_alone": 1.0}),
        Row(case, "onnxruntime", times(*[0.001] * 20), Ratio(2.0, 0.1), extra={"over_alone": 1.0}),
    ]
    said = tables.threads(Section(tuple(rows), {**ABOUT, "processes": 20}))
    assert "1.00 (11 of 20 slow) |        1.00 (0 of 20 slow)" in said


def test_pictures_are_the_same_each_time(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from benchmarks import plots

    shapes = [Row({"shape": "holes", "nodes": n}, e, Times(n * t, n, 0, 1)) for e, t in (("partita", 1e-6), ("tvm", 1e-4))
              for n in (1000, 10_000)]
    latency = section(row("partita", 1.5), row("openvino", 2, 0.75))
    drawn = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        files = [*plots.growth(section(*shapes), tmp_path / name).values(), *plots.ratios(latency, tmp_path / name).values()]
        drawn.append([(path.name, path.read_bytes()) for path in files])
    assert drawn[0] == drawn[1] and [name for name, _ in drawn[0]] == ["partition-holes.svg", "latency-1.svg"]


# -- models ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["squeezenet", "shufflenet"])
def test_zoo_models_at_batch_8(name: str) -> None:
    graph = zoo_model(name, 8)
    assert str(graph.inputs[0][0].type) == "float32[8, 3, 224, 224]"
    kind = graph.outputs[0].type
    assert kind is not None and str(kind).startswith("float32[8, 1000")


@pytest.mark.parametrize("name", OWN)
def test_own_models_are_the_same_each_time(name: str) -> None:
    first, second = OWN[name](1), OWN[name](1)
    assert str(first) == str(second)
    assert all(entry.type is not None for entry in first.outputs)


def test_a_small_unet_computes() -> None:
    model = pt.compile(unet(1, size=32, width=4), "reference")
    random = np.random.default_rng(0)
    one, other = (model(random.standard_normal((1, 3, 32, 32), np.float32))[0] for _ in range(2))
    assert one.shape == (1, 4, 32, 32) and np.isfinite(one).all()
    assert one.std() > 0.1 and np.abs(one - other).max() > 0.1


def test_shapes_of_the_partitioning_benchmark_have_fan_in_2() -> None:
    for name in ("residual", "holes", "random"):
        preds, _ = SHAPES[name](500)
        assert max(map(len, preds)) <= 2


def test_stages_of_partitioning_are_parts_of_the_whole() -> None:
    row = measure("few-holes", 500, "largest")
    assert row["groups"] == 5
    assert min(row["plan"], row["check"], row["splice"]) > 0
    assert row["plan"] + row["check"] + row["splice"] == pytest.approx(row["whole"])


# -- processes and environments --------------------------------------------------------------------------


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_the_last_line_is_what_a_process_says() -> None:
    assert run_json(python("print('noise'); print('[1, 2]')"), 300) == [1, 2]


def test_processes_of_a_case_measure_one_after_the_other(tmp_path: Path) -> None:
    code = (
        "import fcntl, json, sys, time\n"
        "gate, loads = int(sys.argv[1]), float(sys.argv[2])\n"
        "time.sleep(loads)\n"
        "loaded = time.monotonic()\n"
        "fcntl.flock(gate, fcntl.LOCK_EX)\n"
        "began = time.monotonic()\n"
        "time.sleep(0.2)\n"
        "print(json.dumps([loaded, began, time.monotonic()]))"
    )
    gates = contest.closed_gates(3)
    said = run_together([[*python(code), str(gate), str(0.2 * i)] for i, gate in enumerate(gates)], 300, given=gates)
    assert max(loaded for loaded, _, _ in said) <= min(began for _, began, _ in said)
    turns = sorted((began, ended) for _, began, ended in said)
    assert all(ended <= began for (_, ended), (began, _) in itertools.pairwise(turns))


def the_limit_is_over(when: Callable[[], bool], monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of those who watch processes stands until then."""
    monkeypatch.setattr(processes, "time", SimpleNamespace(monotonic=lambda: 1e9 if when() else 0.0))


def test_of_processes_together_one_may_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    good, bad, long = python("print('[1]')"), python("raise ValueError('no')"), python("import time; time.sleep(600)")
    started: list[subprocess.Popen[bytes]] = []

    def noted(*words: Any, **options: Any) -> subprocess.Popen[bytes]:
        started.append(popen(*words, **options))
        return started[-1]

    popen = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", noted)
    the_limit_is_over(lambda: len(started) == 3 and all(each.poll() is not None for each in started[:2]), monkeypatch)
    said = run_together([good, bad, long], 6)
    assert said[0] == [1] and str(said[1]) == "ValueError: no" and isinstance(said[2], CutOff)


def test_a_process_is_cut_off_with_all_that_it_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "alive"
    the_limit_is_over(file.exists, monkeypatch)
    child = f"import time\nwhile True: open({str(file)!r}, 'w').write(str(time.time())); time.sleep(0.05)"
    code = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {child!r}]); time.sleep(600)"
    with pytest.raises(CutOff, match="over 6 s"):
        run_json(python(code), 6)
    time.sleep(0.3)
    before = file.read_text()
    time.sleep(0.3)
    assert file.read_text() == before


def test_a_failure_says_its_last_words() -> None:
    with pytest.raises(Failed, match="ValueError: too bad") as caught:
        run_json(python("raise ValueError('too bad')"), 300)
    assert caught.value.code == 1


def test_a_partitioner_ends_itself_at_the_limit() -> None:
    code = "from benchmarks.partitioners import clocked; import time; clocked(lambda: time.sleep(60))"
    done = subprocess.run(python(code), cwd=publish.ROOT, env={LIMIT: "0.2"}, check=False, timeout=300)
    assert done.returncode == -14


def test_a_missing_python_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    with pytest.raises(PeerMissing, match=r"old needs Python 2\.1: none on the path or in .*versions \(pyenv install 2\.1\)"):
        python_of(Environment("old", ("nothing",), python="2.1"))


def test_what_torch_cannot_do_is_no_ratio(capsys: pytest.CaptureFixture[str]) -> None:
    assert torch_ratios(1.0, {"eager": 2.0, "compiled": "CppCompileError: no compiler"}) == ["0.50", "–"]
    assert capsys.readouterr().err == "torch compiled: CppCompileError: no compiler\n"


def test_the_clock_of_one_thread_counts_the_work_of_threads_beside_it() -> None:
    clock, used = clock_for(1), []

    def work() -> None:
        begin = time.thread_time()
        while time.thread_time() - begin < 0.01:
            sum(range(1000))
        used.append(time.thread_time() - begin)

    start = clock()
    beside = threading.Thread(target=work)
    beside.start()
    beside.join()
    assert clock() - start >= used[0]
    assert clock_for(2) is time.perf_counter
