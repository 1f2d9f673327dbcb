"""A process that was forked after onnxruntime had answered: its threads do not come along, and its end would wait for them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.accelerators.package.models import ROOT

pytest.importorskip("onnxruntime", reason="the extra [onnxruntime] is not installed")

FORKS = """
import os, signal
import numpy as np, partita as pt
x = pt.variable("x", "float32", (128, 128))
graph, data = pt.Graph([pt.op("MatMul", x, x)], [x]), np.ones((128, 128), np.float32)
model = pt.compile(graph, "onnxruntime", {"NUM_THREADS": 2, "PERF_COUNT": PROFILED})
assert (model(data)[0] == 128).all()
child = os.fork()
if child == 0:
    signal.alarm(120)
    assert (model(data)[0] == 128).all()
    model.close()
    del model
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
"""


@pytest.mark.parametrize("profiled", ["True", "False"])
def test_a_model_is_dropped_in_a_forked_process(profiled: str) -> None:
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKS.replace("PROFILED", profiled)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
