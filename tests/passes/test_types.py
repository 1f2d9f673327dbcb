"""Types that no shape rule gives: element types that attributes decide, sequences, optional values, and results of bodies."""

from __future__ import annotations

import re
import time

import pytest

from partita.graph import Graph, PassError, call, op, variable
from partita.passes import apply_pass

from .before_after import text

OPSETS = "21, ai.onnx.ml 3"

NETS = {
    "Cast(f) {to=6}": "int32[N, 4]",
    "CastLike(f, i)": "int64[N, 4]",
    "EyeLike(f)": "float32[N, 4]",
    "EyeLike(f) {dtype=7}": "int64[N, 4]",
    "RandomNormal() {shape=[2, 3]}": "float32[2, 3]",
    "RandomUniform() {shape=[2], dtype=11}": "float64[2]",
    "RandomNormalLike(h)": "float16[5]",
    "RandomUniformLike(h) {dtype=1}": "float32[5]",
    "Multinomial(f) {sample_size=3}": "int32[N, 3]",
    "Bernoulli(f) {dtype=9}": "bool[N, 4]",
    "HannWindow(eight)": "float32[8]",
    "HammingWindow(eight) {output_datatype=11}": "float64[8]",
    "MelWeightMatrix(eight, eight, eight, half, half)": "float32[5, 8]",
    "ConstantOfShape(shape)": "float32[3, 2]",
    "QuantizeLinear(f, half)": "uint8[N, 4]",
    "QuantizeLinear(f, half) {output_dtype=3}": "int8[N, 4]",
    "DequantizeLinear(b, half)": "float32[6]",
    "NonZero(f)": "int64[2, unk__0]",
    "Unique(h) {axis=0}": "float16[unk__0]",
    "Range(half, eight_and_a_half, half)": "float32[16]",
    "Split(f) {num_outputs=1, axis=1}": "float32[N, 4]",
    "StringNormalizer(s)": "string[3]",
    "TfIdfVectorizer(i) {max_gram_length=1, max_skip_count=0, min_gram_length=1, mode=\"TF\", ngram_counts=[0], "
    "ngram_indexes=[0, 6], pool_int64s=[1, 2]}": "float32[N, 7]",
    "SequenceLength(q)": "int64[]",
    "SequenceAt(q, eight)": "float32[4, M]",
    "SequenceErase(q)": "sequence(float32[4, M])",
    "SequenceInsert(q, f)": "sequence(float32[?, ?])",
    "SequenceConstruct(f, f)": "sequence(float32[N, 4])",
    "SequenceEmpty() {dtype=7}": "sequence(int64)",
    "ConcatFromSequence(q) {axis=1}": "float32[4, unk__0]",
    "ConcatFromSequence(q) {axis=-1, new_axis=1}": "float32[4, M, unk__0]",
    "SplitToSequence(f) {axis=1, keepdims=0}": "sequence(float32[N])",
    "SplitToSequence(f, two) {axis=1}": "sequence(float32[N, 2])",
    "SplitToSequence(f, two)": "sequence(float32[?, 4])",
    "Optional(f)": "optional(float32[N, 4])",
    "OptionalGetElement(o)": "float32[2]",
    "OptionalHasElement(o)": "bool[]",
    "ai.onnx.ml::LabelEncoder(i) {keys_int64s=[1], values_strings=[\"a\"]}": "string[N, 3]",
    "ai.onnx.ml::CategoryMapper(s) {cats_int64s=[1], cats_strings=[\"a\"]}": "int64[3]",
    "ai.onnx.ml::ArrayFeatureExtractor(f, two_indices)": "float32[N, 2]",
    "ai.onnx.ml::OneHotEncoder(i) {cats_int64s=[1, 2, 5]}": "float32[N, 3, 3]",
    "ai.onnx.ml::ZipMap(f) {classlabels_strings=[\"a\"]}": "sequence(map(string, float32))",
}


@pytest.mark.parametrize("net", NETS)
def test_types(net: str) -> None:
    graph = text(
        "graph g(f: float32[N, 4], i: int64[N, 3], h: float16[5], b: int8[6], s: string[3], q: sequence(float32[4, M]),"
        f" o: optional(float32[2])) -> (y) {{\n"
        "eight = const int64[] 8\n two = const int64[] 2\n shape = const int64[2] [3, 2]\n two_indices = const int64[2] [0, 1]\n"
        f"half = const float32[] 0.5\n eight_and_a_half = const float32[] 8.5\n y = {net} }}",
        OPSETS,
    )
    assert str(apply_pass(graph, "InferShape").outputs[0].type) == NETS[net]


