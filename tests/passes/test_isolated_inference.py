"""Inference in a child process: the same types, and a crash or a hang of ONNX ends nothing but one question."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from partita.graph import Graph, PassError, call, op, register_op, unregister_op, variable
from partita.graph.readers.onnx import load_onnx
from partita.graph.writers.onnx import to_model
from partita.passes import apply_pass, settings
from partita.passes.infer import onnx_inference

from .before_after import text

NETS = (
    "graph net(x: float32[N, 3, 8, 8]) -> (y) { y = MaxPool(x) {kernel_shape=[2, 2], ceil_mode=1} }",
    "func f(a) -> (b) { b = Mul(a, a) }\n graph g(x: float32[300000000]) -> (y) { y = call f(x) }",
    "func f(a) -> (b) { b = Relu(a) }\n func h(a) -> (b) { b = call f(a) }\n graph g(x: float32[3]) -> (y) { y = call h(x) }",
    "graph net(x: float32[2], c: bool[]) -> (z) { z = If(c) { then_branch=graph t(p) -> (u) { u = Neg(p) },"
    " else_branch=graph e(p) -> (v) { v = my::Twice(p) } } captures(x) }",
    "graph net(x: float32[2], y: float32[3]) -> (z) { z = Add(x, y) }",
    "graph net(x: float32[2]) -> (z) { z = Relu(x) : float32[3] }",
    "graph net(x: float32[2]) -> (z) { z = my::Boom(x) }",
)


@pytest.fixture(autouse=True)
def isolated() -> Iterator[None]:
    register_op("Twice", "my", shape=lambda types, attrs: types[0])
    register_op("Boom", "my", shape=lambda types, attrs: 1 / 0)
    settings.isolate_inference = True
    yield
    settings.isolate_inference = False
    unregister_op("Twice", "my")
    unregister_op("Boom", "my")


def outcome(net: str) -> str:
    try:
        return str(apply_pass(text(net, "21, my 1"), "InferShape"))
    except PassError as error:
        return str(error)


def test_types_and_errors_are_the_same() -> None:
    there = [outcome(net) for net in NETS]
    settings.isolate_inference = False
    assert there == [outcome(net) for net in NETS]
    assert onnx_inference._held._child is not None


FALLIBLE = """
import os, signal
import partita.passes.infer.onnx_child as child
inner = child._Server.infer
def infer(self, parts):
    if b"GatherND" in parts[0]:
        os.kill(os.getpid(), signal.SIGSEGV)
    inner(self, parts)
child._Server.infer = infer
child.main()
"""


@pytest.fixture
def fallible(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A child that crashes at GatherND."""
    onnx_inference.stop_isolation()
    monkeypatch.setattr(onnx_inference, "COMMAND", [sys.executable, "-c", FALLIBLE])
    yield
    onnx_inference.stop_isolation()


def crashing() -> Graph:
    x, i = variable("x", "float32", (2, 2)), variable("i", "int64", (2, 2))
    return Graph([op("GatherND", x, i, name="n", opset=13)], opsets={"": 13})


def test_a_crash_is_an_error_and_the_next_model_is_inferred(fallible: None) -> None:
    for _ in range(2):
        with pytest.raises(PassError, match=r"ONNX's inference ended its process \(signal 11\)"):
            apply_pass(crashing(), "InferShape")
        assert "float32[N, 3, 7, 7]" in outcome(NETS[0])


def test_a_crash_below_a_question(fallible: None) -> None:
    x, i = variable("p", "float32", (2, 2)), variable("q", "int64", (2, 2))
    node = call(crashing(), name="k").evolve(inputs=(x[0], i[0]))
    with pytest.raises(PassError, match="ONNX's inference ended its process"):
        apply_pass(Graph([node], opsets={"": 13}), "InferShape")
    assert "float32[N, 3, 7, 7]" in outcome(NETS[0])


