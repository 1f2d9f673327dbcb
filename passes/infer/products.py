"""The rules of ops that contract or slide a window: products, convolutions, pools, attention, recurrent layers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from partita.graph.symbols import AnySize, Sizes, is_at_least, larger, smaller
from partita.passes.infer.rules import Unknown, alike, counted, known_sizes, known_values, one_way, rule, single

if TYPE_CHECKING:
    from partita.passes.infer.reading import Context

_DEPTHS = "the depths of both matrices"
_CHANNELS = "the channels of the data and of the weights"


@rule("MatMul", "MatMulInteger", "QLinearMatMul")
def matmul(c: Context) -> Sequence[Sizes]:
    left, right = c.shape(0), c.shape(3 if c.op == "QLinearMatMul" else 1)
    c.at_least(min(len(left), len(right)), 1, "the rank of a matrix and 1")
    c.equal(left[-1], right[-2:][0], _DEPTHS)
    batch = c.broadcast([left[:-2], right[:-2]], "the batches of both matrices") if max(len(left), len(right)) > 2 else ()
    if c.op == "MatMulInteger":
        _per_line(c, 2, left, -2)
        _per_line(c, 3, right, -1)
    elif c.op == "QLinearMatMul":
        for slot in (1, 2):
            _per_line(c, slot, left, -2)
        for slot in (4, 5):
            _per_line(c, slot, right, -1)
    return [(*batch, *left[:-1][-1:], *right[1:][-1:])]


def _per_line(c: Context, slot: int, matrix: Sizes, axis: int) -> None:
    """Requires a scalar, or one element per row or column."""
    sizes, what = c.shape(slot) if c.has(slot) else (), "the number of scales or zero points and the lines of the matrix"
    if len(sizes) == 1:
        c.one_or_equal(sizes[0], matrix[axis] if len(matrix) > 1 else 1, what)
    elif len(sizes) > 1:
        one_way(c, sizes, (*matrix[:-1], 1) if axis == -2 else (*matrix[:-2], 1, matrix[-1]), what)


@rule("Gemm")
def gemm(c: Context) -> Sequence[Sizes]:
    with counted(c, lambda: [(c.unknown("the rows"), c.unknown("the columns"))]):
        left, right = c.shape(0), c.shape(1)
    left, right = left[:: -1 if c.attribute("transA", 0) else 1], right[:: -1 if c.attribute("transB", 0) else 1]
    c.equal(len(left), 2, "the rank of the first matrix and 2")
    c.equal(len(right), 2, "the rank of the second matrix and 2")
    c.equal(left[1], right[0], _DEPTHS)
    if c.has(2):
        one_way(c, c.shape(2), (left[0], right[1]), "the sizes of the bias and of the product")
    return [(left[0], right[1])]


@rule("Einsum")
def einsum(c: Context) -> Sequence[Sizes]:
    equation = str(c.attribute("equation", "")).replace(" ", "").replace("...", ".")
    inputs, arrow, output = equation.partition("->")
    terms, shapes = inputs.split(","), c.shapes()
    c.equal(len(terms), len(shapes), "the terms of the equation and the inputs")
    sizes: dict[str, AnySize] = {}
    batches: list[Sizes] = []
    for letters, shape in zip(terms, shapes, strict=True):
        before, dots, after = letters.partition(".")
        count = len(before) + len(after)
        (c.at_least if dots else c.equal)(len(shape), count, "the rank of an input and the letters of its term")
        end = len(shape) - len(after)
        if dots:
            batches.append(shape[len(before) : end])
        for letter, size in zip(before + after, (*shape[: len(before)], *shape[end:]), strict=True):
            sizes[letter] = c.broadcast([(sizes[letter],), (size,)], f"the sizes of {letter!r}")[0] if letter in sizes else size
    letters = "".join(terms).replace(".", "")
    wanted = output if arrow else "." + "".join(sorted(letter for letter in set(letters) if letters.count(letter) == 1))
    before, _, after = wanted.partition(".")
    batch = c.broadcast(batches, "the sizes that stand for the dots") if "." in wanted else ()
    return [(*[sizes[letter] for letter in before], *batch, *[sizes[letter] for letter in after])]


def _windows(c: Context, size: AnySize, span: AnySize, step: int, before: int, after: int) -> AnySize:
    """The number of windows in a dimension."""
    automatic = c.attribute("auto_pad", "NOTSET")
    if str(automatic).startswith("SAME"):
        return (size + step - 1) // step
    room = size + (before + after if automatic == "NOTSET" else 0) - span
    if not c.attribute("ceil_mode", 0) or automatic != "NOTSET":
        if c.op.endswith("Pool") and automatic == "NOTSET" and c.reading.is_exact and is_at_least(room, 0) is None:
            return larger(room // step + 1, 0)
        if c.op.endswith("Pool") and automatic == "NOTSET" and not c.usually(room, 0):
            c.at_least(room, 1 - 2 * step, "the padded data and the window")
            return 1 - -room // step  # The quotient is rounded towards 0, and there may be no window.
        c.at_least(room, 0, "the padded data and the window")
        return room // step + 1
    c.at_least(room, 1 - step, "the padded data and the window")
    count = (room + step - 1) // step + 1
    if c.reading.is_exact and is_at_least(size + before - 1, (count - 1) * step) is None:
        fewest = room // step + 1 if is_at_least(span, after + 1) else count - 1
        return fewest + c.unknown("a window that begins in the data")
    begins_inside = c.usually(size + before - 1, (count - 1) * step)  # The last window may not begin in the padding.
    return count if begins_inside else count - 1


def _geometry(c: Context, count: int) -> list[tuple[int, int, int, int]]:
    """Stride, dilation, padding before and after, per dimension."""
    pads = c.attribute("pads") or [0] * (2 * count)
    strides, dilations = c.attribute("strides") or [1] * count, c.attribute("dilations") or [1] * count
    c.equal(len(pads), 2 * count, "the number of paddings and twice that of the dimensions")
    for given, what in ((strides, "strides"), (dilations, "dilations")):
        c.equal(len(given), count, f"the number of {what} and of dimensions")
        c.at_least(min(given, default=1), 1, f"{what} and 1")
    return list(zip(strides, dilations, pads, pads[count:], strict=False))


def _slid(c: Context, sizes: Sizes, taps: Sizes) -> list[AnySize]:
    """The number of windows in each dimension."""
    each = zip(sizes, taps, _geometry(c, len(sizes)), strict=True)
    return [_windows(c, size, (tap - 1) * apart + 1, step, *around) for size, tap, (step, apart, *around) in each]


def _filters(c: Context, data: Sizes, weights: Sizes, bias: int, taken: AnySize, channels: AnySize) -> None:
    """Requires weights of the data's rank and channels, taps equal to the attributes, and a bias per output channel."""
    c.equal(len(weights), len(data), "the ranks of the weights and of the data")
    c.equal(data[1], taken, _CHANNELS)
    stated = c.attribute("kernel_shape")
    if stated is not None:
        alike(c, weights[2:], tuple(stated), "the taps of the weights and those that are stated")
    for tap in weights[2:]:
        c.at_least(tap, 1, "a tap of the weights and 1")
    if bias and c.has(bias):
        alike(c, c.shape(bias), (channels,), "the sizes of the bias and of what it is added to")


