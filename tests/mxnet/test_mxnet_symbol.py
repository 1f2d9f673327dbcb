"""MXNet's symbols: spellings, names, inputs, calls, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest

import partita as pt
from partita.graph import PartitaError, ReadError, TensorType, UnknownOp, register_op, unregister_op
from partita.graph.interpret import interpret
from partita.graph.readers.mxnet import converter, load_mxnet
from partita.graph.readers.mxnet.ops.table import _table, number, one_op
from partita.graph.readers.text import parse
from partita.graph.verify import verify
from partita.passes import apply_pass
from tests.mxnet.data import FOLDER, cases

X = {"op": "null", "name": "x", "inputs": []}


def node(op, name, *inputs, **more):
    return {"op": op, "name": name, "inputs": [[i, 0, 0] for i in inputs], **more}


def symbol(*nodes, heads=None):
    """A symbol of the input x and these nodes."""
    return {"nodes": [X, *nodes], "heads": heads or [[len(nodes), 0, 0]]}


def listed(graph):
    """The op nodes with what they read."""
    return [f"{n.name}: {n.op}({', '.join(e.name for e in n.inputs if e)})" for n in graph.nodes if n.is_op]


CONV = {"kernel": "(3, 3)", "num_filter": "4", "no_bias": "True"}


@pytest.mark.parametrize(
    "spelling",
    [
        {"attrs": {**CONV, "__ctx_group__": "dev1"}},
        {"attr": {**CONV, "ctx_group": "dev1"}},
        {"attr": {**CONV, "__ctx_group__": "dev1"}, "backward_source_id": -1},
        {"param": CONV, "attr": {"ctx_group": "dev1"}, "backward_source_id": -1},
    ],
    ids=["since 1.0", "hidden keys without underscores", "before 1.0", "the first releases"],
)
def test_every_spelling(spelling):
    result = {
        "nodes": [
            X,
            {**X, "name": "w"},
            {"op": "Convolution", "name": "c", "inputs": [[0, 0], [1, 0]], **spelling},
        ]
    }
    graph = load_mxnet({**result, "heads": [[2, 0]]})
    assert listed(graph) == ["c: Conv(x, w)"]
    assert graph["c"].attrs["kernel_shape"] == [3, 3]
    assert graph["c"].metadata == {"mxnet.ctx_group": "dev1"}
    assert graph["w"].output_types == (TensorType("float32", (4, None, 3, 3)),)


def test_names_are_mxnets():
    graph = load_mxnet(
        symbol(
            node("Activation", "a", 0, attrs={"act_type": "relu"}),
            node("_plus_scalar", "p", 1, attrs={"scalar": "2"}),
        )
    )
    assert [n.name for n in graph.nodes] == ["x", "a", "p_scalar", "p"]
    assert [n.output_names for n in graph.nodes] == [("x",), ("a_output",), ("p_scalar",), ("p_output",)]
    assert graph.output_names == ("p_output",)


def test_the_node_that_makes_the_value_bears_the_name():
    graph = load_mxnet(symbol(node("broadcast_equal", "same", 0, 0)))
    assert listed(graph) == ["same_truth: Equal(x, x)", "same: Cast(same_truth)"]


def test_shared_names_are_numbered_and_helpers_give_way():
    nodes = [
        node("relu", "a", 0),
        node("relu", "a", 1),
        node("square", "a_output", 2),
        node("log1p", "b", 3),
        node("exp", "b_plus_one", 4),
    ]
    graph = load_mxnet(symbol(*nodes, heads=[[5, 0], [5, 0], [0, 0]]))
    verify(graph)
    assert [n.name for n in graph.nodes if n.is_op] == [
        "a",
        "a_1",
        "a_output",
        "b_plus_one_1",
        "b",
        "b_plus_one",
    ]
    assert graph.output_names == ("b_plus_one_output", "b_plus_one_output_1", "x")


def test_variables_of_one_name_stay_apart():
    """`mx.sym.var("x") - mx.sym.var("x")`; the name with a number belongs to another node of the file."""
    graph = load_mxnet(
        symbol(X, node("elemwise_sub", "d", 0, 1), node("relu", "x_1", 2)), shapes={"x": (2,), "x_2": ("n",)}
    )
    verify(graph)
    assert listed(graph) == ["d: Sub(x, x_2)", "x_1: Relu(d_output)"]
    assert [(n.name, dict(n.metadata)) for n in graph.inputs] == [("x", {}), ("x_2", {"mxnet.name": "x"})]
    assert [n[0].type.shape for n in graph.inputs] == [(2,), ("n",)]
    with pytest.raises(ReadError, match="a shape is given for 'x_3', which is not a variable"):
        load_mxnet(symbol(X, node("elemwise_sub", "d", 0, 1)), shapes={"x_3": (2,)})


def test_variables_of_one_name_are_fed_apart_and_share_a_parameter():
    result = symbol(X, {**X, "name": "w"}, {**X, "name": "w"}, *_difference_of_products())
    graph = load_mxnet(result, {"w": np.full(2, 3, np.float32)}, {"x": (2,)})
    assert graph["w"].value is graph["w_1"].value
    fed = [np.array([1, 2], np.float32), np.array([5, 7], np.float32)]
    assert interpret(graph, fed)[0].tolist() == [-12.0, -15.0]
    assert str(parse(str(graph))) == str(graph)


def _difference_of_products():
    return node("elemwise_mul", "p", 0, 2), node("elemwise_mul", "q", 1, 3), node("elemwise_sub", "d", 4, 5)


def test_names_in_bodies_are_their_own():
    """A block that is called twice brings its ops twice; its inputs may have one name too."""
    body = symbol(X, node("elemwise_sub", "d", 0, 1))
    result = symbol(
        X, node("_CachedOp", "c", 0, 1, subgraphs=[body]), node("_CachedOp", "c", 2, 1, subgraphs=[body]), node("relu", "d", 3)
    )
    graph = load_mxnet(result, shapes={"x": (2,)})
    verify(graph)
    first, second = (call.subgraph for call in graph.nodes if call.is_call)
    assert listed(graph) == ["c: Call(x, x_1)", "c_1: Call(c_output, x_1)", "d_2: Relu(c_output_1)"]
    assert listed(first) == ["d: Sub(x, x_1)"]
    assert listed(second) == ["d_1: Sub(x, x_1)"]
    assert graph["c_1"].metadata == {"mxnet.name": "c"}
    assert graph["d_2"].metadata == {"mxnet.name": "d"}


def test_labels_are_no_inputs():
    label = {**X, "name": "softmax_label"}
    result = {"nodes": [X, label, node("SoftmaxOutput", "softmax", 0, 1)], "heads": [[2, 0, 0]]}
    graph = load_mxnet(result, shapes={"x": (2, 3)})
    assert [n.name for n in graph.inputs] == ["x"]
    also_read = {
        "nodes": [X, label, node("SoftmaxOutput", "softmax", 0, 1), node("exp", "e", 1)],
        "heads": [[2, 0], [3, 0]],
    }
    assert [n.name for n in load_mxnet(also_read, shapes={"x": (2, 3)}).inputs] == ["x", "softmax_label"]


def test_declared_shapes_and_dtypes():
    data = {"op": "null", "name": "x", "attrs": {"__shape__": "(0, 3, 8, 8)", "__dtype__": "4"}, "inputs": []}
    result = {"nodes": [data, node("square", "s", 0)], "heads": [[1, 0]]}
    assert load_mxnet(result).inputs[0].output_types == (TensorType("int32", (None, 3, 8, 8)),)
    given = load_mxnet(result, shapes={"x": ("batch", 3, 8, 8)})
    assert given.outputs[0].type == TensorType("int32", ("batch", 3, 8, 8))


def test_a_fixed_gamma_is_one_even_if_it_is_an_input():
    names = ("gamma", "beta", "mean", "var")
    result = {
        "nodes": [X, *({**X, "name": n} for n in names), node("BatchNorm", "b", 0, 1, 2, 3, 4)],
        "heads": [[5, 0]],
    }
    graph = load_mxnet(result)
    assert listed(graph) == [
        "b_channels: Shape(mean)",
        "b_ones: Expand(b_one, b_channels)",
        "b: BatchNormalization(x, b_ones, beta, mean, var)",
    ]
    assert [n.name for n in graph.inputs] == ["x", *names]


def test_text_bytes_path_and_dictionary_are_the_same():
    path = FOLDER / "many_ops-symbol.json"
    result = [
        load_mxnet(s)
        for s in (path, str(path), path.read_text(), path.read_bytes(), json.loads(path.read_text()))
    ]
    assert len({tuple(listed(graph)) for graph in result}) == 1
    assert [graph.name for graph in result] == ["many_ops", "many_ops", "net", "net", "net"]
    assert result[0].metadata == {"mxnet.version": "10901"}


def test_nodes_stand_in_the_files_order():
    names = [n["name"] for n in json.loads((FOLDER / "many_ops-symbol.json").read_text())["nodes"]]
    graph = load_mxnet(FOLDER / "many_ops-symbol.json")
    assert [n.name for n in graph.nodes if n.name in names] == names


def test_control_dependencies():
    graph = load_mxnet(
        symbol(node("exp", "a", 0), node("square", "b", 0, control_deps=[1]), heads=[[1, 0], [2, 0]])
    )
    assert [n.name for n in graph["b"].after] == ["a"]


def test_a_call():
    """A call is read as MXNet's default backend writes it."""
    body = {
        "nodes": [
            {**X, "name": "d0"},
            {**X, "name": "w0"},
            node("FullyConnected", "fc", 0, 1, attrs={"num_hidden": "3", "no_bias": "1"}),
            node("exp", "e", 2),
        ],
        "heads": [[3, 0, 0], [2, 0, 0]],
    }
    result = {
        "nodes": [
            X,
            {**X, "name": "w"},
            node("_CachedOp", "call", 0, 1, subgraphs=[body]),
            node("sqrt", "s", 2),
        ],
        "heads": [[3, 0], [2, 1]],
    }
    graph = load_mxnet(result, {"w": np.ones((3, 4), np.float32)}, {"x": (2, 4)})
    verify(graph)
    call = graph["call"]
    assert call.is_call and call.output_names == ("call_output0", "call_output1")
    assert listed(call.subgraph) == ["fc: Gemm(d0, w0)", "e: Exp(fc_output)"]
    assert [e.type for e in call.outputs] == [TensorType("float32", (2, 3))] * 2
    assert listed(graph) == ["call: Call(x, w)", "s: Sqrt(call_output0)"]


