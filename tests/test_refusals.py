"""What is said of graphs, passes and backends that are made wrongly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import partita as pt
from partita.graph.text.literals import MAX_NESTING
from partita.graph.types import require_shapes
from partita.graph.verify import verify
from partita.partition import AffinityProperty

X = pt.variable("x", "float32", (2,))
Y = pt.op("Relu", X, name="y")
G = pt.Graph([Y], name="g")
NESTED: Any = 1
for _ in range(MAX_NESTING + 3):
    NESTED = [NESTED]


def twice() -> Any:
    pt.register_pass("Twice")(lambda g: g)
    try:
        pt.register_pass("Twice")(lambda g: g)
    finally:
        pt.unregister_pass("Twice")


def named_twice() -> Any:
    pt.register_pipeline("InferShape", ["InferType"])


def factory_of_another() -> Any:
    pt.register_property("mine", AffinityProperty)
    try:
        pt.unregister_property("mine", int)
    finally:
        pt.unregister_property("mine")

REFUSED: list[tuple[Callable[[], Any], str]] = [
    (lambda: pt.constant(np.array(["a", 1.5], object)), "a constant holds numbers or strings, not float: 1.5"),
    (lambda: pt.op(5), "an op is named by a string, not by 5 of domain ''"),
    (lambda: pt.op("Relu", X, domain=5), "an op is named by a string, not by 'Relu' of domain 5"),
    (lambda: pt.call(X), "call None: a call takes a Graph, not Node"),
    (lambda: pt.call(G, X, X), "call 'g': the call has 2 inputs and its body 1"),
    (lambda: pt.call(G, X, inline="no"),
     "call 'g': inline: 'no' is neither True nor False\n"
     "  Write True or False."),
    (lambda: pt.op("Relu", np.ones(2)),
     "a value is a Node or a NodeEntry, not ndarray\n"
     "  Wrap arrays with constant(array) and inputs with variable(name, dtype, shape)."),
    (lambda: pt.Graph(5),
     "values are a sequence of nodes and entries, not int\n"
     "  Write [node]."),
    (lambda: pt.Graph([Y], [X, X], name="g"), "inputs ['x', 'x']: an input is listed twice"),
    (lambda: pt.Graph([Y], [Y], name="g"),
     "<Node 'y' Relu> is not a graph input\n"
     "  Make graph inputs with variable(name, dtype, shape)."),
    (lambda: pt.Graph([pt.op("Add", X, pt.variable("z", "float32", (2,)))], [X], name="g"),
     "graph 'g': the graph reads variables that are not among its inputs: z\n"
     "  List them in inputs=, or leave inputs out."),
    (lambda: setattr(G, "name", "h"),
     "graph 'g': a graph never changes once it is made (name was to be set)\n"
     "  Make another with graph.evolve(...) or a pass."),
    (lambda: delattr(Y, "affinity"), "node 'y' (Relu): an affinity cannot be deleted; set it to None"),
    (lambda: pt.variable("v", "float32", 5),
     "a shape is a sequence of dimensions, not 5\n"
     "  Write (5,)."),
    (lambda: pt.variable("v", "float32", "N"),
     "a shape is a sequence of dimensions, not 'N'\n"
     "  Write ('N',)."),
    (lambda: pt.variable("v", "float32", 1.5),
     "a shape is a sequence of dimensions, not 1.5\n"
     '  Write (1, 3, "N").'),
    (lambda: pt.variable("v", "float32", (True,)), "a dimension is an integer, a string or None, not True"),
    (lambda: pt.variable("v", "float32", (-1,)),
     "a dimension cannot be -1\n"
     "  Use a string for a symbolic dimension, None for an unknown one."),
    (lambda: pt.variable("v", "float32", (1 << 63,)),
     "a dimension cannot be 9.22e+18\n"
     "  The largest is 2**63 - 1."),
    (lambda: pt.variable("v", "float31", (1,)),
     "'float31' is not a dtype\n"
     "  Use one of bfloat16, bool, complex128, complex64, float16, float32, float4_e2m1fn, float64, "
     "float6_e2m3fn, float6_e3m2fn, float8_e4m3fn, float8_e4m3fnuz, float8_e5m2, float8_e5m2fnuz, "
     "float8_e8m0fnu, int16, int2, int32, int4, int64, int8, string, uint16, uint2, uint32, uint4, "
     "uint64, uint8."),
    (lambda: require_shapes([1]),
     "shapes are given by the inputs' names, not as list\n"
     '  Write {"x": (1, 3, 224, 224)}.'),
    (lambda: verify(pt.Graph([Y.evolve(output_types=())])),
     "node 'y' (Relu): there are not as many output types as outputs"),
    (lambda: verify(pt.Graph([pt.constant(np.ones(2), "c").evolve(inputs=(X[0],))])),
     "node 'c' (Constant): a constant makes one tensor and reads nothing"),
    (lambda: verify(pt.Graph([pt.constant(np.ones(2), "c").evolve(output_types=(pt.TensorType("float64", (3,)),))])),
     "node 'c' (Constant): the constant is float64[3] and its array has the shape (2,)"),
    (lambda: verify(pt.Graph([pt.call(G, X, name="c").evolve(captures=(X[0],))])),
     "node 'c' (Call): a call captures nothing: its inputs are those of its body"),
    (lambda: verify(pt.Graph([pt.call(G, name="c")])),
     "node 'c' (Call): the call has 0 inputs and its body 1\n"
     "  Connect the call."),
    (lambda: verify(pt.Graph([Y], opsets={"my": 1}, name="g")),
     "node 'y' (Relu): the graph has no version of opset 'ai.onnx'\n"
     "  Give it with opsets= when the graph is made."),
    (lambda: verify(pt.Graph([pt.op("Relu", pt.NodeEntry(Y, 3), name="z")])),
     "node 'z' (Relu): node 'y' has no output 3\n"
     "  It has 1."),
    (lambda: pt.parse(5),
     "the text form of a graph is a string, not int\n"
     "  Use load for files."),
    (lambda: pt.parse("func f(a: float32) -> (a) {}\nfunc f(a: float32) -> (a) {}\ngraph g(x: float32) -> (x) {}"),
     "line 2, column 6: there are two functions 'f'"),
    (lambda: pt.parse("graph g(x: float32) -> (y) {\n  y = Relu(x)\n  y = input\n}"),
     "line 3, column 3: 'y' is not an input of the graph"),
    (lambda: pt.parse("graph g(x: float32) -> (y) {\n  c = const float32[N] [1]\n  y = Relu(x)\n}"),
     "line 2, column 13: the type of a constant is a dtype with sizes, such as float32[2, 3]"),
    (lambda: pt.parse("graph g(x: sparse(sequence(float32))) -> (x) {}"),
     "line 1, column 12: a sparse tensor is one of a dense type: sparse(float32[3, 4])"),
    (lambda: str(pt.Graph([pt.op("F", X, domain="my", a=NESTED)])), "node 'f_0': lists nest more than 32 deep"),
    (lambda: pt.register_pass(5),
     "a pass needs a name, not 5\n"
     '  Write @register_pass("MyPass").'),
    (lambda: pt.register_pass("")(lambda g: g),
     "a pass needs a name, not ''\n"
     '  Write @register_pass("MyPass").'),
    (lambda: pt.register_pass("Mine", needs="shape"),
     "pass 'Mine': needs is a sequence of names\n"
     "  Write needs=('shape',)."),
    (lambda: pt.register_pass("Mine", provides="shape"),
     "pass 'Mine': provides is a sequence of names\n"
     "  Write provides=('shape',)."),
    (lambda: pt.register_pass("Mine", keeps="shape"),
     "pass 'Mine': keeps is a sequence of names\n"
     "  Write keeps=('shape',)."),
    (lambda: pt.register_pass("Mine")(lambda: None),
     "pass 'Mine': a pass takes the graph as its first argument\n"
     "  Write def my_pass(g, **options)."),
    (lambda: pt.register_pass("Mine")(lambda *, g: g),
     "pass 'Mine': a pass takes the graph as its first argument\n"
     "  Write def my_pass(g, **options)."),
    (twice,
     "there is a pass 'Twice' already\n"
     "  Choose another name, or say replace=True."),
    (named_twice,
     "there is a pass 'InferShape' already\n"
     "  Choose another name, or say replace=True."),
    (lambda: pt.register_pipeline("mine", "InferShape"),
     "pipeline 'mine': a pipeline is a sequence of names\n"
     "  Write ('InferShape',)."),
    (lambda: pt.list_passes(5),
     "5 is not a family of passes\n"
     '  Write "tvm", or leave it out.'),
    (lambda: pt.unregister_pass("InferShap"),
     "there is no pass 'InferShap'\n"
     "  Did you mean 'InferShape', 'InferType'?"),
    (lambda: pt.register_property("", AffinityProperty),
     "'' does not name a backend\n"
     '  Write register_property("mybackend", MyProperty).'),
    (lambda: pt.register_property("mine", AffinityProperty()),
     "backend 'mine': <AffinityProperty 'affinity'> makes no properties\n"
     "  Register the class, or a function that returns a new property: every run gets a fresh one."),
    (lambda: pt.register_property("mine", 5),
     "backend 'mine': 5 makes no properties\n"
     "  Register the class, or a function that returns a new property: every run gets a fresh one."),
    (lambda: pt.unregister_property("reference"),
     "backend 'reference': it is a device, which was not registered as a backend"),
    (lambda: pt.unregister_property(5), "a backend is named by a string, not by 5"),
    (factory_of_another, "backend 'mine': it has no factory <class 'int'>"),
    (lambda: AffinityProperty(5), "AffinityProperty: properties are given by device, not as 5"),
    (lambda: pt.ContainOpSelector("Relu"),
     "ContainOpSelector: 'Relu' is not a set of op names\n"
     "  Write ContainOpSelector({'Relu'})."),
    (lambda: pt.ContainOpSelector(5),
     "ContainOpSelector: 5 is not a set of op names\n"
     "  Give names, a predicate or nothing."),
    (lambda: pt.ContainOpSelector([""]),
     "'' is not an op name\n"
     '  Op names are strings such as "Conv" or "com.microsoft::Gelu".'),
    (lambda: pt.ContainOpSelector([5]),
     "5 is not an op name\n"
     '  Op names are strings such as "Conv" or "com.microsoft::Gelu".'),
    (lambda: pt.plan(5),
     "plan: a plan is of a Graph, not of int\n"
     "  Load the model first: pt.load(...)."),
    (lambda: pt.apply_pass(G, "PartitionGraph"),
     "pass 'PartitionGraph', graph 'g': nothing says what goes together: there is no property, no "
     "backend, and no node has an affinity\n"
     '  Give subgraph_property=..., backend="...", set g.attrs["subgraph_property"], or set node.affinity.'),
    (lambda: pt.load("model.onnx", params="p.params"),
     "params= goes with an MXNet symbol\n"
     '  Give the path of a "-symbol.json" with it.'),
    (lambda: pt.load(b"", params="p.params"),
     "params= goes with an MXNet symbol\n"
     '  Give the path of a "-symbol.json" with it.'),
]


@pytest.mark.parametrize(("wrong", "message"), REFUSED, ids=range(len(REFUSED)))
def test_wrong_use_is_refused_in_these_words(wrong: Callable[[], Any], message: str) -> None:
    with pytest.raises(pt.PartitaError) as raised:
        wrong()
    assert str(raised.value) == message
