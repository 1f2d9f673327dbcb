"""A user's own files may bear the names of our folders, and nothing that we start runs what lies in the current folder."""

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
from partita.accelerators.interface.isolation import process
from partita.accelerators.tvm.query import isolated_trials
from partita.graph.pictures import to_svg
from partita.graph.programs import find_program
from partita.passes import version_converter
from partita.passes.manager import settings
from partita.passes.python_child import environment
from tests.house import ROOT

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


NAMES = pytest.mark.parametrize("name", ["graph", "passes", "partition", "accelerators"])


@NAMES
def test_a_script_may_have_the_name_of_a_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.py").write_text(WORKS)
    done = run(tmp_path, f"{name}.py")
    assert (done.returncode, done.stdout) == (0, "('reference',)\n"), done.stderr


@NAMES
@pytest.mark.parametrize("file", ["{}.py", "{}/__init__.py"])
@pytest.mark.parametrize("first", [True, False], ids=["theirs first", "ours first"])
@pytest.mark.thinned(4)
def test_a_module_beside_the_script_may_have_the_name_of_a_folder(tmp_path: Path, name: str, file: str, first: bool) -> None:
    path = tmp_path / file.format(name)
    path.parent.mkdir(exist_ok=True)
    path.write_text("own = 1")
    theirs = f"import {name}\nprint({name}.own)\n"
    (tmp_path / "main.py").write_text(theirs + WORKS if first else WORKS + theirs)
    done = run(tmp_path, "main.py")
    assert (done.returncode, sorted(done.stdout.splitlines())) == (0, ["('reference',)", "1"]), done.stderr


def test_in_a_clone_the_folders_names_give_the_same_classes() -> None:
    """`partita/partition` is a link to the folder beside it; CONTRIBUTING.md says why."""
    code = (
        "import graph, passes, partition, accelerators, partita as pt\n"
        "assert partition.SubgraphSelector is pt.SubgraphSelector and graph.Graph is pt.Graph\n"
        "assert passes.apply_pass is pt.apply_pass and accelerators.compile is pt.compile"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_command_line_reads_a_model_beside_such_a_file(tmp_path: Path) -> None:
    (tmp_path / "graph.py").write_text("print('nobody asked for it')")
    pt.save(pt.Graph([pt.op("Relu", pt.variable("x", "float32", (2, 3)))]), tmp_path / "small.onnx")
    command = [sys.executable, "-m", "partita", "inspect", "small.onnx", "--quiet"]
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "nobody asked for it" not in done.stdout, done.stderr


COMMANDS = (version_converter.COMMAND, isolated_trials.COMMAND, process.COMMAND)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[-1])
def test_no_process_that_we_start_looks_in_the_folder_it_starts_in(tmp_path: Path, command: list[str]) -> None:
    for name in ("graph", "json", "numpy", "partita"):
        (tmp_path / f"{name}.py").write_text("print('nobody asked for it')")
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert b"nobody asked for it" not in done.stdout and b"No module named" not in done.stderr


DEVICE = """
import numpy as np
import partita as pt
from partita.accelerators import CompiledSubgraph

class Mine(pt.Accelerator):
    name = "mine"
    travels_as_body = True

    def supports(self, node, graph):
        return node.op == "Relu"

    def compile(self, graph, config):
        return Compiled()

class Compiled(CompiledSubgraph):
    def run(self, inputs, out=None):
        return [np.maximum(inputs[0], 0)]
"""
"""A module with a device that runs Relu."""

ISOLATED = """
import numpy as np
import partita as pt

x = pt.variable("x", "float32", (2, 3))
g, ones = pt.Graph([pt.op("Relu", x)]), np.ones((2, 3), "float32")
print(pt.compile(g, "mine", {"ISOLATE": True})(ones)[0].sum())
"""

MAPPED = """
[answer] = pt.map_batches([ones], pt.compile(g, "mine"), workers=1)
print(*[array.sum() for array in answer.values()])
"""


@NAMES
@pytest.mark.thinned(4)
def test_a_device_may_lie_in_a_module_of_such_a_name(tmp_path: Path, name: str) -> None:
    """Our folder comes after it on the path, as after an editable install; in the processes that we start too."""
    theirs = tmp_path / "theirs"
    (theirs / "mine.dist-info").mkdir(parents=True)
    (theirs / f"{name}.py").write_text(DEVICE)
    (theirs / "mine.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1\n")
    (theirs / "mine.dist-info/entry_points.txt").write_text(f"[partita.accelerators]\nmine = {name}:Mine\n")
    (tmp_path / "main.py").write_text(ISOLATED + MAPPED)
    search = {"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{theirs}:{ROOT}", "XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "main.py"], cwd=tmp_path, env=search, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "6.0\n6.0\n"), done.stderr


@NAMES
@pytest.mark.thinned(4)
def test_a_device_beside_the_script_may_lie_in_a_module_of_such_a_name(tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.py").write_text(DEVICE)
    (tmp_path / "main.py").write_text(f"import {name}, partita\npartita.register_accelerator({name}.Mine)\n{ISOLATED}")
    search = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "main.py"], cwd=tmp_path, env=search, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "6.0\n"), done.stderr


def convert() -> None:
    settings.isolate_inference = True
    try:
        pt.apply_pass(small(), "ConvertOpset", opset=18)
    finally:
        settings.isolate_inference = False


def compile_isolated() -> None:
    process.end_processes()
    assert pt.compile(small(), "reference", config={"ISOLATE": True})(np.ones((2, 3), np.float32))[0].shape == (2, 3)
    process.end_processes()


def compile_several() -> None:
    pt.compile_many([small()], "reference")


def map_over_processes() -> None:
    assert len(list(pt.map_batches([np.ones((2, 3), np.float32)], pt.compile(small(), "reference"), workers=1))) == 1


def try_a_body() -> None:
    trials = isolated_trials.TrialProcess()
    with trials.child() as child:
        assert child.is_alive
    trials.end()


def small() -> pt.Graph:
    return pt.Graph([pt.op("Relu", pt.variable("x", "float32", (2, 3)))])


@pytest.mark.parametrize("start", [convert, compile_isolated, compile_several, map_over_processes, try_a_body])
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


def test_a_script_beside_the_clone_imports_the_package(tmp_path: Path) -> None:
    """The clone is a folder `partita`, and so a namespace of that name to whatever lies beside it."""
    (tmp_path / "partita").symlink_to(ROOT)
    (tmp_path / "main.py").write_text(WORKS)
    done = subprocess.run([sys.executable, "main.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "('reference',)\n"), done.stderr
