"""Kernels for any size: compiled once, right at every size, and refused with a reason where there are none."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import partita as pt
from partita.accelerators.tvm.kernels.shared.loops import is_shared_out
from partita.accelerators.tvm.machine.machine import host_machine
from partita.accelerators.tvm.machine.parallel_thresholds import STEPS
from partita.accelerators.tvm.sizes.extent import symbol
from tests.accelerators.tvm.any_size import attention, check, numbers, random, specialized
from tests.close import assert_close

BERT = Path(__file__).parents[2] / "data" / "torch" / "bert_dynamic.onnx"
EDGES = (1, 2, 3, 5, 13, 14, 15, 16, 17, 28, 29, 31, 32, 33, 48, 57)
"""Sizes about those of tiles and vectors, whatever the processor's."""


def test_products_of_any_number_of_rows() -> None:
    x = pt.variable("x", "float32", ("N", "M", 24))
    product = pt.op("Add", pt.op("MatMul", x, pt.constant(numbers(24, 50))), pt.constant(numbers(50)))
    second = pt.op("Relu", pt.op("MatMul", product, pt.constant(numbers(50, 17))))
    sizes = [(1, 1), (2, 1), *((1, size) for size in EDGES), (3, 19)]
    check(pt.Graph([second]), [{"x": numbers(n, m, 24)} for n, m in sizes])


def test_products_of_few_columns() -> None:
    """Narrower than a vector, as a classifier of few classes is."""
    x = pt.variable("x", "float32", ("N", "M", 24))
    classes = pt.op("Add", pt.op("MatMul", x, pt.constant(numbers(24, 3))), pt.constant(numbers(3)))
    check(pt.Graph([pt.op("Sigmoid", classes)]), [{"x": numbers(n, m, 24)} for n, m in [(1, 1), (2, 5), (1, 17), (3, 40)]])


def test_attention_of_any_length() -> None:
    feeds = []
    for n, s in [(1, 1), (2, 1), *((1, size) for size in EDGES), (3, 7), (2, 100)]:
        mask = np.where(np.arange(s) < max(1, s - 2), 0, -1e9).astype(np.float32)
        feeds.append({"x": numbers(n, s, 32), "mask": np.broadcast_to(mask, (n, 1, 1, s)).copy()})
    model = check(attention(mask=True), feeds)
    assert "attention" in [kernel.schedule for kernel in model.kernels()]


def test_sizes_only_values_are_computed_by_the_host() -> None:
    """A causal mask and positions depend on the length alone."""
    ids = pt.variable("ids", "int64", ("N", "S"))
    length = pt.op("Gather", pt.op("Shape", ids), pt.constant(np.array(1)))
    positions = pt.op("Range", pt.constant(np.array(0)), length, pt.constant(np.array(1)))
    words, places = (pt.constant(numbers(count, 16)) for count in (40, 64))
    rows = pt.op("Add", pt.op("Gather", words, ids), pt.op("Gather", places, positions))
    norm = pt.op("LayerNormalization", rows, pt.constant(numbers(16)), pt.constant(numbers(16)))
    later = pt.op("LessOrEqual", positions, pt.op("Unsqueeze", positions, pt.constant(np.array([1]))))
    scores = pt.op("MatMul", norm, pt.op("Transpose", norm, perm=[0, 2, 1]))
    masked = pt.op("Where", later, scores, pt.constant(np.float32(-1e9)))
    graph = pt.Graph([pt.op("MatMul", pt.op("Softmax", masked, axis=-1), norm)])
    feeds = [{"ids": random.integers(0, 40, (n, s))} for n, s in [(1, 1), (2, 5), (1, 16), (3, 17), (1, 64)]]
    model = check(graph, feeds)
    with pytest.raises(pt.RunError):  # there are 64 positions; compiled for this size, the graph says so
        model(random.integers(0, 40, (1, 65)))


