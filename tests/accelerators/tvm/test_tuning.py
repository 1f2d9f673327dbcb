"""Tuning: what is found, where it is kept, and who uses it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import partita as pt
from partita.accelerators.tvm.kernels.shared.choice import choose, choosing
from partita.accelerators.tvm.machine.machine import host_machine
from partita.accelerators.tvm.tune import findings as tuned
from partita.accelerators.tvm.tune import tuner
from tests.close import is_close

pytest.importorskip("tvm")

ROOT = Path(__file__).resolve().parents[3]
WANTED = "PanelTile(rows=2, vectors=2"

MODEL = """
import numpy as np, partita as pt
def model():
    x = pt.variable("x", "float32", (16, 24))
    y = pt.op("Relu", pt.op("MatMul", x, pt.constant(np.linspace(-1, 1, 24 * 48, dtype="float32").reshape(24, 48))))
    y = pt.op("MatMul", y, pt.constant(np.linspace(-1, 1, 48 * 40, dtype="float32").reshape(48, 40)))
    return pt.Graph([y], inputs=[x])
"""


def model() -> pt.Graph:
    names: dict[str, Any] = {}
    exec(MODEL, names)  # noqa: S102  other processes run the same text
    result: pt.Graph = names["model"]()
    return result


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def _two_by_two_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Instead of a measurement: tiles of two by two are twice as fast as others."""

    def measured(self: tuner.Tuner, trials: Sequence[Any]) -> None:
        for trial in trials:
            trial.seconds = 1.0 if trial.choices.get("tile", "").startswith(WANTED) else 2.0

    monkeypatch.setattr(tuner.Tuner, "_measure", measured)
    monkeypatch.setattr(tuner, "PATIENCE", 1000)


def compiled(folder: Path) -> pt.CompiledModel:
    return pt.compile(model(), "cpu", config={"CACHE_DIR": str(folder)})


def tiles(folder: Path) -> list[str]:
    rows = json.loads(next((folder / tuned.FOLDER).glob("*.json")).read_text())["kernels"]
    return [row["choices"].get("tile", "") for row in rows.values()]


def test_what_is_measured_is_kept_and_later_compiled(folder: Path, _two_by_two_wins: None, capfd: Any) -> None:
    before = compiled(folder)
    was = [kernel.tir for kernel in before.kernels()]
    x = np.linspace(-2, 2, 16 * 24, dtype="float32").reshape(16, 24)
    report = pt.tune(before, 60)
    assert [row.after_us / row.before_us for row in report.kernels] == [0.5, 0.5]
    assert all(row.choices["tile"].startswith(WANTED) for row in report.kernels)
    assert str(report).startswith("2 of 2 kernels are faster now")
    assert capfd.readouterr().err.count("2000000.0 µs -> 1000000.0 µs") == 2
    assert all(name.startswith(WANTED) for name in tiles(folder))
    after = compiled(folder)
    assert all(kernel.tir != other for kernel, other in zip(after.kernels(), was, strict=True))
    assert is_close(after(x)[0], before(x)[0])
    config = {"CACHE_DIR": str(folder)}
    code = f"{MODEL}\nprint(*[k.tir for k in pt.compile(model(), 'cpu', config={config!r}).kernels()])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == "\n".join(k.tir for k in after.kernels()).split()


def test_a_choice_is_left_after_two_batches_without_gain(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuner.Tuner, "_measure", lambda self, trials: [setattr(trial, "seconds", 1.0) for trial in trials])
    monkeypatch.setattr(tuner, "usable_cores", lambda: 1)
    report = pt.tune(compiled(folder), 60, progress=False)
    assert [row.choices for row in report.kernels] == [{}, {}]
    assert all(3 <= row.tried <= 5 for row in report.kernels), "itself, two tiles, and two of what else there is to choose"


