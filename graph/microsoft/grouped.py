"""Decompositions of GroupQueryAttention, as in the exports of onnxruntime-genai, and of RotaryEmbedding.

Each head of keys and values serves a group of neighbouring query heads. The caller passes the number of valid positions of each
sequence after the call: new keys and values are written after the positions that were valid before, within the cache."""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs
import numpy as np

from partita.graph.body_builder import BodyBuilder, NoBody, NotYet, Operand
from partita.graph.graph import Graph
from partita.graph.microsoft.attention import HEADS_FIRST, head_size
from partita.graph.microsoft.table import meaning
from partita.graph.node import NodeEntry
from partita.graph.types import TensorType, Type

PLAIN = {"sliding_window_cache": 0, "qk_output": 0, "causal": 1, "kv_cache_bit_width": 0}
"""The attributes that are supported only with this value."""

SINKS = 11
"""The input with one attention sink per head: an additional score in its Softmax."""

FIRST_UNKNOWN = 12
"""The first of the unsupported inputs: scales of quantized caches, norms."""


@attrs.frozen(slots=True)
class _Read:
    """The operands of a node: queries, keys and values as [batch, heads, rows, size]."""

    queries: NodeEntry
    keys: NodeEntry
    values: NodeEntry
    positions: NodeEntry
    """The position of each new token, [batch, rows]."""
    heads: int
    groups: int


def attention_types(b: BodyBuilder) -> Sequence[Type]:
    """The types of GroupQueryAttention's results."""
    shape, size = b.type(0).shape, _size(b)
    heads, groups = (int(b.attr(name, 0)) for name in ("num_heads", "kv_num_heads"))
    if shape is None or len(shape) != 3:
        raise NotYet("queries must have three dimensions", where=b.where)
    past = (b.type(3).shape or (None,) * 3)[2] if b.has(3) else 0
    total = past + shape[1] if isinstance(past, int) and isinstance(shape[1], int) else None
    dtype = b.type(0).dtype
    cache = TensorType(dtype, (shape[0], groups, shape[1] if past == 0 else total, size))
    return [TensorType(dtype, (*shape[:2], heads * size)), cache, cache][: len(b.node.output_names)]


