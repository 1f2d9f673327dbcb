"""What transformers are made of: products with all that follows them, and attention, as exporters write them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import partita as pt
from partita.accelerators.tvm.machine.machine import Machine
from tests.accelerators.tvm.running import check, compiled, normals, number, products_and_spills, schedules
from tests.drawn import some

pytest.importorskip("tvm")

normal = normals(13)
LIMIT = 5e-6


def ints(*values: int) -> pt.Node:
    return pt.constant(np.array(values, np.int64))


def reshaped(x: Any, *shape: int) -> pt.Node:
    return pt.op("Reshape", x, ints(*shape))


# -- products and what follows ----------------------------------------------------------------------------


def gelu_by_erf(x: pt.Node) -> pt.Node:
    """GELU as torch's older exporter writes it."""
    inner = pt.op("Add", pt.op("Erf", pt.op("Div", x, number(math.sqrt(2)))), number(1.0))
    return pt.op("Mul", pt.op("Mul", x, inner), number(0.5))


def gelu_by_tanh(x: pt.Node) -> pt.Node:
    """GELU as GPT-2 writes it."""
    cube = pt.op("Mul", pt.op("Pow", x, number(3.0)), number(0.044715))
    inner = pt.op("Tanh", pt.op("Mul", pt.op("Add", x, cube), number(math.sqrt(2 / math.pi))))
    return pt.op("Mul", pt.op("Mul", x, number(0.5)), pt.op("Add", inner, number(1.0)))


@pytest.mark.parametrize("spelled", [gelu_by_erf, gelu_by_tanh])
def test_an_activation_in_pieces_is_worked_into_the_product(spelled: Any) -> None:
    x = pt.variable("x", "float32", (7, 24))
    y = pt.op("Add", pt.op("MatMul", x, pt.constant(normal(24, 37))), pt.constant(normal(37)))
    assert schedules(check(pt.Graph([spelled(y)], inputs=[x]), [normal(7, 24)], LIMIT)) == ["gemm"]


def test_a_chain_runs_through_reshapes() -> None:
    x, rest = pt.variable("x", "float32", (10, 24)), pt.variable("rest", "float32", (2, 5, 40))
    y = reshaped(pt.op("Gemm", x, pt.constant(normal(24, 40)), pt.constant(normal(40))), 2, 5, 40)
    g = pt.Graph([reshaped(pt.op("Add", rest, gelu_by_tanh(y)), 10, 40)], inputs=[x, rest])
    assert schedules(check(g, [normal(10, 24), normal(2, 5, 40)], LIMIT)) == ["gemm"]


def test_a_value_that_others_need_too_is_written_as_well() -> None:
    x = pt.variable("x", "float32", (10, 24))
    y = pt.op("Add", pt.op("MatMul", x, pt.constant(normal(24, 40))), pt.constant(normal(40)))
    assert schedules(check(pt.Graph([y, pt.op("Sigmoid", y)], inputs=[x]), [normal(10, 24)], LIMIT)) == ["gemm"]


def test_the_embedding_turned_is_the_last_matrix() -> None:
    table, x = pt.constant(normal(131, 24)), pt.variable("x", "float32", (9, 24))
    g = pt.Graph([pt.op("MatMul", x, pt.op("Transpose", table, perm=[1, 0]))], inputs=[x])
    assert schedules(check(g, [normal(9, 24)], LIMIT)) == ["gemm"]


@some
@given(st.integers(1, 90), st.integers(16, 130), st.integers(1, 70), st.integers(1, 3))
def test_products_shared_out_among_threads(rows: int, columns: int, depth: int, threads: int) -> None:
    x = pt.variable("x", "float32", (rows, depth))
    g = pt.Graph([pt.op("Relu", pt.op("MatMul", x, pt.constant(normal(depth, columns))))], inputs=[x])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("partita.accelerators.tvm.kernels.contraction.matmul.gemm.MATRIX_PRODUCTS", 0)
        patch.setattr("partita.accelerators.tvm.kernels.contraction.matmul.gemm.CACHED", 700)
        check(g, [normal(rows, depth)], LIMIT, NUM_THREADS=threads)


