"""Processors other than this one."""

from __future__ import annotations

import platform

import pytest

from accelerators.tvm.machine import Machine, host_cpu


@pytest.fixture(params=[4, 8, 16])
def lanes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Four threads, and vectors of several widths; the compiler splits the vectors that this processor does not have."""
    width: int = request.param
    machine = Machine("cpu", host_cpu(), 4, width, 32 if width == 16 else 16)
    monkeypatch.setattr("accelerators.tvm.cpu.host_machine", lambda threads: machine)
    return width


@pytest.fixture(params=[("znver4", 16, 32), ("haswell", 8, 16), ("nehalem", 4, 16)], ids=lambda param: param[0])
def processor(request: pytest.FixtureRequest) -> Machine:
    """Code for these can be read here, if not run."""
    if platform.machine() != "x86_64":
        pytest.skip("names x86 processors")
    arch, width, registers = request.param
    return Machine("cpu", arch, 1, width, registers)