def test_a_converter_of_the_users():
    @converter("my_swish", "beta")
    def swish(c):
        x = c.inputs[0]
        gate = c.helper(
            "gate", "Sigmoid", c.helper("scaled", "Mul", x, c.like("beta", c.params.number("beta", 1.0), x))
        )
        return c.result("Mul", x, gate)

    @converter("my_custom")
    def custom(c):
        return c.result("Custom", c.inputs[0], domain="my")

    register_op("Custom", "my", shape=lambda types, attributes: types[0])
    try:
        graph = load_mxnet(
            symbol(node("my_swish", "s", 0, attrs={"beta": "2.0"}), node("my_custom", "c", 1)),
            shapes={"x": (2,)},
        )
    finally:
        unregister_op("Custom", "my")
        del _table["my_swish"], _table["my_custom"]
    assert listed(graph) == [
        "s_scaled: Mul(x, s_beta)",
        "s_gate: Sigmoid(s_scaled)",
        "s: Mul(x, s_gate)",
        "c: Custom(s_output)",
    ]
    assert graph.outputs[0].type == TensorType("float32", (2,))


def test_a_users_op_that_is_one_op():
    one_op("my_elu", "Elu", alpha=number("a", 1.0))
    try:
        graph = load_mxnet(symbol(node("my_elu", "s", 0, attrs={"a": "2.0"})), shapes={"x": (2,)})
        with pytest.raises(ReadError, match="the parameter 'a' must be a number, but is 'no'"):
            load_mxnet(symbol(node("my_elu", "s", 0, attrs={"a": "no"})), shapes={"x": (2,)})
    finally:
        del _table["my_elu"]
    assert listed(graph) == ["s: Elu(x)"]
    assert graph["s"].attrs == {"alpha": 2.0}