def test_an_interrupt_keeps_what_was_found(folder: Path, _two_by_two_wins: None, monkeypatch: pytest.MonkeyPatch) -> None:
    tune_one, done = tuner.Tuner._tune, []

    def interrupted(self: tuner.Tuner, *given: Any) -> None:
        if done:
            raise KeyboardInterrupt
        done.append(tune_one(self, *given))

    monkeypatch.setattr(tuner.Tuner, "_tune", interrupted)
    report = pt.tune(compiled(folder), 60, progress=False)
    assert report.interrupted and len(report.kernels) == 1
    assert [name.startswith(WANTED) for name in tiles(folder)] == [True]


def test_a_real_measurement_makes_nothing_slower(folder: Path) -> None:
    m = compiled(folder)
    report = pt.tune(m, 2, progress=False)
    assert report.kernels and not report.interrupted
    assert all(row.after_us <= row.before_us for row in report.kernels)
    x = np.ones((16, 24), "float32")
    assert is_close(compiled(folder)(x)[0], m(x)[0])


@pytest.mark.slow
def test_a_second_tuning_begins_with_what_the_first_found(folder: Path, _two_by_two_wins: None) -> None:
    pt.tune(compiled(folder), 60, progress=False)
    report = pt.tune(compiled(folder), 0.001, progress=False)
    assert all(row.choices["tile"].startswith(WANTED) for row in report.kernels)
    assert all(name.startswith(WANTED) for name in tiles(folder))


def test_a_kernel_that_computes_something_else_is_not_taken(
    folder: Path, _two_by_two_wins: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = tuner._Trial.results

    def wrong(self: Any) -> list[Any]:
        return [array + bool(self.choices) for array in results(self)]

    monkeypatch.setattr(tuner._Trial, "results", wrong)
    report = pt.tune(compiled(folder), 60, progress=False)
    assert [row.choices for row in report.kernels] == [{}, {}]


def test_without_a_cache_there_is_no_place_for_it() -> None:
    m = pt.compile(model(), "cpu", config={"CACHE_DIR": "off"})
    with pytest.raises(pt.AcceleratorError, match="what tuning finds is kept in the cache, and the cache is off"):
        pt.tune(m, 1, progress=False)


def test_devices_without_choices_do_nothing() -> None:
    assert pt.tune(pt.compile(model(), "reference"), 1, progress=False).kernels == ()


@pytest.mark.parametrize("budget", ["x", None, -1, float("nan")])
def test_a_time_that_is_none(budget: Any) -> None:
    compiled = pt.compile(model(), "reference")
    with pytest.raises(pt.AcceleratorError, match=rf"tune: budget_s is {budget!r}"):
        pt.tune(compiled, budget)
    with pytest.raises(pt.AcceleratorError, match="tune: a compiled model is tuned, not int"):
        pt.tune(3)  # type: ignore[arg-type]


def test_several_writers_lose_nothing(folder: Path) -> None:
    machine, config = host_machine(1), {"CACHE_DIR": str(folder)}
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: tuned.add(config, machine, f"kernel {i}", tuned.Finding({"tile": str(i)}, 1, 2, 3)), range(40)))
    result = tuned.findings(config, machine)
    assert {row.choices["tile"] for row in result.values()} == {str(i) for i in range(40)}


def test_a_damaged_file_counts_as_none(folder: Path) -> None:
    machine, config = host_machine(1), {"CACHE_DIR": str(folder)}
    tuned.add(config, machine, "kernel", tuned.Finding({}, 1, 2, 3))
    next((folder / tuned.FOLDER).glob("*.json")).write_text('{"kernels": {"a": 1}')
    assert tuned.findings(config, machine) == {}
    tuned.add(config, machine, "kernel", tuned.Finding({}, 1, 2, 3))
    assert len(tuned.findings(config, machine)) == 1


def test_choices() -> None:
    sizes = [3, 1, 2]
    assert choose("size", sizes, lambda size: size) == 1
    with choosing({"size": "3"}) as result:
        assert choose("size", sizes, lambda size: size) == 3
    assert result.offered == {"size": ("1", "2", "3")}
    with choosing({"size": "7"}):
        assert choose("size", sizes, lambda size: size) == 1
