"""A capsule of ResNet-50 that is mailed: its fault shows in an empty environment, and shrinks to a few nodes.

`python -m tests.insight.empty_environment FOLDER [--model M]` builds the packages of Partita and of a vendor whose device has a
fault, lets the device run the model, writes a capsule of its subgraph, makes a new virtual environment with nothing but what the
capsule's requirements.txt names (pip asks its usual index), runs the capsule there, and reduces what it holds. It prints what
came of each step."""

from __future__ import annotations

import argparse
import importlib
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np

import partita as pt

ROOT = Path(__file__).resolve().parents[2]

VENDOR = "partita_example_vendor"
"""The module of the vendor's package."""

DEVICE = '''\
"""A device that computes as numpy does, but for convolutions with a stride of two, which are wrong by one in a hundred."""

import numpy as np

import partita as pt
from partita.graph.interpret import evaluate_node


class Compiled(pt.CompiledSubgraph):
    def __init__(self, graph):
        self.graph = graph

    def run(self, inputs, out=None):
        values = {node[0]: value for node, value in zip(self.graph.inputs, inputs)}
        for node in self.graph.nodes:
            if node.is_variable:
                continue
            read = [None if entry is None else values[entry] for entry in node.inputs]
            results = evaluate_node(node, read, self.graph.opsets)
            if node.op == "Conv" and 2 in node.attrs.get("strides", ()):
                results = [result * np.float32(1.01) for result in results]
            values.update(zip(node.outputs, results))
        return [values[entry] for entry in self.graph.outputs]


class Vendor(pt.Accelerator):
    name = "example_vendor"

    def supports(self, node, graph):
        return True

    def compile(self, graph, config):
        return Compiled(graph)
'''


@attrs.frozen
class Outcome:
    """What came of it."""

    installed: tuple[str, ...]
    """The packages in the empty environment."""
    status: int
    """The exit status of the capsule's script there: 1 as long as the fault is there."""
    printed: str
    """What it printed."""
    nodes: tuple[str, ...]
    """The nodes that `reduce` left."""
    seconds: float
    """How long all of it took."""


def mailed(folder: Path, model: str, against: str = "onnxruntime") -> Outcome:
    """Go all the way, in a folder that is there and empty."""
    start = time.perf_counter()
    wheels, source, tools = folder / "wheels", folder / "source", _environment(folder / "tools")
    others = shutil.ignore_patterns(".*", "node_modules", "__pycache__", "build", "tests", "*.egg-info")
    shutil.copytree(ROOT, source, ignore=others)
    for package in (source, _vendor(folder / "vendor")):
        _run(tools, "-m", "pip", "wheel", "-q", "--no-deps", "-w", wheels, package)
    here = folder / "here"
    _run(tools, "-m", "pip", "install", "-q", "--no-deps", "--target", here, *wheels.glob("partita_example*.whl"))
    sys.path.insert(0, str(here))
    try:
        device = importlib.import_module(VENDOR).Vendor
        pt.register_accelerator(device)
        try:
            capsule, nodes = _capsule(folder, model, device.name, against)
        finally:
            pt.unregister_accelerator(device.name)
    finally:
        sys.path.remove(str(here))
    python = _environment(folder / "empty")
    _run(python, "-m", "pip", "install", "-q", "--find-links", wheels, "-r", capsule / "requirements.txt")
    listed = _run(python, "-m", "pip", "list", "--format", "freeze").stdout.split()
    done = subprocess.run([python, "run.py"], cwd=capsule, env={}, capture_output=True, text=True, check=False)
    return Outcome(tuple(listed), done.returncode, done.stdout + done.stderr, nodes, time.perf_counter() - start)


def _vendor(folder: Path) -> Path:
    """The sources of the vendor's package."""
    folder.mkdir()
    (folder / f"{VENDOR}.py").write_text(DEVICE)
    (folder / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
        '[project]\nname = "partita-example-vendor"\nversion = "1.0"\ndependencies = ["partita"]\n'
        f'[tool.setuptools]\npy-modules = ["{VENDOR}"]\n'
    )
    return folder


def _capsule(folder: Path, model: str, device: str, against: str) -> tuple[Path, tuple[str, ...]]:
    """The capsule of the model's subgraph on the device, and the nodes that are left when it is reduced."""
    graph = pt.apply_pass(pt.load(model), "InferShape")
    (x,) = graph.inputs
    array = np.random.default_rng(0).standard_normal(x[0].type.shape, np.float32)  # type: ignore[union-attr,arg-type]
    capsule = pt.capsule(graph, folder / "capsule", 0, device, {x.name: array}, against=against, tolerance=1e-4)

    def fails(part: pt.Graph, inputs: Mapping[str, Any]) -> bool:
        ours, theirs = (list(pt.compile(part, label)(dict(inputs))) for label in (device, "onnxruntime"))
        return any(np.abs(a - b).max() > 1e-3 * np.abs(b).max() for a, b in zip(ours, theirs, strict=True))

    with np.load(capsule / "inputs.npz") as arrays:
        reduction = pt.reduce(pt.load(str(capsule / "model.onnx")), dict(arrays), fails, against=against)
    return capsule, reduction.nodes


def _environment(folder: Path) -> str:
    """The interpreter of a new virtual environment."""
    venv.create(folder, with_pip=True)
    return str(folder / "bin" / "python")


def _run(*words: Any) -> subprocess.CompletedProcess[str]:
    """Run a command, which has to succeed."""
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, words))}: {done.stderr}")
    return done


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", default="zoo:resnet50")
    asked = parser.parse_args(words)
    asked.folder.mkdir(parents=True, exist_ok=True)
    outcome = mailed(asked.folder, asked.model)
    print(f"{len(outcome.installed)} packages: {', '.join(outcome.installed)}")
    print(outcome.printed.strip())
    print(f"exit status {outcome.status}; reduced to {', '.join(outcome.nodes)}; {outcome.seconds:.0f} s")
    return 0 if outcome.status == 1 and len(outcome.nodes) <= 3 else 1


if __name__ == "__main__":
    sys.exit(main())
