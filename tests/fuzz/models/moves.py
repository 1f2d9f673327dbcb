"""Recipes: what moves numbers and computes none: shapes, slices, indices."""

from __future__ import annotations

import math

import numpy as np

import partita as pt
from partita.graph.types import Array
from tests.fuzz.models.builder import Builder
from tests.fuzz.models.elementwise import CODES
from tests.fuzz.models.recipes import recipe


def ranked(array: Array) -> bool:
    """Is it no scalar?"""
    return array.ndim > 0


def filled(array: Array) -> bool:
    """Is it no scalar, and not empty?"""
    return array.ndim > 0 and array.size > 0


@recipe("Transpose")
def transpose(b: Builder, op: str) -> None:
    """Transpose with any order of the axes."""
    given = b.tensor(b.dtype(op))
    rank = b.array(given).ndim
    b.add(op, given, perm=b.rng.sample(range(rank), rank) if rank and b.chance(0.85) else None)


@recipe("Reshape")
def reshape(b: Builder, op: str) -> None:
    """Other sizes of the same product, one of them perhaps left open or copied."""
    given = b.tensor(b.dtype(op), when=lambda array: bool(array.size))
    sizes = factors(b, b.array(given).size)
    shape: list[int] = list(sizes)
    old = b.shape(given)
    if shape and b.chance(0.4):
        shape[b.rng.randrange(len(shape))] = -1
    elif b.chance(0.4):
        shape = [0 if i < len(old) and old[i] == size else size for i, size in enumerate(shape)]
    b.add(op, given, b.numbers(*shape))


def factors(b: Builder, size: int) -> list[int]:
    """Some numbers whose product is the size."""
    listed, left = [], size
    for _ in range(b.choice(0, 1, 2, 3)):
        divisors = [n for n in range(1, left + 1) if left % n == 0]
        listed.append(b.rng.choice(divisors))
        left //= listed[-1]
    listed.append(left)
    b.rng.shuffle(listed)
    return [] if size == 1 and b.chance(0.2) else listed


@recipe("Flatten")
def flatten(b: Builder, op: str) -> None:
    """Into a matrix."""
    given = b.tensor(b.dtype(op), when=ranked)
    rank = b.array(given).ndim
    b.add(op, given, axis=b.rng.randint(-rank if b.opset >= 11 else 0, rank))


@recipe("Squeeze")
def squeeze(b: Builder, op: str) -> None:
    """Sizes of one go."""
    given = b.tensor(b.dtype(op))
    ones = [i for i, size in enumerate(b.shape(given)) if size == 1]
    rank = b.array(given).ndim
    if not ones or b.chance(0.2):
        b.add(op, given)
        return
    axes = [i - rank if b.opset >= 11 and b.chance(0.3) else i for i in b.rng.sample(ones, b.rng.randint(1, len(ones)))]
    if "axes" in b.spec(op).attributes:
        b.add(op, given, axes=axes)
    else:
        b.add(op, given, b.numbers(*axes))


@recipe("Unsqueeze")
def unsqueeze(b: Builder, op: str) -> None:
    """Sizes of one come."""
    given = b.tensor(b.dtype(op))
    rank = b.array(given).ndim
    count = b.choice(1, 1, 2)
    axes = b.rng.sample(range(rank + count), count)
    axes = [axis - rank - count if b.opset >= 11 and b.chance(0.3) else axis for axis in axes]
    if "axes" in b.spec(op).attributes:
        b.add(op, given, axes=axes)
    else:
        b.add(op, given, b.numbers(*axes))


@recipe("Concat")
def concat(b: Builder, op: str) -> None:
    """Several that differ in one size."""
    first = b.tensor(b.dtype(op), when=ranked)
    axis = b.axis(b.array(first).ndim)
    shape = list(b.shape(first))
    rest = []
    for _ in range(b.choice(0, 1, 1, 2, 3)):
        shape[axis] = b.choice(1, 2, 3, 5)
        rest.append(b.tensor(b.array(first).dtype.name, tuple(shape)))
    b.add(op, first, *rest, axis=axis)