@some
@given(st.integers(1, 30), st.integers(1, 7), st.integers(2, 70), st.integers(1, 2))
def test_products_narrower_than_a_vector(rows: int, columns: int, depth: int, threads: int) -> None:
    x = pt.variable("x", "float32", (rows, depth))
    y = pt.op("Gemm", x, pt.constant(normal(columns, depth)), pt.constant(normal(columns)), transB=1, alpha=0.5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("partita.accelerators.tvm.kernels.contraction.matmul.gemm.MATRIX_PRODUCTS", 0)
        g = pt.Graph([pt.op("Sigmoid", y)], inputs=[x])
        assert schedules(check(g, [normal(rows, depth)], LIMIT, NUM_THREADS=threads)) == ["gemm"]


@some
@given(st.integers(1, 30), st.integers(16, 60), st.integers(1, 40), st.booleans(), st.sampled_from([(), (3,), (2, 3), (2, 1)]))
def test_products_of_two_values(rows: int, columns: int, depth: int, turned: bool, batch: tuple[int, ...]) -> None:
    x = pt.variable("x", "float32", (2, 3, rows, depth))
    shape = (*batch, columns, depth) if turned else (*batch, depth, columns)
    y = pt.variable("y", "float32", shape)
    order = [*range(len(batch)), len(batch) + 1, len(batch)]
    right = pt.op("Mul", pt.op("Transpose", y, perm=order), number(0.5)) if turned else y
    rest = pt.variable("rest", "float32", (3, 1, columns))
    node = pt.op("Transpose", pt.op("Sigmoid", pt.op("Add", pt.op("MatMul", x, right), rest)), perm=[0, 2, 1, 3])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("partita.accelerators.tvm.kernels.contraction.matmul.product.VALUE_PRODUCTS", 0)
        g = pt.Graph([node], inputs=[x, y, rest])
        inputs = [normal(2, 3, rows, depth), normal(*shape), normal(3, 1, columns)]
        assert schedules(check(g, inputs, LIMIT, NUM_THREADS=2)) == ["product"]


@pytest.mark.parametrize("turned", [(0, 0), (1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize("is_constant", [False, True])
def test_gemms_of_every_kind(turned: tuple[int, int], is_constant: bool) -> None:
    first, second = (9, 20)[:: -1 if turned[0] else 1], (20, 33)[:: -1 if turned[1] else 1]
    x, y, z = pt.variable("x", "float32", first), pt.variable("y", "float32", second), pt.variable("z", "float32", (9, 1))
    right = pt.constant(normal(*second)) if is_constant else y
    node = pt.op("Gemm", x, right, z, transA=turned[0], transB=turned[1], alpha=0.5, beta=2.0)
    inputs = [normal(*first), normal(*second), normal(9, 1)]
    result = schedules(check(pt.Graph([pt.op("Relu", node)], inputs=[x, y, z]), inputs, LIMIT))
    assert ("gemm" if is_constant else "product") in result


def test_one_row_by_a_matrix_of_values() -> None:
    x, y = pt.variable("x", "float32", (1, 70)), pt.variable("y", "float32", (70, 100))
    assert schedules(check(pt.Graph([pt.op("MatMul", x, y)], inputs=[x, y]), [normal(1, 70), normal(70, 100)])) == ["product"]


# -- attention --------------------------------------------------------------------------------------------


def heads(x: Any, tokens: int, count: int, width: int) -> pt.Node:
    return pt.op("Transpose", reshaped(x, 1, tokens, count, width), perm=[0, 2, 1, 3])


def scores_of(query: pt.Node, key: pt.Node, factor: float) -> pt.Node:
    """Both scaled, as torch does it for the sake of halves."""
    turned = pt.op("Transpose", key, perm=[0, 1, 3, 2])
    return pt.op("MatMul", pt.op("Mul", query, number(factor)), pt.op("Mul", turned, number(factor)))


def guarded(weights: pt.Node) -> pt.Node:
    return pt.op("Where", pt.op("IsNaN", weights), number(0.0), weights)


def merged(mixed: pt.Node, tokens: int, whole: int) -> pt.Node:
    return reshaped(pt.op("Transpose", mixed, perm=[0, 2, 1, 3]), 1, tokens, whole)


def attention(tokens: int, count: int, width: int, keys: int | None = None, guard: bool = False) -> pt.Graph:
    """Attention with a mask that is a value, and with `keys` keys."""
    keys = tokens if keys is None else keys
    x, memory = pt.variable("x", "float32", (1, tokens, count * width)), pt.variable("m", "float32", (1, keys, count * width))
    mask = pt.variable("mask", "float32", (1, 1, 1, keys))
    query, key = heads(x, tokens, count, width), heads(memory, keys, count, width)
    weights = pt.op("Softmax", pt.op("Add", scores_of(query, key, 0.5), mask), axis=-1)
    mixed = pt.op("MatMul", guarded(weights) if guard else weights, key)
    return pt.Graph([merged(mixed, tokens, count * width)], inputs=[x, memory, mask])


@some
@given(st.integers(1, 40), st.integers(1, 3), st.integers(16, 37), st.integers(16, 70), st.integers(1, 3))
def test_attention_of_any_sizes(tokens: int, count: int, width: int, keys: int, threads: int) -> None:
    g = attention(tokens, count, width, keys)
    inputs = [normal(1, tokens, count * width), normal(1, keys, count * width), normal(1, 1, 1, keys)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("partita.accelerators.tvm.kernels.attention.scoring.VALUE_PRODUCTS", 0)
        patch.setattr("partita.accelerators.tvm.kernels.attention.attention.BLOCK", 300)
        assert schedules(check(g, inputs, LIMIT, NUM_THREADS=threads)) == ["attention"]


@pytest.mark.parametrize(("tokens", "keys", "width", "threads"), [(1, 129, 48, 2), (2, 17, 16, 1), (8, 37, 32, 1)])
def test_few_queries_read_keys_and_values_where_they_stand(tokens: int, keys: int, width: int, threads: int) -> None:
    g = attention(tokens, 3, width, keys)
    inputs = [normal(1, tokens, 3 * width), normal(1, keys, 3 * width), normal(1, 1, 1, keys)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("partita.accelerators.tvm.kernels.attention.scoring.VALUE_PRODUCTS", 0)
        patch.delattr("partita.accelerators.tvm.kernels.attention.attention.PanelAttention.write")
        assert schedules(check(g, inputs, LIMIT, NUM_THREADS=threads)) == ["attention"]


@pytest.mark.parametrize("tokens", [4, 20])
@pytest.mark.parametrize("guard", [False, True])
def test_rows_that_are_masked_altogether(guard: bool, tokens: int) -> None:
    mask = np.full((1, 1, 1, 20), -np.inf, "float32")
    (output,) = compiled(attention(tokens, 2, 16, 20, guard)).run([normal(1, tokens, 32), normal(1, 20, 32), mask])
    assert (output == 0).all() if guard else np.isnan(output).all()


@pytest.mark.parametrize("groups", [2, 4])
def test_onnx_s_attention_is_a_kernel_with_a_mask_too(groups: int) -> None:
    """Its body clears the weights of queries that see nothing, which stood between the softmax and the product."""
    query = pt.variable("q", "float32", (2, 4, 3, 16))
    key, value = (pt.variable(name, "float32", (2, groups, 3, 16)) for name in "kv")
    past = [pt.variable(name, "float32", (2, groups, 17, 16)) for name in ("past_k", "past_v")]
    mask = pt.variable("mask", "float32", (3, 20))
    node = pt.op("Attention", query, key, value, mask, *past, n_outputs=3, opset=24)
    g = pt.Graph(list(node.outputs), [query, key, value, mask, *past], opsets={"": 24})
    hidden = normal(3, 20)
    hidden[1] = -np.inf
    inputs = [normal(2, 4, 3, 16), *(normal(2, groups, 3, 16) for _ in "kv"), hidden, *(normal(2, groups, 17, 16) for _ in past)]
    assert "attention" in schedules(check(g, inputs, LIMIT))
    assert (compiled(g).run(inputs)[0][:, :, 1] == 0).all()


@pytest.mark.parametrize("length", [20, "S"])
@pytest.mark.parametrize("causal", [False, True])
def test_onnx_s_attention_without_a_mask_clears_no_rows(length: int | str, causal: bool) -> None:
    """Every query sees every key, of any length too, where no constant says so."""
    given = [pt.variable(name, "float32", (2, 3, length, 16)) for name in "qkv"]
    g = pt.Graph([pt.op("Attention", *given, is_causal=int(causal), opset=23)], given, opsets={"": 23})
    model, inputs = pt.compile(g, "cpu", config={"CACHE_DIR": ""}), [normal(2, 3, 20, 16) for _ in given]
    if not causal:
        assert [kernel.schedule for kernel in model.kernels()] == ["attention"]
    np.testing.assert_allclose(model(*inputs)[0], pt.compile(g, "reference")(*inputs)[0], 1e-5, 1e-5)


def test_few_queries_of_wide_heads_take_no_code_for_each_vector(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiling a head of 4,096 numbers took 18 seconds, and longer for wider ones."""
    monkeypatch.delattr("partita.accelerators.tvm.kernels.attention.in_place.FewRows.write")
    inputs = [normal(1, 1, 1040) / 8, normal(1, 16, 1040) / 8, normal(1, 1, 1, 16)]
    assert schedules(check(attention(1, 1, 1040, 16), inputs, LIMIT)) == ["attention"]


def test_scores_that_several_heads_of_values_share() -> None:
    """The kernel was written as if there were as many scores, and such a model did not compile."""
    x, key, value = (pt.variable(name, "float32", shape) for name, shape in (("x", (4, 16)), ("k", (16, 20)), ("v", (2, 20, 16))))
    weights = pt.op("Softmax", pt.op("MatMul", x, key), axis=-1)
    graph = pt.Graph([pt.op("MatMul", weights, value)], inputs=[x, key, value])
    check(graph, [normal(4, 16), normal(16, 20), normal(2, 20, 16)], LIMIT)


def test_a_score_that_is_no_number_spoils_its_row_alone() -> None:
    x, mask = normal(1, 20, 32), np.zeros((1, 1, 1, 20), "float32")
    x[0, 3, 5] = np.nan
    (output,) = compiled(attention(20, 2, 16)).run([x, normal(1, 20, 32), mask])
    assert np.isnan(output[0, 3, :16]).all()
    assert np.isfinite(np.delete(output, 3, 1)).all() and np.isfinite(output[0, 3, 16:]).all()


def layer(tokens: int, count: int, width: int, causal: bool) -> tuple[pt.Graph, int]:
    """Three projections, attention, and the projection back, as BERT and ViT have them."""
    whole = count * width
    x = pt.variable("x", "float32", (1, tokens, whole))

    def projected(name: str) -> pt.Node:
        node = pt.op("MatMul", x, pt.constant(normal(whole, whole) / 6), name=name)
        return pt.op("Add", node, pt.constant(normal(whole)), name=f"{name}_bias")

    query, key, value = (heads(projected(name), tokens, count, width) for name in "qkv")
    scores = scores_of(query, key, 0.4)
    if causal:
        scores = pt.op("Add", scores, pt.constant(np.triu(np.full((1, 1, tokens, tokens), -3e38, "float32"), 1)))
    mixed = merged(pt.op("MatMul", guarded(pt.op("Softmax", scores, axis=-1)), value), tokens, whole)
    return pt.Graph([pt.op("Add", pt.op("MatMul", mixed, pt.constant(normal(whole, whole))), x)], inputs=[x]), whole


@pytest.mark.parametrize("causal", [False, True])
def test_projections_of_one_input_are_one_product(causal: bool) -> None:
    g, whole = layer(19, 3, 16, causal)
    result = check(g, [normal(1, 19, whole)], 2e-5)
    assert schedules(result) == ["gemm", "attention", "gemm"]
    assert {"q", "q_bias", "k", "k_bias", "v", "v_bias"} <= set(result.launches[0].nodes)


def test_parts_of_one_product_are_read_in_place() -> None:
    """GPT-2's way: one Gemm, split in three; a mask chosen by Where."""
    x = pt.variable("x", "float32", (18, 32))
    whole = reshaped(pt.op("Gemm", x, pt.constant(normal(32, 96)), pt.constant(normal(96))), 1, 18, 96)
    parts = pt.op("Split", whole, axis=2, num_outputs=3, n_outputs=3)
    query, key, value = (heads(parts[i], 18, 2, 16) for i in range(3))
    scores = pt.op("Div", pt.op("MatMul", query, pt.op("Transpose", key, perm=[0, 1, 3, 2])), number(4.0))
    causal = pt.constant(np.tril(np.ones((1, 1, 18, 18), bool)))
    weights = pt.op("Softmax", pt.op("Where", causal, scores, number(-3e38)), axis=-1)
    g = pt.Graph([merged(pt.op("MatMul", weights, value), 18, 32)], inputs=[x])
    assert schedules(check(g, [normal(18, 32)], 2e-5)) == ["gemm", "attention"]


def test_parts_taken_by_an_index() -> None:
    """timm's way: queries, keys and values are a dimension."""
    x = pt.variable("x", "float32", (2, 17, 96))
    moved = pt.op("Transpose", reshaped(x, 2, 17, 3, 2, 16), perm=[2, 0, 3, 1, 4])
    query, key, value = (pt.op("Gather", moved, pt.constant(np.array(i)), axis=0) for i in range(3))
    scores = pt.op("MatMul", pt.op("Mul", query, number(0.25)), pt.op("Transpose", key, perm=[0, 1, 3, 2]))
    mixed = pt.op("MatMul", pt.op("Softmax", scores, axis=-1), value)
    g = pt.Graph([reshaped(pt.op("Transpose", mixed, perm=[0, 2, 1, 3]), 2, 17, 32)], inputs=[x])
    assert schedules(check(g, [normal(2, 17, 96)], LIMIT)) == ["attention"]


def test_weights_that_others_need_are_made() -> None:
    x = pt.variable("x", "float32", (1, 2, 20, 16))
    weights = pt.op("Softmax", pt.op("MatMul", x, pt.op("Transpose", x, perm=[0, 1, 3, 2])), axis=-1)
    g = pt.Graph([pt.op("MatMul", weights, x), weights], inputs=[x])
    assert "attention" not in schedules(check(g, [normal(1, 2, 20, 16)], LIMIT))


def test_keys_that_others_need_stay_outside() -> None:
    x, y = pt.variable("x", "float32", (1, 20, 32)), pt.variable("y", "float32", (1, 20, 32))
    key = heads(pt.op("Relu", y), 20, 2, 16)
    scores = pt.op("MatMul", heads(x, 20, 2, 16), pt.op("Transpose", key, perm=[0, 1, 3, 2]))
    mixed = pt.op("MatMul", pt.op("Softmax", scores, axis=-1), heads(x, 20, 2, 16))
    result = check(pt.Graph([merged(mixed, 20, 32), key], inputs=[x, y]), [normal(1, 20, 32), normal(1, 20, 32)], LIMIT)
    assert "attention" in schedules(result)


def test_code_for_other_processors(processor: Machine) -> None:
    x = pt.variable("x", "float32", (48, 64))
    product_alone = pt.Graph([pt.op("MatMul", x, pt.constant(normal(64, 96)))], inputs=[x])
    for g, spilled in ((attention(48, 2, 64), 40), (product_alone, 4 if processor.lanes > 4 else 12)):
        products, spills = products_and_spills(pt.apply_pass(g, ("InferShape",)), processor)
        assert products >= 24
        assert spills <= spilled