PARTLY_KNOWN = {
    "Gemm(f, u)": "float32[unk__0, unk__1]",
    "Unique(u)": "float32[unk__0]",
    "Compress(u, yes)": "float32[unk__0]",
    "Compress(f, yes) {axis=1}": "float32[N, unk__0]",
    "NonMaxSuppression(u, u)": "int64[unk__0, 3]",
    "RoiAlign(u, f, l) {output_height=3}": "float32[unk__0, unk__1, 3, 1]",
    "MaxRoiPool(u, f) {pooled_shape=[2, 4]}": "float32[unk__0, unk__1, 2, 4]",
    "GatherElements(u, l)": "float32[M]",
    "ScatterElements(f, v, u)": "float32[N, 4]",
    "OneHot(l, three, u)": "float32[M, 3]",
}


@pytest.mark.parametrize("net", PARTLY_KNOWN)
def test_what_is_known_although_the_rank_of_an_input_is_not(net: str) -> None:
    graph = text(
        "graph g(f: float32[N, 4], l: int64[M], u: float32, v: int64) -> (y) {\n"
        f"three = const float32[1] [3.5]\n yes = const bool[2] [true, false]\n y = {net} }}",
        "18",
    )
    assert str(apply_pass(graph, "InferShape").outputs[0].type) == PARTLY_KNOWN[net]


@pytest.mark.parametrize(
    ("net", "dtype"),
    [
        ("RandomUniformLike(f) {dtype=7}", "'output' of int64"), ("QuantizeLinear(f, half) {output_dtype=1}", "'y' of float32"),
        ("Multinomial(f) {dtype=1}", "'output' of float32"), ("EyeLike(f) {dtype=8}", "'output' of string"),
        ("Cast(f) {to=14}", "'output' of complex64"),
    ],
)
def test_an_attribute_asks_for_a_type_that_the_op_does_not_make(net: str, dtype: str) -> None:
    graph = text(f"graph g(f: float32[N, 4]) -> (y) {{\n half = const float32[] 0.5\n y = {net} }}", OPSETS)
    with pytest.raises(PassError, match=f"attributes ask for {dtype}, which may be "):
        apply_pass(graph, "InferShape")
    assert apply_pass(graph, "InferShape", strict=False).outputs[0].type is None


def type_of(net: str, **options: bool) -> str:
    return str(apply_pass(text(net), "InferShape", **options).outputs[0].type)


def test_branches_agree_on_what_both_return() -> None:
    branches = "then_branch=graph t(a) -> (u) {{ u = {} }}, else_branch=graph e(a) -> (v) {{ v = {} }}"
    net = "graph g(x: float32[N, 4], c: bool[]) -> (y) {{ y = If(c) {{ {} }} captures(x) }}"
    assert type_of(net.format(branches.format("Relu(a)", "Transpose(a)"))) == "float32[unk__0, unk__1]"
    assert type_of(net.format(branches.format("Relu(a)", "Flatten(a)"))) == "float32[N, 4]"
    assert type_of(net.format(branches.format("Relu(a)", "Shape(a)")), strict=False) == "None"
    with pytest.raises(PassError, match=r"node 'y' \(If\): types contradict each other: its branches return .* and .*"):
        type_of(net.format(branches.format("Relu(a)", "Shape(a)")))


def test_a_branch_that_never_runs_is_no_contradiction() -> None:
    """Bodies of ONNX's functions have a branch for each rank."""
    net = """graph g(x: float32[4, 4], c: bool[]) -> (y) {
      y = If(c) {
        then_branch=graph t(a) -> (u) { u = Relu(a) },
        else_branch=graph e(a) -> (v) { k = const float32[3] [1, 2, 3]
          v = Add(a, k) },
      } captures(x)
    }"""
    assert type_of(net) == "float32"


LOOP = """graph g(x: float32[2, N], n: int64[], c: bool[]) -> (y) {{
  y = Loop(n, c, x) {{
    body=graph l(i: int64[], go: bool[], v{}) -> (go, w) {{ w = {} }},
  }}
}}"""