@meaning(
    "GroupQueryAttention", 13,
    "causal do_rotary k_quant_type kv_cache_bit_width kv_num_heads local_window_size num_heads qk_norm_epsilon qk_output"
    " rotary_interleaved scale sliding_window_cache smooth_softmax softcap v_quant_type",
    attention_types,
)
def attention(b: BodyBuilder) -> Graph:
    """GroupQueryAttention on a cache in which unused positions follow the valid ones."""
    read = _read(b)
    places = _places(b, read)
    keys, values = (_written(b, i, new, read, places) for i, new in ((3, read.keys), (4, read.values)))
    apart = b.Reshape(read.queries, [0, read.groups, read.heads // read.groups, -1, _size(b)])
    beside = [b.Unsqueeze(joined, [2]) for joined in (keys, values)]
    scores = b.MatMul(apart, b.Transpose(beside[0], perm=[0, 1, 2, 4, 3]))
    scores = _capped(b, scores)
    if b.has(10):
        scores = b.Add(scores, _bias(b, read))
    hidden = b.Where(_seen(b, read, keys), b.like(0, 0.0), b.like(0, -np.inf))
    scores = b.Add(scores, b.Unsqueeze(hidden, [2]))
    mixed = b.MatMul(_shares(b, scores, [1, read.groups, read.heads // read.groups, 1, 1]), beside[1])
    whole = b.Reshape(mixed, [0, read.heads, -1, _size(b)])
    return b.done(_side_by_side(b, whole), keys, values)


def appended(b: BodyBuilder) -> Graph:
    """GroupQueryAttention on a cache whose positions are all valid, so that new ones are concatenated to it."""
    read = _read(b)
    if b.has(10) or not b.has(3):
        raise NoBody("a bias, or a missing cache, is not supported", where=b.where)
    keys, values = (b.Concat(b.input(i), new, axis=2) for i, new in ((3, read.keys), (4, read.values)))
    scores = b.MatMul(read.queries, b.Transpose(_repeated(b, read, keys), perm=[0, 1, 3, 2]))
    hidden = b.Where(_seen(b, read, keys), _capped(b, scores), b.like(0, -np.inf))
    mixed = b.MatMul(_shares(b, hidden, [1, read.heads, 1, 1]), _repeated(b, read, values))
    return b.done(_side_by_side(b, mixed), keys, values)


def _repeated(b: BodyBuilder, read: _Read, x: NodeEntry) -> NodeEntry:
    """Each head repeated for each query head of its group."""
    spread = b.Expand(b.Unsqueeze(x, [2]), [1, 1, read.heads // read.groups, 1, 1])
    return b.Reshape(spread, [0, read.heads, -1, _size(b)])


def _shares(b: BodyBuilder, scores: NodeEntry, heads: Sequence[int]) -> NodeEntry:
    """The softmax of the scores; `heads` is a shape that broadcasts one number per head to the scores. With sinks, or with
    smooth_softmax, which means sinks of zero, it includes one more column, which is dropped afterwards."""
    if not b.has(SINKS) and int(b.attr("smooth_softmax", 0)) != 1:
        return b.Softmax(scores, axis=-1)
    one = [1] * len(heads)
    sinks = b.Reshape(b.input(SINKS), heads) if b.has(SINKS) else b.Reshape(b.like(0, 0.0), one)
    sizes = b.Slice(b.Shape(scores), [0], [-1])
    column = b.Expand(sinks, b.Concat(sizes, [1], axis=0))
    shares = b.Softmax(b.Concat(scores, column, axis=-1), axis=-1)
    return b.Slice(shares, [0], [-1], [-1])


def _capped(b: BodyBuilder, scores: NodeEntry) -> NodeEntry:
    """The scores, scaled and soft-capped: cap · tanh(score / cap)."""
    scores, cap = b.Mul(scores, b.like(0, _scale(b))), float(b.attr("softcap", 0.0))
    return b.Mul(b.Tanh(b.Div(scores, b.like(0, cap))), b.like(0, cap)) if cap else scores


@meaning("RotaryEmbedding", 13, "interleaved is_packed_batching num_heads rotary_embedding_dim scale")
def rotary(b: BodyBuilder) -> Graph:
    """RotaryEmbedding: queries or keys rotated by the angles of their positions, of which all or the first are an input."""
    if b.attr("is_packed_batching", 0) or float(b.attr("scale", 1.0)) != 1.0:
        raise NoBody("packed sequences and a scale are not supported", where=b.where)
    x, is_flat, heads = b.input(0), b.rank(0) == 3, int(b.attr("num_heads", 0))
    width = (b.type(0).shape or (None,))[-1]
    if not isinstance(width, int):
        raise NotYet("the size of its heads is unknown", where=b.where)
    size = width
    if is_flat:
        size = head_size(b, width, heads) if heads else 2 * _half(b, 2)
        if not size or width % size:
            raise NoBody(f"rows of {width} numbers cannot be divided into heads of {size}", where=b.where)
        x = b.transposed(b.Reshape(x, [0, 0, width // size, size]), HEADS_FIRST)
    positions = b.input(1)
    if b.rank(1) == 1:
        counted = b.Range(0, b.Gather(b.Shape(x), 2), 1)
        positions = b.Unsqueeze(b.Add(counted, positions), [0])
    turned = rotated(b, x, positions, (2, 3), 2 * _half(b, 2), size, bool(b.attr("interleaved", 0)))
    return b.done(_side_by_side(b, turned) if is_flat else turned)


# -- what is read ----------------------------------------------------------------------------------------


def _read(b: BodyBuilder) -> _Read:
    for name, plain in PLAIN.items():
        if int(b.attr(name, plain)) != plain:
            raise NoBody(f"its attribute {name} is {b.attr(name, plain)}; only {plain} is supported", where=b.where)
    if any(b.attr(name, "NONE") != "NONE" for name in ("k_quant_type", "v_quant_type")):
        raise NoBody("a cache of integers is not supported", where=b.where)
    unknown = [i for i in range(FIRST_UNKNOWN, len(b.node.inputs)) if b.has(i)]
    if unknown or b.has(9):
        raise NoBody(f"its input {(unknown or [9])[0]} is not supported", where=b.where)
    heads, groups = int(b.attr("num_heads", 0)), int(b.attr("kv_num_heads", 0))
    if heads < 1 or groups < 1 or heads % groups:
        raise NoBody(f"{heads} heads of queries and {groups} of keys do not go together", where=b.where)
    parts = (b.input(0), b.input(1), b.input(2)) if b.has(1) else _unpacked(b, heads, groups)
    counts = (heads, groups, groups)
    given = [
        b.transposed(b.Reshape(part, [0, 0, count, _size(b)]), HEADS_FIRST)
        for part, count in zip(parts, counts, strict=True)
    ]
    rows = b.Gather(b.Shape(b.input(0)), [1])
    ends = b.Add(b.Reshape(b.Cast(b.input(5), to="int64"), [-1]), 1)
    start = b.Max(b.Sub(ends, rows), 0)
    counted = _counted(b, rows)
    positions = b.Add(b.Unsqueeze(start, [1]), b.Unsqueeze(counted, [0]))
    if b.attr("do_rotary", 0):
        is_beside = bool(b.attr("rotary_interleaved", 0))
        given[:2] = [rotated(b, part, positions, (7, 8), 2 * _half(b, 7), _size(b), is_beside) for part in given[:2]]
    return _Read(given[0], given[1], given[2], positions, heads, groups)


def _counted(b: BodyBuilder, rows: NodeEntry) -> Operand:
    """The numbers of the new tokens from 0; a constant if there is a static number of them, so that the size of rotated values is
    static too: an unknown size might broadcast a dimension of 1."""
    shape = b.type(0).shape
    if shape is not None and isinstance(shape[1], int):
        return np.arange(shape[1])
    return b.Range(0, b.Squeeze(rows, [0]), 1)


def _unpacked(b: BodyBuilder, heads: int, groups: int) -> tuple[NodeEntry, ...]:
    """Queries, keys and values, split from one packed value."""
    size = _size(b)
    return b.ops("Split", 3, b.input(0), [heads * size, groups * size, groups * size], axis=2)


def _size(b: BodyBuilder) -> int:
    """The size of a head."""
    heads, groups, shape = int(b.attr("num_heads", 0)), int(b.attr("kv_num_heads", 0)), b.type(0).shape
    if shape is None or not isinstance(shape[-1], int):
        raise NotYet("the size of its heads is unknown", where=b.where)
    return head_size(b, shape[-1], heads if b.has(1) else heads + 2 * groups)


def _scale(b: BodyBuilder) -> float:
    return float(b.attr("scale", 0.0)) or 1 / math.sqrt(_size(b))


# -- the cache, and what is seen of it -------------------------------------------------------------------


def _places(b: BodyBuilder, read: _Read) -> NodeEntry:
    """Indices of the new keys in the cache, as (sequence, head, position) for each of them."""
    sequences = b.Range(0, b.Gather(b.Shape(b.input(0)), 0), 1)
    numbers = (
        b.Unsqueeze(sequences, [1, 2, 3]),
        np.arange(read.groups).reshape(1, -1, 1, 1),
        b.Unsqueeze(_checked(b, read.positions), [1, 3]),
    )
    return b.Concat(*(b.Expand(number, _of_new(b, read, 1)) for number in numbers), axis=-1)


def _checked(b: BodyBuilder, positions: NodeEntry) -> NodeEntry:
    """The positions, or invalid ones if the total length that the caller passes is not that of the past plus the new tokens.

    onnxruntime then takes the cache for one buffer, in which present is as long as past: its length depends on a value."""
    if not b.has(3):
        return positions
    past, rows = (b.Gather(b.Shape(b.input(i)), axis) for i, axis in ((3, 2), (0, 1)))
    total = b.Reshape(b.Cast(b.input(6), to="int64"), [1])
    length = b.Add(past, rows)
    return b.Where(b.Equal(total, length), positions, length)


def _of_new(b: BodyBuilder, read: _Read, size: int) -> NodeEntry:
    """The shape [batch, groups, rows, size] of new keys."""
    sizes = b.Shape(b.input(0))
    batch, rows = (b.Gather(sizes, [axis]) for axis in (0, 1))
    return b.Concat(batch, [read.groups], rows, [size], axis=0)


def _written(b: BodyBuilder, i: int, new: NodeEntry, read: _Read, places: NodeEntry) -> NodeEntry:
    """A cache with the new keys or values written after the valid positions of each sequence."""
    if not b.has(i):
        return new
    room = b.Expand(b.like(0, 0.0), _of_new(b, read, _size(b)))
    return b.ScatterND(b.Concat(b.input(i), room, axis=2), places, new)


def _seen(b: BodyBuilder, read: _Read, keys: NodeEntry) -> NodeEntry:
    """Mask [batch, 1, rows, positions] of what each new token sees: positions up to its own, or a window of the last of these."""
    columns = b.Range(0, b.Gather(b.Shape(keys), 2), 1)
    own, window = b.Unsqueeze(read.positions, [1, 3]), int(b.attr("local_window_size", -1))
    seen = b.LessOrEqual(columns, own)
    return b.And(seen, b.Greater(b.Add(columns, window), own)) if window > 0 else seen


def _bias(b: BodyBuilder, read: _Read) -> NodeEntry:
    """The bias of the scores, shared by all heads or per head."""
    shape = b.type(10).shape
    if shape is None or len(shape) != 4 or shape[1] not in (1, read.heads):
        raise NotYet("the shape of its attention_bias is unknown", where=b.where)
    apart = [1, 1] if shape[1] == 1 else [read.groups, read.heads // read.groups]
    sizes = b.Shape(b.input(10))
    ends = [b.Slice(sizes, [first], [last]) for first, last in ((0, 1), (2, 4))]
    return b.Reshape(b.input(10), b.Concat(ends[0], apart, ends[1], axis=0))


def _side_by_side(b: BodyBuilder, x: NodeEntry) -> NodeEntry:
    return b.Reshape(b.transposed(x, HEADS_FIRST), [0, 0, -1])


# -- turning ---------------------------------------------------------------------------------------------


def _half(b: BodyBuilder, table: int) -> int:
    """Number of rotated pairs of a head."""
    shape = b.type(table).shape
    if shape is None or not isinstance(shape[-1], int):
        raise NotYet("the size of its table of cosines is unknown", where=b.where)
    return shape[-1]


def rotated(
    b: BodyBuilder, x: NodeEntry, positions: NodeEntry | None, tables: tuple[int, int], turning: int, size: int,
    is_interleaved: bool,
) -> NodeEntry:
    """The first `turning` elements of each head in pairs, each rotated by its angle; the others unchanged.

    A pair is two neighbours if interleaved, else one element of each half. `tables` are the inputs with cosines and sines, of
    which the rows at the positions are read, or all."""
    half = turning // 2

    def rows(i: int) -> NodeEntry:
        return b.Unsqueeze(b.input(i) if positions is None else b.Gather(b.input(i), positions), [1])

    def part(first: int, last: Operand, step: int = 1) -> NodeEntry:
        return b.Slice(x, [first], last, [-1], [step])

    cosines, sines = map(rows, tables)
    end = b.constant([turning])
    pair = (part(0, end, 2), part(1, end, 2)) if is_interleaved else (part(0, [half]), part(half, end))
    real = b.Sub(b.Mul(cosines, pair[0]), b.Mul(sines, pair[1]))
    imaginary = b.Add(b.Mul(sines, pair[0]), b.Mul(cosines, pair[1]))
    if is_interleaved:
        beside = b.Concat(*(b.Unsqueeze(one, [-1]) for one in (real, imaginary)), axis=-1)
        turned = b.Reshape(beside, [0, 0, 0, -1])
    else:
        turned = b.Concat(real, imaginary, axis=-1)
    return turned if turning == size else b.Concat(turned, part(turning, [size]), axis=-1)
