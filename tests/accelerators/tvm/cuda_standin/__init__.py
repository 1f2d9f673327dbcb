"""A stand-in for NVIDIA's driver and compiler, for processes in which `cuda` is to run without a GPU."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def missing() -> str | None:
    """Why it cannot be made here; None where it can."""
    if sys.platform != "linux":
        return "the stand-in for NVIDIA's driver is for Linux"
    lacking = [tool for tool in ("cc", "g++") if shutil.which(tool) is None]
    return f"the stand-in for NVIDIA's driver needs {' and '.join(lacking)}" if lacking else None


def environment(folder: Path) -> dict[str, str]:
    """Make the stand-in in the folder; the environment of a process that is to find it."""
    options = ["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror"]
    source, library = HERE / "driver.c", folder / "libcuda.so.1"
    subprocess.run(["cc", *options, "-o", str(library), str(source), "-ldl", "-lpthread"], check=True)
    tool = folder / "nvcc"
    tool.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{HERE / "nvcc.py"}" "$@"\n', "utf-8")
    tool.chmod(0o755)
    paths = {"LD_LIBRARY_PATH": str(folder), "PATH": str(folder)}
    joined = {name: os.pathsep.join(filter(None, [path, os.environ.get(name)])) for name, path in paths.items()}
    return {**os.environ, **joined, "PYTHONPATH": str(HERE.parents[3])}