def test_a_single_number_computed_by_the_host() -> None:
    """How many numbers there are, which has no dimensions."""
    x = pt.variable("x", "float32", ("N", "S", 4))
    mean = pt.op("Div", pt.op("ReduceSum", x, pt.constant(np.array([2]))), pt.op("Cast", pt.op("Size", x), to=1))
    check(pt.Graph([mean], [x]), [{"x": numbers(n, s, 4)} for n, s in [(1, 1), (2, 5)]])


def test_moves_and_chains_of_any_size() -> None:
    x, y = pt.variable("x", "float32", ("N", "M", 8)), pt.variable("y", "float32", ("N", "K", 8))
    joined = pt.op("Concat", x, y, axis=1)
    turned = pt.op("Transpose", joined, perm=[2, 0, 1])
    graph = pt.Graph([pt.op("Tanh", pt.op("Mul", turned, pt.constant(np.float32(2.0)))), pt.op("Exp", pt.op("Neg", x))], [x, y])
    check(graph, [{"x": numbers(n, m, 8), "y": numbers(n, k, 8)} for n, m, k in [(1, 1, 1), (2, 3, 4), (1, 17, 2), (5, 16, 33)]])


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 4), st.integers(1, 70))
def test_attention_of_any_length_by_chance(n: int, s: int) -> None:
    model, reference = chance()
    feed = {"x": numbers(n, s, 32)}
    (a,), (b,) = model(feed), reference(feed)
    np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5 * float(np.abs(b).max()))
    assert specialized(model).sizes == ()


def chance(kept: list[Any] = []) -> Any:  # noqa: B006  # compiled once for all examples
    if not kept:
        graph = attention(mask=False)
        kept += [pt.compile(graph, "cpu"), pt.compile(graph, "reference")]
    return kept


@pytest.mark.parametrize("threads", [1, 4])
def test_a_little_work_is_one_thread_s(threads: int) -> None:
    """Whether threads share a chain, rows or a move is decided when the sizes are known."""
    x, y = (pt.variable(name, "float32", ("N", "M", 5)) for name in "xy")
    added = pt.op("Tanh", pt.op("Add", x, y))
    norm = pt.op("LayerNormalization", x, pt.constant(numbers(5)), pt.constant(numbers(5)), name="norm")
    outputs = [added, norm, pt.op("Transpose", x, perm=[1, 0, 2])]
    model = pt.compile(pt.Graph(outputs, [x, y]), "cpu", config={"NUM_THREADS": threads})
    reference = pt.compile(pt.Graph(outputs, [x, y]), "reference")
    sizes = [(1, 1), (1, 819), (1, 820), (3, 273), (2, 4000), (1, 16384)]  # about pieces of 4,096 numbers, and on both sides
    for n, m in sizes:
        given = numbers(n, m, 5), numbers(n, m, 5)
        for a, b in zip(model(*given), reference(*given), strict=True):
            assert_close(a, b, atol=2e-5, rtol=2e-5)
    assert specialized(model).sizes == ()
    shared = [kernel for kernel in model.kernels() if "parallel" in str(kernel.text)]
    assert len(shared) == (3 if threads > 1 else 0)
    assert all(re.search(r"if s0 \* s1 >= \d+:", str(kernel.text)) for kernel in shared), "decided by the sizes"


def test_work_that_is_always_enough_is_always_shared() -> None:
    machine, a, b = attrs.evolve(host_machine(2), threads=2), cast("int", symbol("a")), cast("int", symbol("b"))
    assert is_shared_out(STEPS, machine) is True and is_shared_out(STEPS - 1, machine) is False
    assert is_shared_out(a * STEPS, machine) is True
    assert str(is_shared_out(a * b * 8, machine)) == f"a * b >= {STEPS // 8}"
    assert is_shared_out(a * b * 8, attrs.evolve(machine, threads=1)) is False


