"""`cuda` where there is no GPU: the tests in `cuda_standin`, in a process that finds a stand-in for the driver."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.accelerators.tvm import cuda_standin

pytest.importorskip("tvm")


@pytest.mark.skipif(cuda_standin.missing() is not None, reason=str(cuda_standin.missing()))
@pytest.mark.parametrize("name", ["runs.py", *(pytest.param(name, marks=pytest.mark.slow) for name in ("sizes.py", "values.py"))])
def test_on_a_stand_in_for_the_driver(name: str, tmp_path: Path) -> None:
    """Each test of the file passes there; none is skipped."""
    tests = str(cuda_standin.HERE / name)
    command = [sys.executable, "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider", "-p", "no:xdist", tests]
    environment = cuda_standin.environment(tmp_path)
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, check=False)
    assert done.returncode == 0 and "skipped" not in done.stdout, done.stdout[-8000:] + done.stderr[-2000:]
