"""The host side of `cuda` where there is no GPU: `cuda_standin/runs.py`, in a process that finds a stand-in for the driver."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.accelerators.tvm import cuda_standin

pytest.importorskip("tvm")


@pytest.mark.skipif(cuda_standin.missing() is not None, reason=str(cuda_standin.missing()))
def test_on_a_stand_in_for_the_driver(tmp_path: Path) -> None:
    """Each test of that file passes there; none is skipped."""
    runs = cuda_standin.HERE / "runs.py"
    command = [sys.executable, "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider", "-p", "no:xdist", str(runs)]
    environment = cuda_standin.environment(tmp_path)
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, check=False)
    assert done.returncode == 0 and "skipped" not in done.stdout, done.stdout[-8000:] + done.stderr[-2000:]