def test_the_command_line_survives(fallible: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from partita.cli.main import main

    settings.isolate_inference = False
    path = tmp_path / "crash.onnx"
    path.write_bytes(to_model(crashing()).SerializeToString())
    assert main(["partition", str(path), "--devices", "reference"]) == 1
    assert "ONNX's inference ended its process (signal 11)" in capsys.readouterr().err
    assert not settings.isolate_inference, "what a program has set stays"


CONVERTED = (
    ("graph net(x: float32[2, 3]) -> (y) { y = Softmax(x) {axis=1} }", 12),
    ("graph net(x: float32[2, 3]) -> (y) { y = ReduceMean(x) {axes=[1]} }", 18),
    ("func f(a) -> (b) { b = Relu(a) }\n graph g(x: float32[3]) -> (y) { y = call f(x) }", 13),
    ("graph net(x: float32[2, 3]) -> (y) { y = GridSample(x, x) }", 11),
)


@pytest.mark.parametrize(("net", "opset"), CONVERTED)
def test_opsets_are_converted_in_the_child_as_here(net: str, opset: int) -> None:
    def converted() -> str:
        try:
            return str(apply_pass(text(net, "16" if opset == 18 else "21"), "ConvertOpset", opset=opset, verify=False))
        except PassError as error:
            return str(error)

    there = converted()
    settings.isolate_inference = False
    assert there == converted()


def test_a_crash_of_the_converter_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    onnx_inference.stop_isolation()
    asked = "import os; from partita.passes.infer import onnx_child as c"
    crashing_child = f"{asked}; c._Server.convert = lambda s, p: os.abort(); c.main()"
    monkeypatch.setattr(onnx_inference, "COMMAND", [sys.executable, "-c", crashing_child])
    g = text("graph net(x: float32[2, 3]) -> (y) { y = Softmax(x) {axis=1} }", "21")
    with pytest.raises(PassError, match=r"ONNX's version converter ended its process \(signal 6\)"):
        apply_pass(g, "ConvertOpset", opset=15)
    onnx_inference.stop_isolation()


def test_an_interrupt_leaves_no_answer_for_the_next_question(monkeypatch: pytest.MonkeyPatch) -> None:
    onnx_inference.stop_isolation()
    receive, calls = onnx_inference._Child.receive, []

    def interrupted(self: onnx_inference._Child, seconds: float) -> object:
        calls.append(seconds)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return receive(self, seconds)

    monkeypatch.setattr(onnx_inference._Child, "receive", interrupted)
    with pytest.raises(KeyboardInterrupt):
        outcome(NETS[4])
    monkeypatch.undo()
    settings.isolate_inference = True
    assert "float32[N, 3, 7, 7]" in outcome(NETS[0])


def test_a_child_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    onnx_inference.stop_isolation()
    monkeypatch.setattr(onnx_inference, "STARTING", 0.2)
    monkeypatch.setattr(onnx_inference, "COMMAND", [sys.executable, "-c", "import time; time.sleep(600)"])
    with pytest.raises(PassError, match=r"ONNX's inference took more than 0\.2 s, and was ended"):
        apply_pass(text(NETS[0]), "InferShape")
    monkeypatch.undo()
    assert "float32[N, 3, 7, 7]" in outcome(NETS[0])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")
def test_a_forked_process_has_a_child_of_its_own() -> None:
    assert "float32[N, 3, 7, 7]" in outcome(NETS[0])
    pid = os.fork()
    if not pid:
        os._exit(0 if onnx_inference._held._child is None and "float32[N, 3, 7, 7]" in outcome(NETS[0]) else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert "float32[N, 3, 7, 7]" in outcome(NETS[0])


SOUND = {
    'GatherND <batch_dims = -1> (x, i)': "batch_dims is -1, and cannot be negative",
    'LayerNormalization <axis = 2147483648> (x, x)': "axis is 2147483648",
    'Softmax <axis = -9223372036854775808> (x)': "axis is -9223372036854775808",
    'Einsum <equation = "\\xff"> (x)': "the equation '",
}


@pytest.mark.parametrize("node", SOUND)
def test_attributes_at_which_onnx_crashes_are_refused(node: str) -> None:
    import onnx.helper
    import onnx.parser

    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]> g (float[2,2] x, int64[2,2] i) => (float y) {{ y = {node} }}'
    )
    for attribute in model.graph.node[0].attribute:
        if attribute.name == "equation":
            attribute.s = b"\xff"
    settings.isolate_inference = False
    with pytest.raises(PassError) as caught:
        apply_pass(load_onnx(model), "InferShape", verify=False)
    assert SOUND[node] in str(caught.value)


