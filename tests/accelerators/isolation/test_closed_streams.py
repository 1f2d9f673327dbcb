"""A process that was started without standard streams: its children have their own, and what is shared is not taken for one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.accelerators.package.models import ROOT

HEAD = """
import os, sys
import numpy as np
import partita as pt
from partita.graph.readers.text import parse
net = parse("graph net(x: float32[2, 3]) -> (y) { a = Relu(x)\\n y = Exp(a) }")
x = np.ones((2, 3), np.float32)
folder = sys.argv[1]
"""

STARTS = HEAD + """
model = pt.compile(net, "cpu", {"START": "now", "START_WITH": "reference", "CACHE_DIR": folder}).wait(300)
right = model.properties.devices == ("cpu",) and np.allclose(model(x)[0], np.e)
"""

ISOLATED = HEAD + """
from tests.accelerators.isolation.fragile import Fragile
pt.register_accelerator(Fragile)
relu = parse("graph net(x: float32[2, 3]) -> (y) { y = Relu(x) }")
model = pt.compile(relu, "fragile", {"ISOLATE": True, "BREAKS": "who"})
right = model(x)[0][0, 0] != os.getpid()
"""

COMPILES = HEAD + """
model = pt.compile(net, "cpu", {"CACHE_DIR": folder})
right = np.allclose(model(x)[0], np.e)
"""

TRIED = HEAD + """
from partita.accelerators.tvm.query.isolated_trials import TRIALS
with TRIALS.child() as child:
    right = child.is_alive
"""

TAIL = """
open(os.path.join(folder, "right"), "w").write(str(bool(right)))
"""


@pytest.mark.parametrize("closed", [
    "<&- >&-", "<&- >&- 2>&-", *(pytest.param(closed, marks=pytest.mark.slow) for closed in ("<&-", ">&-", "2>&-")),
])
@pytest.mark.parametrize("code", [STARTS, ISOLATED], ids=["starts", "isolated"])
@pytest.mark.thinned(2)
def test_children_of_a_process_without_streams(code: str, closed: str, tmp_path: Path) -> None:
    run_without(code, closed, tmp_path)


@pytest.mark.parametrize("code", [COMPILES, TRIED], ids=["compiles", "tried"])
@pytest.mark.thinned(2)
def test_a_process_without_any_stream(code: str, tmp_path: Path) -> None:
    run_without(code, "<&- >&- 2>&-", tmp_path)


def run_without(code: str, closed: str, folder: Path) -> None:
    if code is not ISOLATED:
        pytest.importorskip("tvm")
    command = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-c", code + TAIL, str(folder)]
    ran = subprocess.run(command, cwd=ROOT, timeout=300, check=False, capture_output=True, text=True)
    assert (ran.returncode, (folder / "right").exists() and (folder / "right").read_text()) == (0, "True"), ran.stderr[-2000:]
