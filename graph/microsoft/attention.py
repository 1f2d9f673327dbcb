"""Attention as onnxruntime's optimizer and quantizer fuse it, taken apart into products, a mask and a Softmax."""

from __future__ import annotations

import math

import attrs
import numpy as np

from partita.graph.graph import Graph
from partita.graph.microsoft.writing import NoBody, NotYet, Writing
from partita.graph.node import NodeEntry

LOWEST = float(np.finfo(np.float32).min)
"""What onnxruntime adds where a key comes after the query, whatever the mask says of it."""

HEADS_FIRST = [0, 2, 1, 3]
"""From [batch, rows, heads, size] to [batch, heads, rows, size], and back."""

Past = tuple[NodeEntry, NodeEntry]
"""The keys and the values of earlier calls."""


def attention(w: Writing) -> Graph:
    """Attention: one product makes queries, keys and values."""
    product = w.op("MatMul", w.input(0), w.input(1))
    return _by_one_product(w, w.op("Add", product, w.input(2)) if w.has(2) else product, mask=3, past=4, bias=5)


def quantized(w: Writing) -> Graph:
    """QAttention: that product is one of integers."""
    product = w.op("MatMul", w.numbers(0, 3, 6), w.numbers(1, 4, 7, axis=1))
    return _by_one_product(w, w.op("Add", product, w.input(2)), mask=5, past=8, bias=None)


def of_heads(w: Writing) -> Graph:
    """MultiHeadAttention: queries, keys and values are inputs of their own."""
    if w.has(6) and w.has(8):
        return _with_buffer(w, _Slots(bias=3, mask=4, added=5, past=6, length=8, beams=9))
    past = (w.input(6), w.input(7)) if w.has(6) else None
    return w.done(*_attended(w, _parts(w, 3), (4, 5), past, _width(w, 2)))


def of_one_token(w: Writing) -> Graph:
    """DecoderMaskedMultiHeadAttention: the queries of one token see keys of another sequence, or a cache in one buffer."""
    slots = _Slots(bias=10, mask=3, added=4, past=5, length=7, beams=9)
    if w.has(slots.past):
        if not w.attr("past_present_share_buffer", 0):
            raise NoBody("a cache that grows is not known", where=w.where)
        return _with_buffer(w, slots)
    result, keys, values, scores = _attended(w, _parts(w, slots.bias), (slots.mask, None), None, _width(w, 2))
    return w.done(result, *(w.op("Identity", part) for part in (keys, values)), scores)


@attrs.frozen(slots=True)
class _Slots:
    """The inputs of an attention whose cache is one buffer: past and present have the same size."""

    bias: int
    mask: int
    added: int
    past: int
    """The keys; the values follow."""
    length: int
    """The number of positions of the buffer that count."""
    beams: int
    """For each position the beam that it belongs to."""


def _with_buffer(w: Writing, slots: _Slots) -> Graph:
    """Attention of new tokens, whose keys and values are written behind those that count."""
    if w.rank(1) != 3:
        raise NoBody("a cache in one buffer is not known beside keys of another sequence", where=w.where)
    if w.has(slots.beams) and w.has(slots.added) and (w.type(slots.added).shape or ())[:1] != (1,):
        raise NoBody("a bias for each row of the batch is not known beside beams", where=w.where)
    queries, *new = _parts(w, slots.bias)
    length = w.op("Reshape", w.op("Cast", w.input(slots.length), to=7), w.array([1]))
    old = [w.input(slots.past), w.input(slots.past + 1)]
    places = w.op("Reshape", w.op("Add", _counted(w, new[0]), length), w.array([1, 1, -1, 1]))
    present = [
        w.op("ScatterElements", buffer, w.op("Expand", places, w.op("Shape", part)), part, axis=2)
        for buffer, part in zip(old, new, strict=True)
    ]
    seen = [w.op("Slice", buffer, w.array([0]), length, w.array([2])) for buffer in old]
    if w.has(slots.beams):
        seen = [_of_beams(w, w.input(slots.beams), length, part) for part in seen]
    result, _, _, scores = _attended(w, [queries, *new], (slots.mask, slots.added), (seen[0], seen[1]), _width(w, 2))
    return w.done(result, *present, scores)


def _of_beams(w: Writing, beams: NodeEntry, length: NodeEntry, past: NodeEntry) -> NodeEntry:
    """For each beam the keys or values of the beams that its positions belong to."""
    used = w.op("Slice", w.op("Cast", beams, to=7), w.array([0]), length, w.array([2]))
    whole = w.op("Shape", past)
    rest = w.op("Slice", whole, w.array([1]), w.array([4]))
    apart = w.op("Concat", w.op("Slice", w.op("Shape", beams), w.array([0]), w.array([2])), rest, axis=0)
    indices = w.op("Expand", w.op("Unsqueeze", used, w.array([2, 4])), apart)
    return w.op("Reshape", w.op("GatherElements", w.op("Reshape", past, apart), indices, axis=1), whole)