def test_floats_are_those_of_an_onnx_file(tmp_path):
    layer = node("LeakyReLU", "l", 0, attrs={"act_type": "leaky", "slope": "0.1"})
    graph = load_mxnet(symbol(layer), shapes={"x": (2,)})
    pt.save(graph, tmp_path / "net.onnx")
    assert graph["l"].attrs == pt.load(tmp_path / "net.onnx")["l"].attrs == {"alpha": float(np.float32(0.1))}


def test_an_unknown_op_with_a_similar_name():
    with pytest.raises(UnknownOp, match=r"no converter reads this MXNet op: softmaxx.*\n  Did you mean 'softmax'.* Write one:"):
        load_mxnet(symbol(node("softmaxx", "s", 0)))


def test_unknown_ops_are_listed_together():
    with pytest.raises(UnknownOp) as refused:
        load_mxnet(symbol(node("Foo", "a", 0), node("_foreach", "b", 1), node("Foo", "c", 2)))
    assert str(refused.value) == (
        "no converter reads these MXNet ops: Foo (node 'a' and 1 more); _foreach (node 'b')\n"
        "  Write one: a function under @partita.graph.readers.mxnet.converter(...) that makes ONNX nodes of the op."
    )


RELU = node("relu", "r", 0)


@pytest.mark.parametrize(
    "symbol, message",
    [
        ("{", "symbol: this is not JSON"),
        ("[" * 100_000, "this is not a file|cannot be opened|this is not JSON"),
        (b"[" * 100_000, "symbol: this is not JSON"),
        (b"\xff\xfe\x00", "symbol: this is not JSON"),
        ("{}", "this JSON is not an MXNet symbol: it has no list of nodes, or no heads"),
        ({"nodes": [], "heads": []}, "the symbol has no outputs"),
        ({"nodes": [3], "heads": [[0, 0]]}, "symbol, node 0: a node must have an op and a name"),
        (
            symbol({"op": "relu", "name": "", "inputs": [[0, 0]]}),
            "symbol, node 1: a node's op or name is empty",
        ),
        (
            symbol(node("relu", "r", 1)),
            "node 'r' (relu): inputs refers to node 1, and only the first 1 nodes can be meant",
        ),
        (symbol(node("relu", "r", -1)), "inputs holds [-1, 0, 0], which must be [node, output, version]"),
        (symbol({**RELU, "inputs": [[0]]}), "inputs holds [0]"),
        (symbol({**RELU, "inputs": 3}), "inputs must be a list"),
        (symbol(RELU, heads=[[7, 0]]), "heads refers to node 7"),
        (symbol(RELU, heads=[[1, 3]]), "output 3 of 'r' is read, and in use relu has 1"),
        (symbol({**RELU, "attrs": {"axis": 3}}), "the parameter 'axis' must be text, but is 3"),
        (symbol({**RELU, "attrs": [1]}), "attrs must be a dictionary"),
        (symbol({**RELU, "control_deps": [4]}), "control_deps must be a list of earlier nodes"),
        (symbol({**RELU, "attrs": {"slope": "1"}}), "the op has no parameter 'slope' that can be honoured"),
        (symbol(node("relu", "r", 0, 0)), "the op takes 1 to 1 inputs, and has 2"),
        (
            symbol(node("Concat", "c", 0, attrs={"num_args": "2"})),
            "the parameter 'num_args' must be the number of inputs, 1, but is '2'",
        ),
        (symbol(node("Activation", "a", 0)), "the parameter 'act_type' must be given, but is missing"),
        (
            symbol(node("Activation", "a", 0, attrs={"act_type": "swish"})),
            "'act_type' must be one of relu, sigmoid, tanh, softrelu, softsign, but is 'swish'",
        ),
        (
            symbol(node("expand_dims", "e", 0, attrs={"axis": "1.5"})),
            "the parameter 'axis' must be a whole number, but is '1.5'",
        ),
        (
            symbol(node("expand_dims", "e", 0, attrs={"axis": "9" * 19})),
            "the parameter 'axis' must be a number of 64 bits",
        ),
        (symbol(node("Dropout", "d", 0, attrs={"mode": "never"})), "'mode' must be one of training, always"),
        (
            symbol(node("Pooling", "p", 0, attrs={"kernel": "(2, 2)", "stride": "(0, 1)"})),
            "'stride' must be 2 numbers, each 1 or more, but is '(0, 1)'",
        ),
        (
            symbol(node("Pooling", "p", 0, attrs={"kernel": "(2, 2)", "pooling_convention": "same"})),
            "'pooling_convention' must be valid or full, but is 'same'",
        ),
        (symbol(node("transpose", "t", 0, attrs={"axes": "(0, 0)"})), "an axis is named twice in (0, 0)"),
        (
            symbol(node("Reshape", "r", 0, attrs={"shape": "(-3, 0)"})),
            "the number of dimensions of 'x' must be known to read this op, but is not",
        ),
        (
            symbol(node("SliceChannel", "s", 0, attrs={"num_outputs": "1000000000"})),
            "'num_outputs' must be a divisor of the axis's size",
        ),
        (
            symbol(node("GroupNorm", "g", 0, 0, 0, attrs={"num_groups": "1000000000"})),
            "'num_groups' must be at most 65536",
        ),
        (symbol(node("_CachedOp", "c", 0)), "a call must have one subgraph, but has 0"),
        (symbol(node("_CachedOp", "c", subgraphs=[symbol(RELU)])), "the call has 0 inputs and its body 1"),
    ],
)
def test_bad_symbols(symbol, message):
    with pytest.raises(PartitaError) as refused:
        load_mxnet(symbol)
    assert any(part in str(refused.value) for part in message.split("|"))


