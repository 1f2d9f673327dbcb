"""NNVM's JSON form as it is written; files of NNVM's own; files that lie."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from partita.graph import Graph, PartitaError, ReadError, constant, op, variable
from partita.graph.readers.nnvm import from_nnvm_json
from partita.graph.readers.text import parse
from partita.graph.writers.nnvm import to_nnvm_json

NET = """
func f(a) -> (b) { b = Relu(a) }
graph net(x: float32[2, N]) -> (y, again=y) {
  w = const float32[2, 1] [1.0, 2.0]
  c = Conv(x, w, _) {kernel_shape=[1, 1], __odd="é"} @cpu
  p, q = Split(c) {axis=1} name=s after(x)
  d = call f(p)
  y = call f(d)
}
"""

SYMBOL = {
    "nodes": [
        {"op": "null", "name": "data", "inputs": []},
        {"op": "null", "name": "w", "attr": {"__shape__": "(4, 2)"}, "inputs": []},
        {"op": "SliceChannel", "name": "sc", "param": {"num_outputs": "2"}, "inputs": [[0, 0]]},
        {
            "op": "FullyConnected",
            "name": "fc",
            "attrs": {"num_hidden": "4"},
            "inputs": [[2, 1, 0], [1, 0, 0]],
            "control_deps": [0],
        },
    ],
    "arg_nodes": [0, 1],
    "heads": [[3, 0, 0]],
}


def test_the_form() -> None:
    loaded = json.loads(to_nnvm_json(parse(NET)))
    assert loaded["nodes"][1] == {"op": "null", "name": "w", "attrs": {"__value__": "float32[2, 1] [1.0, 2.0]"}, "inputs": []}
    assert loaded["nodes"][2] == {
        "op": "Conv",
        "name": "c",
        "attrs": {"kernel_shape": "[1, 1]", "__attr____odd": '"é"', "__absent__": "[2]", "__affinity__": "cpu"},
        "inputs": [[0, 0, 0], [1, 0, 0]],
    }
    assert loaded["nodes"][3]["control_deps"] == [0]
    assert [len(node.get("subgraphs", [])) for node in loaded["nodes"]] == [0, 0, 0, 0, 1, 0], "a shared body is written once"
    assert loaded["arg_nodes"] == [0, 1]
    assert loaded["node_row_ptr"] == [0, 1, 2, 3, 5, 6, 7]
    assert loaded["heads"] == [[5, 0, 0], [5, 0, 0]]
    assert loaded["attrs"]["shape"][0] == "list_shape" and loaded["attrs"]["shape"][1][:2] == [[2, -1], [2, 1]]
    assert loaded["attrs"]["dtype"] == ["list_int", [0, 0, -1, -1, -1, -1, -1]]


def test_it_comes_back() -> None:
    graph = parse(NET)
    back = from_nnvm_json(to_nnvm_json(graph))
    assert str(back) == str(graph)
    assert back["d"].subgraph is back["y"].subgraph


def test_arrays_are_inside() -> None:
    graph = Graph([op("Neg", constant(np.arange(1000, dtype=np.float32), "w"), name="y")])
    back = from_nnvm_json(to_nnvm_json(graph))
    np.testing.assert_array_equal(back["w"].value, np.arange(1000, dtype=np.float32))
    assert "base64" in to_nnvm_json(graph)


def test_a_symbol_of_mxnet_keeps_its_ops_and_strings() -> None:
    assert str(from_nnvm_json(json.dumps(SYMBOL))) == """\
opset 21

