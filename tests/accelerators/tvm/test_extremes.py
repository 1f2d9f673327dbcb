"""Valid ops with extreme attributes, which once took a compiler or a kernel for ever, or ended the process."""

from __future__ import annotations

import importlib
import itertools

import numpy as np
import pytest

import partita as pt
from partita.accelerators.tvm.layouts.windows import _meets
from partita.passes.decompose.einsum import contractions, is_long
from tests.accelerators.tvm.running import check, normals
from tests.close import assert_close

pytest.importorskip("tvm")

normal = normals(7)

MANY = 700
"""More arguments of one kernel than Python nests calls, three for each."""


def chain(letters: str, size: int) -> pt.Graph:
    """A product of square matrices as one Einsum."""
    pairs = [first + second for first, second in itertools.pairwise(letters)]
    inputs = [pt.variable(f"x{i}", "float32", (size, size)) for i in range(len(pairs))]
    node = pt.op("Einsum", *inputs, equation=f"{','.join(pairs)}->{letters[0]}{letters[-1]}", name="chain")
    return pt.apply_pass(pt.Graph([node]), "InferShape")


def test_an_einsum_of_many_operands_is_made_of_pairs() -> None:
    graph = chain("abcdef", 64)
    given = [normal(64, 64) for _ in graph.inputs]
    model = pt.compile(graph, "HETERO:cpu,reference")
    assert model.properties.devices == ("cpu",)
    wanted = np.linalg.multi_dot(given)
    assert np.abs(model(*given)[0] - wanted).max() < 1e-4 * np.abs(wanted).max()


@pytest.mark.parametrize("equation", ["ab,bc,cd,da->", "ab,bc,cd", "aab,bc,ce->ae", "ab,cd,ef->", "a,a,a,b->ba"])
def test_a_row_of_contractions_is_the_whole(equation: str) -> None:
    terms = equation.partition("->")[0].split(",")
    given = [normal(*([3] * len(term))) for term in terms]
    inputs = [pt.variable(f"x{i}", "float32", value.shape) for i, value in enumerate(given)]
    row = contractions(pt.op("Einsum", *inputs, equation=equation))
    assert row is not None
    values = list(given)
    for step in row:
        read = [values[place] for place in step.operands]
        values = [value for place, value in enumerate(values) if place not in step.operands]
        values.append(np.einsum(step.equation, *read))
    assert_close(values[0], np.einsum(equation, *given), rtol=1e-4)


def test_letters_that_are_left_out_have_no_row() -> None:
    inputs = [pt.variable(f"x{i}", "float32", (2, 3, 3)) for i in range(3)]
    assert contractions(pt.op("Einsum", *inputs, equation="...ab,...bc,...cd->...ad")) is None


def test_an_einsum_of_few_steps_stays_whole() -> None:
    assert not is_long(chain("abcd", 8).outputs[0].node)


def test_a_transposed_convolution_of_many_phases_is_not_taken_apart() -> None:
    x = pt.variable("x", "float32", (1, 2, 3, 3))
    weights = pt.constant(normal(2, 2, 3, 3))
    graph = pt.Graph([pt.op("ConvTranspose", x, weights, strides=[40, 40], name="wide")])
    model = check(pt.apply_pass(graph, "InferShape"), [normal(1, 2, 3, 3)])
    assert not any("blocked" in kernel.schedule for kernel in model.kernels())


@pytest.mark.parametrize("op", ["Concat", "Split"])
def test_a_kernel_of_very_many_arguments_is_compiled(op: str) -> None:
    if op == "Concat":
        inputs = [pt.variable(f"x{i}", "float32", (1, 3)) for i in range(MANY)]
        graph = pt.Graph([pt.op("Concat", *inputs, axis=0, name="wide")])
    else:
        node = pt.op("Split", pt.variable("x", "float32", (MANY, 2)), n_outputs=MANY, num_outputs=MANY, axis=0, name="wide")
        graph = pt.Graph(list(node.outputs))
    assert pt.query(graph, "HETERO:cpu,reference")["wide"] == "cpu"


