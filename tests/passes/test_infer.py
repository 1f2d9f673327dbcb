"""InferShape and InferType: types in graphs, bodies, calls, and of ops of the user's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from partita.graph import Graph, PassError, TensorType, call, constant, op, register_op, unregister_op, variable
from partita.graph.readers.onnx import load_onnx
from partita.passes import apply_pass
from partita.passes.infer import without_declared
from partita.passes.infer.reading import Reading, symbolic
from tests.passes.kept_sizes import told

from .before_after import check, text


@pytest.fixture
def swish() -> Iterator[None]:
    register_op("Swish", "my", shape=lambda types, attrs: types[0], numpy=lambda x: x / (1 + np.exp(-x)))
    yield
    unregister_op("Swish", "my")


def test_types_follow_from_the_inputs_and_symbols_stay() -> None:
    result = check(
        ["InferShape", "InferType"],
        """
        graph net(x: float32[N, 3, 8, 8]) -> (y, s) {
          w = const float32[4, 3, 1, 1] [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]
          c = Conv(x, w)
          y = Flatten(c)
          s = Shape(y)
        }
        ""","""
        graph net(x: float32[N, 3, 8, 8]) -> (y, s) {
          w = const float32[4, 3, 1, 1] [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]
          c = Conv(x, w) : float32[N, 4, 8, 8]
          y = Flatten(c) : float32[N, 256]
          s = Shape(y) : int64[2]
        }
        """,
    )
    assert result.attrs["shape"]["c"] == ("N", 4, 8, 8) and result.attrs["dtype"]["s"] == "int64"


def test_values_propagate_into_shapes() -> None:
    check(
        "InferShape",
        """
        graph net(x: float32[N, 4, 5]) -> (y) {
          s = Shape(x)
          zero = const int64[1] [0]
          one = const int64[1] [1]
          n = Slice(s, zero, one)
          rest = const int64[1] [20]
          target = Concat(n, rest) {axis=0}
          y = Reshape(x, target)
        }
        ""","""
        graph net(x: float32[N, 4, 5]) -> (y) {
          s = Shape(x) : int64[3]
          zero = const int64[1] [0]
          one = const int64[1] [1]
          n = Slice(s, zero, one) : int64[1]
          rest = const int64[1] [20]
          target = Concat(n, rest) {axis=0} : int64[2]
          y = Reshape(x, target) : float32[N, 20]
        }
        """,
    )


def test_shapes_given_hold_wherever_their_symbol_stands() -> None:
    check(
        "InferShape",
        """
        graph net(x: float32[N, T], m: float32[N, 1]) -> (y) {
          y = Mul(x, m)
        }
        ""","""
        graph net(x: float32[4, T], m: float32[4, 1]) -> (y) {
          y = Mul(x, m) : float32[4, T]
        }
        """,
        shapes={"x": (4, "T")},
    )


def test_bodies_get_their_types() -> None:
    check(
        "InferShape",
        """
        graph net(x: float32[2, N], n: int64[], c: bool[]) -> (y, z, s) {
          y = If(c) {
            then_branch=graph t(q: float32) -> (a) { a = Relu(q) },
            else_branch=graph e(q: float32) -> (b) { b0 = Abs(q)
              b = Neg(b0) },
          } captures(x)
          z, s = Loop(n, c, x) {
            body=graph l(i: int64[], go: bool[], v: float32, k: float32) -> (go, w, row) {
              w = Add(v, k)
              row = Abs(k)
            },
          } captures(x)
        }
        ""","""
        graph net(x: float32[2, N], n: int64[], c: bool[]) -> (y, z, s) {
          y = If(c) {
            then_branch=graph t(q: float32[2, N]) -> (a) { a = Relu(q) : float32[2, N] },
            else_branch=graph e(q: float32[2, N]) -> (b) { b0 = Abs(q) : float32[2, N]
              b = Neg(b0) : float32[2, N] },
          } captures(x) : float32[2, N]
          z, s = Loop(n, c, x) {
            body=graph l(i: int64[], go: bool[], v: float32[2, N], k: float32[2, N]) -> (go, w, row) {
              w = Add(v, k) : float32[2, N]
              row = Abs(k) : float32[2, N]
            },
          } captures(x) : float32[2, N], float32[unk__0, 2, N]
        }
        """,
    )


def test_calls_in_and_out() -> None:
    result = check(
        "InferShape",
        """
        func inner(p: float32) -> (q) { q = Relu(p) }
        func body(z: float32, s: int64) -> (r) {
          n = call inner(z)
          r = Reshape(n, s)
        }
        graph net(x: float32[2, 6]) -> (y, again) {
          shape = const int64[2] [3, -1]
          a = call body(x, shape)
          b = call body(x, shape)
          y = Relu(a)
          again = Relu(b)
        }
        ""","""
        func inner(p: float32[2, 6]) -> (q) { q = Relu(p) : float32[2, 6] }
        func body(z: float32[2, 6], s: int64[2]) -> (r) {
          n = call inner(z) : float32[2, 6]
          r = Reshape(n, s) : float32[3, 4]
        }
        graph net(x: float32[2, 6]) -> (y, again) {
          shape = const int64[2] [3, -1]
          a = call body(x, shape) : float32[3, 4]
          b = call body(x, shape) : float32[3, 4]
          y = Relu(a) : float32[3, 4]
          again = Relu(b) : float32[3, 4]
        }
        """,
    )
    assert result["a"].subgraph is result["b"].subgraph


def test_calls_of_one_body_with_different_types() -> None:
    body = Graph([op("Relu", variable("z", shape=None), name="r")], name="body")
    x, y = variable("x", "float32", (2,)), variable("y", "float32", (3,))
    result = apply_pass(Graph([call(body, x, name="a"), call(body, y, name="b")]), "InferShape")
    assert result.attrs["shape"]["a"] == (2,) and result.attrs["shape"]["b"] == (3,)
    body = result["a"].subgraph
    assert body is result["b"].subgraph and body["r"][0].type == TensorType("float32", (None,)), "what is true of both"


def test_sizes_that_are_made_up_stay_in_their_graph() -> None:
    body = Graph([op("NonZero", variable("z"), name="nz")], name="body")
    x = variable("x", "float32", (4,))
    g = Graph([op("NonZero", x, name="mine"), call(body, x, name="k")])
    result = apply_pass(g, "InferShape")
    assert result.attrs["shape"]["mine"] != result.attrs["shape"]["k"], "two unknown sizes are not the same size"
    assert result["k"].subgraph["nz"][0].type == TensorType("int64", (1, None))


def test_ops_of_the_users_take_part(swish: None) -> None:
    check(
        "InferShape",
        "graph net(x: float32[N, 3]) -> (y) { a = Relu(x)\n b = my::Swish(a)\n y = Neg(b) }",
        "graph net(x: float32[N, 3]) -> (y) { a = Relu(x) : float32[N, 3]\n b = my::Swish(a) : float32[N, 3]\n"
        " y = Neg(b) : float32[N, 3] }",
        opset="21, my 1",
    )


def test_a_thousand_of_them_in_a_row(swish: None) -> None:
    y = variable("x", "float32", (2,))
    for i in range(1000):
        y = op("Swish", y, domain="my", name=f"s{i}")
    result = apply_pass(Graph([y], opsets={"": 21, "my": 1}), "InferShape")
    assert result.attrs["shape"]["s999"] == (2,)


def test_what_nobody_knows_stays_as_declared() -> None:
    check(
        "InferShape",
        "graph net(x: float32[3]) -> (y) { a = far::Op(x) : float32[7]\n b = far::Op(a)\n y = Relu(a) }",
        "graph net(x: float32[3]) -> (y) { a = far::Op(x) : float32[7]\n b = far::Op(a)\n y = Relu(a) : float32[7] }",
        opset="21, far 1",
    )


def test_large_constants_need_not_be_copied() -> None:
    x = variable("x", "float32", (2, 1000))
    w = np.broadcast_to(np.float32(0), (1000, 1_000_000_000))
    g = Graph([op("MatMul", x, constant(w, "w"), name="y")])
    assert apply_pass(g, "InferShape", verify=False).attrs["shape"]["y"] == (2, 1_000_000_000)


@pytest.mark.parametrize(
    ("net", "said"),
    [
        (
            "graph net(a: float32[2], b: float32[3]) -> (sum) { sum = Add(a, b) }",
            "pass 'InferShape', node 'sum' (Add): types contradict each other: the sizes of the operands",
        ),
        (
            "graph net(a: float32[2]) -> (r) { r = Relu(a) : float32[3] }",
            "pass 'InferShape', node 'r' (Relu): the value 'r' is declared float32[3], but float32[2] is inferred",
        ),
        (
            "func body(z: float32[3]) -> (r) { r = Relu(z) }\n graph net(a: float32[2]) -> (k) { k = call body(a) }",
            "pass 'InferShape', node 'k' (Call): the body's input 'z' is declared float32[3] and gets float32[2]",
        ),
        (
            "func body(z: float32) -> (r) { c = const float32[3] [1, 2, 3]\n r = Add(z, c) }\n"
            "graph net(a: float32[2]) -> (k) { k = call body(a) }",
            "pass 'InferShape', node 'r' (Add): types contradict each other: the sizes of the operands",
        ),
    ],
)
def test_contradictions_name_the_node(net: str, said: str) -> None:
    with pytest.raises(PassError) as error:
        apply_pass(text(net), "InferShape")
    assert str(error.value).startswith(said) and "strict=False" in str(error.value)
    loose = apply_pass(text(net), "InferShape", strict=False)
    assert [node.name for node in loose.nodes] == [node.name for node in text(net).nodes]


@pytest.mark.parametrize(
    ("shapes", "said"),
    [
        ({"y": (1,)}, "graph 'net': a shape is given for 'y', which is not an input\n  Did you mean"),
        ({"x0": (1, 3)}, "input 'x0': the shape float32[1, 3] is given for an input declared float32[N, 2]"),
        ({"x0": (1, 2), "x1": (2, 2)}, "input 'x1': 'N' would be both 1 and 2"),
    ],
)
def test_shapes_that_cannot_be(shapes: dict[str, Any], said: str) -> None:
    g = text("graph net(x0: float32[N, 2], x1: float32[N, 2], yy: float32[1]) -> (z) { z = Add(x0, x1) }")
    with pytest.raises(PassError) as error:
        apply_pass(g, "InferShape", shapes=shapes)
    assert said in str(error.value)


def test_a_shape_rule_that_fails_is_named() -> None:
    register_op("Boom", "my", shape=lambda types, attrs: 1 / 0)
    try:
        with pytest.raises(PassError, match=r"node 'b' \(Boom\): the op's shape rule failed: ZeroDivisionError"):
            apply_pass(text("graph net(x: float32[1]) -> (b) { b = my::Boom(x) }", "21, my 1"), "InferShape")
    finally:
        unregister_op("Boom", "my")


@pytest.fixture
def untold() -> Iterator[None]:
    register_op("Untold", "my")
    yield
    unregister_op("Untold", "my")


def test_a_value_of_unknown_type_contradicts_nothing(untold: None) -> None:
    check(
        "InferShape",
        """
        func f(p) -> (q) { q = Relu(p) }
        graph net(x: float32[2], c: bool[]) -> (y, z, t) {
          a = my::Untold(x)
          b = partita::Call(a) calls f
          y = Concat(a, b) {axis=0}
          z = If(c) { then_branch=graph t(p) -> (u) { u = Neg(p) }, else_branch=graph e(p) -> (v) { v = Abs(p) } } captures(a)
          t = Relu(x)
        }
        ""","""
        func f(p) -> (q) { q = Relu(p) }
        graph net(x: float32[2], c: bool[]) -> (y, z, t) {
          a = my::Untold(x)
          b = partita::Call(a) calls f
          y = Concat(a, b) {axis=0}
          z = If(c) { then_branch=graph t(p) -> (u) { u = Neg(p) }, else_branch=graph e(p) -> (v) { v = Abs(p) } } captures(a)
          t = Relu(x) : float32[2]
        }
        """,
        opset="21, my 1",
    )


def test_beside_it_contradictions_are_still_found(untold: None) -> None:
    g = text(
        "graph net(x: float32[2], w: float32[3]) -> (y, z) { a = my::Untold(x)\n y = Relu(a)\n z = Add(x, w) }", "21, my 1"
    )
    with pytest.raises(PassError, match=r"node 'z' \(Add\): types contradict each other"):
        apply_pass(g, "InferShape")


def test_an_element_type_that_no_input_decides(untold: None) -> None:
    check(
        "InferShape",
        """
        graph net(x: float32[2], s: string[3]) -> (y, z) {
          a = my::Untold(x)
          y = RegexFullMatch(a) {pattern="a"}
          z = RegexFullMatch(s) {pattern="a"}
        }
        ""","""
        graph net(x: float32[2], s: string[3]) -> (y, z) {
          a = my::Untold(x)
          y = RegexFullMatch(a) {pattern="a"} : bool
          z = RegexFullMatch(s) {pattern="a"} : bool[3]
        }
        """,
        opset="21, my 1",
    )


def test_sizes_that_follow_of_nothing_have_symbols_of_their_own() -> None:
    numbers = variable("numbers", "int64", ("n",))
    zero, one = constant(np.array(0)), constant(np.array(1))
    limits = [op("Squeeze", op("Slice", numbers, constant(np.array([i])), constant(np.array([i + 1])))) for i in (0, 1)]
    typed = apply_pass(Graph([op("Range", zero, limit, one) for limit in limits]), "InferShape")
    first, second = (entry.type.shape[0] for entry in typed.outputs)
    assert first != second or first is None


def test_numbers_that_an_exporter_traced_give_way_to_symbols() -> None:
    """What is stated stays where it follows, and where nothing else is known of the value."""
    traced = text("""graph net(x: float32[N, 4, L]) -> (y, z) {
      y = Relu(x) : float32[N, 4, 7]
      z = Transpose(y) {perm=[0, 2, 1]} : float32[3, 7, 4]
    }""")
    freed = apply_pass(traced, "InferShape", trust_numbers=False)
    assert [str(entry.type) for entry in apply_pass(traced, "InferShape").outputs] == ["float32[N, 4, 7]", "float32[3, 7, 4]"]
    assert [str(entry.type) for entry in freed.outputs] == ["float32[N, 4, L]", "float32[N, L, 4]"]


def test_what_follows_of_nothing_keeps_its_numbers(untold: None) -> None:
    stated = text("graph net(x: float32[N]) -> (y) { y = my::Untold(x) : float32[3] }", "21, my 1")
    assert str(apply_pass(stated, "InferShape", trust_numbers=False).outputs[0].type) == "float32[3]"


def test_a_declared_type_that_is_replaced_is_noted_once() -> None:
    """In the graph, in a call's body and in that of an If, behind the notes that the graph has."""
    def wrong(x: Any, name: str) -> Any:
        return op("Relu", x, name=name).evolve(output_types=(TensorType("float32", (7,)),))

    x, y, z = (variable(name, "float32", (2,)) for name in "xyz")
    called = call(Graph([op("Neg", wrong(y, "b"), name="n")], [y], name="body"), wrong(x, "a"), name="c")
    branches = {name: Graph([wrong(z, name)], [z], name=name) for name in ("then_branch", "else_branch")}
    chosen = op("If", variable("which", "bool", ()), captures=[called], name="i", **branches)
    g = Graph([chosen], name="net")
    g = g.evolve(attrs={"notes": ("read with care",)})
    result = apply_pass(g, "InferShape", check_declared=False)
    expected = ["read with care", *[
        f"node {name!r} (Relu): the value {name!r} is declared float32[7]; the inferred float32[2] is used"
        for name in ("a", "b", "then_branch", "else_branch")
    ]]
    assert list(result.attrs["notes"]) == expected
    assert list(apply_pass(result, "InferShape").attrs["notes"]) == expected
    assert "notes" not in apply_pass(Graph([op("Relu", x)]), "InferShape").attrs


