"""RotaryEmbedding as products: pairs of elements of each head are rotated by angles that depend on positions.

ONNX's own function computes sizes at run time, which no device here supports."""

from __future__ import annotations

from partita.graph.body_builder import BodyBuilder
from partita.graph.graph import Graph
from partita.graph.node import NodeEntry


def rotary_embedding(b: BodyBuilder) -> Graph | None:
    """The body of a RotaryEmbedding; None if the size of a head is dynamic."""
    shape, heads, x = b.type(0).shape, int(b.attr("num_heads", 0)), b.input(0)
    if shape is None or len(shape) not in (3, 4) or not isinstance(shape[-1], int) or (len(shape) == 3 and not heads):
        return None
    is_flat = len(shape) == 3
    depth = shape[-1] // heads if is_flat else shape[-1]
    if is_flat:
        x = b.Transpose(b.Reshape(x, [0, 0, heads, depth]), perm=[0, 2, 1, 3])
    tables = [b.input(1), b.input(2)]
    if b.has(3):
        tables = [b.Gather(table, b.input(3), axis=0) for table in tables]
    cos, sin = (b.Unsqueeze(table, [1]) for table in tables)
    size = int(b.attr("rotary_embedding_dim", 0)) or depth
    y = _rotated(b, x, cos, sin, size)
    if size < depth:
        y = b.Concat(y, _part(b, x, size, depth), axis=-1)
    return b.done(b.Reshape(b.Transpose(y, perm=[0, 2, 1, 3]), [0, 0, shape[-1]]) if is_flat else y)


def _part(b: BodyBuilder, x: NodeEntry, first: int, end: int, step: int = 1) -> NodeEntry:
    """Some elements of each head."""
    return b.Slice(x, [first], [end], [3], [step])


def _rotated(b: BodyBuilder, x: NodeEntry, cos: NodeEntry, sin: NodeEntry, size: int) -> NodeEntry:
    """The first `size` elements of each head, rotated: a pair is two neighbours if interleaved, else one element of each half."""
    half, is_interleaved = size // 2, bool(b.attr("interleaved", 0))
    cuts = ((0, size, 2), (1, size, 2)) if is_interleaved else ((0, half, 1), (half, size, 1))
    first, second = (_part(b, x, *cut) for cut in cuts)
    real = b.Sub(b.Mul(cos, first), b.Mul(sin, second))
    imaginary = b.Add(b.Mul(sin, first), b.Mul(cos, second))
    if not is_interleaved:
        return b.Concat(real, imaginary, axis=-1)
    return b.Reshape(b.Concat(*(b.Unsqueeze(part, [4]) for part in (real, imaginary)), axis=-1), [0, 0, 0, size])
