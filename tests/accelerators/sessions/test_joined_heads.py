"""Sessions of decoders that attend by onnxruntime's own ops, as the exports of onnxruntime-genai have them."""

from __future__ import annotations

import attrs
import numpy as np
import pytest

import partita as pt
from benchmarks.models.exports import SMALL_LLAMA, Llama, Value, numbers
from tests.accelerators.sessions.test_sessions import tokens, told_at_once
from tests.close import is_close

SIZES = attrs.evolve(SMALL_LLAMA, layers=1, width=64, position_ids=False)


class _Grouped(Llama):
    """GroupQueryAttention, which turns queries and keys itself, and is told by the mask how many positions count."""

    window, smooth = -1, 0

    def turned(self, x: Value) -> Value:
        return x

    def attend(self, layer: int, query: Value, key: Value, value: Value) -> Value:
        half = self.sizes.each // 2
        angles = np.arange(self.sizes.longest)[:, None] * 10000.0 ** (-np.arange(half) / half)
        tables = [pt.constant(table.astype(np.float32)) for table in (np.cos(angles), np.sin(angles))]
        counted = pt.op("Sub", pt.op("ReduceSum", self.mask, numbers(1), keepdims=0), numbers(1))
        total = pt.op("Gather", pt.op("Shape", self.mask), pt.constant(np.int64(1)))
        counts = [pt.op("Cast", count, to=6) for count in (counted, total)]
        flat = [self.joined_heads(x, heads) for x, heads in ((query, self.sizes.heads), (key, 2), (value, 2))]
        heads = {"num_heads": self.sizes.heads, "kv_num_heads": 2, "do_rotary": 1, "local_window_size": self.window}
        heads |= {"smooth_softmax": 1} if self.smooth else {}
        past = self.caches[2 * layer : 2 * layer + 2]
        inputs = *flat, *past, *counts, *tables
        seen = pt.op("GroupQueryAttention", *inputs, **heads, domain="com.microsoft", n_outputs=3)
        self.present += [seen[1], seen[2]]
        return seen[0]

    def joined_heads(self, x: Value, heads: int) -> Value:
        """Heads side by side."""
        return pt.op("Reshape", pt.op("Transpose", x, perm=[0, 2, 1, 3]), numbers(0, 0, heads * self.sizes.each))


class _Windowed(_Grouped):
    window = 4


class _Smooth(_Grouped):
    smooth = 1


class _Many(_Grouped):
    """MultiHeadAttention, with a head of keys for each of queries."""

    def attend(self, layer: int, query: Value, key: Value, value: Value) -> Value:
        heads = self.sizes.heads
        flat = [self.joined_heads(x, heads) for x in (query, key, value)]
        inputs = *flat, None, None, None, *self.caches[2 * layer : 2 * layer + 2]
        seen = pt.op("MultiHeadAttention", *inputs, num_heads=heads, unidirectional=1, domain="com.microsoft", n_outputs=3)
        self.present += [seen[1], seen[2]]
        return seen[0]


def graph_of(decoder: type[_Grouped]) -> pt.Graph:
    groups = SIZES.heads if decoder is _Many else SIZES.groups
    graph = decoder(attrs.evolve(SIZES, groups=groups)).graph("genai")
    return graph.evolve(opsets={"": 21, "com.microsoft": 1})


@pytest.mark.parametrize("decoder", [_Grouped, _Windowed, _Many])
@pytest.mark.thinned(4)
def test_what_is_new_is_appended(decoder: type[_Grouped]) -> None:
    graph, ids = graph_of(decoder), tokens(9, batch=2)
    session = pt.compile(graph, "cpu").session(longest=16, chunks=(4, 1))
    said = [session(part)["logits"] for part in np.split(ids, [5, 6, 7], axis=1)]
    assert session.notes == ()
    assert is_close(np.concatenate(said, axis=1), told_at_once(graph, ids))


def test_attention_that_lets_a_part_go_to_nobody_is_copied() -> None:
    graph, ids = graph_of(_Smooth), tokens(7)
    session = pt.compile(graph, "cpu").session(longest=16, chunks=(4, 1))
    said = [session(part)["logits"] for part in np.split(ids, [5, 6], axis=1)]
    (note,) = session.notes
    assert note.startswith("caches are copied: ") and "is not plain causal attention" in note
    wanted = told_at_once(graph, ids)
    assert is_close(np.concatenate(said, axis=1), wanted)
    assert not np.allclose(told_at_once(graph_of(_Grouped), ids), wanted, atol=1e-2)


def test_sequences_of_several_lengths_are_filled_up_at_their_right() -> None:
    """What a mask leaves out of a shorter sequence's cache is written over, and seen by nobody."""
    graph, ids = graph_of(_Grouped), tokens(6, batch=2)
    model, empty = pt.compile(graph, "cpu"), np.zeros((2, 2, 0, 16), np.float32)
    prompt = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    _, *past = model(ids[:, :5], prompt, empty, empty)
    said = model(ids[:, 5:], np.array([[1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 1]]), *past)["logits"]
    wanted = told_at_once(graph, ids)[0, 5], told_at_once(graph, ids[1:, [0, 1, 2, 5]])[0, 3]
    assert is_close(said[:, 0], wanted)
    session = model.session()
    session(ids[:, :5], attention_mask=prompt)
    assert is_close(session(ids[:, 5:])["logits"][:, 0], wanted)
