"""Graphs of all kinds, written: sums over the ONNX model, over the graph that is read from it, over the model with its constants
in a file beside it, over nnvm's JSON and over the drawing; or why a writer refuses.

`python -m tests.onnx.kept_writings` writes the file that `test_kept_writings.py` compares with anew."""

from __future__ import annotations

import json
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.json_format import MessageToDict

import partita as pt
from partita.graph.pictures import to_dot
from partita.graph.readers.nnvm import from_nnvm_json
from partita.graph.sparse import SparseTensor
from partita.graph.writers.nnvm import to_nnvm_json
from partita.graph.writers.onnx import to_model
from tests.accelerators.devices.kept_runs import MODELS
from tests.partition.kept_partitions import partitioned

KEPT = Path(__file__).with_name("kept_writings.txt")

TEXTS = {
    "metadata": """graph g(x: float32[2] @cpu metadata {a="1"}, z: float32[2] metadata {b="2"}, u: float32[2] @cpu) -> (y, z, u) {
        metadata {author="me", "a b"="c"}
        y = Relu(x) metadata {note="mine"} @"cuda:0" name=first : float32[2]
    }""",
    "after": "graph g(x: float32[2]) -> (y) { a = Neg(x) b = Abs(x) y = Relu(x) after(a, b) }",
    "attributes": """graph g(x: float32[2]) -> (y, z) {
        y = my.ops::Odd(x) {i=3, f=2.0, g=-0.0, s="text", t="", n=[1, 2], e=[], h=[1.0, 2.5], w=["a", "b"], big=1099511627776,
            k=const float32[2] [1.0, 2.0], m=[1.0], q=inf}
        z = Conv(x, y, _) {kernel_shape=[3, 3], auto_pad="SAME_UPPER"}
    }""",
    "outputs": """graph g(x: float32[2], w: float32[2]) -> (a=y, b=y, c=x, d=k, e=s0) {
        k = const float32[2] [1.0, 2.0]
        y = Add(x, k) : float32[2]
        s0, _, s2 = Split(y) {num_outputs=3}
    }""",
    "no types": "graph g(x, c: ?) -> (y) { y = Loopy(x, c) z, t = Two(y) : float32[?, N], ? }",
    "types": """graph g(a: sequence(float32[?, 3]), b: optional(int64[N]), c: map(int64, float32[]),
        d: sparse(float32[2, 2]), e: string[N, M], f: bfloat16[], h: optional(sequence(uint8[2]))) -> (y, z) {
        y = SequenceLength(a) z = OptionalHasElement(b) }""",
    "captures": """graph g(c: bool[], x: float32[3]) -> (y, t) {
        t = Neg(x)
        y = If(c) {
            then_branch=graph a(p: float32[3], q: float32[3]) -> (x) { x = Sub(p, q) },
            else_branch=graph b(p: float32[3], q: float32[3]) -> (q) {
                c2 = const bool[] true
                t = If(c2) {
                    then_branch=graph d(v: float32[3]) -> (v) {},
                    else_branch=graph e(v: float32[3]) -> (r) { k = const float32[1] [2.0] r = Mul(v, k) },
                } captures(q)
            },
        } captures(t, x)
    }""",
    "scan": """graph g(n: int64[], x: float32[3]) -> (y, z) {
        go = const bool[] true
        y, z = Loop(n, go, x) {
            body=graph step(i: int64[], c: bool[], a: float32[3]) -> (c, b, s) { b = Add(a, a) s = Neg(b) },
        }
    }""",
    "calls": """func inner(a: float32[3]) -> (r, a) { w = const float32[3] [1.0, 2.0, 3.0] r = Mul(a, w) }
    func outer(a: float32[3], b: float32[3]) -> (s, t) { r, q = call inner(a) s = Add(r, b) t = Relu(q) }
    graph g(x: float32[3]) -> (y, z) {
        k = const float32[3] [4.0, 5.0, 6.0]
        one, two = call outer(x, k) : float32[3], float32[3] @cpu
        y, u = call inner(one)
        z = Sub(two, u)
    }""",
    "own calls": """func block(a: float32[3]) -> (r) { r = Neg(a) }
    graph g(x: float32[3]) -> (y) { a = my.ops::Block(x) calls block y = call block(a) }""",
    "names": """graph "a b"("x y": float32[2], "naïve": float32[2]) -> ("out 1"=y, "7") {
        y = Add("x y", "naïve") name="y"
        "7" = Neg(y) name="/layer/7"
        unused = Abs(y) name=x
    }""",
    "opsets": """opset 13, my.ops 2, ai.onnx.ml 3
    graph g(x: float32[2, 3]) -> (y) { a = ai.onnx.ml::Normalizer(x) {norm="L1"} y = my.ops::F(a) }""",
    "constants": """graph g(x: float32[2]) -> (y, z) {
        a = const float32[2] [1.0, nan]
        b = const int64[] 3 metadata {onnx.input="1"}
        early = Add(x, a)
        c = const float32[2] [inf, -inf] name="node of c"
        s = const string[2] ["a", "ü"]
        h = const float16[2] [1.0, 0.5]
        i = const int4[3] [1, -2, 3]
        d = const bool[2] [true, false]
        y = Add(early, c)
        z = my.ops::All(s, h, i, d, b)
    }""",
}