@pytest.mark.parametrize(
    "weight, data, message",
    [
        ((4, 3, 3, 3), (1, 5, 8, 8), "'x' has the shape (1, 5, 8, 8), and the op takes (?, 3, ?, ?) there"),
        ((4, 3, 3, 3), (1, 5, 8), "'x' has the shape (1, 5, 8), and the op takes (?, 3, ?, ?) there"),
        ((4, 3, 3, 2), (1, 3, 8, 8), "'w' has the shape (4, 3, 3, 2), and the op takes (4, 3, 3, 3) there"),
        ((5, 3, 3, 3), (1, 3, 8, 8), "'w' has the shape (5, 3, 3, 3), and the op takes (4, 3, 3, 3) there"),
    ],
)
def test_shapes_that_the_op_does_not_take(weight, data, message):
    conv = symbol({**X, "name": "w"}, node("Convolution", "c", 0, 1, attrs=CONV))
    with pytest.raises(ReadError) as refused:
        load_mxnet(conv, {"w": np.ones(weight, np.float32)}, {"x": data})
    assert (
        str(refused.value)
        == f"node 'c' (Convolution): {message}\n  Check the shapes of the inputs and of the parameters."
    )


def test_shapes_that_onnx_does_not_take():
    with pytest.raises(
        ReadError, match=r"node 'a' \(elemwise_add\): Add does not take these inputs: .*\n  Check the shapes"
    ):
        load_mxnet(
            symbol({**X, "name": "y"}, node("elemwise_add", "a", 0, 1)), shapes={"x": (2, 3), "y": (2, 4)}
        )


