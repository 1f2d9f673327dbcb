"""Attention as onnxruntime's optimizer and quantizer fuse it, decomposed into products, a mask and a Softmax."""

from __future__ import annotations

import math

import numpy as np

from partita.graph.body_builder import BodyBuilder, NoBody, NotYet
from partita.graph.graph import Graph
from partita.graph.microsoft.table import meaning
from partita.graph.node import NodeEntry

LOWEST = float(np.finfo(np.float32).min)
"""The number that onnxruntime adds to the score of a key after the query, in place of the mask."""

HEADS_FIRST = [0, 2, 1, 3]
"""From [batch, rows, heads, size] to [batch, heads, rows, size], and back."""

ONE_PRODUCT = "do_rotary mask_filter_value num_heads past_present_share_buffer scale unidirectional"
"""The attributes of attentions whose queries, keys and values come from one product."""

Past = tuple[NodeEntry, NodeEntry]
"""The keys and the values of earlier calls."""


@meaning("Attention", 14, f"{ONE_PRODUCT} qkv_hidden_sizes rotary_embedding_dim")
def attention(b: BodyBuilder) -> Graph:
    """Attention: queries, keys and values come from one product."""
    product = b.MatMul(b.input(0), b.input(1))
    return _by_one_product(b, b.Add(product, b.input(2)) if b.has(2) else product, mask=3, past=4, bias=5)


@meaning("QAttention", 14, ONE_PRODUCT)
def quantized(b: BodyBuilder) -> Graph:
    """QAttention: Attention whose product is of quantized values."""
    product = b.MatMul(b.dequantized(0, 3, 6), b.dequantized(1, 4, 7, axis=1))
    return _by_one_product(b, b.Add(product, b.input(2)), mask=5, past=8, bias=None)


@meaning("MultiHeadAttention", 14, "mask_filter_value num_heads scale unidirectional")
def of_heads(b: BodyBuilder) -> Graph:
    """MultiHeadAttention: queries, keys and values are separate inputs."""
    if b.has(6) and b.has(8):
        return _with_buffer(b, bias=3, mask=4, added=5, past=6, length=8, beams=9)
    past = (b.input(6), b.input(7)) if b.has(6) else None
    return b.done(*_attended(b, _parts(b, 3), (4, 5), past, _width(b, 2)))


@meaning("DecoderMaskedMultiHeadAttention", 14, "mask_filter_value num_heads scale output_qk past_present_share_buffer")
def of_one_token(b: BodyBuilder) -> Graph:
    """DecoderMaskedMultiHeadAttention: the query of one token attends to another sequence, or to a cache in one buffer."""
    if b.has(5):
        if not b.attr("past_present_share_buffer", 0):
            raise NoBody("a growing cache is not supported", where=b.where)
        return _with_buffer(b, bias=10, mask=3, added=4, past=5, length=7, beams=9)
    result, keys, values, scores = _attended(b, _parts(b, 10), (3, None), None, _width(b, 2))
    return b.done(result, *(b.Identity(part) for part in (keys, values)), scores)


def _with_buffer(b: BodyBuilder, bias: int, mask: int, added: int, past: int, length: int, beams: int) -> Graph:
    """Attention whose cache is one buffer: keys and values of new tokens are written after its valid positions, so that past
    and present have the same size. The arguments are indices of inputs; `past` is that of the keys, which the values follow."""
    if b.rank(1) != 3:
        raise NoBody("a cache in one buffer is not supported together with keys of another sequence", where=b.where)
    if b.has(beams) and b.has(added) and (b.type(added).shape or ())[:1] != (1,):
        raise NoBody("a bias for each row of the batch is not supported together with beams", where=b.where)
    queries, *new = _parts(b, bias)
    count = b.Reshape(b.Cast(b.input(length), to="int64"), [1])
    old = [b.input(past), b.input(past + 1)]
    places = b.Reshape(b.Add(_row_numbers(b, new[0]), count), [1, 1, -1, 1])
    present = [
        b.ScatterElements(buffer, b.Expand(places, b.Shape(part)), part, axis=2)
        for buffer, part in zip(old, new, strict=True)
    ]
    seen = [b.Slice(buffer, [0], count, [2]) for buffer in old]
    if b.has(beams):
        seen = [_of_beams(b, b.input(beams), count, part) for part in seen]
    result, _, _, scores = _attended(b, [queries, *new], (mask, added), (seen[0], seen[1]), _width(b, 2))
    return b.done(result, *present, scores)


