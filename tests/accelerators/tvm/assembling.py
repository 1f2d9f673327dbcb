"""What ptxas, NVIDIA's assembler, says of a kernel for a GPU."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from partita.accelerators.tvm.code import nvcc

needs_nvcc = pytest.mark.skipif(nvcc.compiler() in (None, nvcc.NVRTC), reason="no nvcc here")


def check_nothing_is_spilled(ptx: str, arch: str, folder: Path) -> None:
    """Assemble PTX for an architecture, the one that it is for or a later one; all of it stays in registers."""
    tool = Path(str(nvcc.compiler())).with_name("ptxas")
    if not tool.exists():
        pytest.skip("no ptxas here")
    (folder / "kernel.ptx").write_text(ptx)
    command = [str(tool), "-v", f"-arch={arch}", "-o", str(folder / "out"), "kernel.ptx"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if "is not defined for option" in done.stderr:
        pytest.skip(f"this ptxas does not know {arch}")
    assert done.returncode == 0, done.stderr
    assert "0 bytes spill stores, 0 bytes spill loads" in done.stderr
