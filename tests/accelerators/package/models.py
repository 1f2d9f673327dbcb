"""Small models to compile, and what another process makes of an exported one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np

import partita as pt
from tests.graphs.networks import inputs_of

ROOT = Path(__file__).parents[3]


def run(graph: pt.Graph, **config: object) -> np.ndarray:
    """What `cpu` makes of the graph, so configured."""
    result: np.ndarray = pt.compile(graph, "cpu", config=config)(inputs_of(graph))[0]
    return result


def in_new_process(code: str, *args: object, seconds: float = 300) -> subprocess.CompletedProcess[str]:
    """Run the code in a fresh interpreter, its arguments in `args`."""
    head = "import json, sys\nimport numpy as np\nimport partita as pt\nargs = json.loads(sys.argv[1])\n"
    command = [sys.executable, "-c", head + code, json.dumps([str(arg) for arg in args])]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=seconds, check=True)


RUN_IT = """
model = pt.import_model(args[0])
np.savez(args[2], *model(np.load(args[1])))
"""


def imported_elsewhere(path: Path, x):
    """What the exported model makes of x in a fresh process."""
    given, result = path.with_suffix(".npy"), path.with_suffix(".npz")
    np.save(given, x)
    in_new_process(RUN_IT, path, given, result)
    with np.load(result) as array:
        return [array[name] for name in array.files]