def test_more_outputs_than_parts() -> None:
    settings.isolate_inference = False
    g = text("graph g(x: float32[8]) -> (a, b, c) { a, b, c = Split(x) {num_outputs=2} }")
    with pytest.raises(PassError, match="num_outputs is 2, and it has 3 outputs"):
        apply_pass(g, "InferShape", verify=False)


@pytest.mark.parametrize(
    "node",
    [
        "y = EyeLike(a) {dtype=0}",
        'y = ai.onnx.ml::LabelEncoder(a) {keys_strings=["a"], values_int64s=[1], default_int64=1}',
    ],
)
def test_ops_that_crash_without_types(node: str) -> None:
    settings.isolate_inference = False
    register_op("Untold", "my")
    try:
        g = text(f"graph g(x: float32[8]) -> (y) {{ a = my::Untold(x)\n {node} }}", "21, my 1, ai.onnx.ml 4")
        assert apply_pass(g, "InferShape", verify=False).outputs[0].type is None
    finally:
        unregister_op("Untold", "my")


def test_an_op_that_crashes_without_its_input() -> None:
    import onnx.helper as h

    settings.isolate_inference = False
    node = h.make_node("LabelEncoder", [""], ["y"], domain="ai.onnx.ml", classes_strings=["", "x"])
    body = h.make_graph([node], "g", [], [h.make_empty_tensor_value_info("y")])
    model = h.make_model(body, opset_imports=[h.make_opsetid("", 21), h.make_opsetid("ai.onnx.ml", 1)], ir_version=10)
    assert apply_pass(load_onnx(model), "InferShape", verify=False).outputs[0].type is None


def test_onnx_forgets_the_opaque_op_before_the_interpreter_ends() -> None:
    """ONNX 1.19 hangs at the end of a process that leaves it there."""
    code = """
import atexit
import onnx.defs
atexit.register(lambda: print("there" if onnx.defs.has("Opaque", "partita.opaque") else "gone"))
from partita.graph.text import parse
from partita.passes import apply_pass
g = parse("func f(a) -> (b) { b = Relu(a) } graph g(x: float32[3]) -> (y) { y = call f(x) }")
apply_pass(g, "InferShape")
print("there" if onnx.defs.has("Opaque", "partita.opaque") else "gone")
"""
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=300, check=False,
        env={**os.environ, "PYTHONPATH": root},
    )
    assert (done.stdout, done.stderr) == ("there\ngone\n", "")


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="open files are seen in /proc")
def test_a_forked_process_closes_its_copies_of_the_pipes() -> None:
    """Else the parent's end alone would not tell the child that nobody speaks with it any more."""
    assert "float32[N, 3, 7, 7]" in outcome(NETS[0])
    child = onnx_inference._held._child
    assert child is not None and child.process.stdin is not None and child.process.stdout is not None
    pipes = [child.process.stdin.fileno(), child.process.stdout.fileno()]
    held = [onnx_inference._held._child]  # as the frame of a thread that speaks with it would
    pid = os.fork()
    if not pid:
        os._exit(sum(os.path.exists(f"/proc/self/fd/{pipe}") for pipe in pipes))
    assert os.waitpid(pid, 0)[1] == 0
    assert "float32[N, 3, 7, 7]" in outcome(NETS[0])
    assert onnx_inference._held._child is child and held == [child], "the parent's child goes on"
