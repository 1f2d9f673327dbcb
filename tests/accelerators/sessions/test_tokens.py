"""Tokens of a prompt are read in pieces only where that says the same as the prompt as a whole."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import numpy as np
import pytest

import partita as pt
from benchmarks.models.exports import SMALL, SMALL_LLAMA, gpt2, llama
from partita.accelerators.decoder.input_roles import Roles, roles_of
from partita.accelerators.decoder.kv_pairs import find_caches
from partita.accelerators.decoder.tokens import FEW, token_axes
from tests.close import is_close

End = Callable[[pt.Node], pt.Node]


def at(*numbers: int) -> pt.Node:
    return pt.constant(np.array(numbers))


def decoder(end: End, *read: pt.Node) -> pt.Graph:
    """One attention, and what `end` makes of what it says, and of further inputs."""
    random = np.random.default_rng(7)

    def weights(*shape: int) -> pt.Node:
        return pt.constant(random.standard_normal(shape, np.float32))

    ids = pt.variable("ids", "int64", ("batch", "sequence"))
    past = [pt.variable(name, "float32", ("batch", 2, "past", 8)) for name in ("past_keys", "past_values")]
    x = pt.op("Gather", weights(40, 16), ids)
    products = [pt.op("Reshape", pt.op("MatMul", x, weights(16, 16)), at(0, 0, 2, 8)) for _ in range(3)]
    query, key, value = (pt.op("Transpose", product, perm=[0, 2, 1, 3]) for product in products)
    seen = pt.op("Attention", query, key, value, None, *past, is_causal=1, n_outputs=3, opset=24)
    joined = pt.op("Reshape", pt.op("Transpose", seen[0], perm=[0, 2, 1, 3]), at(0, 0, -1))
    outputs = [end(pt.op("Add", x, joined)), seen[1], seen[2]]
    return pt.Graph(outputs, [ids, *past, *read], opsets={"": 24}, output_names=["y", "keys", "values"])


def last_by_slice(x: pt.Node) -> pt.Node:
    return pt.op("Relu", pt.op("Slice", x, at(-1), at(2**63 - 1), at(1)))


def last_by_gather(x: pt.Node) -> pt.Node:
    return pt.op("Gather", x, pt.constant(np.array(-1)), axis=1)


def rows_in_front(x: pt.Node) -> pt.Node:
    return pt.op("Transpose", x, perm=[1, 0, 2])


def cut_above(x: pt.Node) -> pt.Node:
    return pt.op("Clip", x, None, pt.constant(np.float32(1)))


def largest(x: pt.Node) -> pt.Node:
    return pt.op("ReduceMax", x, at(1), keepdims=0)


def share(x: pt.Node) -> pt.Node:
    return pt.op("Softmax", x, axis=1)


def sum_so_far(x: pt.Node) -> pt.Node:
    return pt.op("CumSum", x, pt.constant(np.array(1)))


def beside_the_last(x: pt.Node) -> pt.Node:
    return pt.op("Sub", x, last_by_slice(x))


def all_products(x: pt.Node) -> pt.Node:
    return pt.op("MatMul", x, pt.op("Transpose", x, perm=[0, 2, 1]))


def other_rows(x: pt.Node) -> pt.Node:
    return pt.op("Reshape", pt.op("Transpose", x, perm=[0, 2, 1]), at(0, -1, 16))


def roles(graph: pt.Graph) -> Roles:
    return roles_of(graph, find_caches(graph))


APART: list[tuple[End, tuple[int | None]]] = [
    (last_by_slice, (None,)), (last_by_gather, (None,)), (rows_in_front, (0,)), (cut_above, (1,)),
]
TOGETHER: list[End] = [largest, share, sum_so_far, beside_the_last, all_products, other_rows]


@pytest.mark.parametrize(("end", "axes"), APART)
def test_tokens_that_stay_apart_are_known(end: End, axes: tuple[int | None]) -> None:
    assert token_axes(roles(decoder(end))) == axes


@pytest.mark.parametrize("end", TOGETHER)
def test_an_op_that_joins_tokens_is_known(end: End) -> None:
    assert token_axes(roles(decoder(end))) is None


def before_the_end(x: pt.Node, count: int) -> pt.Node:
    """The position so many tokens before the end, computed from the size."""
    return pt.op("Sub", pt.op("Gather", pt.op("Shape", x), at(1)), at(count))


def one(x: pt.Node, position: pt.Node) -> pt.Node:
    return pt.op("Gather", x, position, axis=1)


def part(x: pt.Node, first: pt.Node, end: pt.Node, step: int = 1) -> pt.Node:
    return pt.op("Slice", x, first, end, at(1), at(step))


THE_LAST: list[End] = [
    lambda x: one(x, before_the_end(x, 1)),
    lambda x: one(x, pt.op("Squeeze", before_the_end(x, 1))),
    lambda x: part(x, before_the_end(x, 1), at(2**63 - 1)),
    lambda x: part(x, before_the_end(x, 1), before_the_end(x, 0)),
    lambda x: part(x, at(-1), before_the_end(x, 0)),
    lambda x: part(x, at(-1), at(2**31 - 1)),
]
NOT_THE_LAST: list[End] = [
    lambda x: one(x, before_the_end(x, 2)),
    lambda x: one(x, at(0)),
    lambda x: one(x, at(FEW - 1)),
    lambda x: one(x, at(-2)),
    lambda x: one(x, at(-1, -1)),
    lambda x: part(x, before_the_end(x, 2), at(2**63 - 1)),
    lambda x: part(x, at(-2), at(2**63 - 1)),
    lambda x: part(x, at(0), at(1)),
    lambda x: part(x, at(-1), at(FEW)),
    lambda x: part(x, at(-2), before_the_end(x, 1)),
    lambda x: part(x, at(-1), at(-(2**31)), -1),
]


def test_of_a_position_that_is_computed_it_is_known_whether_it_is_the_last() -> None:
    assert [token_axes(roles(decoder(end))) for end in THE_LAST] == [(None,)] * len(THE_LAST)
    assert [token_axes(roles(decoder(end))) for end in NOT_THE_LAST] == [None] * len(NOT_THE_LAST)
    assert token_axes(roles(decoder(lambda x: pt.op("Gather", x, at(-1), axis=2)))) == (1,), "the last channel"


def test_what_an_encoder_read_keeps_tokens_apart() -> None:
    """Cross attention has the tokens as queries alone; how long the encoder's part is says nothing of the conversation."""
    read = pt.variable("read", "float32", ("read_batch", "read", 16))

    def cross(x: pt.Node) -> pt.Node:
        weights = pt.op("Softmax", pt.op("MatMul", x, pt.op("Transpose", read, perm=[0, 2, 1])), axis=-1)
        return pt.op("MatMul", weights, read)

    assert token_axes(roles(decoder(cross, read))) == (1,)