def _of_beams(b: BodyBuilder, beams: NodeEntry, length: NodeEntry, past: NodeEntry) -> NodeEntry:
    """The keys or values of each beam, gathered from the beams that its positions belong to."""
    owners = b.Slice(b.Cast(beams, to="int64"), [0], length, [2])
    shape = b.Shape(past)
    rest = b.Slice(shape, [1], [4])
    by_beam = b.Concat(b.Slice(b.Shape(beams), [0], [2]), rest, axis=0)
    indices = b.Expand(b.Unsqueeze(owners, [2, 4]), by_beam)
    return b.Reshape(b.GatherElements(b.Reshape(past, by_beam), indices, axis=1), shape)


def _by_one_product(b: BodyBuilder, product: NodeEntry, mask: int, past: int, bias: int | None) -> Graph:
    """Attention whose queries, keys and values are parts of one product; past keys and values are one input."""
    for name in ("past_present_share_buffer", "do_rotary"):
        if b.attr(name, 0):
            raise NoBody(f"its attribute {name} is {b.attr(name, 0)}; only 0 is supported", where=b.where)
    size, heads = _head_size(b), _head_count(b)
    sizes = [int(one) for one in b.attr("qkv_hidden_sizes", ())] or [size * heads] * 3
    parts = b.ops("Split", 3, product, sizes, axis=2)
    given = [b.transposed(_in_heads(b, part, heads, width), HEADS_FIRST) for part, width in zip(parts, sizes, strict=True)]
    old = [b.Gather(b.input(past), i, axis=0) for i in range(2)] if b.has(past) else []
    result, keys, values, _ = _attended(b, given, (mask, bias), (old[0], old[1]) if old else None, sizes[2])
    if len(b.node.output_names) == 1:
        return b.done(result)
    both = [b.Unsqueeze(part, [0]) for part in (keys, values)]
    return b.done(result, b.Concat(*both, axis=0))


def _parts(b: BodyBuilder, bias: int) -> list[NodeEntry]:
    """Queries, keys and values as [batch, heads, rows, size], plus their bias, which is input number `bias`."""
    heads = _head_count(b)
    if b.rank(0) != 3 or not b.has(1) or not b.has(2):
        raise NoBody("queries, keys and values in one value are not supported", where=b.where)
    if b.rank(1) == 4:  # keys and values of another sequence include their bias
        queries = _in_heads(b, b.input(0), heads, _width(b, 0))
        queries = b.Add(queries, _biases(b, bias, heads)[0]) if b.has(bias) else queries
        return [b.transposed(queries, HEADS_FIRST), b.input(1), b.input(2)]
    given = [_in_heads(b, b.input(i), heads, _width(b, i)) for i in range(3)]
    if b.has(bias):
        given = [b.Add(part, added) for part, added in zip(given, _biases(b, bias, heads), strict=True)]
    return [b.transposed(part, HEADS_FIRST) for part in given]


def _biases(b: BodyBuilder, i: int, heads: int) -> list[NodeEntry]:
    """The bias of queries, keys and values, as [heads, size]."""
    total, width = b.type(i).shape, heads * _head_size(b)
    if total is None or not isinstance(total[0], int):
        raise NotYet("the size of its bias is unknown", where=b.where)
    parts = b.ops("Split", 3, b.input(i), [width, width, total[0] - 2 * width], axis=0)
    return [b.Reshape(part, [heads, -1]) for part in parts]