def _by_one_product(w: Writing, product: NodeEntry, mask: int, past: int, bias: int | None) -> Graph:
    """Attention to the parts of one product; the keys and values of earlier calls are one value."""
    for name in ("past_present_share_buffer", "do_rotary"):
        if w.attr(name, 0):
            raise NoBody(f"its attribute {name} is {w.attr(name, 0)}, and only 0 is known", where=w.where)
    size, heads = _head_size(w), _head_count(w)
    sizes = [int(one) for one in w.attr("qkv_hidden_sizes", ())] or [size * heads] * 3
    parts = w.ops("Split", 3, product, w.array(sizes), axis=2)
    given = [w.transposed(_in_heads(w, part, heads, width), HEADS_FIRST) for part, width in zip(parts, sizes, strict=True)]
    old = [w.op("Gather", w.input(past), w.array(i), axis=0) for i in range(2)] if w.has(past) else []
    result, keys, values, _ = _attended(w, given, (mask, bias), (old[0], old[1]) if old else None, sizes[2])
    if len(w.node.output_names) == 1:
        return w.done(result)
    both = [w.op("Unsqueeze", part, w.array([0])) for part in (keys, values)]
    return w.done(result, w.op("Concat", *both, axis=0))


def _parts(w: Writing, bias: int) -> list[NodeEntry]:
    """Queries, keys and values as [batch, heads, rows, size], with their bias, which is the input of that number."""
    heads = _head_count(w)
    if w.rank(0) != 3 or not w.has(1) or not w.has(2):
        raise NoBody("queries, keys and values that are one value are not known", where=w.where)
    if w.rank(1) == 4:  # those of another sequence, whose bias, if any, they have already
        queries = _in_heads(w, w.input(0), heads, _width(w, 0))
        queries = w.op("Add", queries, _biases(w, bias, heads)[0]) if w.has(bias) else queries
        return [w.transposed(queries, HEADS_FIRST), w.input(1), w.input(2)]
    given = [_in_heads(w, w.input(i), heads, _width(w, i)) for i in range(3)]
    if w.has(bias):
        given = [w.op("Add", part, added) for part, added in zip(given, _biases(w, bias, heads), strict=True)]
    return [w.transposed(part, HEADS_FIRST) for part in given]


def _biases(w: Writing, i: int, heads: int) -> list[NodeEntry]:
    """The bias of queries, keys and values, as [heads, size]."""
    total, width = w.type(i).shape, heads * _head_size(w)
    if total is None or not isinstance(total[0], int):
        raise NotYet("the size of its bias is unknown", where=w.where)
    parts = w.ops("Split", 3, w.input(i), w.array([width, width, total[0] - 2 * width]), axis=0)
    return [w.op("Reshape", part, w.array([heads, -1])) for part in parts]