def test_declared_types_go_in_the_bodies_of_calls_too() -> None:
    x = variable("x", "float32", (2,))
    inner = Graph([op("Relu", x, name="r").evolve(output_types=(TensorType("float32", (7,)),))], name="body")
    g = Graph([call(inner, variable("y", "float32", (2,)), name="c")])
    bare = without_declared(g, frozenset())
    assert [node[0].type for node in bare["c"].subgraph.nodes if node.is_op] == [None]


@pytest.mark.parametrize("kind", ["Conv", "ConvTranspose", "MaxPool"])
def test_words_in_attributes_may_be_bytes(kind: str) -> None:
    answers = []
    for mode in ("SAME_UPPER", b"SAME_UPPER", "VALID", b"VALID"):
        x, weight = variable("x", "float32", ("N", 1, "H", 9)), constant(np.ones((1, 1, 3, 3), np.float32))
        more = {"kernel_shape": [3, 3]} if kind == "MaxPool" else {}
        more |= {"output_padding": [1, 1]} if kind == "ConvTranspose" else {}
        inputs = [x] if kind == "MaxPool" else [x, weight]
        graph = Graph([op(kind, *inputs, auto_pad=mode, strides=[2, 2], name="y", **more)], [x])
        types = apply_pass(graph, "InferShape")["y"].output_types
        answers.append((types, told(Reading(graph, [symbolic(x[0])]), graph)))
    assert answers[0] == answers[1] != answers[2] == answers[3]


