"""GroupQueryAttention, as the exports of onnxruntime-genai have it, and RotaryEmbedding, taken apart.

Each head of keys and values serves as many neighbouring heads of queries. What a caller says of the cache is how many positions
of each sequence count in the end: new keys and values stand behind those that counted before, wherever that is in the cache."""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs
import numpy as np

from partita.graph.graph import Graph
from partita.graph.microsoft.writing import NoBody, NotYet, Writing
from partita.graph.node import NodeEntry
from partita.graph.types import TensorType, Type

HEADS_FIRST = [0, 2, 1, 3]
"""From [batch, rows, heads, size] to [batch, heads, rows, size], and back."""

PLAIN = {"sliding_window_cache": 0, "qk_output": 0, "causal": 1, "kv_cache_bit_width": 0}
"""The attributes that say something else only with another value."""

SINKS = 11
"""The input with a number for each head that takes part in its Softmax beside the scores."""

FIRST_UNKNOWN = 12
"""The first input of several that are not known: scales of narrow caches, norms."""


@attrs.frozen(slots=True)
class _Read:
    """What a node reads: queries, keys and values as [batch, heads, rows, size]."""

    queries: NodeEntry
    keys: NodeEntry
    values: NodeEntry
    positions: NodeEntry
    """The position of each new token, [batch, rows]."""
    heads: int
    groups: int


