"""The verbs that look and run nothing: devices, inspect, partition, explain, cache."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import partita as pt
from partita.cli.screen import MANY, Screen, table
from tests.cli.conftest import Command

SELECTORS = """
import partita as pt


class Pair(pt.SubgraphSelector):
    def select(self, node):
        return node.op == "Conv"

    def select_output(self, cur, new):
        return new.op == "Relu"


relu = pt.Pattern("Relu")
"""


def test_devices(partita: Command) -> None:
    done = partita("devices")
    assert done.status == 0
    assert "reference" in done.out
    assert done.err == ""
    assert {"name", "usable", "detail", "source"} == set(partita("devices --json").json["devices"][0])


def test_one_device(partita: Command) -> None:
    result = partita("devices reference --json").json
    assert "FULL_DEVICE_NAME" in result["metrics"]
    assert result["config"] == {
        "CACHE_DIR": None, "DEVICE_ID": "0", "ISOLATE": False, "ISOLATE_SECONDS": 60.0, "PERF_COUNT": False,
    }
    done = partita("devices referenc")
    assert (done.status, done.out) == (1, "")
    assert done.err == "error: there is no device 'referenc'\n  Did you mean 'reference'?\n"


def test_inspect_lists_the_nodes_that_hold_most_memory(partita: Command, tmp_path: Path) -> None:
    text = """graph net(x: float32[256], c: bool) -> (y, a) {
      a = Relu(x)
      b = Concat(a, a) {axis=0}
      i = If(c) { then_branch=graph t(p) -> (t) { s = Exp(p)
          t = Neg(s) }, else_branch=graph e(p) -> (e) { e = Neg(p) } } captures(b)
      y = ReduceSum(i) {keepdims=0}
    }"""
    pt.save(pt.parse(text), tmp_path / "net.onnx")
    done = partita(f"inspect {tmp_path}/net.onnx --memory 3 --json").json
    names = ("step", "alive", "made", "read", "inside", "passing")
    assert [(row["op"], *(row[name] for name in names)) for row in done["memory"]] == [
        ("If", 3, 1024 * 9, 2048, 2048, 4096, 1024), ("ReduceSum", 4, 1024 * 3 + 64, 64, 2048, 0, 1024),
        ("Concat", 2, 1024 * 3, 2048, 1024, 0, 0),
    ]
    assert done["activation_bytes"] == 1024 * 9
    shown = partita(f"inspect {tmp_path}/net.onnx --memory 1").out
    assert "by memory" in shown and "9.0 KiB" in shown and "100%" in shown and "ReduceSum │ 64 B" not in shown
    assert "memory" not in partita(f"inspect {tmp_path}/net.onnx --json").json


def test_inspect(partita: Command, model: str) -> None:
    result = partita(f"inspect {model} --json --nodes").json
    assert result["macs"] == 4 * 6 * 6 * 27
    assert result["inputs"] == {"x": "float32[1, 3, 8, 8]"}
    assert result["parameters"] == 108
    assert result["activation_bytes"] > 0
    assert [row["node"] for row in result["nodes"]] == ["conv1", "relu1", "softmax1"]
    done = partita(f"inspect {model} --nodes")
    assert done.status == 0
    assert "one run: 3.888 kMAC, 8.064 kFLOP; memory: parameters 432 B" in done.out
    assert "float32[1, 4, 6, 6]" in done.out
    assert done.err == "reading small.onnx\n"


def test_sizes_that_are_not_fixed(partita: Command, dynamic: str) -> None:
    done = partita(f"inspect {dynamic}")
    assert "3 ops not counted: 'conv1', 'relu1', 'softmax1'" in done.err
    assert "give them, like --shape x=1,3,8,8" in done.err
    result = partita(f"inspect {dynamic} --shape x=2,3,8,8 --json").json
    assert result["macs"] == 2 * 4 * 6 * 6 * 27
    assert result["not_counted"] == []


def test_partition_writes_what_it_is_asked_for(partita: Command, model: str) -> None:
    done = partita(f"partition {model} --select Conv,Relu -o out.onnx --dot a.dot --svg a.svg --plan a.json")
    assert done.status == 0
    assert "2 of 3 ops in 1 subgraph" in done.out
    again = pt.load("out.onnx")
    assert [node.name for node in again.nodes if node.is_call] == ["select_0"]
    assert Path("a.dot").read_text().startswith("digraph")
    assert "<svg" in Path("a.svg").read_text()
    assert pt.Plan.from_json(Path("a.json").read_text()).groups[0].nodes == ("conv1", "relu1")
    assert "wrote out.onnx" in done.err


def test_partition_by_devices(partita: Command, model: str) -> None:
    result = partita(f"partition {model} --devices HETERO:onnxruntime,reference --forbid Relu=onnxruntime --json").json
    assert [group["device"] for group in result["groups"]] == ["onnxruntime", "reference", "onnxruntime"]
    assert result["placement"]["refusals"] == {"relu1": {"onnxruntime": "forbid 'Relu'"}}


def test_partition_by_pattern_and_backend(partita: Command, model: str) -> None:
    result = partita(f"partition {model} --pattern 'Conv,BatchNormalization?,Relu|Clip?' --json").json
    assert [group["nodes"] for group in result["groups"]] == [["conv1", "relu1"]]
    result = partita(f"partition {model} --backend reference --json").json
    assert [len(group["nodes"]) for group in result["groups"]] == [3]


def test_partition_by_a_file_of_ones_own(partita: Command, model: str) -> None:
    Path("mine.py").write_text(SELECTORS)
    both = partita(f"partition {model} --plugin mine.py --json").json
    assert [(group["property"], group["nodes"]) for group in both["groups"]] == [("Pair", ["conv1", "relu1"])]
    one = partita(f"partition {model} --plugin mine.py:relu --json").json
    assert [(group["property"], group["nodes"]) for group in one["groups"]] == [("relu", ["relu1"])]


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        (
            "import nothing_of_that_name",
            "",
            "mine.py:1: it raises ModuleNotFoundError: No module named 'nothing_of_that_name'",
        ),
        ("x = (", "", "mine.py:1: it raises SyntaxError"),
        (
            SELECTORS,
            ":Pear",
            "mine.py: it defines no property, selector or pattern 'Pear'\n  Did you mean 'Pair'?",
        ),
        (
            "",
            "",
            "mine.py: it defines no property, selector or pattern\n  Derive one from pt.SubgraphProperty",
        ),
    ],
)
def test_a_bad_file_of_ones_own(partita: Command, model: str, text: str, name: str, message: str) -> None:
    Path("mine.py").write_text(text)
    done = partita(f"partition {model} --plugin mine.py{name}")
    assert done.status in (1, 2)
    assert message in done.err
    assert "Traceback" not in done.err


def test_a_hook_that_raises_is_named_with_its_line(partita: Command, model: str) -> None:
    Path("slip.py").write_text(
        "import partita as pt\nclass Slip(pt.SubgraphSelector):\n    def select(self, node):\n        return node.opp\n"
    )
    done = partita(f"partition {model} --plugin slip.py:Slip")
    assert done.status == 1
    assert done.err.splitlines()[-1].startswith(
        "error: slip.py:4: pass 'PartitionGraph', property 'Slip', hook select, node 'conv1' (Conv): it raised AttributeError: "
    )


def test_an_op_that_the_model_has_not(partita: Command, model: str) -> None:
    done = partita(f"partition {model} --select Conv,Rellu")
    assert "warning: the model has no op 'Rellu': Did you mean 'Relu'?" in done.err
    done = partita(f"partition {model} --pattern 'Conv,Clip|Relu?,Sofmax,*'")
    assert "warning: the model has no op 'Sofmax': Did you mean 'Softmax'?" in done.err
    assert done.err.count("warning") == 2  # of Clip too: the model has none


def test_explain(partita: Command, model: str) -> None:
    done = partita(f"explain {model} relu1 --select Conv")
    assert "relu1 (Relu): (conv1: float32[1, 4, 6, 6]) -> (relu1: float32[1, 4, 6, 6])" in done.out
    assert "relu1 is in no subgraph: unsupported" in done.out
    result = partita(f"explain {model} relu1 --devices reference --json").json
    assert (result["device"], result["subgraph"], result["borders"]) == ("reference", "reference_0", [])


def test_explain_names_the_kernel_and_what_it_leaves_apart(partita: Command, model: str) -> None:
    pytest.importorskip("tvm")
    done = partita(f"explain {model} relu1 --devices cpu --json")
    kernels = done.json["kernels"]["kernels"]
    assert any("relu1" in kernel["nodes"] for kernel in kernels)
    assert "relu1 is in kernel " in partita(f"explain {model} relu1 --devices cpu").out
    assert "kernels" not in partita(f"explain {model} relu1 --devices reference --json").json


def test_explain_a_cycle(partita: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    x = pt.variable("x", "float32", (2,))
    a = pt.op("Sin", x, name="a")
    pt.save(pt.Graph([pt.op("Add", a, pt.op("Exp", a, name="b"), name="c")]), "fork.onnx")
    done = partita("explain fork.onnx c --select Sin,Add")
    assert "  the cycle of a -> c: select_0 -> b -> select_1\n" in done.out


def test_explain_a_value(partita: Command, model: str) -> None:
    assert "softmax1 (Softmax)" in partita(f"explain {model} y --devices reference").out


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("rellu1", "there is no node 'rellu1'\n  Did you mean 'relu1'?"),
        ("Conv", "there is no node 'Conv'\n  The nodes with that op are conv1."),
        ("w", "'w' is a constant\n  Ask for a node that reads it."),
        ("x", "'x' is an input"),
    ],
)
def test_explain_what_is_not_there(partita: Command, model: str, name: str, message: str) -> None:
    done = partita(f"explain {model} {name}")
    assert (done.status, done.out) == (1, "")
    assert message in done.err


def test_explain_an_op_of_which_there_are_many(partita: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for count, more in ((6, "."), (7, ", ...")):
        node: pt.Node = pt.variable("x", "float32", (2,))
        for i in range(count):
            node = pt.op("Sin", node, name=f"s{i}")
        pt.save(pt.Graph([node], name="sines"), "sines.onnx")
        done = partita("explain sines.onnx Sin")
        assert done.status == 1 and done.err.splitlines()[-2:] == [
            "error: graph 'sines': there is no node 'Sin'", f"  The nodes with that op are s0, s1, s2, s3, s4, s5{more}"
        ]


def test_cache(partita: Command, model: str) -> None:
    pt.compile(pt.load(model), "cpu", {"CACHE_DIR": "kept"})
    result = partita("cache ls --folder kept --json").json["entries"]
    assert [(entry["subgraph"], entry["ops"]) for entry in result] == [("cpu_0", 3)]
    assert "it is the first of its kind" in partita("cache explain cpu_0 --folder kept").out
    assert partita("cache clear --folder kept").out == "kept: 1 entry removed\n"
    assert partita("cache ls --folder kept --json").json["entries"] == []
    done = partita("cache clear --folder .")
    assert (done.status, done.err) == (
        1,
        "error: .: this is not a cache folder\n  Name one that a CACHE_DIR named.\n",
    )


def test_mxnet_symbols(partita: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    nodes = [
        {"op": "null", "name": "data", "inputs": []},
        {"op": "Activation", "name": "act", "attrs": {"act_type": "relu"}, "inputs": [[0, 0, 0]]},
    ]
    Path("net-symbol.json").write_text(json.dumps({"nodes": nodes, "arg_nodes": [0], "heads": [[1, 0, 0]]}))
    result = partita("inspect net-symbol.json --shape data=2,3 --json").json
    assert (result["inputs"], result["flops"]) == ({"data": "float32[2, 3]"}, 6)
    Path("net-0007.params").touch()
    assert "without parameters the weights are inputs: --params net-0007.params" in partita("inspect net-symbol.json").err


def test_pages(partita: Command, model: str) -> None:
    placed = "--devices HETERO:onnxruntime,reference --forbid Relu=onnxruntime"
    assert partita(f"partition {model} {placed} --report a.html").status == 0
    assert "forbid 'Relu'" in Path("a.html").read_text()
    assert partita(f"partition {model} {placed} --min-size 2 --growth waves --report d.html").status == 0
    assert all(text in Path("d.html").read_text() for text in ("forbid 'Relu'", "min_subgraph_size", "placed on"))
    assert partita(f"partition {model} --select Conv --report b.html").status == 0
    assert "select_0" in Path("b.html").read_text()
    assert partita(f"run {model} --devices reference --report c.html").status == 0
    assert "reference_0" in Path("c.html").read_text()


@pytest.mark.parametrize(("columns", "framed"), [(MANY - 1, True), (MANY, False)])
def test_wide_tables_of_many_columns_have_no_frame(columns: int, framed: bool, capsys: pytest.CaptureFixture[str]) -> None:
    assert MANY == 7
    Screen().show(table("wide", "abcdefg"[:columns], [["x" * 60] * columns]))
    assert ("━" in capsys.readouterr().out) is framed