def _in_heads(w: Writing, x: NodeEntry, heads: int, width: int) -> NodeEntry:
    """The rows of a value cut into heads: [batch, rows, heads, size]."""
    return w.op("Reshape", x, w.array([0, 0, heads, width // heads if width > 0 else -1]))


def _width(w: Writing, i: int) -> int:
    """The size of all heads of an input; -1 where it is unknown, which a Reshape takes unless there are no rows."""
    shape = w.type(i).shape or (None,)
    size = shape[-1]
    return size * (_head_count(w) if len(shape) == 4 else 1) if isinstance(size, int) else -1


def _attended(
    w: Writing, given: list[NodeEntry], added: tuple[int, int | None], past: Past | None, width: int
) -> tuple[NodeEntry, NodeEntry, NodeEntry, NodeEntry]:
    """The attention's result [batch, rows, heads times size], all keys and values, and the scores.

    `added` are the inputs that a mask and a bias of the scores are in, `width` the size of the result's rows."""
    queries, keys, values = given
    if past is not None:
        keys, values = (w.op("Concat", old, new, axis=2) for old, new in zip(past, (keys, values), strict=True))
    scores = w.op("Mul", w.op("MatMul", queries, w.op("Transpose", keys, perm=[0, 1, 3, 2])), _scale(w))
    mask, bias = added
    filtered = _mask(w, mask, keys)
    if w.attr("unidirectional", 0) and (w.type(0).shape or ())[1:2] != (1,):
        filtered = _without_later(w, queries, (keys, given[1]), filtered)
    for addend in (filtered, w.input(bias) if bias is not None and w.has(bias) else None):
        scores = scores if addend is None else w.op("Add", scores, addend)
    seen = w.op("MatMul", w.op("Softmax", scores, axis=-1), values)
    return w.op("Reshape", w.transposed(seen, HEADS_FIRST), w.array([0, 0, width])), keys, values, scores


def _scale(w: Writing) -> NodeEntry:
    """The factor of the scores: as given, or one over the root of a head's size."""
    given = float(w.attr("scale", 0.0))
    return w.array(given or 1 / math.sqrt(_head_size(w)), np.float32)


def _head_count(w: Writing) -> int:
    heads = int(w.attr("num_heads", 0))
    if heads < 1:
        raise NoBody(f"its attribute num_heads is {heads}, and at least 1 is needed", where=w.where)
    return heads


def _head_size(w: Writing) -> int:
    """How many numbers a head of the queries has."""
    heads, sizes = _head_count(w), w.attr("qkv_hidden_sizes", ())
    if sizes:
        return w.head_size(int(sizes[0]), heads)
    by_one_product = w.node.op in ("Attention", "QAttention")
    shape = w.type(1 if by_one_product else 0).shape
    if shape is None or not isinstance(shape[-1], int):
        raise NotYet("the size of its heads is unknown", where=w.where)
    return w.head_size(shape[-1], 3 * heads if by_one_product else heads)


def _mask(w: Writing, i: int, keys: NodeEntry) -> NodeEntry | None:
    """What a mask adds to the scores: nothing, or its filter value where a key is not looked at."""
    if not w.has(i):
        return None
    rank, mask, filtered = w.rank(i), w.input(i), float(w.attr("mask_filter_value", -10000.0))
    if rank == 1:
        seen = _within(w, i, keys)
    elif rank in (2, 3):
        seen = w.op("Greater", w.op("Unsqueeze", mask, w.array([1, 2] if rank == 2 else [1])), w.array(0, np.int32))
    else:
        raise NoBody(f"a mask of {rank} dimensions is not known", where=w.where)
    return w.op("Where", seen, w.array(0.0, np.float32), w.array(filtered, np.float32))


def _within(w: Writing, i: int, keys: NodeEntry) -> NodeEntry:
    """Which keys lie before the end that a mask of one dimension gives for each row of the batch, and after its beginning."""
    batch, sizes = w.type(0).shape, w.type(i).shape
    if batch is None or sizes is None or not isinstance(batch[0], int) or sizes[0] not in (batch[0], 2 * batch[0]):
        raise NotYet("how long its mask is, is unknown, or is neither one nor two numbers for each row", where=w.where)
    positions = w.op("Cast", _counted(w, keys), to=6)
    ends = w.op("Slice", w.input(i), w.array([0]), w.array([batch[0]]), w.array([0]))
    seen = w.op("Less", positions, w.op("Reshape", ends, w.array([-1, 1, 1, 1])))
    if sizes[0] == batch[0]:
        return seen
    starts = w.op("Slice", w.input(i), w.array([batch[0]]), w.array([2 * batch[0]]), w.array([0]))
    return w.op("And", seen, w.op("GreaterOrEqual", positions, w.op("Reshape", starts, w.array([-1, 1, 1, 1]))))


def _without_later(w: Writing, queries: NodeEntry, keys: tuple[NodeEntry, NodeEntry], mask: NodeEntry | None) -> NodeEntry:
    """What is added to the scores: that of the mask, and the lowest number in its place where a key comes after the query.

    `keys` are all keys and the new ones. A query stands beside the new key of its number; as in onnxruntime, the last query sees
    all keys, of which there may be more than queries."""
    columns, rows = _counted(w, keys[0]), _counted(w, queries)
    total, new = (_rows(w, entry) for entry in keys)
    is_last = w.op("Equal", rows, w.op("Sub", _rows(w, queries), w.array(1)))
    last = w.op("Where", is_last, total, w.op("Add", rows, w.op("Sub", total, new)))
    seen = w.op("LessOrEqual", w.op("Unsqueeze", columns, w.array([0])), w.op("Unsqueeze", last, w.array([1])))
    return w.op("Where", seen, w.array(0.0, np.float32) if mask is None else mask, w.array(LOWEST, np.float32))


def _rows(w: Writing, x: NodeEntry) -> NodeEntry:
    """How many rows the heads of a value have."""
    return w.op("Gather", w.op("Shape", x), w.array(2))


def _counted(w: Writing, x: NodeEntry) -> NodeEntry:
    """The numbers of these rows, from 0."""
    return w.op("Range", w.array(0), _rows(w, x), w.array(1))