def _in_heads(b: BodyBuilder, x: NodeEntry, heads: int, width: int) -> NodeEntry:
    """The rows of a value split into heads: [batch, rows, heads, size]."""
    return b.Reshape(x, [0, 0, heads, width // heads if width > 0 else -1])


def _width(b: BodyBuilder, i: int) -> int:
    """The total size of an input's heads; -1 if it is unknown, which Reshape accepts unless there are no rows."""
    shape = b.type(i).shape or (None,)
    size = shape[-1]
    return size * (_head_count(b) if len(shape) == 4 else 1) if isinstance(size, int) else -1


def _attended(
    b: BodyBuilder, given: list[NodeEntry], added: tuple[int, int | None], past: Past | None, width: int
) -> tuple[NodeEntry, NodeEntry, NodeEntry, NodeEntry]:
    """The attention's result [batch, rows, heads * size], all keys and values, and the scores.

    `added` holds the indices of two inputs, the mask and the bias of the scores; `width` is the size of the result's rows."""
    queries, keys, values = given
    if past is not None:
        keys, values = (b.Concat(old, new, axis=2) for old, new in zip(past, (keys, values), strict=True))
    scores = b.Mul(b.MatMul(queries, b.Transpose(keys, perm=[0, 1, 3, 2])), _scale(b))
    mask, bias = added
    filtered = _mask(b, mask, keys)
    if b.attr("unidirectional", 0) and (b.type(0).shape or ())[1:2] != (1,):
        filtered = _without_later(b, queries, (keys, given[1]), filtered)
    for addend in (filtered, None if bias is None else b.optional(bias)):
        scores = scores if addend is None else b.Add(scores, addend)
    seen = b.MatMul(b.Softmax(scores, axis=-1), values)
    return b.Reshape(b.transposed(seen, HEADS_FIRST), [0, 0, width]), keys, values, scores


def _scale(b: BodyBuilder) -> NodeEntry:
    """The factor of the scores: the attribute, or 1 / sqrt(head size)."""
    given = float(b.attr("scale", 0.0))
    return b.constant(given or 1 / math.sqrt(_head_size(b)), np.float32)


def _head_count(b: BodyBuilder) -> int:
    heads = int(b.attr("num_heads", 0))
    if heads < 1:
        raise NoBody(f"its attribute num_heads is {heads}, and at least 1 is needed", where=b.where)
    return heads


def _head_size(b: BodyBuilder) -> int:
    """The size of a query head."""
    heads, sizes = _head_count(b), b.attr("qkv_hidden_sizes", ())
    if sizes:
        return head_size(b, int(sizes[0]), heads)
    by_one_product = b.node.op in ("Attention", "QAttention")
    shape = b.type(1 if by_one_product else 0).shape
    if shape is None or not isinstance(shape[-1], int):
        raise NotYet("the size of its heads is unknown", where=b.where)
    return head_size(b, shape[-1], 3 * heads if by_one_product else heads)


def head_size(b: BodyBuilder, width: int, heads: int) -> int:
    """The size of a head if `heads` of them make a row of this width."""
    if not 0 < heads <= width or width % heads:
        raise NoBody(f"rows of {width} numbers cannot be divided into {heads} heads", where=b.where)
    return width // heads


def _mask(b: BodyBuilder, i: int, keys: NodeEntry) -> NodeEntry | None:
    """The summand of the scores from a mask: 0, or the filter value for a masked key; None without a mask."""
    if not b.has(i):
        return None
    rank, mask, filtered = b.rank(i), b.input(i), float(b.attr("mask_filter_value", -10000.0))
    if rank == 1:
        seen = _within(b, i, keys)
    elif rank in (2, 3):
        seen = b.Greater(b.Unsqueeze(mask, [1, 2] if rank == 2 else [1]), b.constant(0, np.int32))
    else:
        raise NoBody(f"a mask of {rank} dimensions is not supported", where=b.where)
    return b.Where(seen, b.constant(0.0, np.float32), b.constant(filtered, np.float32))


def _within(b: BodyBuilder, i: int, keys: NodeEntry) -> NodeEntry:
    """The mask of a one-dimensional input, which holds the end of the visible keys of each batch row, and perhaps the start."""
    batch, sizes = b.type(0).shape, b.type(i).shape
    if batch is None or sizes is None or not isinstance(batch[0], int) or sizes[0] not in (batch[0], 2 * batch[0]):
        raise NotYet("its mask has an unknown size, or not one or two numbers for each row of the batch", where=b.where)
    positions = b.Cast(_row_numbers(b, keys), to="int32")
    ends = b.Slice(b.input(i), [0], [batch[0]], [0])
    seen = b.Less(positions, b.Reshape(ends, [-1, 1, 1, 1]))
    if sizes[0] == batch[0]:
        return seen
    starts = b.Slice(b.input(i), [batch[0]], [2 * batch[0]], [0])
    return b.And(seen, b.GreaterOrEqual(positions, b.Reshape(starts, [-1, 1, 1, 1])))


def _without_later(b: BodyBuilder, queries: NodeEntry, keys: tuple[NodeEntry, NodeEntry], mask: NodeEntry | None) -> NodeEntry:
    """The summand of the scores with a causal mask: that of `mask`, or the lowest number for a key after the query.

    `keys` are all keys, and the new ones. Query i is at the position of new key i. As in onnxruntime, the last query sees all
    keys, even if there are more new keys than queries."""
    columns, rows = _row_numbers(b, keys[0]), _row_numbers(b, queries)
    total, new = (_rows(b, entry) for entry in keys)
    is_last = b.Equal(rows, b.Sub(_rows(b, queries), 1))
    last = b.Where(is_last, total, b.Add(rows, b.Sub(total, new)))
    seen = b.LessOrEqual(b.Unsqueeze(columns, [0]), b.Unsqueeze(last, [1]))
    return b.Where(seen, b.constant(0.0, np.float32) if mask is None else mask, b.constant(LOWEST, np.float32))


def _rows(b: BodyBuilder, x: NodeEntry) -> NodeEntry:
    """Number of rows of each head."""
    return b.Gather(b.Shape(x), 2)


def _row_numbers(b: BodyBuilder, x: NodeEntry) -> NodeEntry:
    """The row numbers of a value, from 0."""
    return b.Range(0, _rows(b, x), 1)
