"""The text form as people read and write it."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from partita.graph import Graph, ReadError, TensorType, WriteError, call, constant, op, variable
from partita.graph.readers.text import parse
from partita.graph.text import digests, print_graph
from partita.graph.text.digests import digest, remembered
from tests.text.same import difference

NET = """\
opset 21, ai.onnx.ml 3

func block(a: float32[1, 64, N, N], k) -> (b) {
  b = Add(a, k) : float32[1, 64, N, N]
}

graph net(x: float32[1, 3, N, N], n: int64[] @cpu) -> (prob, again=prob, w) {
  metadata {author="somebody"}
  w = const float32[2] [1.0, 0.1]
  s = const int64[] 3 metadata {onnx.input="1"}
  conv1 = Conv(x, w, _) {kernel_shape=[7, 7], auto_pad="SAME", f=1.0, t=const bool[1] [true]} : float32[1, 64, N, N] @cpu
  a, _ = Split(conv1) {axis=1} name=split0 : float32[1, 32, ?, ?], ?
  fused0 = call block(conv1, w) : float32[1, 64, N, N] @"cuda:0"
  fused1 = call block(fused0, w) after(split0, conv1)
  own = my.ops::Block(fused1, w) calls block
  prob = If(a) {
    then_branch=graph yes(c) -> (c) {},
    else_branch=graph no(c) -> (d) {
      d = Relu(c)
    },
  } captures(own)
}"""


def test_what_is_printed_is_what_was_read() -> None:
    assert print_graph(parse(NET)) == NET
    assert str(parse(NET)) == NET


def test_a_graph_made_in_python() -> None:
    x = variable("x", "float32", (1, None))
    y = op("Relu", x, name="y")
    fused = call(Graph([y], name="body"), variable("in put", "float32", (1, None)), name="fused0")
    assert str(Graph([fused], name="net")) == """\
opset 21

func body(x: float32[1, ?]) -> (y) {
  y = Relu(x)
}

