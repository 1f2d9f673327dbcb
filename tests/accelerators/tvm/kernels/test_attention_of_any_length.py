"""Attention whose lengths are not known: rows of scores are filled up to whole vectors, and blocks of them are even."""

import re

import numpy as np
import pytest

import partita as pt
from tests.close import assert_close


@pytest.fixture(scope="module")
def attention() -> pt.CompiledModel:
    query = pt.variable("q", "float32", ("batch", "rows", 32))
    key, value = (pt.variable(name, "float32", ("batch", "keys", 32)) for name in "kv")
    mask = pt.variable("mask", "float32", ("batch", 1, "keys"))
    scores = pt.op("Add", pt.op("MatMul", query, pt.op("Transpose", key, perm=[0, 2, 1])), mask)
    mixed = pt.op("MatMul", pt.op("Softmax", scores, axis=-1), value, name="y")
    return pt.compile(pt.Graph([mixed], inputs=[query, key, value, mask]), "cpu", config={"NUM_THREADS": 2})


@pytest.mark.parametrize("keys", [1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 64, 100])
@pytest.mark.parametrize("rows", [1, 5, 40])
def test_lengths_that_no_vector_divides(attention: pt.CompiledModel, rows: int, keys: int) -> None:
    random = np.random.default_rng(keys)
    query, key, value = (random.standard_normal((2, length, 32), np.float32) for length in (rows, keys, keys))
    mask = np.zeros((2, 1, keys), np.float32)
    mask[0, 0, keys // 2 + 1 :] = -np.inf
    mask[1, 0, 0] = 30.0
    scores = query @ key.transpose(0, 2, 1) + mask
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    expected = (powers / powers.sum(-1, keepdims=True)) @ value
    assert_close(attention(query, key, value, mask)[0], expected, rtol=1e-4)


def test_a_query_that_sees_no_key_has_no_answer(attention: pt.CompiledModel) -> None:
    query, key, value = (np.ones((2, 5, 32), np.float32) for _ in range(3))
    mask = np.zeros((2, 1, 5), np.float32)
    mask[0] = -np.inf
    (answer,) = attention(query, key, value, mask)
    assert np.isnan(answer[0]).all()
    np.testing.assert_allclose(answer[1], 1.0, rtol=1e-6)


@pytest.mark.parametrize("keys", [1, 40, 64, 128, 300])
def test_few_rows_are_in_two_blocks(attention: pt.CompiledModel, keys: int) -> None:
    """With blocks of 60 rows and no others, 61 rows took the time of 120."""
    (kernel,) = attention.kernels()
    sizes = re.search(r"x0: f32\[32\*(s\d)\*(s\d)\], x1: f32\[32\*\1\*(s\d)\]", kernel.text)
    height = re.search(r"height_kept\[0\] = i32\((.*)\)\n", kernel.text)
    assert sizes is not None and height is not None
    for rows in range(16, 400):
        known = {sizes[2]: keys, sizes[3]: rows, "min": min, "max": max}
        block = eval(height[1], known)  # noqa: S307
        assert rows <= -(-rows // block) * block < 1.1 * rows


QUERIES = [(1, 32, True), (3, 32, True), ("rows", 32, True), (3, 20, False), (9, 32, False)]


@pytest.mark.parametrize(("rows", "depth", "is_read_in_place"), QUERIES)
@pytest.mark.thinned(2)
def test_few_queries_read_keys_where_they_stand(rows: int | str, depth: int, is_read_in_place: bool) -> None:
    query = pt.variable("q", "float32", (2, rows, depth))
    key, value = (pt.variable(name, "float32", (2, "keys", depth)) for name in "kv")
    scores = pt.op("MatMul", query, pt.op("Transpose", key, perm=[0, 2, 1]))
    graph = pt.Graph([pt.op("MatMul", pt.op("Softmax", scores, axis=-1), value)], inputs=[query, key, value])
    model = pt.compile(graph, "cpu")
    for count in (1, rows if isinstance(rows, int) else 7):
        if rows not in (count, "rows"):
            continue
        random = np.random.default_rng(count)
        q, k, v = (random.standard_normal((2, length, depth), np.float32) for length in (count, 19, 19))
        powers = np.exp(q @ k.transpose(0, 2, 1))
        assert_close(model(q, k, v)[0], powers / powers.sum(-1, keepdims=True) @ v, rtol=1e-4)
    (kernel,) = model.kernels()
    assert ("lane_sums" in kernel.text) == is_read_in_place
