"""What the reader makes of ONNX models: names, constants, bodies, functions, shapes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from partita.graph.errors import ReadError, UnknownOp
from partita.graph.readers import load
from partita.graph.types import TensorType
from partita.graph.verify import verify
from tests.onnx.models import FUNCTIONS, LINE, NESTED, X, model, run_engine, same


def test_an_unnamed_node_takes_its_first_outputs_name():
    g = load(model(LINE))
    assert [node.name for node in g.nodes] == ["x", "t", "y"]
    assert g["y"].inputs[0].name == "t"


def test_a_duplicate_name_takes_the_outputs_name():
    proto = model(LINE)
    proto.graph.node[0].name = proto.graph.node[1].name = "same"
    assert [node.name for node in load(proto).nodes] == ["x", "same", "y"]


def test_an_output_name_that_another_node_bears_is_made_unique():
    proto = model(LINE)
    proto.graph.node[1].name = "t"
    assert [node.name for node in load(proto).nodes] == ["x", "t_1", "t"]


def test_a_node_named_like_an_input_is_renamed():
    proto = model(LINE)
    proto.graph.node[0].name = "x"
    assert [node.name for node in load(proto).nodes] == ["x", "t", "y"]


def test_names_are_unique_across_bodies():
    proto = model(NESTED)
    for node in (proto.graph.node[0], proto.graph.node[1].attribute[1].g.node[0]):
        node.name = "n"
    g = load(proto)
    verify(g)
    assert "n" in g and g["y"].attrs["else_branch"]["e"].op == "Mul"


@pytest.mark.parametrize("key, value, expected", [
    ("value_float", 1.5, np.float32(1.5)),
    ("value_floats", [1.0, 2.0], np.float32([1, 2])),
    ("value_int", 7, np.int64(7)),
    ("value_ints", [1, 2], np.int64([1, 2])),
    ("value_string", "a", np.array("a", object)),
    ("value_strings", ["a", "b"], np.array(["a", "b"], object)),
])
def test_constant_nodes_are_constants(key, value, expected):
    node = helper.make_node("Constant", [], ["y"], **{key: value})
    proto = helper.make_model(helper.make_graph([node], "g", [], [onnx.ValueInfoProto(name="y")]))
    array = load(proto)["y"].value
    assert array.dtype == expected.dtype and array.tolist() == expected.tolist()


def test_sparse_constants_are_densified():
    sparse = helper.make_sparse_tensor(
        numpy_helper.from_array(np.float32([5, 7]), "s"), numpy_helper.from_array(np.int64([1, 4])), [2, 3]
    )
    graph = helper.make_graph([helper.make_node("Neg", ["s"], ["y"])], "g", [], [onnx.ValueInfoProto(name="y")])
    graph.sparse_initializer.append(sparse)
    assert load(helper.make_model(graph))["s"].value.tolist() == [[0, 5, 0], [0, 7, 0]]


def test_an_initializer_that_is_an_input_is_a_constant_that_remembers():
    proto = model("net (float[3] w, float[3] x) => (float[3] y) { y = Add(w, x) }")
    proto.graph.initializer.append(numpy_helper.from_array(X, "w"))
    g = load(proto)
    assert [node.name for node in g.inputs] == ["x"]
    assert g["w"].is_constant and g["w"].metadata == {"onnx.input": "0"}


def test_bodies_are_closed_through_all_levels():
    g = load(model(NESTED))
    verify(g)
    outer = g["y"]
    assert [entry.name for entry in outer.captures] == ["c", "s", "x"]
    body = outer.attrs["then_branch"]
    assert [node.name for node in body.inputs] == ["c", "s", "x"]
    assert [entry.name for entry in body["a"].captures] == ["s", "x"]
    assert [node.name for node in body["a"].attrs["else_branch"].inputs] == ["s", "x"]


def test_a_function_becomes_a_call_with_its_parameters_filled_in():
    g = load(model(FUNCTIONS))
    verify(g)
    y, z = g["y"], g["z"]
    assert (y.op, y.domain, y.is_call) == ("twice", "my", True)
    leaks = [call.subgraph.nodes[0].name for call in y.subgraph.nodes[1:]]
    assert leaks == ["a", "a"]
    values = [node.subgraph.nodes[1].subgraph.nodes[1].attrs["alpha"] for node in (y, z)]
    assert values == [0.5, 0.25]
    assert y.subgraph.nodes[1].subgraph is y.subgraph.nodes[2].subgraph, "equal parameters share the body"


def test_inlining_gives_the_same_results():
    proto = model(FUNCTIONS)
    g = load(proto, inline=True)
    verify(g)
    assert {node.op for node in g.nodes} == {None, "LeakyRelu"}
    from partita.graph.writers.onnx import to_model

    assert same(run_engine(to_model(g), X), run_engine(proto, X))


def test_recursive_functions_are_refused():
    text = """net (float[3] x) => (float[3] y) { y = my.f (x) }
        <domain: "my", opset_import: ["" : 21, "my" : 1]> f (a) => (b) { b = my.f (a) }"""
    with pytest.raises(ReadError, match="calls itself"):
        load(model(text))


def test_a_function_for_another_opset_with_other_meaning_is_refused():
    text = """net (float[3] x) => (float[3] y) { y = my.f (x) }
        <domain: "my", opset_import: ["" : 9]> f (a) => (b) { b = %s (a) }"""
    with pytest.raises(ReadError, match="(?s)version 9.*ConvertOpset"):
        load(model(text % "Softmax"))
    assert load(model(text % "Selu"))["y"].is_call


def test_shapes_given_replace_symbols_everywhere():
    proto = model('net (float["n",3] x) => (float["n",3] y) { y = Relu(x) }')
    g = load(proto, shapes={"x": (4, 3)})
    assert g.inputs[0][0].type == TensorType("float32", (4, 3)) == g["y"][0].type


DECLARED = """net (float["n",3] x, float["n",3] z, seq(float[2]) s) => (float["n",3] y) <float[3] w = {1.0, 2.0, 3.0}>
    { a = Add(x, w) y = Add(a, z) }"""
"""Two inputs that share a symbol, a sequence, and a constant."""


@pytest.mark.parametrize("shapes, message", [
    ({"xx": (1,)}, "input 'xx': the model has no such input\n  Did you mean 'x'?"),
    ({"weights": (1,)}, "input 'weights': the model has no such input\n  It has x, z, s."),
    ({"w": (3,)}, "input 'w': it is a constant, not an input\n  It has x, z, s."),
    ({"s": (3,)}, "input 's': a value of type sequence(float32[2]) has no shape to give"),
    ({"x": (1, 2, 3)},
     "input 'x': the shape given has 3 dimensions, and the model says float32[n, 3]\n  Give one size for each dimension."),
    ({"x": (2, 4)}, "input 'x': dimension 1 is 3 in the model and cannot become 4"),
    ({"x": (2, "m")}, "input 'x': dimension 1 is 3 in the model and cannot become m"),
    ({"x": (4, 3), "z": (5, 3)}, "input 'z': dimension 0 is 'n' in the model, which is given as 4 and as 5"),
])
def test_shapes_that_do_not_fit_are_refused(shapes, message):
    proto = model(DECLARED)
    with pytest.raises(ReadError) as raised:
        load(proto, shapes=shapes)
    assert str(raised.value) == f"net, {message}"


@pytest.mark.parametrize("shapes, types", [
    ({"x": (4, 3)}, ["float32[4, 3]"] * 2),
    ({"x": ("m", 3)}, ["float32[m, 3]", "float32[n, 3]"]),
    ({"x": (4, 3), "z": (4, 3)}, ["float32[4, 3]"] * 2),
    ({"z": (None, 3)}, ["float32[n, 3]", "float32[?, 3]"]),
])
def test_shapes_given_are_those_of_the_inputs(shapes, types):
    assert [str(node[0].type) for node in load(model(DECLARED), shapes=shapes).inputs[:2]] == types


def test_an_input_without_a_type_takes_the_shape_given():
    proto = model(LINE)
    del proto.graph.value_info[:]
    proto.graph.input[0].ClearField("type")
    assert load(proto, shapes={"x": (2, 3)}).inputs[0][0].type == TensorType("float32", (2, 3))


def _changed(change):
    proto = model(LINE)
    change(proto)
    return proto


def _unsorted(proto):
    nodes = list(proto.graph.node)
    del proto.graph.node[:]
    proto.graph.node.extend(nodes[::-1])


def _attribute(proto):
    proto.graph.node[0].op_type = "LeakyRelu"
    proto.graph.node[0].attribute.append(helper.make_attribute("alpha", 1))


def _huge(proto):
    proto.graph.initializer.append(TensorProto(name="w", data_type=1, dims=[1 << 40, 1 << 20], raw_data=b"abcd"))


@pytest.mark.parametrize("change, error, message", [
    (_unsorted, ReadError, "unsorted: 't' is made by a later node"),
    (lambda m: m.graph.node[0].input.__setitem__(0, "y"), ReadError, "depends on itself through the value 'y', .*: t -> y -> t"),
    (lambda m: m.graph.node[0].input.__setitem__(0, "q"), ReadError, "reads 'q', which nothing defines"),
    (lambda m: m.graph.node[1].output.__setitem__(0, "t"), ReadError, "'t' is defined twice"),
    (lambda m: setattr(m.graph.node[0], "op_type", "Rlu"), UnknownOp, "(?s)no op 'Rlu'.*'Elu'|'Relu'"),
    (lambda m: setattr(m.opset_import[0], "version", 999), ReadError, "no version 999 of opset 'ai.onnx'"),
    (lambda m: m.opset_import.add(domain="far", version=2**35), ReadError, "34359738368 of opset 'far'; 1 to 2147483647"),
    (lambda m: setattr(m, "ir_version", 99), ReadError, "IR version 99 is newer"),
    (lambda m: m.graph.node[0].input.append("x"), ReadError, "has 1 inputs, not 2"),
    (_attribute, ReadError, "'alpha' must be FLOAT, not INT"),
    (_huge, ReadError, "takes 4611686018427387904 bytes, and the file holds 4 bytes"),
    (lambda m: m.ClearField("graph"), ReadError, "there is no graph in it"),
])
def test_bad_models_have_one_clear_error(change, error, message):
    with pytest.raises(error, match=message):
        load(_changed(change), strict=True)


def test_bad_files_have_one_clear_error(tmp_path):
    whole = model(LINE).SerializeToString()
    for name, data, message in [
        ("empty.onnx", b"", "the file is empty"),
        ("text.onnx", b"Hello, this is a text file.\n" * 9, "it is a text file"),
        ("cut.onnx", whole[: len(whole) // 2], "not an ONNX model"),
    ]:
        (tmp_path / name).write_bytes(data)
        with pytest.raises(ReadError, match=message):
            load(tmp_path / name)
    with pytest.raises(ReadError, match="a directory"):
        load(tmp_path)
    with pytest.raises(ReadError, match="no such file"):
        load(tmp_path / "missing.onnx")
    with pytest.raises(ReadError, match="an object of type int is not an ONNX model"):
        load(7)


@pytest.mark.parametrize(
    ("op", "name", "remedy"),
    [("Relu", "beta", "It has none"), ("Softmax", "axs", "Did you mean 'axis'"), ("Softmax", "else", "It has axis")],
)
def test_an_attribute_that_the_op_lacks(op: str, name: str, remedy: str) -> None:
    x, y = (helper.make_tensor_value_info(value, TensorProto.FLOAT, [2]) for value in "xy")
    graph = helper.make_graph([helper.make_node(op, ["x"], ["y"], **{name: 1})], "g", [x], [y])
    with pytest.raises(ReadError, match=rf"has no attribute '{name}'\n  {remedy}"):
        load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))


@pytest.mark.parametrize("op", [
    "Elu <alpha: float = 0.5> (x)",
    "Flatten <axis: int = 0> (x)",
    "Transpose <perm: ints = [0]> (x)",
    'DepthToSpace <blocksize: int = 1, mode: string = "CRD"> (x)',
    "ai.onnx.ml.Scaler <offset: floats = [1.0]> (x)",
    'ai.onnx.ml.LabelEncoder <keys_strings: strings = ["a"], values_int64s: ints = [1]> (x)',
])
def test_nodes_with_equal_attributes_share_them(op):
    head = '<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 3]>\n'
    y, z = load(model(f"net (float[1] x) => (y, z) {{ y = {op} z = {op} }}", head)).nodes[-2:]
    assert y.attrs and y.attrs is z.attrs
