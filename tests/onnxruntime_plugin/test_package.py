"""The package onnxruntime-ep-partita: built, installed, and loaded by a session."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("onnxruntime", reason="the extra [onnxruntime] is not installed")

from partita.accelerators.tvm.code.linking import tools
from partita.onnxruntime_plugin.library import PROCESSORS, library_file
from tests.onnxruntime_plugin.models import ROOT

SOURCE = ROOT / "packages" / "onnxruntime-ep-partita"

BEGIN = """
import sys
import numpy as np, onnxruntime, onnxruntime_ep_partita as ep
from partita.onnxruntime_plugin.compute import Compute
from tests.onnxruntime_plugin.models import chain
assert ep.get_ep_names() == [ep.get_ep_name()] == ["PartitaExecutionProvider"]
onnxruntime.register_execution_provider_library(ep.get_ep_name(), ep.get_library_path())
runs, own = [], Compute.run
Compute.run = lambda self, context: (runs.append(1), own(self, context))[1]
options = onnxruntime.SessionOptions()
providers = [ep.get_ep_name(), "CPUExecutionProvider"]
x = np.full((2, 8), -3, "f")
"""

WRITES = """
options.add_session_config_entry("ep.context_enable", "1")
options.add_session_config_entry("ep.context_file_path", "net_ctx.onnx")
with open("net.onnx", "wb") as file: file.write(chain("Abs", "Neg"))
onnxruntime.InferenceSession("net.onnx", options, providers=providers)
print(ep.get_library_path())
"""

READS = """
from partita.accelerators.tvm.code.linking import tools
assert tools() is None
session = onnxruntime.InferenceSession("net_ctx.onnx", options, providers=providers)
for _ in range(3): np.testing.assert_array_equal(session.run(None, {"x": x})[0], x)
print(len(runs))
"""


def python(*arguments: str, folder: Path, path: str, **environment: str) -> list[str]:
    whole = {**os.environ, "PYTHONPATH": path, **environment}
    done = subprocess.run([sys.executable, *arguments], cwd=folder, env=whole, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


@pytest.mark.skipif(not (tools() and tools().compile), reason="needs a C compiler")
def test_the_wheel_serves_a_session(tmp_path: Path) -> None:
    """A model that was compiled runs without Python even where there is no compiler: the package has what that takes."""
    shutil.copytree(SOURCE, tmp_path / "source", ignore=shutil.ignore_patterns("build", "*.egg-info"))
    pip = "-m", "pip", "--disable-pip-version-check"
    python(*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", ".", "./source", folder=tmp_path, path=str(ROOT))
    (built,) = tmp_path.glob("onnxruntime_ep_partita-*.whl")
    python(*pip, "install", "--no-deps", "--target", "site", str(built), folder=tmp_path, path=str(ROOT))
    package = tmp_path / "site" / "onnxruntime_ep_partita"
    for processor in PROCESSORS:
        assert (package / f"libonnxruntime_providers_partita-{processor}.so").read_bytes() == library_file(processor).content
    assert list(package.glob(f"compute-*-{platform.machine()}.so"))
    path = os.pathsep.join([str(tmp_path / "site"), str(ROOT)])
    (loaded,) = python("-c", BEGIN + WRITES, folder=tmp_path, path=path)
    assert Path(loaded).parent == package
    assert python("-c", BEGIN + READS, folder=tmp_path, path=path, PATH=str(tmp_path), CXX="", CC="") == ["1"]


def test_a_library_without_python_makes_no_provider(tmp_path: Path) -> None:
    """As in a program in C++ that loads the package's file."""
    file = tmp_path / "library.so"
    file.write_bytes(library_file(platform.machine()).content)
    script = (
        "import onnxruntime, sys\n"
        "onnxruntime.register_execution_provider_library('P', sys.argv[1])\n"
        "print(sum(device.ep_name == 'P' for device in onnxruntime.get_ep_devices()))"
    )
    assert python("-c", script, str(file), folder=tmp_path, path="") == ["0"]
