"""What the writer makes of graphs, and that reading it gives the same graph again."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import onnx.checker
import onnx.defs
import onnx.helper
import pytest

import partita.graph as pt
from partita.graph.errors import WriteError
from partita.graph.inline import inline_calls
from partita.graph.interpret import interpret
from partita.graph.protos import first_ir
from partita.graph.readers import load
from partita.graph.readers.text import parse
from partita.graph.types import BY_NUMBER, MapType, OptionalType, SequenceType, SparseTensorType, TensorType, numpy_dtype
from partita.graph.verify import verify
from partita.graph.writers.onnx import save, to_model
from partita.graph.writers.onnx.files import constant_bytes
from tests.onnx.models import FUNCTIONS, LINE, NESTED, X, model, run_engine, run_reference, same


def written(g, *, ir=None):
    """The valid model of a graph, from which the same graph comes back."""
    verify(g)
    proto = to_model(g)
    onnx.checker.check_model(proto, full_check=True)
    again = load(proto)
    assert str(again) == str(g)
    verify(again)
    if ir is not None:
        assert proto.ir_version == ir
    return proto


@pytest.mark.parametrize("text", [LINE, NESTED, FUNCTIONS])
def test_models_come_back(text):
    proto = model(text)
    again = written(load(proto))
    inputs = [np.array(True) if item.name == "c" else X for item in proto.graph.input]
    if text is not LINE:
        assert same(run_engine(again, *inputs), run_engine(proto, *inputs))


@pytest.mark.parametrize("name", ["c", "node of c"])
def test_constants_with_names_of_their_own_are_ops(name: str) -> None:
    x = pt.variable("x", "float32", (1000,))
    constant = pt.constant(np.ones(1000, np.float32), name=name).evolve(output_names=("c",))
    proto = written(pt.Graph([pt.op("Add", x, constant, name="y")], [x]))
    assert [node.op_type for node in proto.graph.node] == (["Add"] if name == "c" else ["Constant", "Add"])
    assert [item.name for item in proto.graph.initializer] == (["c"] if name == "c" else [])


def test_element_types_need_the_ir_version_of_the_first_opset_that_has_them() -> None:
    first: dict[str, int] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        for text in [text for row in schema.type_constraints for text in row.allowed_type_strs if not schema.domain]:
            first[text] = min(first.get(text, schema.since_version), schema.since_version)
    for name, number in list(onnx.TensorProto.DataType.items())[1:]:
        opset = onnx.helper.make_opsetid("", first[f"tensor({name.lower()})"])
        needed = onnx.helper.find_min_ir_version_for([opset]) if opset.version > 13 else 1
        dtype = BY_NUMBER[number]
        kinds = [TensorType(dtype, (2,)), SequenceType(TensorType(dtype)), MapType("int64", TensorType(dtype))]
        assert [first_ir(kind) for kind in kinds] == [needed] * 3, name
        assert first_ir(OptionalType(TensorType(dtype))) == first_ir(SparseTensorType(dtype, (2,))) == max(8, needed)
    assert onnx.helper.find_min_ir_version_for([onnx.helper.make_opsetid("", first["optional(tensor(float))"])]) == 8


def test_the_ir_version_is_the_lowest_that_fits():
    old = model(LINE, '<ir_version: 9, opset_import: ["" : 13]>\n')
    assert to_model(load(old)).ir_version == 7
    text = """net (float[3] x) => (float[3] y) { y = my.f (x) }
        <domain: "my", opset_import: ["" : 13]> f (a) => (b) { b = Relu (a) }"""
    functions = model(text, '<ir_version: 9, opset_import: ["" : 13, "my" : 1]>\n')
    assert to_model(load(functions)).ir_version == 8


def body(k, weight=None):
    """Relu(a + w) * sum(big), the input itself, the product once more, and the big constant."""
    a = pt.variable("a", "float32", (3,))
    w = pt.constant(np.arange(3, dtype=np.float32), name=f"w{k}")
    big = pt.constant(np.ones(900, np.float32) if weight is None else weight, name=f"big{k}")
    relu = pt.op("Relu", pt.op("Add", a, w, name=f"add{k}"), name=f"relu{k}")
    product = pt.op("Mul", relu, pt.op("ReduceSum", big, name=f"sum{k}"), name=f"mul{k}")
    return pt.Graph([product, a, product, big], name=f"body{k}", output_names=["p", "q", "r", "s"])


def calls():
    x = pt.variable("x", "float32", (3,))
    first = pt.call(body(0), x, name="first")
    second = pt.call(body(1), first[0], name="second")
    second.affinity = "cpu"
    y = pt.op("Add", second[1], second[2], name="y")
    return pt.Graph([y, y, second[0], second[3], x], output_names=["out", "again", "direct", "big", "x"])


def test_calls_are_functions_and_come_back():
    g = calls()
    proto = written(g)
    assert [f.name for f in proto.functions] == ["first"], "equal bodies share one function"
    function = proto.functions[0]
    assert list(function.input) == ["a", "big0"] and list(function.output) == ["mul0"]
    assert [node.op_type for node in function.node] == ["Constant", "Add", "Relu", "ReduceSum", "Mul"]
    for engine in (run_engine, run_reference):
        for a, b in zip(engine(proto, X), interpret(g, [X]), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6)
    assert [node.name for node in inline_calls(g).nodes if node.is_op] == [
        "add0", "relu0", "sum0", "mul0", "add1", "relu1", "sum1", "mul1", "y"
    ]


def test_constants_that_are_shared_are_one_initializer():
    shared = np.ones(900, np.float32)
    x = pt.variable("x", "float32", (3,))
    first = pt.call(body(0, shared), x, name="first")
    g = pt.Graph([pt.call(body(1, shared), first[0], name="second")[0]])
    assert len(written(g).graph.initializer) == 1


def test_calls_inside_calls():
    a = pt.variable("a", "float32", (3,))
    inner = pt.call(body(0), a, name="inner")
    outer = pt.Graph([pt.op("Neg", inner, name="neg")], name="outer")
    x = pt.variable("x", "float32", (3,))
    g = pt.Graph([pt.call(outer, x, name="call")])
    proto = written(g)
    assert [f.name for f in proto.functions] == ["inner", "call"], "callee before caller"
    assert same(run_engine(proto, X), interpret(g, [X]))


def test_calls_in_the_body_of_an_if():
    a = pt.variable("x", "float32", (3,))
    then = pt.Graph([pt.call(body(0), a, name="inner")], name="then", inputs=[a])
    b = pt.variable("x", "float32", (3,))
    other = pt.Graph([pt.op("Neg", b, name="neg")], name="else", inputs=[b])
    x, c = pt.variable("x", "float32", (3,)), pt.variable("c", "bool", ())
    y = pt.op("If", c, name="y", then_branch=then, else_branch=other, captures=[x])
    g = pt.Graph([y], inputs=[x, c])
    proto = written(g)
    for flag in (True, False):
        assert same(run_engine(proto, X, np.array(flag)), interpret(g, [X, np.array(flag)]))


def test_captures_with_other_names_and_shadows_come_back():
    g = parse(
        """opset 21