def test_an_axis_beyond_all_tensors():
    """ONNX's inference cut the number to 32 bits, which left 0, and believed it."""
    g = symbol(node("softmax", "s", 0, attrs={"axis": str(-(2**63))}))
    with pytest.raises(ReadError, match=r"node 's' \(softmax\): Softmax cannot be: axis is -9223372036854775808\n  Check"):
        load_mxnet(g, shapes={"x": (2, 3)})


def test_an_array_of_another_shape_than_declared():
    with pytest.raises(
        ReadError, match=r"node 'x' \(null\): the array has the shape \(2\), and \(3\) was declared"
    ):
        load_mxnet(symbol(RELU), {"x": np.ones(2)}, {"x": (3,)})


def test_what_names_nothing():
    with pytest.raises(
        ReadError, match="a shape is given for 'dta', which is not a variable\n  The variables are x"
    ):
        load_mxnet(symbol(RELU), shapes={"dta": (1,)})
    with pytest.raises(ReadError, match="none of the 1 parameters has the name of a variable"):
        load_mxnet(symbol(RELU), {"arg:y": np.ones(1)})


@pytest.mark.parametrize(
    "source, message",
    [("missing-symbol.json", "cannot be opened"), (".", "this is not a file"), (3, "cannot be read from a int")],
)
def test_what_is_no_symbol(source, message):
    with pytest.raises(ReadError, match=message):
        load_mxnet(source)


