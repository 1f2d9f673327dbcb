"""Small models to compile, and what another process makes of an exported one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np

import partita as pt

ROOT = Path(__file__).parents[3]


def small_net(size=8, seed=0, name="small"):
    """Conv, Relu, MatMul, Softmax over an image of that size."""
    random = np.random.default_rng(seed)
    x = pt.variable("x", "float32", (1, 3, size, size))
    kernel = pt.constant(random.standard_normal((8, 3, 3, 3), np.float32), name="kernel")
    made = pt.op("Relu", pt.op("Conv", x, kernel, name="conv", kernel_shape=[3, 3], pads=[1, 1, 1, 1]), name="relu")
    made = pt.op("ReduceMean", made, pt.constant(np.array([2, 3]), name="axes"), name="mean", keepdims=0)
    weight = pt.constant(random.standard_normal((8, 40), np.float32), name="weight")
    return pt.Graph([pt.op("Softmax", pt.op("MatMul", made, weight, name="matmul"), name="soft"), made], name=name)


def dynamic_net():
    """MatMul and Relu over any number of rows."""
    x = pt.variable("x", "float32", ("N", 16))
    weight = pt.constant(np.random.default_rng(1).standard_normal((16, 20), np.float32), name="weight")
    return pt.Graph([pt.op("Relu", pt.op("MatMul", x, weight, name="matmul"), name="relu")], name="dynamic")


def inputs_of(graph, seed=3, n=5):
    """An array that fits the graph's one input."""
    shape = [dim if isinstance(dim, int) else n for dim in graph.inputs[0][0].type.shape]
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def in_new_process(code: str, *args: object) -> subprocess.CompletedProcess[str]:
    """Run the code in a fresh interpreter, its arguments in `args`."""
    head = "import json, sys\nimport numpy as np\nimport partita as pt\nargs = json.loads(sys.argv[1])\n"
    command = [sys.executable, "-c", head + code, json.dumps([str(arg) for arg in args])]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=True)


RUN_IT = """
model = pt.import_model(args[0])
np.savez(args[2], *model(np.load(args[1])))
"""


def imported_elsewhere(path: Path, x):
    """What the exported model makes of x in a fresh process."""
    given, made = path.with_suffix(".npy"), path.with_suffix(".npz")
    np.save(given, x)
    in_new_process(RUN_IT, path, given, made)
    with np.load(made) as found:
        return [found[name] for name in found.files]