def attention(w: Writing) -> Graph:
    """GroupQueryAttention; what does not count in a cache is behind what does."""
    read = _read(w)
    places = _places(w, read)
    keys, values = (_written(w, i, new, read, places) for i, new in ((3, read.keys), (4, read.values)))
    apart = w.op("Reshape", read.queries, w.array([0, read.groups, read.heads // read.groups, -1, _size(w)]))
    beside = [w.op("Unsqueeze", joined, w.array([2])) for joined in (keys, values)]
    scores = w.op("MatMul", apart, w.op("Transpose", beside[0], perm=[0, 1, 2, 4, 3]))
    scores = _capped(w, scores)
    if w.has(10):
        scores = w.op("Add", scores, _bias(w, read))
    hidden = w.op("Where", _seen(w, read, keys), w.like(0, 0.0), w.like(0, -np.inf))
    scores = w.op("Add", scores, w.op("Unsqueeze", hidden, w.array([2])))
    mixed = w.op("MatMul", _shares(w, scores, [1, read.groups, read.heads // read.groups, 1, 1]), beside[1])
    whole = w.op("Reshape", mixed, w.array([0, read.heads, -1, _size(w)]))
    return w.done(_side_by_side(w, whole), keys, values)


def appended(w: Writing) -> Graph:
    """The same where all positions of the cache count, so that new ones are joined to it."""
    read = _read(w)
    if w.has(10) or not w.has(3):
        raise NoBody("a bias, or no cache, is not known here", where=w.where)
    keys, values = (w.op("Concat", w.input(i), new, axis=2) for i, new in ((3, read.keys), (4, read.values)))
    scores = w.op("MatMul", read.queries, w.op("Transpose", _repeated(w, read, keys), perm=[0, 1, 3, 2]))
    hidden = w.op("Where", _seen(w, read, keys), _capped(w, scores), w.like(0, -np.inf))
    mixed = w.op("MatMul", _shares(w, hidden, [1, read.heads, 1, 1]), _repeated(w, read, values))
    return w.done(_side_by_side(w, mixed), keys, values)


def _repeated(w: Writing, read: _Read, x: NodeEntry) -> NodeEntry:
    """Each head as often as heads of queries read it."""
    spread = w.op("Expand", w.op("Unsqueeze", x, w.array([2])), w.array([1, 1, read.heads // read.groups, 1, 1]))
    return w.op("Reshape", spread, w.array([0, read.heads, -1, _size(w)]))


def _shares(w: Writing, scores: NodeEntry, heads: Sequence[int]) -> NodeEntry:
    """What each position gets of each head; `heads` says in which dimension of the scores these stand. Where there are sinks, or
    it is smooth, which means zeros, one more number takes part, whose share nobody gets."""
    if not w.has(SINKS) and int(w.attr("smooth_softmax", 0)) != 1:
        return w.op("Softmax", scores, axis=-1)
    one = [1] * len(heads)
    sinks = w.op("Reshape", w.input(SINKS), w.array(heads)) if w.has(SINKS) else w.op("Reshape", w.like(0, 0.0), w.array(one))
    sizes = w.op("Slice", w.op("Shape", scores), w.array([0]), w.array([-1]))
    column = w.op("Expand", sinks, w.op("Concat", sizes, w.array([1]), axis=0))
    shares = w.op("Softmax", w.op("Concat", scores, column, axis=-1), axis=-1)
    return w.op("Slice", shares, w.array([0]), w.array([-1]), w.array([-1]))


def _capped(w: Writing, scores: NodeEntry) -> NodeEntry:
    """The scores, scaled, and bent towards a number that none is above."""
    scores, cap = w.op("Mul", scores, w.like(0, _scale(w))), float(w.attr("softcap", 0.0))
    return w.op("Mul", w.op("Tanh", w.op("Div", scores, w.like(0, cap))), w.like(0, cap)) if cap else scores


def rotary(w: Writing) -> Graph:
    """RotaryEmbedding: queries or keys turned by the angles of their positions, which are given, or the first of them is."""
    if w.attr("is_packed_batching", 0) or float(w.attr("scale", 1.0)) != 1.0:
        raise NoBody("packed sequences, and a scale, are not known", where=w.where)
    x, is_flat, heads = w.input(0), w.rank(0) == 3, int(w.attr("num_heads", 0))
    width = (w.type(0).shape or (None,))[-1]
    if not isinstance(width, int):
        raise NotYet("the size of its heads is unknown", where=w.where)
    size = width
    if is_flat:
        size = w.head_size(width, heads) if heads else 2 * _half(w, 2)
        if not size or width % size:
            raise NoBody(f"rows of {width} numbers cannot be divided into heads of {size}", where=w.where)
        x = w.transposed(w.op("Reshape", x, w.array([0, 0, width // size, size])), HEADS_FIRST)
    positions = w.input(1)
    if w.rank(1) == 1:
        counted = w.op("Range", w.array(0), w.op("Gather", w.op("Shape", x), w.array(2)), w.array(1))
        positions = w.op("Unsqueeze", w.op("Add", counted, positions), w.array([0]))
    turned = _turned(w, x, positions, (2, 3), size, bool(w.attr("interleaved", 0)))
    return w.done(_side_by_side(w, turned) if is_flat else turned)


def attention_types(w: Writing) -> Sequence[Type]:
    """The types of GroupQueryAttention's results."""
    shape, size = w.type(0).shape, _size(w)
    heads, groups = (int(w.attr(name, 0)) for name in ("num_heads", "kv_num_heads"))
    if shape is None or len(shape) != 3:
        raise NotYet("queries of other than three dimensions are not known", where=w.where)
    past = (w.type(3).shape or (None,) * 3)[2] if w.has(3) else 0
    total = past + shape[1] if isinstance(past, int) and isinstance(shape[1], int) else None
    dtype = w.type(0).dtype
    cache = TensorType(dtype, (shape[0], groups, shape[1] if past == 0 else total, size))
    return [TensorType(dtype, (*shape[:2], heads * size)), cache, cache][: len(w.node.output_names)]


# -- what is read ----------------------------------------------------------------------------------------


def _read(w: Writing) -> _Read:
    for name, plain in PLAIN.items():
        if int(w.attr(name, plain)) != plain:
            raise NoBody(f"its attribute {name} is {w.attr(name, plain)}, and only {plain} is known", where=w.where)
    if any(w.attr(name, "NONE") != "NONE" for name in ("k_quant_type", "v_quant_type")):
        raise NoBody("a cache of integers is not known", where=w.where)
    unknown = [i for i in range(FIRST_UNKNOWN, len(w.node.inputs)) if w.has(i)]
    if unknown or w.has(9):
        raise NoBody(f"its input {(unknown or [9])[0]} is not known", where=w.where)
    heads, groups = int(w.attr("num_heads", 0)), int(w.attr("kv_num_heads", 0))
    if heads < 1 or groups < 1 or heads % groups:
        raise NoBody(f"{heads} heads of queries and {groups} of keys do not go together", where=w.where)
    parts = [w.input(i) for i in range(3)] if w.has(1) else _unpacked(w, heads, groups)
    counts = (heads, groups, groups)
    given = [
        w.transposed(w.op("Reshape", part, w.array([0, 0, count, _size(w)])), HEADS_FIRST)
        for part, count in zip(parts, counts, strict=True)
    ]
    rows = w.op("Gather", w.op("Shape", w.input(0)), w.array([1]))
    ends = w.op("Add", w.op("Reshape", w.op("Cast", w.input(5), to=7), w.array([-1])), w.array(1))
    start = w.op("Max", w.op("Sub", ends, rows), w.array(0))
    counted = _counted(w, rows)
    positions = w.op("Add", w.op("Unsqueeze", start, w.array([1])), w.op("Unsqueeze", counted, w.array([0])))
    if w.attr("do_rotary", 0):
        is_beside = bool(w.attr("rotary_interleaved", 0))
        given[:2] = [_turned(w, part, positions, (7, 8), _size(w), is_beside) for part in given[:2]]
    return _Read(given[0], given[1], given[2], positions, heads, groups)


def _counted(w: Writing, rows: NodeEntry) -> NodeEntry:
    """The numbers of the new tokens. Where these are known, so is the size of what is turned by them: a dimension of 1 would take
    any."""
    shape = w.type(0).shape
    if shape is not None and isinstance(shape[1], int):
        return w.array(np.arange(shape[1]))
    return w.op("Range", w.array(0), w.op("Squeeze", rows, w.array([0])), w.array(1))


def _unpacked(w: Writing, heads: int, groups: int) -> list[NodeEntry]:
    """Queries, keys and values that stand side by side in one value."""
    size = _size(w)
    return w.ops("Split", 3, w.input(0), w.array([heads * size, groups * size, groups * size]), axis=2)


def _size(w: Writing) -> int:
    """How many numbers a head has."""
    heads, groups, shape = int(w.attr("num_heads", 0)), int(w.attr("kv_num_heads", 0)), w.type(0).shape
    if shape is None or not isinstance(shape[-1], int):
        raise NotYet("the size of its heads is unknown", where=w.where)
    return w.head_size(shape[-1], heads if w.has(1) else heads + 2 * groups)


def _scale(w: Writing) -> float:
    return float(w.attr("scale", 0.0)) or 1 / math.sqrt(_size(w))


# -- the cache, and what is seen of it -------------------------------------------------------------------


def _places(w: Writing, read: _Read) -> NodeEntry:
    """Where new keys go, for each of them: its sequence, its head and its position."""
    sequences = w.op("Range", w.array(0), w.op("Gather", w.op("Shape", w.input(0)), w.array(0)), w.array(1))
    numbers = (
        w.op("Unsqueeze", sequences, w.array([1, 2, 3])),
        w.array(np.arange(read.groups).reshape(1, -1, 1, 1)),
        w.op("Unsqueeze", _checked(w, read.positions), w.array([1, 3])),
    )
    return w.op("Concat", *(w.op("Expand", number, _of_new(w, read, 1)) for number in numbers), axis=-1)


def _checked(w: Writing, positions: NodeEntry) -> NodeEntry:
    """The positions, or such as no cache has if the total length that a caller states is not that of the past and what is new.

    onnxruntime then takes the cache for one buffer, in which present is as long as past: its length is stated by a value."""
    if not w.has(3):
        return positions
    past, rows = (w.op("Gather", w.op("Shape", w.input(i)), w.array(axis)) for i, axis in ((3, 2), (0, 1)))
    total = w.op("Reshape", w.op("Cast", w.input(6), to=7), w.array([1]))
    length = w.op("Add", past, rows)
    return w.op("Where", w.op("Equal", total, length), positions, length)


def _of_new(w: Writing, read: _Read, size: int) -> NodeEntry:
    """The shape of new keys, with so many numbers for each."""
    sizes = w.op("Shape", w.input(0))
    batch, rows = (w.op("Gather", sizes, w.array([axis])) for axis in (0, 1))
    return w.op("Concat", batch, w.array([read.groups]), rows, w.array([size]), axis=0)


def _written(w: Writing, i: int, new: NodeEntry, read: _Read, places: NodeEntry) -> NodeEntry:
    """A cache with what is new written behind what counts of each sequence."""
    if not w.has(i):
        return new
    room = w.op("Expand", w.like(0, 0.0), _of_new(w, read, _size(w)))
    return w.op("ScatterND", w.op("Concat", w.input(i), room, axis=2), places, new)


def _seen(w: Writing, read: _Read, keys: NodeEntry) -> NodeEntry:
    """Which positions each new token sees, [batch, 1, rows, positions]: up to its own, or a window of the last of these."""
    columns = w.op("Range", w.array(0), w.op("Gather", w.op("Shape", keys), w.array(2)), w.array(1))
    own, window = w.op("Unsqueeze", read.positions, w.array([1, 3])), int(w.attr("local_window_size", -1))
    seen = w.op("LessOrEqual", columns, own)
    return w.op("And", seen, w.op("Greater", w.op("Add", columns, w.array(window)), own)) if window > 0 else seen


def _bias(w: Writing, read: _Read) -> NodeEntry:
    """What is added to the scores, for all heads or for each."""
    shape = w.type(10).shape
    if shape is None or len(shape) != 4 or shape[1] not in (1, read.heads):
        raise NotYet("the shape of its attention_bias is unknown", where=w.where)
    apart = [1, 1] if shape[1] == 1 else [read.groups, read.heads // read.groups]
    sizes = w.op("Shape", w.input(10))
    ends = [w.op("Slice", sizes, w.array([first]), w.array([last])) for first, last in ((0, 1), (2, 4))]
    return w.op("Reshape", w.input(10), w.op("Concat", ends[0], w.array(apart), ends[1], axis=0))


def _side_by_side(w: Writing, x: NodeEntry) -> NodeEntry:
    return w.op("Reshape", w.transposed(x, HEADS_FIRST), w.array([0, 0, -1]))


# -- turning ---------------------------------------------------------------------------------------------


def _half(w: Writing, table: int) -> int:
    """How many pairs of numbers are turned."""
    shape = w.type(table).shape
    if shape is None or not isinstance(shape[-1], int):
        raise NotYet("the size of its table of cosines is unknown", where=w.where)
    return shape[-1]


def _turned(
    w: Writing, x: NodeEntry, positions: NodeEntry, tables: tuple[int, int], size: int, is_interleaved: bool
) -> NodeEntry:
    """Each pair of numbers of a head turned by its angle; those behind all pairs as they are."""
    half = _half(w, tables[0])
    cosines, sines = (w.op("Unsqueeze", w.op("Gather", w.input(i), positions), w.array([1])) for i in tables)

    def part(first: int, last: NodeEntry, step: int = 1) -> NodeEntry:
        return w.op("Slice", x, w.array([first]), last, w.array([-1]), w.array([step]))

    both = w.array([2 * half])
    pair = (part(0, both, 2), part(1, both, 2)) if is_interleaved else (part(0, w.array([half])), part(half, both))
    real = w.op("Sub", w.op("Mul", cosines, pair[0]), w.op("Mul", sines, pair[1]))
    other = w.op("Add", w.op("Mul", sines, pair[0]), w.op("Mul", cosines, pair[1]))
    if is_interleaved:
        beside = w.op("Concat", *(w.op("Unsqueeze", one, w.array([-1])) for one in (real, other)), axis=-1)
        turned = w.op("Reshape", beside, w.array([0, 0, 0, -1]))
    else:
        turned = w.op("Concat", real, other, axis=-1)
    return turned if 2 * half == size else w.op("Concat", turned, part(2 * half, w.array([size])), axis=-1)