def test_slices_at_any_size() -> None:
    x = pt.variable("x", "float32", ("N", "S", 16))

    def cut(*numbers_of: int) -> pt.Node:
        return pt.op("Slice", x, *[pt.constant(np.array([number])) for number in numbers_of])

    graph = pt.Graph([cut(-3, -1, 1), cut(1, 2**62, 1), cut(-100, 5, 2), cut(0, 1, 0)], [x])
    check(graph, [{"x": numbers(n, s, 16)} for n, s in [(1, 3), (2, 5), (3, 17)]])


def test_slices_with_steps_at_any_size() -> None:
    """Every second pixel, as networks take that merge patches."""
    x = pt.variable("x", "float32", ("N", 3, "H", "W"))
    second, axes = pt.constant(np.array([2, 2])), pt.constant(np.array([2, 3]))
    far = pt.constant(np.array([2**62, 2**62]))
    part = pt.op("Slice", x, pt.constant(np.array([0, 1])), far, axes, second)
    feeds = [{"x": numbers(n, 3, height, width)} for n, height, width in [(1, 2, 2), (2, 6, 4), (1, 18, 34)]]
    check(pt.Graph([part], [x]), feeds)


def whole(*numbers_of: int) -> pt.Node:
    return pt.constant(np.array(numbers_of, np.int64))


def test_slices_with_steps_backward_at_any_size() -> None:
    """All of a dimension turned round, as torch's flip is exported; parts of it, and along two dimensions at once."""
    x, all_of = pt.variable("x", "float32", ("N", "S", 8)), -(2**63) + 1
    turned = pt.op("Slice", x, whole(-1), whole(all_of), whole(1), whole(-1))
    part = pt.op("Slice", x, whole(-1, -2), whole(-4, 0), whole(1, 2), whole(-1, -2))
    first = pt.op("Slice", x, whole(2), whole(all_of), whole(1), whole(-1))
    feeds = [{"x": numbers(n, s, 8)} for n, s in ((1, 4), (3, 9))]
    model = check(pt.Graph([turned, pt.op("Relu", part), first], [x]), feeds)
    short = numbers(2, 2, 8)
    np.testing.assert_array_equal(model(short)[2], short[:, ::-1])


@pytest.mark.parametrize("opset", [13, 21])
def test_a_known_dimension_turned_round_beside_one_of_any_size(opset: int) -> None:
    """The sizes stay as they were, and for that it was taken to change nothing."""
    x, far = pt.variable("x", "float32", ("N", 7, 3)), -(2**63) + 1
    turned = pt.op("Slice", x, whole(-1), whole(far), whole(1), whole(-1), opset=opset)
    outputs = [pt.op("Relu", turned, opset=opset), pt.op("Slice", turned, whole(4), whole(6), whole(1), opset=opset)]
    check(pt.Graph(outputs, [x], opsets={"": opset}), [{"x": numbers(n, 7, 3)} for n in (1, 2)])
    along = pt.op("Slice", x, whole(-1), whole(far), whole(0), whole(-1), opset=opset)
    model, given = pt.compile(pt.Graph([along], [x], opsets={"": opset}), "cpu"), numbers(4, 7, 3)
    np.testing.assert_array_equal(model(given)[0], given[::-1])


@pytest.mark.parametrize(("columns", "rows"), [(8, "M"), (3, "M"), (5, 7), (1, "M")])
def test_products_of_two_values_with_fewer_columns_than_a_vector(columns: int, rows: int | str) -> None:
    """As attention has with heads of few numbers, in blocks that are narrower than the processor's vectors."""
    x, y = pt.variable("x", "float32", ("B", 2, rows, "K")), pt.variable("y", "float32", ("B", 2, "K", columns))
    feeds = []
    for b, m, k in ((1, 1, 1), (2, 3, 5), (1, 17, 40), (3, 4, 16)):
        height = rows if isinstance(rows, int) else m
        feeds.append({"x": numbers(b, 2, height, k), "y": numbers(b, 2, k, columns)})
    check(pt.Graph([pt.op("MatMul", x, y)], [x, y]), feeds)