@pytest.mark.parametrize(
    ("step", "kind"),
    [
        ("Relu(v)", "float32[2, N]"),
        ("Concat(v, v) {axis=1}", "float32[2, ?]"),
        ("Concat(v, v) {axis=0}", "float32[?, N]"),
        ("Transpose(v)", "float32[?, ?]"),
        ("Unsqueeze(v, i)", "float32"),
    ],
)
def test_a_loop_keeps_the_sizes_that_no_step_changes(step: str, kind: str) -> None:
    assert re.sub(r"unk__\d+", "?", type_of(LOOP.format("", step))) == kind


def test_contradictions_in_a_loop() -> None:
    with pytest.raises(PassError, match=r"node 'y' \(Loop\): types contradict each other: a step is given .* and returns int64"):
        type_of(LOOP.format("", "Shape(v)"))
    with pytest.raises(PassError, match=r"the body's input 'v' is declared float32\[3, 4\] and gets float32\[2, N\]"):
        type_of(LOOP.format(": float32[3, 4]", "Relu(v)"))
    assert type_of(LOOP.format(": float32[3, 4]", "Relu(v)"), strict=False) == "float32[2, N]"


def test_a_counter_and_a_condition_may_be_vectors_of_one() -> None:
    net = """graph g(x: float32[2, 3], n: int64[1], c: bool[1]) -> (y) {
      y = Loop(n, c, x) {
        body=graph l(i: int64[1], go: bool[1], v: float32[2, 3]) -> (on, w) { on = Identity(go)
          w = Neg(v) },
      }
    }"""
    assert type_of(net) == "float32[2, 3]"


def test_a_step_may_return_the_element_of_an_optional_value() -> None:
    net = """graph g(q: optional(sequence(float32[2])), n: int64[], c: bool[]) -> (y) {
      y = Loop(n, c, q) {
        body=graph l(i: int64[], go: bool[], v: optional(sequence(float32[2]))) -> (go, w) { w = OptionalGetElement(v) },
      }
    }"""
    assert type_of(net) == "sequence(float32[2])"


SCAN = """graph g(s: float32[2], x: float32[5, T], z: float32[{}, T]) -> ({}) {{
  a, b = Scan(s, x, z) {{ num_scan_inputs=2, scan_input_axes=[0, 0], scan_output_axes=[1],
    body=graph l(s, x, z) -> (n, r) {{ n = Relu(s)
      r = Add(x, z) }},
  }}
}}"""


def test_a_scan_goes_along_its_axes() -> None:
    assert type_of(SCAN.format(5, "a")) == "float32[2]" and type_of(SCAN.format(5, "b")) == "float32[T, 5]"
    with pytest.raises(PassError, match="the steps of the sequences do not go together: 6 and 5"):
        type_of(SCAN.format(6, "b"))


def test_a_scan_of_values_of_unknown_rank() -> None:
    assert type_of(SCAN.format(5, "b").replace("x: float32[5, T]", "x: float32")) == "float32"
    assert type_of(SCAN.format(5, "a").replace("float32[5, T]", "float32")) == "float32[2]"


def test_a_scan_of_batches_below_opset_9() -> None:
    net = """graph g(s: float32[B, 2], x: float32[B, 5, 2]) -> (a, b) {
      a, b = Scan(_, s, x) { num_scan_inputs=1,
        body=graph l(s: float32[2], x: float32[2]) -> (n, r) { n = Add(s, x)
          r = Relu(n) },
      }
    }"""
    typed = apply_pass(text(net, 8), "InferShape")
    assert [str(entry.type) for entry in typed.outputs] == ["float32[B, 2]", "float32[B, 5, 2]"]


def test_the_elements_of_a_mapped_sequence() -> None:
    net = """graph g(q: sequence(float32[2, M])) -> (y) {
      y = SequenceMap(q) { body=graph m(e) -> (t) { t = Transpose(e) } }
    }"""
    assert type_of(net) == "sequence(float32[M, 2])"


def nested(depth: int) -> str:
    if not depth:
        return "w0 = Concat(v1, v1) {axis=0}" if depth else "w0 = Concat(v0, v0) {axis=0}"
    inner = nested(depth - 1)
    return (
        f"w{depth} = Loop(n{depth}, g{depth}, v{depth}) {{ body=graph l{depth}(i{depth}, h{depth}, v{depth - 1},"
        f" n{depth - 1}, g{depth - 1}) -> (h{depth}, w{depth - 1}) {{ {inner} }} }} captures(n{depth}, g{depth})"
    )


def test_rounds_do_not_multiply_in_loops_inside_of_loops() -> None:
    depth = 20
    net = f"graph g(v{depth}: float32[2], n{depth}: int64[], g{depth}: bool[]) -> (w{depth}) {{ {nested(depth)} }}"
    begin = time.process_time()
    assert type_of(net) in ("float32", "float32[unk__0]")
    assert time.process_time() - begin < 5