def test_no_file_is_opened_that_was_not_named(tmp_path):
    """A file of parameters beside the symbol is read only if it is asked for."""
    (tmp_path / "net-symbol.json").write_text(json.dumps(symbol(RELU)))
    (tmp_path / "net-0000.params").write_bytes(b"no parameters")
    assert load_mxnet(tmp_path / "net-symbol.json").name == "net"


def test_deeply_nested_calls_are_refused():
    result = symbol(RELU)
    for i in range(40):
        result = symbol(node("_CachedOp", f"c{i}", 0, subgraphs=[result]))
    with pytest.raises(ReadError, match="subgraphs are nested more than 16 deep"):
        load_mxnet(result)


def test_two_loads_are_equal():
    """Names, order and types do not depend on anything but the file."""
    for case in list(cases().values())[::20]:
        first, second = (load_mxnet(case.symbol, case.params, case.shapes) for _ in range(2))
        assert [(n.name, n.op, n.output_names, n.output_types) for n in first.nodes] == [
            (n.name, n.op, n.output_names, n.output_types) for n in second.nodes
        ]


@pytest.mark.parametrize("width", ["()", "(0, 0, 1)", "(0, 0, -1, 1)"])
def test_a_pad_needs_two_numbers_for_each_axis(width: str) -> None:
    nodes = [
        {"op": "null", "name": "data", "inputs": []},
        {"op": "Pad", "name": "pad", "attrs": {"mode": "constant", "pad_width": width}, "inputs": [[0, 0, 0]]},
    ]
    symbol = {"nodes": nodes, "arg_nodes": [0], "heads": [[1, 0, 0]]}
    with pytest.raises(PartitaError, match="two numbers, 0 or more, for each axis"):
        load_mxnet(symbol, {}, {"data": (2, 3)})


@pytest.mark.parametrize(
    ("attributes", "sizes"),
    [
        ({"indices": "(1, 4)", "sections": "0"}, [1, 3, 3]),
        ({"indices": "(0, 1, 4)"}, [1, 3, 3]),
        ({"indices": "()", "sections": "7"}, [1] * 7),
        ({"indices": "(7,)"}, [7, 0]),
        ({"indices": "()", "sections": "-1"}, "sections"),
        ({"indices": "()", "sections": "3"}, "a divisor of the axis's size 7"),
        ({"indices": "(4, 1)"}, "rising from 0 to at most 7"),
        ({"indices": "(8,)"}, "rising from 0 to at most 7"),
    ],
)
def test_parts_of_an_axis_at_their_limits(attributes: dict[str, str], sizes: list[int] | str) -> None:
    count = len(sizes) if isinstance(sizes, list) else 1
    nodes = [
        {"op": "null", "name": "data", "inputs": []},
        {"op": "_split_v2", "name": "parts", "attrs": attributes, "inputs": [[0, 0, 0]]},
    ]
    symbol = {"nodes": nodes, "arg_nodes": [0], "heads": [[1, i, 0] for i in range(count)]}
    if isinstance(sizes, str):
        with pytest.raises(PartitaError, match=sizes):
            load_mxnet(symbol, {}, {"data": (2, 7)})
    else:
        graph = apply_pass(load_mxnet(symbol, {}, {"data": (2, 7)}), "InferShape")
        assert [entry.type.shape for entry in graph.outputs] == [(2, size) for size in sizes]