graph net(c: bool[], x: float32[3]) -> (y) {
  t = Neg(x)
  y = If(c) {
    then_branch=graph a(p: float32[3], q: float32[3]) -> (x) {
      x = Sub(p, q)
    },
    else_branch=graph b(p: float32[3], q: float32[3]) -> (q) {
      t = Mul(q, q) name=inner
    },
  } captures(t, x)
}
"""
    )
    proto = written(g)
    for flag in (True, False):
        assert same(run_engine(proto, np.array(flag), X), interpret(g, [np.array(flag), X]))


def test_a_value_captured_twice_comes_back_once():
    g = parse(
        """opset 21

graph net(c: bool[], x: float32[3]) -> (y) {
  y = If(c) {
    then_branch=graph a(p: float32[3], q: float32[3]) -> (s) {
      s = Add(p, q)
    },
    else_branch=graph b(p: float32[3], q: float32[3]) -> (d) {
      d = Sub(q, p)
    },
  } captures(x, x)
}
"""
    )
    again = load(to_model(g))
    assert [entry.name for entry in again["y"].captures] == ["x"]
    assert same(interpret(again, [np.array(True), X]), interpret(g, [np.array(True), X]))


@pytest.mark.parametrize("outputs, names", [
    (["y", "y"], ["a", "b"]), (["x"], ["x"]), (["x"], ["z"]), (["w"], ["w"]), (["w", "w"], ["v", "w"]), (["y", "x"], ["t", "u"]),
])
def test_outputs_of_all_kinds(outputs, names):
    x = pt.variable("x", "float32", (3,))
    w = pt.constant(X, "w")
    y = pt.op("Add", pt.op("Neg", x, name="t"), w, name="y")
    g = pt.Graph([{"x": x, "w": w, "y": y}[key] for key in outputs], inputs=[x], output_names=names)
    proto = written(g)
    assert [item.name for item in proto.graph.output] == names
    for run in (run_reference, run_engine):
        assert same(run(proto, X), interpret(g, [X]))


def test_an_output_cannot_bear_an_inputs_name():
    x = pt.variable("x", "float32", (3,))
    with pytest.raises(WriteError, match="has the name of another value"):
        to_model(pt.Graph([pt.op("Neg", x, name="y")], output_names=["x"]))


def test_control_dependencies_are_refused_or_dropped():
    x = pt.variable("x", "float32", (3,))
    first = pt.op("Neg", x, name="first")
    g = pt.Graph([pt.op("Relu", x, name="y").evolve(after=(first,))])
    with pytest.raises(WriteError, match=r"(?s)node 'y'.*comes after 'first'.*drop_control=True"):
        to_model(g)
    assert len(to_model(g, drop_control=True).graph.node) == 2


def test_affinity_order_and_metadata_survive():
    y = pt.op("Relu", x := pt.variable("x", "float32", (3,)), name="y")
    late = pt.constant(np.ones(3, np.float32), "late")
    z = pt.op("Add", y, late, name="z").evolve(metadata={"note": "mine"})
    large = pt.op("Add", z, pt.constant(np.ones((900, 3), np.float32), "large"), name="wide")
    y.affinity = x.affinity = late.affinity = "cpu"
    written(pt.Graph([large], name="kept", metadata={"author": "me"}))


@pytest.mark.parametrize("dtype", [
    "int4", "uint4", "int2", "uint2", "float4_e2m1fn", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "bfloat16", "float16",
    "float32", "float64", "complex64", "bool", "int8", "uint16", "int32", "uint64", "float6_e2m3fn",
])
def test_arrays_of_every_dtype_come_back(dtype):
    array = np.array([[0, 1, 1], [1, 0, 1]]).astype(numpy_dtype(dtype))
    g = pt.Graph([pt.constant(array, "w")], opsets={"": 25})
    result = load(to_model(g))["w"].value
    assert result.dtype == array.dtype and result.tobytes() == array.tobytes() and result.shape == (2, 3)


def test_strings_that_are_not_utf8_stay_bytes():
    array = np.array(["ä", b"\xff", ""], object)
    assert load(to_model(pt.Graph([pt.constant(array, "w")])))["w"].value.tolist() == array.tolist()


def test_large_constants_can_be_elided():
    proto = to_model(calls(), elide_constants_above=100)
    assert not proto.graph.initializer and {item.name for item in proto.graph.input} >= {"x", "big0_1"}


def test_domains_that_the_graph_does_not_mention_are_imported():
    x = pt.variable("x", "float32", (2,))
    inner = pt.variable("p", "float32", (2,))
    body = pt.Graph([pt.op("Theirs", inner, name="q", domain="you")], name="f")
    g = pt.Graph([pt.call(body, pt.op("Mine", x, name="m", domain="me"), name="c")])
    result = to_model(g)
    assert {item.domain: item.version for item in result.opset_import} == {"": 21, "me": 1, "partita": 1, "you": 1}
    assert {item.domain: item.version for item in result.functions[0].opset_import} == {"": 21, "you": 1}
    assert [node.domain for node in load(result)["c"].subgraph.nodes] == ["", "you"]


def test_of_onnx_s_own_domains_the_version_is_wanted():
    x = pt.variable("x", "float32", (2,))
    g = pt.Graph([pt.op("Binarizer", x, name="b", domain="ai.onnx.ml")])
    with pytest.raises(WriteError, match=r"no version of opset 'ai.onnx.ml'\n  Give it with opsets="):
        to_model(g)
    to_model(g.evolve(opsets={"": 21, "ai.onnx.ml": 3}))


def nested(depth: int, around) -> pt.Graph:
    """A Relu with so many graphs around it."""
    body = pt.Graph([pt.op("Relu", pt.variable("p", "float32", (4,)), name="leaf")], name="body")
    for i in range(depth):
        p = pt.variable("p", "float32", (4,))
        body = pt.Graph([around(body, p, i)], [p], name=f"around{i}")
    return body


def test_bodies_that_nest_too_deep_for_a_file():
    def call(body, p, i):
        return pt.call(body, p, name=f"call{i}")

    def branch(body, p, i):
        then = pt.Graph([pt.op("Neg", q := pt.variable("p", "float32", (4,)), name=f"neg{i}")], [q])
        test = pt.op("Not", pt.constant(np.array(True), "t"), name=f"not{i}")
        return pt.op("If", test, then_branch=then, else_branch=body, captures=[p], name=f"if{i}")

    for depth, around in ((90, call), (31, branch)):
        assert str(load(to_model(nested(depth, around)).SerializeToString())) == str(nested(depth, around))
    with pytest.raises(WriteError, match="bodies nest more than 31 deep"):
        to_model(nested(32, branch))
    with pytest.raises(WriteError, match=r"calls nest too deep\n  InlineFunctions"):
        to_model(nested(400, call))


def test_what_is_no_file_is_not_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for external in (False, True):
        with pytest.raises(WriteError, match="it is not a file but a device or a pipe"):
            save(load(model(LINE)), pipe, external=external)
    assert pipe.is_fifo() and os.listdir(tmp_path) == ["pipe"]


@pytest.mark.parametrize(
    ("value", "kind"),
    [([1, 2], "INTS"), ([1.0, 2.0], "FLOATS"), ([1, 2.5], "FLOATS"), ([], "INTS"), (["a"], "STRINGS"), (3, "INT")],
)
def test_attributes_of_ops_without_a_schema_keep_their_kind(value: Any, kind: str) -> None:
    """Equality alone does not tell 1 from 1.0."""
    node = pt.op("Thing", pt.variable("x", "float32", (2,)), name="y", domain="my").evolve(attrs={"a": value})
    (attribute,) = to_model(pt.Graph([node], opsets={"": 21, "my": 1})).graph.node[0].attribute
    assert onnx.AttributeProto.AttributeType.Name(attribute.type) == kind


@pytest.mark.parametrize(
    ("version", "dtypes"),
    [
        (1, "float32 string bool complex128 bfloat16 uint64"),
        (9, "float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz"),
        (10, "uint4 int4"),
        (11, "float4_e2m1fn"),
        (12, "float8_e8m0fnu"),
        (13, "uint2 int2"),
        (14, "float6_e2m3fn float6_e3m2fn"),
    ],
)
def test_the_first_ir_version_with_a_type(version, dtypes):
    for dtype in dtypes.split():
        tensor, sparse = pt.TensorType(dtype, (2,)), SparseTensorType(dtype, (2,))
        assert first_ir(tensor) == first_ir(SequenceType(tensor)) == first_ir(MapType("int64", tensor)) == version
        assert first_ir(sparse) == first_ir(OptionalType(tensor)) == first_ir(SequenceType(sparse)) == max(version, 8)
    assert first_ir(None) == first_ir(SequenceType(None)) == 1


def test_bytes_of_constants_are_counted_once_and_in_bodies():
    array = np.zeros((10, 4), np.float32)
    x, other = pt.variable("x", "float32", (10, 4)), pt.constant(np.zeros(3, np.int64))
    body = pt.Graph([pt.op("Add", pt.variable("a"), pt.constant(array))], name="f")
    first = pt.op("Add", pt.op("Add", x, pt.constant(array)), pt.constant(array.copy()))
    calls = pt.call(body, pt.call(body, first))
    branches = {name: pt.Graph([pt.op("Neg", pt.constant(array.copy()), name=name)]) for name in ("a", "b")}
    chosen = pt.op("If", pt.variable("c", "bool", ()), then_branch=branches["a"], else_branch=branches["b"])
    assert constant_bytes(pt.Graph([calls, chosen, pt.op("Neg", other)])) == 4 * 160 + 24