@rule("Conv", "ConvInteger", "QLinearConv")
def convolution(c: Context) -> Sequence[Sizes]:
    of = 3 if c.op == "QLinearConv" else 1
    data, weights, groups = c.shape(0), c.shape(of), int(c.attribute("group", 1))
    c.at_least(groups, 1, "the number of groups and 1")
    _filters(c, data, weights, {"Conv": 2, "QLinearConv": 8}.get(c.op, 0), weights[1] * groups, weights[0])
    c.equal(weights[0] // groups * groups, weights[0], "the filters and the groups that they are divided into")
    taps = c.attribute("kernel_shape") or weights[2:]
    for slot in {"QLinearConv": (4, 5), "ConvInteger": (3,)}.get(c.op, ()):
        if c.has(slot):
            one_way(c, c.shape(slot), weights[:1], "the number of scales or zero points and of filters")
    if c.op == "ConvInteger":
        single(c, 2)
    elif c.op == "QLinearConv":
        single(c, 1, 2, 6, 7)
    return [(data[0], weights[0], *_slid(c, data[2:], taps))]


@rule("MaxPool", "AveragePool", "LpPool")
def pool(c: Context) -> Sequence[Sizes]:
    data, taps = c.shape(0), c.attribute("kernel_shape")
    c.equal(len(taps), len(data) - 2, "the dimensions of the window and of the data")
    return [(*data[:2], *_slid(c, data[2:], taps))] * c.results


@rule("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def whole_pool(c: Context) -> Sequence[Sizes]:
    if c.op == "GlobalMaxPool":
        for size in c.shape(0)[2:]:
            c.at_least(size, 1, "a dimension and what the largest is taken of")
    return [tuple([size if d < 2 else 1 for d, size in enumerate(c.shape(0))])]


@rule("ConvTranspose")
def transposed_convolution(c: Context) -> Sequence[Sizes]:
    data, weights, groups, count = c.shape(0), c.shape(1), int(c.attribute("group", 1)), len(c.shape(0)) - 2
    _filters(c, data, weights, 2, weights[0], weights[1] * groups)
    taps = c.attribute("kernel_shape") or weights[2:]
    c.equal(weights[0] // groups * groups, weights[0], "the channels and the groups that they are divided into")
    more, wanted = c.attribute("output_padding") or [0] * count, list(c.attribute("output_shape") or [])
    c.equal(len(more), count, "the number of output paddings and of dimensions")
    if wanted and len(wanted) != len(data):
        c.equal(len(wanted), count, "the numbers of output_shape and the dimensions")
    sides: list[AnySize] = list(wanted[-count:])
    for d, (step, apart, before, after) in enumerate([] if wanted else _geometry(c, count)):
        whole = (data[2 + d] - 1) * step + (taps[d] - 1) * apart + 1 + more[d]
        if str(c.attribute("auto_pad", "NOTSET")).startswith("SAME"):
            sides.append(larger(smaller(data[2 + d] * step, whole), 0))
        else:
            sides.append(whole - before - after)
            c.at_least(sides[-1], 0, "the result and nothing")
    return [(data[0], weights[1] * groups, *sides)]


@rule("DeformConv")
def deformed_convolution(c: Context) -> Sequence[Sizes]:
    data, weights, groups, parts = c.shape(0), c.shape(1), int(c.attribute("group", 1)), int(c.attribute("offset_group", 1))
    _filters(c, data, weights, 3, weights[1] * groups, weights[0])
    c.equal(weights[0] // groups * groups, weights[0], "the filters and the groups that they are divided into")
    c.equal(data[1] // parts * parts, data[1], "the channels and the groups of offsets")
    sides = _slid(c, data[2:], weights[2:])
    taps = parts * math.prod(weights[2:])
    alike(c, c.shape(2), (data[0], taps * (len(data) - 2), *sides), "the sizes of the offsets and those that the windows have")
    if c.has(4):
        alike(c, c.shape(4), (data[0], taps, *sides), "the sizes of the mask and those that the windows have")
    return [(data[0], weights[0], *sides)]


@rule("MaxUnpool")
def unpool(c: Context) -> Sequence[Sizes]:
    data, taps = c.shape(0), c.attribute("kernel_shape")
    alike(c, c.shape(1), data, "the sizes of the indices and of the data")
    if c.has(2):
        raise Unknown("a shape that is asked for", [known_sizes(c, 2)])
    each = zip(data[2:], taps, _geometry(c, len(taps)), strict=True)
    return [(*data[:2], *[(size - 1) * step + tap - before - after for size, tap, (step, _, before, after) in each])]


@rule("RoiAlign", "MaxRoiPool")
def regions(c: Context) -> Sequence[Sizes]:
    tall, wide = c.attribute("pooled_shape", (c.attribute("output_height", 1), c.attribute("output_width", 1)))
    with counted(c, lambda: [(c.unknown("the regions"), c.unknown("the channels"), tall, wide)]):
        data, rois = c.shape(0), c.shape(1)
    c.equal(rois[1], 4 if c.op == "RoiAlign" else 5, "the numbers of a region and those that it has to have")
    if c.op == "RoiAlign":
        alike(c, c.shape(2), rois[:1], "the number of batches and of regions")
        count = rois[0] if isinstance(rois[0], int) else c.shape(2)[0]
        return [(count, data[1], tall, wide)]
    return [(rois[0], data[1], tall, wide)]


@rule("GridSample")
def grid_sample(c: Context) -> Sequence[Sizes]:
    data, grid = c.shape(0), c.shape(1)
    c.equal(len(grid), len(data), "the ranks of the grid and of the data")
    batch = c.equal(grid[0], data[0], "the batches of the grid and of the data")
    c.equal(grid[-1], len(data) - 2, "the numbers of a position and the dimensions of the data")
    return [(batch, data[1], *grid[1:-1])]


@rule("AffineGrid")
def affine_grid(c: Context) -> Sequence[Sizes]:
    theta, size = c.shape(0), c.values(1)
    if size is None or None in size or len(size) not in (4, 5):
        count = theta[1] if isinstance(theta[1], int) and theta[1] in (2, 3) else 0
        sides = [c.unknown(f"size {d}") for d in range(int(count))]
        raise Unknown("the size that is asked for", [(theta[0], *sides, count)] if count else ())
    count = len(size) - 2
    alike(c, theta, (size[0], count, count + 1), "the sizes of theta and those that it has to have")  # type: ignore[arg-type]
    return [(size[0], *size[2:], count)]  # type: ignore[arg-type]


@rule("LSTM", "GRU", "RNN")
def recurrent(c: Context) -> Sequence[Sizes]:
    data, first, width = c.shape(0), bool(c.attribute("layout", 0)), c.attribute("hidden_size")
    width = c.shape(2)[2] if width is None else width
    ways = 2 if c.attribute("direction", "forward") == "bidirectional" else 1
    steps, batch = (data[1], data[0]) if first else (data[0], data[1])
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[c.op]
    state = (batch, ways, width) if first else (ways, batch, width)
    wanted: list[Sizes] = [
        (ways, gates * width, data[2]), (ways, gates * width, width), (ways, 2 * gates * width), (batch,), state, state,
        (ways, 3 * width),
    ]
    for slot, sizes in enumerate(wanted[: 7 if c.op == "LSTM" else 5], 1):
        if c.has(slot):
            alike(c, c.shape(slot), sizes, f"the sizes of input {slot} and those that it has to have")
    lengths = c.constant(4)
    if lengths is not None and lengths.size:
        c.at_least(steps, int(lengths.max()), "the steps of the data and a length")
        c.at_least(int(lengths.min()), 0, "a length and nothing")
    sequence = (batch, steps, ways, width) if first else (steps, ways, batch, width)
    return [sequence, state, state][: c.results]


@rule("Attention")
def attention(c: Context) -> Sequence[Sizes | None]:
    query, key, value = c.shape(0), c.shape(1), c.shape(2)
    heads, of_keys = c.attribute("q_num_heads"), c.attribute("kv_num_heads")
    if len(query) == 3:
        c.at_least(min(heads or 0, of_keys or 0), 1, "the number of heads and 1")
        query, key, value = _split(c, query, heads), _split(c, key, of_keys), _split(c, value, of_keys)
        packed = True
    else:
        packed = False
    alike(c, key[:3], value[:3], "the sizes of the keys and of the values")
    query = (c.equal(key[0], query[0], "the batches of the keys and of the queries"), *query[1:])
    c.equal(key[3], query[3], "the sizes of the heads of keys and of queries")
    if isinstance(query[1], int) and isinstance(key[1], int):
        c.equal(query[1] // max(key[1], 1) * key[1], query[1], "the heads of queries and of keys")
    length = key[2]
    if c.has(4) and c.has(5):
        past, values = c.shape(4), c.shape(5)
        alike(c, past, (*key[:2], past[2], key[3]), "the sizes of the past keys and of the keys")
        alike(c, values, (*value[:2], past[2], value[3]), "the sizes of the past values and of the values")
        length = length + past[2]
    if c.has(6):
        alike(c, c.shape(6), query[:1], "the number of lengths and the batch")
    if c.has(3):
        mask = c.shape(3)
        c.at_least(4, len(mask), "the rank of the data and of the mask")
        one_way(c, mask[:-1], (query[0], query[1], query[2]), "the sizes of the mask and of the scores")
        if c.version < 24 and mask[-1] != 1:
            c.equal(mask[-1], length, "the sizes of the mask and of the scores")
        elif mask[-1] != 1:
            c.at_least(length, mask[-1], "the sizes of the scores and of the mask")
    scores = (query[0], query[1], query[2], length)
    result = (query[0], query[2], query[1] * value[3]) if packed else (*query[:3], value[3])
    return [result, (*key[:2], length, key[3]), (*value[:2], length, value[3]), scores][: c.results]


def _split(c: Context, packed: Sizes, heads: int) -> Sizes:
    """The shape with the heads as a separate axis."""
    c.equal(packed[2] // heads * heads, packed[2], "the last dimension and the heads that it is divided into")
    return (packed[0], heads, packed[1], packed[2] // heads)


@rule("RotaryEmbedding")
def rotary(c: Context) -> Sequence[Sizes]:
    data, heads = c.shape(0), c.attribute("num_heads", 0)
    if len(data) == 3:
        c.at_least(heads, 1, "the number of heads and 1")
        width, batch, length = data[2] // heads, data[0], data[1]
    else:
        width, batch, length = data[3], data[0], data[2]
    half = (c.attribute("rotary_embedding_dim", 0) or width) // 2
    for slot in (1, 2):
        cache = c.shape(slot)
        if c.has(3):
            c.equal(cache[-1], half, "the sizes of the cache and of half a head")
        else:
            alike(c, cache, (batch, length, half), "the sizes of the cache and of the data")
    alike(c, c.shape(1), c.shape(2), "the sizes of both caches")
    if c.has(3):
        alike(c, c.shape(3), (batch, length), "the sizes of the positions and of the data")
        positions = c.constant(3)
        if positions is not None and positions.size:
            c.at_least(c.shape(1)[0], int(positions.max()) + 1, "the cache and the positions in it")
    return [data]



@rule("STFT")
def spectrum(c: Context) -> Sequence[Sizes]:
    signal, step = c.shape(0), known_values(c, 1)[0]
    length = known_values(c, 3)[0] if c.has(3) else c.shape(2)[0]
    if c.has(2):
        alike(c, c.shape(2), (length,), "the sizes of the window and of a frame")
    c.at_least(step, 1, "the step of the frames and 1")
    c.at_least(length, 1, "the length of a frame and 1")
    c.at_least(signal[1], length, "the signal and a frame")
    return [(signal[0], (signal[1] - length) // step + 1, length // 2 + 1 if c.attribute("onesided", 1) else length, 2)]