def test_a_mask_of_what_an_encoder_read_is_asked_for() -> None:
    """As long as the encoder's states, it is not a mask of the tokens said, which a session fills in."""
    read = pt.variable("read", "float32", ("batch", "read", 16))
    counted = pt.variable("read_mask", "int64", ("batch", "read"))

    def cross(x: pt.Node) -> pt.Node:
        hidden = pt.op("Where", pt.op("Cast", pt.op("Unsqueeze", counted, at(1)), to=9), *map(pt.constant, np.float32([0, -1e9])))
        scores = pt.op("MatMul", x, pt.op("Transpose", read, perm=[0, 2, 1]))
        return pt.op("MatMul", pt.op("Softmax", pt.op("Add", scores, hidden), axis=-1), read)

    graph, random = decoder(cross, read, counted), np.random.default_rng(0)
    assert [node.name for node in roles(graph).asked] == ["ids", "read", "read_mask"]
    states, mask = random.standard_normal((1, 9, 16), np.float32), np.array([[1] * 6 + [0] * 3])
    ids, empty = random.integers(0, 40, (1, 6)), np.zeros((1, 2, 0, 8), np.float32)
    wanted = pt.compile(graph, "reference")(ids, empty, empty, states, mask)["y"]
    session = pt.compile(graph, "cpu").session(longest=16, chunks=(4, 1))
    said = [session(part, states, mask)["y"] for part in (ids[:, :5], ids[:, 5:])]
    assert is_close(np.concatenate(said, axis=1), wanted, atol=1e-4)


@pytest.mark.parametrize("style", ["ops", "op"])
def test_exports_are_read_in_pieces(style: str) -> None:
    for make, sizes in ((gpt2, SMALL), (llama, SMALL_LLAMA)):
        assert token_axes(roles(make(attrs.evolve(sizes, layers=1, style=style)))) == (1,)


@pytest.mark.parametrize("end", [last_by_slice, rows_in_front, largest])
@pytest.mark.thinned(2)
def test_a_prompt_in_pieces_says_the_same_as_the_whole(end: End) -> None:
    graph, ids = decoder(end), np.random.default_rng(0).integers(0, 40, (2, 7))
    empty = np.zeros((2, 2, 0, 8), np.float32)
    with pt.compile(graph, "cpu") as model:
        for count in (3, 7):
            session = model.session(longest=16, chunks=(4, 1))
            said, wanted = session(ids[:, :count])["y"], pt.compile(graph, "reference")(ids[:, :count], empty, empty)["y"]
            assert session.notes == ()
            assert said.shape == wanted.shape
            assert is_close(said, wanted, atol=1e-4)
