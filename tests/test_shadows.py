"""A user's own file may bear the name of one of our packages, as long as nobody could mean it by that name."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import partita as pt
from accelerators.isolation import process
from accelerators.tvm.query import trial_process
from graph.pictures import to_svg
from graph.programs import find_program
from partita._house import PACKAGES
from passes import inference
from passes.python_child import environment
from passes.settings import settings
from tests.test_house import ROOT

WORKS = """
import partita as pt
x = pt.variable("x", "float32", (2, 3))
g = pt.Graph([pt.op("Relu", x)])
print(pt.compile(g, "reference").properties.devices)
"""


START = """
import runpy, sys
folder, script, root = sys.argv[1:]
sys.path[:] = [folder, *sys.path[1:], root]
runpy.run_path(f"{folder}/{script}", run_name="__main__")
"""
"""Runs a script as `python SCRIPT` does, in an environment where Partita comes later on the path."""


def run(folder: Path, script: str) -> subprocess.CompletedProcess[str]:
    """A script in a folder of the user's."""
    command = [sys.executable, "-c", START, str(folder), script, str(ROOT)]
    return subprocess.run(command, cwd=folder, env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", ["graph", "passes", "partition", "accelerators"])
@pytest.mark.parametrize("kind", ["the script", "a file beside it", "a package beside it"])
@pytest.mark.thinned(3)
def test_a_file_that_lies_there_is_passed_by(tmp_path: Path, name: str, kind: str) -> None:
    script = f"{name}.py" if kind == "the script" else "main.py"
    (tmp_path / script).write_text(WORKS)
    if kind == "a file beside it":
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('nobody asked for it')")
    elif kind == "a package beside it":
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise RuntimeError('nobody asked for it')")
    done = run(tmp_path, script)
    assert (done.returncode, done.stdout) == (0, "('reference',)\n"), done.stderr


def test_the_command_line_reads_a_model_beside_such_a_file(tmp_path: Path) -> None:
    (tmp_path / "graph.py").write_text("print('nobody asked for it')")
    pt.save(pt.Graph([pt.op("Relu", pt.variable("x", "float32", (2, 3)))]), tmp_path / "small.onnx")
    command = [sys.executable, "-m", "partita", "inspect", "small.onnx", "--quiet"]
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "nobody asked for it" not in done.stdout, done.stderr


COMMANDS = (inference.COMMAND, trial_process.COMMAND, process.COMMAND)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[-1])
def test_no_process_that_we_start_looks_in_the_folder_it_starts_in(tmp_path: Path, command: list[str]) -> None:
    for name in PACKAGES:
        (tmp_path / f"{name}.py").write_text("print('nobody asked for it')")
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert b"nobody asked for it" not in done.stdout and b"No module named" not in done.stderr


def infer() -> None:
    settings.isolate_inference = True
    try:
        inference.stop_isolation()
        pt.apply_pass(small(), "InferShape")
    finally:
        settings.isolate_inference = False
        inference.stop_isolation()


def compile_isolated() -> None:
    process.end_processes()
    assert pt.compile(small(), "reference", config={"ISOLATE": True})(np.ones((2, 3), np.float32))[0].shape == (2, 3)
    process.end_processes()


def compile_several() -> None:
    pt.compile_many([small()], "reference")


def map_over_processes() -> None:
    assert len(list(pt.map_batches([np.ones((2, 3), np.float32)], pt.compile(small(), "reference"), workers=1))) == 1


def try_a_body() -> None:
    trials = trial_process.TrialProcess()
    assert trials._ready() is None
    trials.stop()


def small() -> pt.Graph:
    return pt.Graph([pt.op("Relu", pt.variable("x", "float32", (2, 3)))])


@pytest.mark.parametrize("start", [infer, compile_isolated, compile_several, map_over_processes, try_a_body])
def test_no_child_runs_a_file_of_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: Callable[[], None]
) -> None:
    """Nor where an empty entry of PYTHONPATH, as `$PYTHONPATH:/some/folder` leaves one, names that folder."""
    if start is try_a_body:
        pytest.importorskip("tvm")
    for name in ("json", "socket", "numpy", "onnx", "graph", "sitecustomize", "partita"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'a').write({name!r}); raise SystemExit(9)")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f":{ROOT}:")
    monkeypatch.setattr(sys, "path", ["", *sys.path, str(tmp_path)])
    start()
    assert not (tmp_path / "ran").exists()