graph net(data, w {__shape__="(4, 2)"}) -> (fc) {
  sc_output0, sc_output1 = SliceChannel(data) {num_outputs="2"} name=sc
  fc = FullyConnected(sc_output1, w) {num_hidden="4"} after(data)
}"""


def test_shapes_and_dtypes_of_a_graph_of_nnvm() -> None:
    typed = {**SYMBOL, "node_row_ptr": [0, 1, 2, 4, 5]}
    typed["attrs"] = {"shape": ["list_shape", [[1, 4], [4, 2], [1, 2], [1, 2], []]], "dtype": ["list_int", [0, 0, 2, -1, 0]]}
    graph = from_nnvm_json(json.dumps(typed))
    assert [str(e.type) for node in graph.nodes for e in node.outputs] == [
        "float32[1, 4]", "float32[4, 2]", "float16[1, 2]", "None", "float32"
    ]


@pytest.mark.parametrize("name", ["many_ops", "mobilenet0.25"])
def test_real_symbols(name: str) -> None:
    path = Path(__file__).parents[3] / "shared" / "data" / "mxnet" / f"{name}-symbol.json"
    if not path.exists():
        pytest.skip("the MXNet models are not here")
    graph = from_nnvm_json(path.read_text())
    assert str(from_nnvm_json(to_nnvm_json(graph))) == str(graph)


def changed(**changes: Any) -> str:
    return json.dumps({**SYMBOL, **changes})


def with_node(**changes: Any) -> str:
    nodes: list[Any] = list(SYMBOL["nodes"])
    return changed(nodes=[*nodes[:3], {**nodes[3], **changes}])


BAD = {
    "{": "the text: this is not JSON text: Expecting property name",
    "[" * 100_000: "the text: the JSON text nests too deep",
    "[]": "graph: an object with nodes, arg_nodes and heads is expected, not '[]'",
    "{}": "graph.nodes: a list is expected, not 'None'",
    '{"nodes": [' + "9" * 5000 + "]}": "this is not JSON text: Exceeds the limit",
    changed(heads=[[9, 0, 0]]): "graph.heads[0]: node 9 does not stand above",
    changed(heads=[[3, 5, 0]], node_row_ptr=[0, 1, 2, 4, 5]): "graph.heads[0]: the number 5 is not below 1",
    changed(heads=[[-1, 0, 0]]): "graph.heads[0]: the number -1 is not below 4",
    changed(heads=[[True, 0, 0]]): "a number is expected, not 'True'",
    changed(heads=[[0]]): "a value is a node's number, an output's number and a version",
    changed(arg_nodes=[2]): "graph.arg_nodes[0]: node 2 computes something and is not an argument",
    changed(node_row_ptr=[0, 1]): "graph.node_row_ptr: 2 numbers do not fit 4 nodes",
    changed(node_row_ptr=[0, 1, 2, 10**12, 10**12]): "graph.node_row_ptr: these are not plausible numbers of outputs",
    changed(node_row_ptr=[0, 5, 2, 3, 4]): "these are not plausible numbers of outputs",
    with_node(inputs=[[3, 0, 0]]): "graph.nodes[3].inputs[0]: node 3 does not stand above: the graph has a cycle",
    with_node(control_deps=[7]): "graph.nodes[3].control_deps: the number 7 is not below 3",
    with_node(op=None): "graph.nodes[3].op: the name of an op is expected, not 'None'",
    with_node(op="null"): "graph.nodes[3]: an argument reads nothing and makes one value",
    with_node(attrs={"a": 1}): "graph.nodes[3].attrs.a: a string is expected, not '1'",
    with_node(name="w"): "two nodes are named 'w'",
    changed(attrs={"partita": ["int", 2]}): "this is version 2 of the form; version 1 is known here",
    changed(attrs={"partita": 1}): "graph.attrs.partita: a list is expected",
    changed(attrs={"shape": ["list_shape", []], "dtype": ["list_int", []]}): "0 shapes and 0 dtypes for 5 values",
}


@pytest.mark.parametrize("text", BAD)
def test_bad_files_are_one_clear_error(text: str) -> None:
    with pytest.raises(ReadError) as caught:
        from_nnvm_json(text)
    assert BAD[text] in str(caught.value)


def mutate(value: Any, rng: random.Random) -> Any:
    """The JSON value with something in it changed."""
    junk = [None, -1, 10**12, "x", [], {}, True, 1.5, "func \"0\"", "float32[9999999999] [1.0]"]
    if isinstance(value, dict) and value and rng.random() < 0.95:
        key = rng.choice(list(value))
        return {**value, key: mutate(value[key], rng)} if rng.random() < 0.95 else {k: v for k, v in value.items() if k != key}
    if isinstance(value, list) and value and rng.random() < 0.9:
        at = rng.randrange(len(value))
        return [*value[:at], mutate(value[at], rng), *value[at + 1 :]]
    return rng.choice(junk)


@pytest.mark.parametrize("text", [to_nnvm_json(parse(NET)), json.dumps(SYMBOL)], ids=["ours", "theirs"])
def test_mutated_files(text: str) -> None:
    rng = random.Random(1)
    refused = 0
    for _ in range(1500):
        mutant = mutate(json.loads(text), rng)
        try:
            loaded = from_nnvm_json(json.dumps(mutant))
        except PartitaError as error:
            assert isinstance(error, ReadError)
            refused += 1
        else:
            assert str(from_nnvm_json(to_nnvm_json(loaded))) == str(loaded)
    assert refused > 500


def test_variables_may_have_what_other_nodes_have() -> None:
    x = variable("x").evolve(attrs={"a": 1}, affinity="cpu", metadata={"k": "v"})
    assert str(from_nnvm_json(to_nnvm_json(Graph([x])))) == str(Graph([x]))


@pytest.mark.parametrize("text", ["graph g(x: float32[2]) -> (y) { y = Relu(x) }"])
def test_a_variable_of_two_values_is_refused(text: str) -> None:
    document = json.loads(to_nnvm_json(parse(text)))
    variable = next(node for node in document["nodes"] if node["op"] == "null")
    variable.setdefault("attrs", {})["__outputs__"] = '["x", "z"]'
    document["node_row_ptr"] = [0, 2, 3]
    with pytest.raises(ReadError, match="a variable or constant reads nothing and makes one value"):
        from_nnvm_json(json.dumps(document))