def test_one_hot_at_any_size() -> None:
    """Classes last and in between, counted from either end; some indices are of none."""
    ids = pt.variable("ids", "int64", ("N", "S"))
    last = pt.op("OneHot", ids, whole(5), pt.constant(np.array([0, 1], np.float32)))
    between = pt.op("OneHot", ids, pt.constant(np.array(5)), pt.constant(np.array([-1, 2], np.float32)), axis=1)
    graph = pt.Graph([pt.op("MatMul", last, pt.constant(numbers(5, 24))), between], [ids])
    check(graph, [{"ids": random.integers(-6, 7, shape)} for shape in ((1, 4), (3, 9))])


def test_products_of_two_values_of_any_size() -> None:
    """Rows, columns and the depth may all be symbols; what is scaled, turned and added is done by the kernel."""
    a, b = pt.variable("a", "float32", ("N", 2, "S", "D")), pt.variable("b", "float32", ("N", 2, "T", "D"))
    scores = pt.op("Mul", pt.op("MatMul", a, pt.op("Transpose", b, perm=[0, 1, 3, 2])), pt.constant(np.float32(0.5)))
    graph = pt.Graph([pt.op("Relu", pt.op("Add", scores, pt.variable("c", "float32", ("S", "T"))))])
    model, reference = pt.compile(graph, "cpu", config={"NUM_THREADS": 3}), pt.compile(graph, "reference")
    sizes = [(1, 1, 1, 1), (2, 3, 2, 5), (1, 16, 17, 3), (3, 29, 31, 4), (1, 13, 48, 9), (1, 60, 15, 2), (2, 2, 130, 33)]
    for n, s, t, d in sizes:
        feed = {"a": numbers(n, 2, s, d), "b": numbers(n, 2, t, d), "c": numbers(s, t)}
        assert_close(model(feed)[0], reference(feed)[0], atol=1e-4, rtol=2e-5)
    assert specialized(model).sizes == () and [kernel.schedule for kernel in model.kernels()] == ["product"]


def recurrent(op: str, x: Any, inputs: int, *rest: Any, **attributes: Any) -> pt.Node:
    """A layer of 20 numbers with random weights, both ways through time where the attributes say so."""
    ways = 2 if attributes.get("direction") == "bidirectional" else 1
    rows = {"LSTM": 80, "GRU": 60, "RNN": 20}[op]
    weights = (pt.constant(numbers(ways, *sizes) / 4) for sizes in ((rows, inputs), (rows, 20), (2 * rows,)))
    return pt.op(op, x, *weights, *rest, hidden_size=20, **attributes)


