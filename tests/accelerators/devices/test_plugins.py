"""Third-party packages: installed with pip, found by their entry points, partitioned to and run; broken ones reported."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from partita.accelerators.interface.accelerator import Accelerator, CompiledSubgraph

ROOT = Path(__file__).resolve().parents[3]
PLUGINS = ROOT / "tests" / "plugins"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which pip has installed both packages, without a network."""
    pytest.importorskip("setuptools", minversion="70.1", reason="setuptools 70.1 or newer has to build the packages")
    folder = tmp_path_factory.mktemp("site")
    for name in ("partita_echo", "partita_wrecked"):
        source = shutil.copytree(PLUGINS / name, tmp_path_factory.mktemp("source") / name)
        command = "-m pip install --quiet --no-index --no-build-isolation --no-deps --target".split()
        subprocess.run([sys.executable, *command, str(folder), str(source)], check=True, capture_output=True)
    return folder


def run(site: Path, code: str) -> str:
    """What a fresh interpreter prints that sees Partita and the installed packages."""
    path = os.pathsep.join([str(ROOT), str(site)])
    completed = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert completed.returncode == 0, completed.stderr
    return completed.stdout


def test_found_partitioned_to_and_run(site: Path) -> None:
    code = """
import numpy as np
import partita as pt
x = pt.variable("x", "float32", (2,))
g = pt.Graph([pt.op("Exp", pt.op("Identity", x, name="copy"), name="exp")])
placement = pt.query(g, "HETERO:echo,reference")
print(placement["copy"], placement["exp"])
print(placement.why("exp"))
print([node.name for node in pt.apply_pass(g, "PartitionGraph", backend="echo").nodes if node.is_call])
print(pt.compile(g, "HETERO:echo,reference")(np.zeros(2, np.float32))[0].tolist())
"""
    lines = run(site, code).splitlines()
    assert lines[0] == "echo reference"
    assert "echo only copies, and Exp computes" in "\n".join(lines[1:-2])
    assert lines[-2:] == ["['echo_0']", "[1.0, 1.0]"]


def test_broken_plugins_are_reported_and_break_nothing(site: Path) -> None:
    listed = run(site, "import partita as pt\nfor device in pt.devices(): print(device, '|', device.source)")
    assert "echo: echo | partita-echo" in listed
    assert "reference: numpy" in listed
    for text in (
        "unimportable: not usable here: device 'unimportable' of partita-wrecked: ModuleNotFoundError: No module named",
        "raising: not usable here: device 'raising' of partita-wrecked: ZeroDivisionError: this plugin divides by zero",
        "is not a class derived from Accelerator",
        "driverless: not usable here: no driver of the echo card is loaded",
        "Install echo-driver 2 or newer.",
    ):
        assert text in listed


def test_a_device_that_declares_nothing_promises_nothing() -> None:
    """Defaults that plugins rely on: each is the answer that is right for a device that knows nothing of the question."""
    declared = {name: getattr(Accelerator, name) for name in Accelerator.__annotations__ if not name.startswith("_")}
    assert declared == {
        "name": "", "config_keys": {}, "dynamic_shapes": True, "parallel_compile": True, "appends_caches": False,
        "travels_as_body": False, "reads_views": False, "last_resort": False, "compile_refuses": False,
        "loses_nothing": False, "isolates_itself": False, "keeps_arrays": False,
    }
    declared = {name: getattr(CompiledSubgraph, name) for name in CompiledSubgraph.__annotations__}
    assert declared == {
        "memory": "host", "alignment": 1, "concurrent": False, "overlaps": False, "notes": (), "work": (), "story": None,
    }