def nested_sequences(depth: int) -> str:
    if not depth:
        return "w0 = SequenceInsert(v1, x0)"
    return (
        f"s{depth} = SequenceConstruct(x{depth})\n w{depth} = Loop(n{depth}, g{depth}, s{depth}) {{ body=graph l{depth}(i{depth},"
        f" h{depth}, v{depth}, x{depth - 1}, n{depth - 1}, g{depth - 1}) -> (h{depth}, w{depth - 1}) {{"
        f" {nested_sequences(depth - 1)} }} }} captures(x{depth}, n{depth}, g{depth})"
    )


def test_rounds_do_not_multiply_in_loops_of_sequences() -> None:
    net = f"graph g(x24: float32[2], n24: int64[], g24: bool[]) -> (w24) {{ {nested_sequences(24)} }}"
    begin = time.process_time()
    assert type_of(net).startswith("sequence(float32")
    assert time.process_time() - begin < 5


def test_polynomials_do_not_grow_without_limit() -> None:
    size = more = op("Shape", variable("x", "float32", ("n",)))
    for i in range(30):
        more = op("Add", more, size) if i % 2 else op("Shape", variable(f"x{i}", "float32", (f"n{i}",)))
        size = op("Mul", op("Add", size, more), size)
    begin = time.process_time()
    assert str(apply_pass(Graph([op("ConstantOfShape", size)]), "InferShape").outputs[0].type) == "float32[unk__0]"
    assert time.process_time() - begin < 5


def test_no_size_is_larger_than_one_that_can_be_stated() -> None:
    net = """graph g(x: float32[4]) -> (y) { r = const int64[1] [4611686018427387904]
      y = Tile(x, r) }"""
    with pytest.raises(PassError, match=r"node 'y' \(Tile\): .* a result would be larger than any size that can be stated"):
        type_of(net)
    assert type_of(net, strict=False) == "float32"
    with pytest.raises(PassError, match="a dimension cannot be 1.18e"):
        apply_pass(text("graph g(x: float32[N]) -> (y) { y = Relu(x) }"), "InferShape", shapes={"x": (1 << 70,)})


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("node", "kind"),
    [
        ("ConvTranspose(x, w) {kernel_shape=[3, 4]}", "float32[1, 2, 6, 8]"),
        ("Resize(x, roi, _, sizes) {coordinate_transformation_mode=\"tf_crop_and_resize\"}", "float32[1, 3, 9, 7]"),
    ],
)
def test_sizes_by_attributes_and_of_regions(node: str, kind: str) -> None:
    net = f"""graph g(x: float32[1, 3, 4, 5], w: float32[3, 2, ?, ?], roi: float32[8]) -> (y) {{
      sizes = const int64[4] [1, 3, 9, 7]
      y = {node} }}"""
    assert type_of(net) == kind


def test_calls_of_calls_are_read_once() -> None:
    """Read once for each call, the innermost of 60 bodies would be read 2 ** 60 times."""
    body = Graph([op("Relu", variable("x", shape=None))], name="f0")
    for i in range(1, 60):
        x = variable("x", shape=None)
        body = Graph([call(body, call(body, x))], name=f"f{i}")
    result = apply_pass(Graph([call(body, variable("x", "float32", ("N", 2)), name="y")]), "InferShape", verify=False)
    assert str(result.outputs[0].type) == "float32[N, 2]"


def test_sizes_that_values_decide_differ_between_calls() -> None:
    body = Graph([op("NonZero", variable("x", shape=None))], name="f")
    a, b = (call(body, variable(name, "float32", (4,))) for name in "ab")
    first, second = (entry.type for entry in apply_pass(Graph([a, b]), "InferShape").outputs)
    assert str(first) == "int64[1, unk__0]" and str(second) == "int64[1, unk__1]"


def test_inference_of_types_that_are_there_changes_nothing() -> None:
    net = """graph g(x: float32[N, 4], y: float32[M, 4]) -> (w) {
      z = Concat(x, y) {axis=0}
      w = Relu(z)
    }"""
    once = apply_pass(text(net), "InferShape")
    again = apply_pass(once, "InferShape")
    assert str(once.outputs[0].type) == "float32[unk__0, 4]"
    assert all(a is b for a, b in zip(once.nodes, again.nodes, strict=True))