def test_no_program_of_the_current_folder_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty or relative entry of PATH, as `$PATH:` leaves one, names that folder."""
    for name in ("dot", "g++", "nvcc"):
        (tmp_path / name).write_text("#!/bin/sh\ntouch ran\n")
        (tmp_path / name).chmod(0o700)
    monkeypatch.chdir(tmp_path)
    for path in ("", ":", ".", f":{tmp_path.name}:", "/nothing:"):
        monkeypatch.setenv("PATH", path)
        assert "<svg" in to_svg(small())
        assert not (find_program("nvcc") or "/").startswith(str(tmp_path))
        assert all(map(os.path.isabs, environment()["PATH"].split(":")))
    assert not (tmp_path / "ran").exists()
    monkeypatch.setenv("PATH", f":{tmp_path}")
    assert find_program("g++") == str(tmp_path / "g++")


@pytest.mark.slow
@pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray")
def test_no_worker_of_ray_runs_a_file_of_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray puts that folder on their path before all others."""
    import ray

    for name in ("numpy", "onnx", "graph", "attr"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'a').write({name!r}); raise SystemExit(9)")
    monkeypatch.chdir(tmp_path)
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        array = np.ones((2, 3), np.float32)
        assert len(list(pt.map_batches([array], pt.compile(small(), "reference"), workers=1, executor="ray"))) == 1
        pt.compile_many([small()], "reference", executor="ray")
    finally:
        ray.shutdown()
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("line", ["import graph", "from graph import own", "import graph.own", "def f():\n    import graph\nf()"])
def test_code_beside_it_that_imports_the_name_is_told(tmp_path: Path, line: str) -> None:
    (tmp_path / "graph.py").write_text("own = 1")
    (tmp_path / "main.py").write_text(f"{WORKS}\n{line}")
    done = run(tmp_path, "main.py")
    assert done.returncode == 1 and done.stdout == "('reference',)\n"
    assert f"'graph' is the name of a package of Partita's and of {tmp_path / 'graph.py'}" in done.stderr
    assert "stands beside the code that imports it" in done.stderr and "Rename that file or folder" in done.stderr


def test_theirs_imported_first_is_told(tmp_path: Path) -> None:
    (tmp_path / "graph.py").write_text("own = 1")
    (tmp_path / "main.py").write_text(f"import graph\n{WORKS}")
    done = run(tmp_path, "main.py")
    assert done.returncode == 1 and "which was imported before partita" in done.stderr


def test_other_packages_that_import_the_name_mean_ours(tmp_path: Path) -> None:
    """A plugin in site-packages, say, which knows nothing of the folder that it is used from."""
    installed = tmp_path / "lib" / "site-packages"
    installed.mkdir(parents=True)
    (installed / "plugin.py").write_text("from graph.text import parse")
    user = tmp_path / "user"
    user.mkdir()
    (user / "graph.py").write_text("own = 1")
    ask = f"import sys\nsys.path.append({str(installed)!r})\nimport plugin\nprint(plugin.parse.__module__)"
    (user / "main.py").write_text(f"{WORKS}\n{ask}")
    assert run(user, "main.py").stdout == "('reference',)\ngraph.text.parser\n"


def test_where_nothing_bears_the_name_python_s_import_is_python_s_own() -> None:
    code = "import builtins; before = builtins.__import__; import partita; print(builtins.__import__ is before)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout == "True\n"


def test_a_script_beside_the_clone_imports_the_package(tmp_path: Path) -> None:
    """The clone is a folder `partita`, and so a namespace of that name to whatever lies beside it."""
    (tmp_path / "partita").symlink_to(ROOT)
    (tmp_path / "main.py").write_text(WORKS)
    done = subprocess.run([sys.executable, "main.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "('reference',)\n"), done.stderr