@recipe("Split")
def split(b: Builder, op: str) -> None:
    """Into parts, equal or not."""
    given = b.tensor(b.dtype(op), when=filled)
    axis = b.axis(b.array(given).ndim)
    size = b.shape(given)[axis]
    count = b.rng.randint(1, min(size, 4))
    cuts = sorted(b.rng.choices(range(size + 1), k=count - 1))
    parts = [int(n) for n in np.diff([0, *cuts, size])]
    if "split" in b.spec(op).attributes:
        b.add(op, given, n_outputs=count, axis=axis, split=parts)
    elif b.opset >= 18 and b.chance(0.4) and (count - 1) * -(-size // count) < size:
        b.add(op, given, n_outputs=count, axis=axis, num_outputs=count)
    else:
        b.add(op, given, b.numbers(*parts), n_outputs=count, axis=axis)


@recipe("Slice")
def slices(b: Builder, op: str) -> None:
    """Slice with starts and ends beyond the sizes, and steps in both directions."""
    given = b.tensor(b.dtype(op), when=ranked)
    rank = b.array(given).ndim
    axes = b.rng.sample(range(rank), b.rng.randint(1, rank))
    bounds = [[b.rng.choice((-99, -3, -2, -1, 0, 1, 2, 3, 5, 99, 2**31 - 1)) for _ in axes] for _ in range(2)]
    steps = [b.rng.choice((1, 1, 1, 2, 3, -1, -2)) for _ in axes]
    if "starts" in b.spec(op).attributes:
        b.add(op, given, starts=bounds[0], ends=bounds[1], axes=axes)
        return
    named = [axis - rank if b.opset >= 11 and b.chance(0.3) else axis for axis in axes]
    b.add(op, given, b.numbers(*bounds[0]), b.numbers(*bounds[1]), b.numbers(*named), b.numbers(*steps))


@recipe("Pad")
def pad(b: Builder, op: str) -> None:
    """Pad at all sides; negative pads take away."""
    given = b.tensor(b.dtype(op), when=filled)
    shape, mode = (
        b.shape(given),
        b.choice("constant", "constant", "reflect", "edge", "wrap" if b.opset >= 19 else "edge"),
    )
    most = [
        min(size - 1, 3) if mode == "reflect" else 3 if mode == "constant" else min(size, 2) for size in shape
    ]
    amounts = [b.rng.randint(0, n) for n in (*most, *most)]
    if mode == "constant" and b.chance(0.2):
        position = b.rng.randrange(len(amounts))
        amounts[position] = -min(1, shape[position % len(shape)] - 1)
    if "pads" in b.spec(op).attributes:
        b.add(op, given, pads=amounts, mode=mode, value=b.choice(None, 1.5))
        return
    dtype = b.array(given).dtype.name
    value = b.given(b.random.array(dtype, ())) if mode == "constant" and b.chance(0.5) else None
    b.add(op, given, b.numbers(*amounts), *((value,) if value is not None else ()), mode=mode)


@recipe("Expand")
def expand(b: Builder, op: str) -> None:
    """Broadcast to sizes."""
    given = b.tensor(b.dtype(op))
    shape = [b.choice(1, 2, 3) if size == 1 else b.choice(1, size) for size in b.shape(given)]
    b.add(op, given, b.numbers(*[b.choice(1, 2) for _ in range(b.choice(0, 0, 1))], *shape))


@recipe("Tile")
def tile(b: Builder, op: str) -> None:
    """Repeated."""
    given = b.tensor(b.dtype(op), when=ranked)
    b.add(op, given, b.numbers(*[b.choice(1, 1, 2, 3) for _ in b.shape(given)]))


@recipe("Shape Size")
def measures(b: Builder, op: str) -> None:
    """Sizes as numbers."""
    given = b.tensor(b.dtype(op))
    rank = b.array(given).ndim
    ends = {"start": b.choice(None, 0, 1, -1), "end": b.choice(None, rank, -1, 99)} if b.opset >= 15 else {}
    b.add(op, given, **ends)


@recipe("Gather")
def gather(b: Builder, op: str) -> None:
    """Places along an axis, counted from either end."""
    given = b.tensor(b.dtype(op), when=filled)
    axis = b.axis(b.array(given).ndim)
    size = b.shape(given)[axis]
    low = -size if b.opset >= 11 else 0
    b.add(
        op,
        given,
        b.given(b.random.within(b.choice("int64", "int32"), b.random.shape(b.choice(0, 1, 2)), low, size)),
        axis=axis,
    )


@recipe("GatherElements ScatterElements")
def elements(b: Builder, op: str) -> None:
    """A place for each number, in a window that may be smaller than the data."""
    given = b.tensor(b.dtype(op), when=filled)
    shape = b.shape(given)
    axis = b.axis(len(shape))
    sizes = [b.rng.randint(1, size) for size in shape]
    if op == "GatherElements" or b.chance(0.3):
        sizes[axis] = b.choice(1, 2, 5)
    indices = b.random.within(b.choice("int64", "int32"), tuple(sizes), -shape[axis], shape[axis])
    if op == "GatherElements":
        b.add(op, given, b.given(indices), axis=axis)
        return
    reduction = b.choice(None, None, "add", "mul", "max", "min")
    if reduction is None or reduction not in reductions(b):
        reduction = None
        indices = distinct(b, shape, tuple(sizes), axis)
    updates = b.tensor(b.array(given).dtype.name, indices.shape)
    b.add(op, given, b.given(indices), updates, axis=axis, reduction=reduction)


def reductions(b: Builder) -> tuple[str, ...]:
    """What a scatter may do with a place that is met twice."""
    return ("add", "mul", "max", "min") if b.opset >= 18 else ("add", "mul") if b.opset >= 16 else ()


def distinct(b: Builder, shape: tuple[int, ...], sizes: tuple[int, ...], axis: int) -> Array:
    """Places of which no two along the axis are one: which of two updates stays is not defined."""
    axis %= len(shape)
    sizes = (*sizes[:axis], min(sizes[axis], shape[axis]), *sizes[axis + 1 :])
    result = np.empty(sizes, "int64")
    lines = np.moveaxis(result, axis, -1)
    for position in np.ndindex(lines.shape[:-1]):
        lines[position] = b.rng.sample(range(shape[axis]), sizes[axis])
    return result - (shape[axis] if b.chance(0.3) else 0)


@recipe("GatherND")
def gather_nd(b: Builder, op: str) -> None:
    """Places over several axes."""
    given = b.tensor(b.dtype(op), when=filled)
    shape = b.shape(given)
    batch = b.rng.randint(0, len(shape) - 1) if b.opset >= 12 and b.chance(0.3) else 0
    depth = b.rng.randint(1, len(shape) - batch)
    lead = (*shape[:batch], *b.random.shape(b.choice(0, 1, 2)))
    parts = [b.random.within("int64", lead, -size, size) for size in shape[batch : batch + depth]]
    b.add(op, given, b.given(np.stack(parts, axis=-1)), batch_dims=batch or None)


@recipe("ScatterND")
def scatter_nd(b: Builder, op: str) -> None:
    """Slices put in at distinct places."""
    given = b.tensor(b.dtype(op), when=filled)
    shape = b.shape(given)
    depth = b.rng.randint(1, len(shape))
    every = math.prod(shape[:depth])
    count = b.rng.randint(1, min(every, 5))
    places = b.rng.sample(range(every), count)
    indices = np.stack(np.unravel_index(places, shape[:depth]), axis=-1).astype("int64")
    reduction = b.choice(None, *reductions(b))
    updates = b.tensor(b.array(given).dtype.name, (count, *shape[depth:]))
    b.add(op, given, b.given(indices), updates, reduction=reduction)


@recipe("TensorScatter")
def tensor_scatter(b: Builder, op: str) -> None:
    """A cache written to from some place on."""
    given = b.tensor(b.dtype(op), rank=b.choice(3, 4), when=filled)
    shape = list(b.shape(given))
    room, shape[-2] = shape[-2], b.rng.randint(1, shape[-2])
    update = b.tensor(b.array(given).dtype.name, tuple(shape))
    if b.chance(0.2):
        b.add(op, given, update)
    else:
        mode = b.choice(None, "linear", "circular")
        start = b.random.within("int64", (shape[0],), 0, room - shape[-2] + 1)
        b.add(op, given, update, b.given(start), mode=mode)


@recipe("Compress")
def compress(b: Builder, op: str) -> None:
    """What a condition keeps."""
    given = b.tensor(b.dtype(op), when=filled)
    axis = b.axis(b.array(given).ndim) if b.chance(0.7) else None
    size = b.array(given).size if axis is None else b.shape(given)[axis]
    b.add(op, given, b.tensor("bool", (b.rng.randint(1, size),)), axis=axis)


@recipe("NonZero")
def non_zero(b: Builder, op: str) -> None:
    """The places of what is not zero."""
    b.add(op, b.tensor(b.dtype(op), when=ranked))


@recipe("Unique")
def unique(b: Builder, op: str) -> None:
    """Unique, which returns each value once."""
    given = b.tensor(b.dtype(op), when=filled)
    b.add(
        op,
        given,
        n_outputs=b.choice(1, 4),
        axis=b.choice(None, b.axis(b.array(given).ndim)),
        sorted=b.choice(None, 0, 1),
    )


@recipe("TopK")
def top_k(b: Builder, op: str) -> None:
    """The largest or the smallest; equal numbers would leave the order open."""
    given = b.tensor(b.dtype(op), when=lambda array: filled(array) and np.unique(array).size == array.size)
    axis = b.axis(b.array(given).ndim)
    count = b.rng.randint(1, b.shape(given)[axis])
    if "k" in b.spec(op).attributes:
        b.add(op, given, n_outputs=2, axis=axis, k=count)
    else:
        b.add(
            op,
            given,
            b.numbers(count),
            n_outputs=2,
            axis=axis,
            largest=b.choice(None, 0, 1),
            sorted=b.choice(None, 1),
        )


@recipe("OneHot")
def one_hot(b: Builder, op: str) -> None:
    """Places outside give rows of the off value."""
    depth = b.rng.randint(1, 6)
    shape = b.random.shape(b.choice(1, 2, 3))
    indices = b.random.within(b.choice("int64", "int32"), shape, -depth - 1 if b.opset >= 11 else 0, depth + 2)
    values = b.tensor(b.dtype(op, 2), (2,))
    b.add(op, b.given(indices), b.number(depth), values, axis=b.choice(None, b.axis(len(shape) + 1)))


@recipe("ReverseSequence")
def reverse_sequence(b: Builder, op: str) -> None:
    """The beginning of each row, turned round."""
    given = b.tensor(b.dtype(op), when=lambda array: array.ndim >= 2 and array.size > 0)
    batch = b.choice(0, 1)
    shape = b.shape(given)
    lengths = b.random.within("int64", (shape[batch],), 1, shape[1 - batch] + 1)
    b.add(op, given, b.given(lengths), batch_axis=batch, time_axis=1 - batch)


@recipe("Trilu")
def trilu(b: Builder, op: str) -> None:
    """A triangle."""
    given = b.tensor(b.dtype(op), when=lambda array: array.ndim >= 2)
    more = (b.number(b.choice(-9, -1, 0, 1, 2, 9)),) if b.chance(0.7) else ()
    b.add(op, given, *more, upper=b.choice(None, 0, 1))


@recipe("EyeLike")
def eye_like(b: Builder, op: str) -> None:
    """Ones on a diagonal."""
    b.add(op, b.tensor(b.dtype(op), rank=2), k=b.choice(None, -1, 1, 3), dtype=b.choice(None, 1, 6, 11))


@recipe("ConstantOfShape")
def constant_of_shape(b: Builder, op: str) -> None:
    """One number many times."""
    value = (
        b.random.array(b.choice("float32", "int64", "bool", "float16", "uint8"), (1,))
        if b.chance(0.8)
        else None
    )
    b.add(op, b.numbers(*b.random.shape(b.choice(0, 1, 2, 3))), value=value)


@recipe("Range")
def ranges(b: Builder, op: str) -> None:
    """Numbers in a row."""
    dtype = b.dtype(op, only=("float32", "float64", "int16", "int32", "int64"))
    start, step = b.choice(-3, 0, 2), b.choice(-2, -1, 1, 2, 3)
    end = start + step * b.choice(-1, 0, 1, 4, 9) + b.choice(0, 1)
    b.add(op, b.number(start, dtype), b.number(end, dtype), b.number(step, dtype))


@recipe("DepthToSpace SpaceToDepth")
def blocks(b: Builder, op: str) -> None:
    """Channels to places, and back."""
    size = b.choice(1, 2, 3)
    n, c, h, w = b.choice(1, 2), b.choice(1, 2, 3), b.choice(1, 2, 3), b.choice(1, 2, 4)
    shape = (n, c * size * size, h, w) if op == "DepthToSpace" else (n, c, h * size, w * size)
    b.add(op, b.tensor(b.dtype(op), shape), blocksize=size, mode=b.choice(None, "DCR", "CRD"))


@recipe("CenterCropPad")
def center_crop_pad(b: Builder, op: str) -> None:
    """Cut or padded around the middle."""
    given = b.tensor(b.dtype(op), when=filled)
    rank = b.array(given).ndim
    axes = sorted(b.rng.sample(range(rank), b.rng.randint(1, rank)))
    b.add(op, given, b.numbers(*[b.choice(1, 2, 3, 6) for _ in axes]), axes=axes)


@recipe(
    "SequenceConstruct SequenceAt SequenceLength SequenceInsert SequenceErase ConcatFromSequence SequenceEmpty"
)
def sequences(b: Builder, op: str) -> None:
    """A sequence is made, changed, and one thing asked of it."""
    dtype = b.dtype("SequenceConstruct")
    first = b.tensor(dtype, when=filled)
    shape = b.shape(first)
    if op == "SequenceEmpty":
        node = b.add("SequenceInsert", b.add(op, dtype=CODES[dtype])[0], first)
    else:
        node = b.add("SequenceConstruct", first, *[b.tensor(dtype, shape) for _ in range(b.choice(0, 1, 2))])
    if op == "SequenceInsert":
        node = b.add(
            op, node[0], b.tensor(dtype, shape), *((b.number(b.choice(-1, 0, 1)),) if b.chance(0.7) else ())
        )
    elif op == "SequenceErase":
        node = b.add("SequenceInsert", node[0], first)
        node = b.add(op, node[0], *((b.number(b.choice(-1, 0)),) if b.chance(0.7) else ()))
    if op == "SequenceLength":
        b.add(op, node[0])
    elif op == "SequenceAt":
        b.add(op, node[0], b.number(b.choice(-1, 0)))
    else:
        b.add("ConcatFromSequence", node[0], axis=b.axis(len(shape)), new_axis=b.choice(None, 0))


@recipe("SplitToSequence SequenceMap")
def split_to_sequence(b: Builder, op: str) -> None:
    """Into a sequence and back."""
    given = b.tensor(b.dtype("SplitToSequence", only=("float32", "int64")), when=filled)
    axis = b.axis(b.array(given).ndim)
    size = b.shape(given)[axis]
    more = (b.number(b.rng.randint(1, size)),) if b.chance(0.6) else ()
    node = b.add("SplitToSequence", given, *more, axis=axis, keepdims=b.choice(None, 1))
    if op == "SequenceMap":
        item = pt.variable("item", b.array(given).dtype.name, None)
        body = pt.Graph(
            [pt.op("Neg", item, name=b.name("mapped"), opset=b.opset)],
            [item],
            name="each",
            opsets={"": b.opset},
        )
        node = b.add(op, node[0], body=body)
    b.add("ConcatFromSequence", node[0], axis=axis)
