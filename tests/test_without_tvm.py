"""Whoever only partitions, or runs models on other devices, needs neither TVM nor networkx."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.house import ROOT

WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("tvm", "tvm_ffi", "networkx"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
import numpy as np
import partita as pt
from partita.cli.main import main

x = pt.variable("x", "float32", (2, 3))
net = pt.Graph([pt.op("Softmax", pt.op("Relu", x, name="relu"), name="softmax")], name="net")
ones = np.ones((2, 3), "float32")
"""


def run(code: str, folder: Path) -> str:
    """What the code prints in a process that has neither."""
    command = [sys.executable, "-c", WITHOUT + code, str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_model_is_placed_compiled_and_run(tmp_path: Path) -> None:
    printed = run(
        """
model = pt.compile(net)
print(np.allclose(model(ones)[0], 1 / 3), model.properties.devices, *model.report.notes)
model.export(sys.argv[1] + "/net.partita")
print(np.allclose(pt.import_model(sys.argv[1] + "/net.partita")(ones)[0], 1 / 3))
""",
        tmp_path,
    )
    first, second = printed.splitlines()
    assert first.startswith("True ('reference',) skipped: cpu: ") and "tvm" in first
    assert second == "True"


def test_graphs_passes_and_plans(tmp_path: Path) -> None:
    printed = run(
        """
path = sys.argv[1] + "/net.onnx"
pt.save(net, path)
again = pt.optimize(pt.load(path))
both = pt.PatternProperty(pt.Pattern("Relu", "Softmax"), "both")
plan = pt.plan(again, subgraph_property=both)
pt.Plan.from_json(plan.to_json())
partitioned = pt.apply_pass(again, "PartitionGraph", subgraph_property=both)
print([node.op for node in partitioned.nodes if node.is_op], pt.parse(str(partitioned)).name)
pt.apply_pass(partitioned, "InlineSubgraphs")
""",
        tmp_path,
    )
    assert printed == "['Call'] net\n"


def test_the_command_line(tmp_path: Path) -> None:
    printed = run(
        """
folder = sys.argv[1]
pt.save(net, folder + "/net.onnx")
model = folder + "/net.onnx"
page = ["--report", folder + "/page.html", "--svg", folder + "/net.svg"]
commands = [["devices"], ["inspect", model], ["partition", model, *page], ["explain", model, "relu"], ["run", model]]
commands += [["compile", model, "-o", folder + "/net.partita"], ["run", folder + "/net.partita"], ["cache", "ls"]]
print("statuses", [main([*command, "--quiet"]) for command in commands])
""",
        tmp_path,
    )
    assert printed.splitlines()[-1] == f"statuses {[0] * 8}"
    assert (tmp_path / "page.html").exists()


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    printed = run(
        """
for attempt in (lambda: net.to_networkx(), lambda: pt.compile(net, "cpu")):
    try:
        attempt()
    except pt.PartitaError as error:
        print(str(error).replace(chr(10), " "))
""",
        tmp_path,
    )
    first, second = printed.splitlines()
    assert "networkx" in first and "pip install" in first
    assert "pip install apache-tvm" in second