def _large() -> pt.Graph:
    """Calls that share large constants, and one that has its own."""
    a, x = pt.variable("a", "float32", (300,)), pt.variable("x", "float32", (300,))
    shared = np.arange(300, dtype=np.float32)
    bodies = [
        pt.Graph([pt.op("Add", a, pt.constant(array, name=f"w{i}"), name=f"add{i}")], name=f"body{i}")
        for i, array in enumerate((shared, shared, shared + 1))
    ]
    node = x
    for i, body in enumerate(bodies):
        node = pt.call(body, node, name=f"call{i}")
    last = pt.op("Mul", node, pt.constant(np.ones((3, 300), np.float32), name="own"), name="last")
    return pt.Graph([last, pt.op("Add", last, pt.constant(shared, name="again"), name="y")], name="large")


def _edges() -> pt.Graph:
    """Constants as large as one that stays inside may be, and larger; attributes of bytes, and sparse ones; a null node."""
    x = pt.variable("x", "float32", (256,))
    y = pt.op("Neg", x, name="first")
    for count in (255, 256, 257):
        y = pt.op("Odd", y, pt.constant(np.ones(count, np.float32), name=f"c{count}"), name=f"n{count}", domain="my.ops")
    sparse = SparseTensor(np.array([1.0, 2.0], np.float32), np.array([0, 3]), (2, 2))
    kinds = {"type": pt.TensorType("float32", (2, None)), "types": [pt.SequenceType(pt.TensorType("int64", ()))]}
    attributes = {"s": b"\xff", "w": [b"\xff", "a"], "sparse": sparse, "several": [sparse, sparse], **kinds}
    return pt.Graph([pt.op("Odd", y, name="last", domain="my.ops", **attributes)], name="edges")


GRAPHS: dict[str, Callable[[], pt.Graph]] = {
    **{name: lambda text=text: pt.parse(text if text.startswith("opset") else f"opset 21\n{text}") for name, text in (
        *TEXTS.items(), *((f"model {name}", text) for name, text in MODELS.items()),
    )},
    **{f"partition {seed}": lambda seed=seed: partitioned(f"{seed}, walk") for seed in range(8)},
    "large": _large,
    "edges": _edges,
}


FORMS: dict[str, Callable[[pt.Graph], str]] = {
    "text": str,
    "model": lambda graph: _fields(to_model(graph)),
    "model without order": lambda graph: _fields(to_model(graph, drop_control=True)),
    "model without constants": lambda graph: _fields(to_model(graph, elide_constants_above=8, drop_control=True)),
    "read": lambda graph: _told(pt.load(to_model(graph, drop_control=True))),
    "written again": lambda graph: _fields(to_model(pt.load(to_model(graph, drop_control=True)))),
    "files": lambda graph: _files(graph),
    "drawing": to_dot,
    "JSON": to_nnvm_json,
    "JSON, read": lambda graph: _told(from_nnvm_json(to_nnvm_json(graph))),
}


def _fields(model: onnx.ModelProto) -> str:
    return json.dumps(MessageToDict(model, preserving_proto_field_name=True))


def _told(graph: pt.Graph) -> str:
    return f"{graph}{graph.attrs.get('notes', '')}{[(node.name, node.metadata, node.affinity) for node in graph.nodes]}"


def _files(graph: pt.Graph) -> str:
    """The files of a model with its constants beside it, and those that are left when it is saved without."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "g.onnx"
        pt.save(graph, path, external=True, drop_control=True)
        files = sorted((file.name, file.stat().st_size) for file in Path(folder).iterdir() if file.suffix != ".onnx")
        model = onnx.load(path, load_external_data=False)
        pt.save(graph, path, drop_control=True)
        return f"{_fields(model)}{files}{[file.name for file in Path(folder).iterdir()]}"


def _said(form: str, graph: pt.Graph) -> str:
    try:
        return f"{zlib.crc32(FORMS[form](graph).encode()):08x}"
    except pt.PartitaError as error:
        return str(error).replace("\n", " ")


def lines(name: str) -> list[str]:
    """The lines of the file for a graph."""
    graph = GRAPHS[name]()
    return [f"{name} | {form} | {_said(form, graph)}" for form in FORMS]


if __name__ == "__main__":
    KEPT.write_text("".join(f"{line}\n" for name in GRAPHS for line in lines(name)), "utf-8")
