"""The long attacks, each for a moment."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import partita as pt
from partita.accelerators.interface.registry import accelerator
from tests.soak import devices, faults, files, guard, isolated, models, processes, threads
from tests.soak.__main__ import END, START, publish
from tests.soak.figures import Figures

ROOT = Path(__file__).parents[2]


@pytest.fixture
def _tvm() -> None:
    try:
        accelerator("cpu")
    except pt.AcceleratorUnavailable as error:
        pytest.skip(str(error))


def clean(figures: Figures) -> Figures:
    assert figures.clean, "\n".join(figures.failures)
    return figures


@pytest.mark.slow
@pytest.mark.usefixtures("_tvm")
def test_kills_and_faults(tmp_path: Path) -> None:
    """In a process of their own: they fork, and other tests leave threads of engines behind."""
    file = tmp_path / "figures.json"
    command = [sys.executable, "-m", "tests.soak", "--minutes", "0", "--only", "kills", "faults", "--json", str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=540, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(file.read_text())
    assert figures["kills"]["tried"] == 4 and figures["faults"]["tried"] >= 12


@pytest.mark.usefixtures("_tvm")
@pytest.mark.parametrize("kilobytes", [16, 100])
@pytest.mark.thinned(2)
def test_a_disk_that_is_full_ends_no_process(kilobytes: int, tmp_path: Path) -> None:
    """LLVM ended it when an object file found no room."""
    figures = Figures()
    faults.disk_is_full(tmp_path, 1, kilobytes, figures)
    if not figures.tried:
        pytest.skip("this user may mount nothing")
    clean(figures)


@pytest.mark.slow
@pytest.mark.usefixtures("_tvm")
def test_processes() -> None:
    assert clean(processes.attack(0, 0)).tried == 5


def test_devices() -> None:
    assert clean(devices.attack(0, 0)).tried == len(devices.WAYS)


@pytest.mark.slow
def test_isolated_devices() -> None:
    """The quick ones are in tests/accelerators/isolation."""
    assert clean(isolated.attack(0, 0)).kills > 0


@pytest.mark.usefixtures("_tvm")
def test_threads() -> None:
    assert clean(threads.attack(0, 0, threads=16, models=4, calls=20)).calls > 1000


@pytest.mark.usefixtures("_tvm")
def test_models_and_kernels() -> None:
    assert clean(models.attack(0, 1)).tried == 1
    assert clean(guard.attack(0, 0)).calls >= 1


def test_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "READERS", ["text", "npy"])
    assert clean(files.attack(0, 0)).tried == 2 * files.BATCH


def test_rows_are_published_in_the_places_of_older_ones(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{START}\n{END}\nafter\n")
    publish(page, {"kills": Figures(tried=5), "threads": Figures(calls=12_345)}, 600, 0)
    publish(page, {"kills": Figures(tried=7)}, 60, 3)
    lines = page.read_text().splitlines()
    assert lines[0] == "before" and lines[-1] == "after"
    assert lines[4:6] == [
        "| kills | 7 | 0 | 0 | 0 | 0 | 0 | 0 | `python -m tests.soak --only kills --minutes 1 --seed 3` |",
        "| threads | 0 | 0 | 0 | 0 | 0 | 12,345 | 0 | `python -m tests.soak --only threads --minutes 10 --seed 0` |",
    ]


def test_what_goes_wrong_is_counted_and_said() -> None:
    figures = Figures()
    assert figures.clean
    figures.failed("hangs", "this one")
    assert not figures.clean and figures.hangs == 1 and figures.failures == ["hangs: this one"]


def test_an_interrupt_is_one_in_a_background_job_too() -> None:
    """A shell has it ignore interrupts, and the processes that it starts inherit that."""
    figures, before = Figures(), signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        processes.one_process(figures, "reference", "interrupt", 0.05)
    finally:
        signal.signal(signal.SIGINT, before)
    clean(figures)