def test_a_resize_to_nothing_is_an_answer() -> None:
    x = pt.variable("x", "float32", (1, 1, 4, 4))
    graph = pt.Graph([pt.op("Resize", x, None, pt.constant(np.array([1, 1, 1e-9, 1e-9], np.float32)))])
    assert pt.compile(graph, "HETERO:cpu,reference")(normal(1, 1, 4, 4))[0].shape == (1, 1, 0, 0)


def test_a_tap_meets_the_image_where_some_result_puts_it_there() -> None:
    for first, stride, size, out in itertools.product(range(-9, 9), (1, 2, 5), (1, 3, 6), (0, 1, 2, 7)):
        assert _meets(first, stride, size, out) == any(0 <= first + o * stride < size for o in range(out))


@pytest.mark.parametrize("dims", [(2, 3), ("N", "S")], ids=["fixed", "open"])
@pytest.mark.parametrize(("mode", "pads"), [("reflect", [0, 3, 0, 0]), ("reflect", [1, -1, 0, 2]), ("wrap", [1, -1, 0, 2])])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_padding_never_reads_elsewhere_than_onnx(mode: str, pads: list[int], dims: tuple[int | str, ...]) -> None:
    x = pt.variable("x", "float32", dims)
    graph = pt.Graph([pt.op("Pad", x, pt.constant(np.array(pads)), mode=mode, name="pad")], [x])
    given = normal(2, 3)
    wanted = pt.compile(graph, "reference")(given)[0]
    np.testing.assert_array_equal(pt.compile(graph, "HETERO:cpu,reference")(given)[0], wanted)


@pytest.mark.parametrize("dims", [(2, 0), ("N", "S")], ids=["fixed", "open"])
@pytest.mark.parametrize("pads", [[0, 1, 0, 0], [1, 0, 0, 2]])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_nothing_is_read_where_there_is_no_edge(pads: list[int], dims: tuple[int | str, ...]) -> None:
    """ONNX says of no number what the edge of a dimension without numbers is."""
    x = pt.variable("x", "float32", dims)
    graph = pt.Graph([pt.op("Pad", x, pt.constant(np.array(pads)), mode="edge", name="pad")], [x])
    model = pt.compile(graph, "HETERO:cpu,reference")
    said = "empty axis 1|its padding reads do not go together: 0 is less than 1"
    with pytest.raises((pt.RunError, pt.InputError), match=said):
        model(np.zeros((2, 0), np.float32))


def test_padding_longer_than_its_dimension_is_refused() -> None:
    x = pt.variable("x", "float32", (2, 3))
    graph = pt.Graph([pt.op("Pad", x, pt.constant(np.array([0, 3, 0, 0])), mode="reflect", name="pad")])
    assert "reads outside of the data" in pt.query(graph, "HETERO:cpu,reference").why("pad")


def test_a_kernel_of_too_much_code_is_left_to_the_next_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound is counted while the kernel is written, so that no compiler gets what it would work at for minutes."""
    monkeypatch.setattr(importlib.import_module("partita.accelerators.tvm.kernels.language.emit"), "MOST", 200)
    x, w = pt.variable("x", "float32", (13, 37)), pt.constant(normal(37, 29))
    graph = pt.Graph([pt.op("Relu", pt.op("MatMul", x, w, name="product"), name="relu")])
    model = pt.compile(graph, "HETERO:cpu,reference", config={"cpu": {"CACHE_DIR": ""}})
    reasons = [move.reason for move in model.report.moves] + [model.report.placement.why("product")]
    assert any("its kernel has more than 200 expressions" in reason for reason in reasons), reasons
    given = normal(13, 37)
    assert_close(model(given)[0], np.maximum(given @ w.value, 0), atol=1e-4)