@pytest.mark.parametrize("op", ["RNN", pytest.param("GRU", marks=pytest.mark.slow), pytest.param("LSTM", marks=pytest.mark.slow)])
def test_recurrent_layers_of_any_length(op: str) -> None:
    x, lengths = pt.variable("x", "float32", ("T", 3, 8)), pt.variable("lengths", "int32", (3,))
    states = [pt.constant(numbers(2, 3, 20)) for _ in range(2 if op == "LSTM" else 1)]
    layer = recurrent(op, x, 8, lengths, *states, direction="bidirectional", n_outputs=1 + len(states))
    joined = pt.op("Reshape", pt.op("Transpose", layer[0], perm=[0, 2, 1, 3]), pt.constant(np.array([0, 0, -1])))
    graph = pt.Graph([joined, *layer.outputs[1:]], inputs=[x, lengths])
    given = [{"x": numbers(t, 3, 8), "lengths": np.array([t, t // 2, min(t, 3)], np.int32)} for t in (1, 2, 7, 30)]
    model = check(graph, given)
    with pytest.raises(pt.RunError, match="the length of a sequence is not between 0 and the number of steps"):
        model(numbers(4, 3, 8), np.array([4, 5, 1], np.int32))


@pytest.mark.parametrize("op", ["GRU", pytest.param("RNN", marks=pytest.mark.slow), pytest.param("LSTM", marks=pytest.mark.slow)])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.thinned(2)
def test_recurrent_layers_of_any_batch(op: str, threads: int) -> None:
    """From one sequence over fewer than a tile has to several blocks of them."""
    x, lengths = pt.variable("x", "float32", ("T", "N", 8)), pt.variable("lengths", "int32", ("N",))
    layer = recurrent(op, x, 8, lengths, direction="bidirectional", n_outputs=2)
    forwards = recurrent(op, x, 8, linear_before_reset=1) if op == "GRU" else recurrent(op, x, 8)
    graph = pt.Graph([*layer.outputs, forwards], inputs=[x, lengths])
    model, reference = pt.compile(graph, "cpu", config={"NUM_THREADS": threads}), pt.compile(graph, "reference")
    assert "compiled once for any size" in " ".join(model.report.notes), model.report.notes
    for t, n in ((1, 1), (5, 3), (7, 8), (2, 33)):
        feed = {"x": numbers(t, n, 8), "lengths": random.integers(1, t + 1, n).astype(np.int32)}
        for a, b in zip(model(feed), reference(feed), strict=True):
            assert_close(a, b, atol=2e-5, rtol=2e-5)
    assert specialized(model).sizes == (), "no size was compiled by itself"


def test_a_model_of_torch_at_several_lengths() -> None:
    feeds = [
        {"input_ids": random.integers(0, 20, (1, n)), "attention_mask": np.ones((1, n), np.int64)} for n in (2, 5, 1, 8)
    ]
    check(pt.load(BERT), feeds)


# -- what a symbol does not bypass ---------------------------------------------------------------------------


def test_an_index_outside_is_an_error_at_any_size() -> None:
    x, at = pt.variable("x", "float32", ("N", 4)), pt.variable("at", "int64", ("K",))
    model = pt.compile(pt.Graph([pt.op("Gather", x, at)], [x, at]), "cpu")
    assert "compiled once for any size" in " ".join(model.report.notes)
    data = numbers(3, 4)
    np.testing.assert_array_equal(model(data, np.array([2, -3]))[0], data[[2, -3]])
    for wrong in (3, -4):
        with pytest.raises(pt.RunError, match="an index is outside of a dimension"):
            model(data, np.array([0, wrong]))


def test_a_constant_index_that_is_outside_for_some_sizes() -> None:
    x = pt.variable("x", "float32", ("N", 4))
    model = pt.compile(pt.Graph([pt.op("Gather", x, pt.constant(np.array([5])))]), "cpu")
    data = numbers(8, 4)
    np.testing.assert_array_equal(model(data)[0], data[5:6])
    with pytest.raises(pt.InputError, match="a dimension and the indices into it do not go together: 5 is less than 6"):
        model(data[:5])


def test_sizes_that_contradict_each_other_are_an_error() -> None:
    x, y = pt.variable("x", "float32", ("N", 4)), pt.variable("y", "float32", ("N", 4))
    model = pt.compile(pt.Graph([pt.op("Add", x, y)], [x, y]), "cpu")
    assert model(numbers(2, 4), numbers(2, 4))[0].shape == (2, 4)
    with pytest.raises(pt.PartitaError, match="'N' would be both 2 and 3|N"):
        model(numbers(2, 4), numbers(3, 4))


def exported_with_a_batch_of_one(where: str) -> pt.Graph:
    """Attention in which a batch of 1 was put in, as torch's exporters do beside a symbol at the input."""
    x = pt.variable("x", "float32", ("N", "S", 32))
    read = pt.op("Squeeze", x, pt.constant(np.array([0]))) if where == "squeezed" else x
    rows: pt.Node = pt.op("MatMul", read, pt.constant(numbers(32, 32)))
    if where == "stated":
        rows = rows.evolve(output_types=(pt.TensorType("float32", (1, "S", 32)),))
    heads = pt.op("Reshape", rows, pt.constant(np.array([0, 0, 2, 16] if where == "stated" else [1, -1, 2, 16])))
    heads = pt.op("Transpose", heads, perm=[0, 2, 1, 3])
    scores = pt.op("MatMul", heads, pt.op("Transpose", heads, perm=[0, 1, 3, 2]))
    mixed = pt.op("Transpose", pt.op("MatMul", pt.op("Softmax", scores, axis=-1), heads), perm=[0, 2, 1, 3])
    joined = pt.op("Reshape", mixed, pt.constant(np.array([0, 0, 32] if where == "stated" else [1, -1, 32])))
    return pt.Graph([pt.op("LayerNormalization", pt.op("Add", x, joined), pt.constant(numbers(32)))])


@pytest.mark.parametrize("where", ["stated", "reshaped", "squeezed"])
@pytest.mark.thinned(2)
def test_a_batch_of_one_inside_is_an_assumption(where: str) -> None:
    """All lengths of one sequence have one form; more sequences are computed, or refused, as the ops say."""
    graph = exported_with_a_batch_of_one(where)
    model = check(graph, [{"x": numbers(1, length, 32)} for length in (1, 3, 7, 40)])
    reference = pt.compile(graph, "reference")
    for batch, length in ((2, 5), (3, 1)):
        x = numbers(batch, length, 32)
        try:
            wanted = reference(x)[0]
        except pt.PartitaError as error:
            with pytest.raises(pt.PartitaError, match=re.escape(error.cause)):
                model(x)
        else:
            np.testing.assert_allclose(model(x)[0], wanted, rtol=1e-4, atol=1e-5)
    x = numbers(1, 9, 32)
    np.testing.assert_allclose(model(x)[0], reference(x)[0], rtol=1e-4, atol=1e-5)


def test_a_graph_that_states_other_sizes_is_compiled_for_each() -> None:
    x = pt.variable("x", "float32", ("N", 4))
    stated = pt.op("Relu", x, name="y").evolve(output_types=(pt.TensorType("float32", (3, 4)),))
    model = pt.compile(pt.Graph([stated]), "cpu", strict=True)
    assert "compiled for each size: 'y' is stated to be float32[3, 4], and its op makes" in " ".join(model.report.notes)
    assert model(numbers(3, 4))[0].shape == (3, 4)
    with pytest.raises(pt.PartitaError, match=r"(?s)\[3, 4\].*'InferShape', trust_numbers=False"):
        model(numbers(2, 4))
    check(pt.apply_pass(pt.Graph([stated]), "InferShape", trust_numbers=False), [{"x": numbers(n, 4)} for n in (2, 3)])


def test_what_has_no_rule_is_compiled_for_each_size() -> None:
    x = pt.variable("x", "float32", ("N", 3, "H", 8))
    graph = pt.Graph([pt.op("Resize", x, None, pt.constant(np.array([1.3, 1.5], np.float32)), axes=[2, 3])])
    model, reference = pt.compile(graph, "cpu"), pt.compile(graph, "reference")
    note = "compiled for each size: Resize of chosen dimensions has no rule for any size"
    assert note in " ".join(model.report.notes)
    for n in (1, 2):
        image = numbers(n, 3, 8, 8)
        assert_close(model(image)[0], reference(image)[0], atol=1e-4, rtol=1e-4)
    assert len(specialized(model).sizes) == 2


def test_convolutions_of_volumes_in_groups_are_compiled_for_each_size() -> None:
    """TVM's loops would take many times as long as the kernel for one size."""
    x = pt.variable("x", "float32", ("N", 4, "L", 5, 5))
    model = pt.compile(pt.Graph([pt.op("Conv", x, pt.constant(numbers(6, 2, 3, 3, 3)), group=2)]), "cpu")
    assert "compiled for each size: no kernel for any size takes Conv of these sizes" in " ".join(model.report.notes)


def test_a_signal_s_convolutions_of_any_length() -> None:
    """As networks of speech begin: any length, whether it is a multiple of their steps or not."""
    x = pt.variable("x", "float32", ("N", "L"))
    signal = pt.op("Unsqueeze", x, pt.constant(np.array([1])))
    first = pt.op("Relu", pt.op("Conv", signal, pt.constant(numbers(8, 1, 10)), strides=[5]))
    second = pt.op("Conv", first, pt.constant(numbers(8, 8, 3)), pt.constant(numbers(8)), strides=[2])
    check(pt.Graph([second]), [{"x": numbers(n, length)} for n, length in [(1, 30), (2, 50), (1, 33), (1, 1600)]], 1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("length", ["L", 7])
def test_all_that_stays_an_image_of_a_signal(length: int | str) -> None:
    """What convolutions make and read stays an image; a softmax between reads a signal. A few known positions are as good."""
    x = pt.variable("x", "float32", ("N", 3, length))
    first = pt.op("Conv", x, pt.constant(numbers(20, 3, 4)), pt.constant(numbers(20)), strides=[2], pads=[1, 1])
    shifted = pt.op("Gelu", pt.op("Add", first, pt.constant(numbers(1, 20, 1))))
    alone = pt.op("Conv", shifted, pt.constant(numbers(20, 1, 3)), group=20, pads=[1, 1])
    pooled = pt.op("MaxPool", pt.op("Add", shifted, alone), kernel_shape=[3], pads=[1, 1])
    turned = pt.op("Transpose", pt.op("Softmax", pooled, axis=1), perm=[0, 2, 1])
    joined = pt.op("Concat", pooled, shifted, axis=1)
    outputs = [turned, pooled, joined, pt.op("ConvTranspose", pooled, pt.constant(numbers(20, 3, 2)), strides=[2])]
    sizes = [(1, 2), (2, 14), (1, 400)] if length == "L" else [(1, 7), (3, 7)]
    check(pt.Graph(outputs), [{"x": numbers(n, 3, size)} for n, size in sizes], 1e-4)


def test_counts_that_32_bits_hold_only_just_are_compiled_for_each_size() -> None:
    """A kernel that rounds up to whole parts would count beyond them."""
    for_any = specialized(pt.compile(pt.Graph([pt.op("Relu", pt.variable("x", "float32", ("N",)))]), "cpu")).any_size
    assert for_any is not None
    assert for_any.given(((2**31 - 2**17,),), [None]) == [None]
    assert for_any.given(((2**31 - 127,),), [None]) is None


def test_a_setting_by_which_each_size_is_compiled() -> None:
    x = pt.variable("x", "float32", ("N", 24))
    graph = pt.Graph([pt.op("MatMul", x, pt.constant(numbers(24, 32)))])
    model = pt.compile(graph, "cpu", config={"ANY_SIZE": False})
    data = numbers(3, 24)
    assert_close(model(data)[0], pt.compile(graph, "reference")(data)[0], atol=0.2, rtol=0.1)
    assert specialized(model).any_size is None and len(specialized(model).sizes) == 1


@pytest.mark.parametrize("device", ["cpu", "reference"])
def test_a_one_hot_of_three_values_is_refused(device: str) -> None:
    ids, values = pt.variable("ids", "int64", (2,)), pt.variable("values", "float32", (3,))
    graph = pt.Graph([pt.op("OneHot", ids, pt.constant(np.array(4)), values)], [ids, values])
    with pytest.raises(pt.PartitaError, match=r"the values are \[off, on\], and \[3\] were given|can run"):
        pt.compile(graph, device)(np.zeros(2, np.int64), np.zeros(3, np.float32))