SOUND = {
    'GatherND <batch_dims = -1> (x, i)': "batch_dims is -1, and cannot be negative",
    'LayerNormalization <axis = 2147483648> (x, x)': "axis is 2147483648",
    'Softmax <axis = -9223372036854775808> (x)': "axis is -9223372036854775808",
    'Einsum <equation = "\\xff"> (x)': "the equation '",
}


@pytest.mark.parametrize("node", SOUND)
def test_attributes_beyond_all_bounds_are_refused(node: str) -> None:
    import onnx.helper
    import onnx.parser

    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]> g (float[2,2] x, int64[2,2] i) => (float y) {{ y = {node} }}'
    )
    for attribute in model.graph.node[0].attribute:
        if attribute.name == "equation":
            attribute.s = b"\xff"
    with pytest.raises(PassError) as caught:
        apply_pass(load_onnx(model), "InferShape", verify=False)
    assert SOUND[node] in str(caught.value)


def test_more_outputs_than_parts() -> None:
    g = text("graph g(x: float32[8]) -> (a, b, c) { a, b, c = Split(x) {num_outputs=2} }")
    with pytest.raises(PassError, match="num_outputs is 2, and it has 3 outputs"):
        apply_pass(g, "InferShape", verify=False)


@pytest.mark.parametrize(
    ("node", "kind"),
    [
        ("y = EyeLike(a) {dtype=0}", None),
        ('y = ai.onnx.ml::LabelEncoder(a) {keys_strings=["a"], values_int64s=[1], default_int64=1}', TensorType("int64")),
    ],
)
def test_ops_of_inputs_without_types(untold: None, node: str, kind: TensorType | None) -> None:
    g = text(f"graph g(x: float32[8]) -> (y) {{ a = my::Untold(x)\n {node} }}", "21, my 1, ai.onnx.ml 4")
    assert apply_pass(g, "InferShape", verify=False).outputs[0].type == kind


def test_an_op_without_its_input() -> None:
    import onnx.helper as h

    node = h.make_node("LabelEncoder", [""], ["y"], domain="ai.onnx.ml", classes_strings=["", "x"])
    body = h.make_graph([node], "g", [], [h.make_empty_tensor_value_info("y")])
    model = h.make_model(body, opset_imports=[h.make_opsetid("", 21), h.make_opsetid("ai.onnx.ml", 1)], ir_version=10)
    assert apply_pass(load_onnx(model), "InferShape", verify=False).outputs[0].type is None