graph net("in put": float32[1, ?]) -> (fused0) {
  fused0 = call body("in put")
}"""


@pytest.mark.parametrize(("length", "is_one_line"), [(110, True), (111, False)])
def test_a_long_list_of_inputs_has_a_line_for_each(length: int, is_one_line: bool) -> None:
    rest = len("graph net(: float32[3]) -> (y) {")
    x = variable("x" * (length - rest), "float32", (3,))
    lines = print_graph(Graph([op("Relu", x, name="y")], [x])).splitlines()
    head = next(i for i, line in enumerate(lines) if line.startswith("graph"))
    assert (len(lines[head]) == length) is is_one_line
    assert is_one_line or lines[head : head + 3] == ["graph net(", f"  {x.name}: float32[3],", ") -> (y) {"]


def test_text_by_hand_needs_no_opset_no_types_no_order_of_suffixes() -> None:
    graph = parse("graph g(x) -> (y) { // a comment\n y = Relu(x) @cpu : float32[2] name=n\n}")
    assert graph.opsets == {"": 21}
    assert graph["n"].affinity == "cpu"
    assert graph["n"][0].type == TensorType("float32", (2,))


def test_unread_nodes_and_unused_inputs_stay() -> None:
    graph = parse("graph g(x, unused) -> () { dead = Relu(x) }")
    assert [node.name for node in graph.nodes] == ["x", "unused", "dead"]


def test_an_input_that_comes_later_has_its_place_in_the_text() -> None:
    w = constant(np.float32(1), "w")
    x = variable("x")
    text = str(Graph([op("Add", x, w, name="y")]))
    assert "  w = const float32[] 1.0\n  x = input\n  y = Add(x, w)\n" in text
    assert [node.name for node in parse(text).nodes] == ["w", "x", "y"]


def test_a_value_without_a_name_is_told_by_its_node() -> None:
    graph = parse("graph g(x) -> (o=%a[0]) { _, v = Split(x) name=a\n z = Add(%a[0], v) }")
    assert graph["z"].inputs == graph["a"].outputs
    assert "z = Add(%a[0], v)" in str(graph)


def test_types_can_be_left_out_for_reading() -> None:
    graph = parse("graph g(x: float32[2]) -> (y) { y = Relu(x) : float32[2] }")
    assert print_graph(graph, types=False).endswith("{\n  y = Relu(x)\n}")


class TestConstants:
    def big(self) -> tuple[Graph, str]:
        graph = Graph([constant(np.arange(40, dtype=np.float32), "w")])
        return graph, str(graph)

    def test_a_big_array_is_a_reference_and_comes_back_as_the_same_object(self) -> None:
        graph, text = self.big()
        assert "w = const float32[40] #" in text
        assert parse(text)["w"].value is graph["w"].value
        assert parse(text, constants=graph)["w"].value is graph["w"].value
        assert parse(text, constants={text.split()[-2]: graph["w"].value})["w"].value is graph["w"].value

    def test_equal_arrays_have_equal_references(self) -> None:
        assert self.big()[1] == self.big()[1]

    def test_an_array_that_is_gone_is_an_error_with_the_remedy(self) -> None:
        graph = Graph([constant(np.arange(41, dtype=np.float32) * 3, "w")])
        text = str(graph)
        del graph
        gc.collect()
        with pytest.raises(ReadError, match=r"line 4, column 25: the array #\w+ is not known here\n  Give the graph"):
            parse(text)

    def test_an_array_of_another_type_is_refused(self) -> None:
        graph, text = self.big()
        with pytest.raises(ReadError, match=r"is not a float32\[4, 10\]"):
            parse(text.replace("[40]", "[4, 10]"), constants=graph)

    def test_in_full_on_request(self) -> None:
        graph, _ = self.big()
        assert "[0.0, 1.0, 2.0" in print_graph(graph, big=None)
        large = Graph([constant(np.arange(100, dtype=np.uint8), "w")])
        assert 'uint8[100] base64 "AAEC' in print_graph(large, big=None)
        assert difference(parse(print_graph(large, big=None), constants={}), large) is None

    def test_shared_arrays_stay_shared(self) -> None:
        array = np.arange(40)
        text = str(Graph([constant(array, "a"), constant(array, "b")]))
        back = parse(text)
        assert back["a"].value is back["b"].value


BAD = {
    "": "line 1, column 1: expected graph, func or opset, found the end of the text",
    "graph g(x) -> (y) {\n  y = Relu(x\n}": "line 3, column 1: expected ')', found '}'",
    "graph g(x) -> (y) {\n  y = Relu(z)\n}": "line 2, column 12: there is no value 'z' above",
    "graph g(x) -> (y) { y = Relu(x) : float33 }": "line 1, column 35: 'float33' is not a dtype",
    "graph g(x) -> (y) { y = Relu(x) : float32, ? }": "line 1, column 21: there are 1 values and 2 types",
    "graph g(x) -> (y) { x = Relu(x) }": "line 1, column 21: there are two nodes named 'x'",
    "graph g(x) -> (y) { x = Relu(x) name=y }": "line 1, column 21: there are two values named 'x'",
    "graph g(x) -> (y=x, y=z) { z = Relu(x) }": "line 1, column 8: two outputs are named 'y'",
    "graph g(x) -> (y) { y = Relu(x) {a=1, a=2} }": "line 1, column 39: 'a' is given twice",
    "graph g(x) -> (y) { y = Relu(x) {a=what} }": "line 1, column 36: expected a value (a number",
    "graph g(x) -> (y) { y = call f(x) }": "line 1, column 30: there is no function 'f' above",
    "graph g(x) -> (y) { y = const float32[3] [1.0] }": "line 1, column 42: 1 elements do not make float32[3]",
    "graph g(x) -> (y) { y = const float32[N] [1.0] }": "line 1, column 31: the type of a constant is a dtype with sizes",
    "graph g(x) -> (y) { y = const int8[1] [300] }": "line 1, column 39: this is a number that does not fit int8",
    "graph g(x) -> (y) { y = const int8[2] base64 \"AA==\" }": "this is 1 bytes, which do not make int8[2]",
    "graph g(x) -> (y) { y = const int8[2] base64 \"A\" }": "this is text that is not base64",
    "graph g(x) -> (%x[4]) { }": "line 1, column 16: expected the name of an output, found '%'",
    "graph g(x) -> (y=%x[4]) { }": "line 1, column 18: node 'x' has no output 4",
    'graph g(x) -> (y) { y = Relu(x) {a="\\q"} }': "this is the escape \\q, which does not exist",
    'graph g(x) -> (y) { y = Relu(x) {a="open} }': "found a string that does not end on its line",
    "graph g(x) -> (y) { y = Relu(x) after(z) }": "line 1, column 39: there is no node 'z' above",
    "graph g(x) -> (x) { y = input }": "line 1, column 21: there is no node 'y' above",
    "graph g(x) -> (x) { } more": "line 1, column 23: expected the end of the text after the graph, found 'more'",
    "graph g(x) -> (x) { metadata {a=1} }": "the values of metadata are strings",
    "graph g(x) -> (x) { y = Relu(x) {a=" + "[" * 100: "graphs, lists or types nest more than 32 deep",
    "graph g(x) -> (x) { y = Relu(x) {a=" + "graph g() -> () { y = F() {a=" * 100: "nest more than 32 deep",
    "graph g(x: " + "optional(" * 100: "nest more than 32 deep",
    "graph g(x: int8[" + "9" * 5000 + "]) -> () {}": "Exceeds the limit",
    "graph g(x: int8[-1]) -> () {}": "a dimension cannot be -1",
}


@pytest.mark.parametrize("text", BAD)
def test_bad_text_is_one_clear_error(text: str) -> None:
    with pytest.raises(ReadError) as caught:
        parse(text)
    assert BAD[text] in str(caught.value)


def test_a_thing_that_is_no_text() -> None:
    with pytest.raises(ReadError, match="a string, not bytes"):
        parse(b"graph")  # type: ignore[arg-type]


def test_what_has_no_written_form_is_refused() -> None:
    node = op("Relu", variable("x"), name="y")
    with pytest.raises(WriteError, match=r"node 'y': an attribute holds \{1\}, which has no written form"):
        str(Graph([node.evolve(attrs={"a": {1}})]))


def test_graphs_that_nest_too_deep_are_refused() -> None:
    graph = Graph([variable("x")])
    for _ in range(40):
        graph = Graph([op("Relu", variable("x"), name="y").evolve(attrs={"body": graph})])
    with pytest.raises(WriteError, match="graphs nest more than 32 deep"):
        str(graph)


def test_calls_may_nest_as_deep_as_they_like() -> None:
    graph = Graph([variable("x")], name="f")
    for _ in range(2000):
        graph = Graph([call(graph, variable("x"), name="y")], name="f")
    text = str(graph)
    assert text.count("func") == 2000
    assert str(parse(text)) == text


def test_a_constant_or_an_input_that_does_more_has_no_written_form() -> None:
    value = constant(np.float32([1, 2]), "c")
    two = value.evolve(output_names=("c", "d"), output_types=(None, None))
    foreign = value.evolve(domain="my")
    reading = value.evolve(inputs=(variable("x")[0],))
    for node in (two, foreign, reading):
        with pytest.raises(WriteError, match="a constant makes one value and does nothing else"):
            str(Graph([op("Relu", node, name="y")]))


LATE = """
import gc, sys, types
early = sys.modules["early"] = types.ModuleType("early")
import numpy as np
import partita.graph.text.digests as late
early.arrays = [np.arange(i) for i in range(3)]
digests = [late.digest(array) for array in early.arrays]
early.late, late.early = late, early
gc.freeze()
print(len(set(digests)))
"""
"""Both modules live until their names are taken from them, the arrays' after those of digests."""


def test_arrays_that_go_with_the_end_of_a_process_are_forgotten_in_silence() -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", LATE], cwd=root, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("3\n", "")


def test_equal_arrays_are_remembered_as_long_as_one_of_them_lives() -> None:
    first, second = np.full(7, 41.5), np.full(7, 41.5)
    text = digest(first)
    assert digest(second) == text and digest(np.full(7, 41.25)) != text
    del first
    assert remembered(text) is second
    del second
    assert remembered(text) is None and text not in digests._arrays_of


def test_an_array_is_hashed_once_and_another_of_its_address_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[int] = []
    whole = digests._computed
    monkeypatch.setattr(digests, "_computed", lambda array: (hashed.append(id(array)), whole(array))[1])
    first, second = np.arange(5), np.arange(6)
    assert digest(first) == digest(first) != digest(second)
    assert hashed == [id(first), id(second)]
    monkeypatch.setitem(digests._digest_of, id(first), digests._digest_of[id(second)])
    assert digest(first) == whole(first)
