"""Processors other than this one, and a driver of OpenCL."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest

from partita.accelerators.errors import AcceleratorUnavailable
from partita.accelerators.tvm.machine.machine import Machine, hidden_features, host_cpu
from partita.accelerators.tvm.query import isolated_trials
from partita.accelerators.tvm.query.isolated_trials import TrialProcess


def plan_for(lanes: int, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """From now on the device `cpu` plans for four cores with vectors of so many 32-bit numbers, whatever processor this is. The
    code still runs here: the compiler splits vectors that this processor does not have."""
    machine = Machine("cpu", host_cpu(), 4, lanes, 32 if lanes == 16 else 16, hidden=hidden_features())
    monkeypatch.setattr("partita.accelerators.tvm.cpu.default_threads", lambda: machine.threads)
    monkeypatch.setattr("partita.accelerators.tvm.cpu.host_machine", lambda threads: attrs.evolve(machine, threads=threads))
    return machine


@pytest.fixture
def avx2(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """The machine that a test of structure plans for: four cores, vectors of eight numbers."""
    return plan_for(8, monkeypatch)


@pytest.fixture
def avx512(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Another one: four cores, vectors of sixteen numbers."""
    return plan_for(16, monkeypatch)


@pytest.fixture(params=[4, 8, 16])
def lanes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Vectors of several widths on four cores."""
    return plan_for(request.param, monkeypatch).lanes


@pytest.fixture(params=[("znver4", 16, 32), ("haswell", 8, 16), ("nehalem", 4, 16)], ids=lambda param: param[0])
def processor(request: pytest.FixtureRequest) -> Machine:
    """Code for these can be read here, if not run."""
    if platform.machine() != "x86_64":
        pytest.skip("names x86 processors")
    arch, width, registers = request.param
    return Machine("cpu", arch, 1, width, registers)


@pytest.fixture(scope="session")
def opencl() -> None:
    """A driver of OpenCL; without one the test is skipped."""
    from partita.accelerators.tvm.run import opencl_driver

    try:
        opencl_driver.drivers()
    except AcceleratorUnavailable as unavailable:
        pytest.skip(f"no OpenCL here: {unavailable.cause}")


@pytest.fixture
def fake_trials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], TrialProcess]]:
    """Puts a child that runs this code in place of the one that tries bodies: it defines `answer`, a function of a request; the
    first request is empty."""
    trials = TrialProcess()

    def put(code: str) -> TrialProcess:
        script = tmp_path / "child.py"
        serving = "from partita.accelerators.process.serving import serve"
        script.write_text(f"import os, time\n{serving}\n{code}\nserve(lambda *_: answer)")
        monkeypatch.setattr(isolated_trials, "COMMAND", [sys.executable, str(script)])
        monkeypatch.setattr(isolated_trials, "TRIALS", trials)
        return trials

    yield put
    trials.end()
