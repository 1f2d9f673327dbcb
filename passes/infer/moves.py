"""The rules of ops that move elements: reshapes, slices, gathers, paddings."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from partita.graph.errors import TypeMismatch
from partita.graph.numerics.resize import sizes_and_ratios
from partita.graph.symbols import AnySize, Size, Sizes, divided, is_at_least, scaled
from partita.passes.infer.rules import (
    IndexOutside,
    Unknown,
    alike,
    axes_of,
    axis_of,
    counted,
    integers,
    known_sizes,
    known_values,
    rule,
    single,
)

if TYPE_CHECKING:
    from partita.passes.infer.reading import Context

END = 2**31 - 1
"""The smallest end of a slice that means the end of the dimension."""

MOST_RANKS = 64
"""Maximum length of a vector that is taken for sizes."""

_PIXELS = "a dimension and the size that it is resized to"
"""For the requirement that an empty dimension is not resized to a larger one."""

_INDICES = "a dimension and the indices into it"


@rule("Reshape")
def reshape(c: Context) -> Sequence[Sizes | None]:
    data, target = c.shape(0), c.values(1, "shape")
    if target is None:
        raise Unknown("the shape that is asked for")
    copies = not c.attribute("allowzero", 0)
    for d, size in enumerate(target):
        if isinstance(size, int):
            c.at_least(size, -1, "a size that is asked for and -1")
        if copies and isinstance(size, int) and size == 0:
            c.at_least(len(data), d + 1, "the rank of the data and a dimension that is kept")
    wanted = [data[d] if isinstance(size, int) and size == 0 and copies else size for d, size in enumerate(target)]
    open_ones = [d for d, size in enumerate(target) if isinstance(size, int) and size == -1]
    c.at_least(1, len(open_ones), "one and the sizes that are left open")
    try:
        is_known = all(size is not None and (isinstance(size, int) or c.is_filled(size, 1 if copies else 0)) for size in target)
    except Unknown:  # Such a size may be copied or inferred, depending on values.
        is_known = False
    if not is_known:
        are_stated = [isinstance(size, int) and size >= 0 for size in target]
        low = int(c.reading.is_exact and is_at_least(math.prod(data), 1) is True)  # Elements are not lost.
        return [tuple([wanted[d] if is_stated else c.unknown(f"size {d}") + low for d, is_stated in enumerate(are_stated)])]  # type: ignore[misc]
    if open_ones:
        others: list[AnySize] = [size for d, size in enumerate(wanted) if d not in open_ones]  # type: ignore[misc]
        if divided(math.prod(data), math.prod(others)) is None and _assumes_kept_sizes(c, data, wanted):
            return reshape(c)
        c.at_least(math.prod(others), 1, "the sizes beside the one that is left open and 1")
        wanted[open_ones[0]] = c.some(math.prod(data) // math.prod(others), math.prod(data))
    c.equal(math.prod(wanted), math.prod(data), "the numbers of elements before and after")  # type: ignore[arg-type]
    return [tuple(wanted)]  # type: ignore[arg-type]


def _assumes_kept_sizes(c: Context, data: Sizes, wanted: Sequence[AnySize | None]) -> bool:
    """Assume for one form that sizes in the same dimension are equal, where no division tells the one that is left open."""
    pairs = [(a, b) for a, b in zip(data, wanted, strict=False) if isinstance(a, Size) and isinstance(b, Size) and a != b]
    solved = [c.reading.assume_equal(a, b) for a, b in pairs]
    return any(solved)


@rule("Flatten")
def flatten(c: Context) -> Sequence[Sizes]:
    data, axis = c.shape(0), int(c.attribute("axis", 1))
    c.at_least(len(data), abs(axis), "the rank of the data and an axis")
    axis += len(data) if axis < 0 else 0
    return [(math.prod(data[:axis]), math.prod(data[axis:]))]


@rule("Squeeze")
def squeeze(c: Context) -> Sequence[Sizes]:
    data, axes = c.shape(0), axes_of(c, len(c.shape(0)))
    if axes is None and any(not isinstance(size, int) for size in data):
        raise Unknown("the dimensions of 1")
    chosen = [d for d, size in enumerate(data) if size == 1] if axes is None else axes
    for d in chosen:
        c.equal(data[d], 1, "a dimension that is squeezed and 1")
    return [tuple([size for d, size in enumerate(data) if d not in chosen])]


@rule("Unsqueeze")
def unsqueeze(c: Context) -> Sequence[Sizes]:
    left = list(c.shape(0))
    rank = len(left) + len(known_values(c, 1, "axes"))
    chosen = axes_of(c, rank) or []
    return [tuple([1 if d in chosen else left.pop(0) for d in range(rank)])]


@rule("Transpose")
def transpose(c: Context) -> Sequence[Sizes]:
    data = c.shape(0)
    order = c.attribute("perm") or list(reversed(range(len(data))))
    c.equal(len(order), len(data), "the dimensions of perm and of the data")
    return [tuple([data[d] for d in order])]


@rule("Expand")
def expand(c: Context) -> Sequence[Sizes]:
    return [c.broadcast([c.shape(0), known_sizes(c, 1)], "the sizes of the data and those that are asked for")]


@rule("Tile")
def tile(c: Context) -> Sequence[Sizes]:
    data = c.shape(0)
    with counted(c, lambda: [_unknown(c, len(data))]):
        times = known_sizes(c, 1)
    if c.version < 6:
        raise Unknown("repeats of one dimension")
    c.equal(len(times), len(data), "the number of repeats and the rank of the data")
    for count in times:
        c.at_least(count, 0, "a number of repeats and nothing")
    return [tuple([size * count for size, count in zip(data, times, strict=True)])]


@rule("Concat")
def concat(c: Context) -> Sequence[Sizes]:
    first, *others = shapes = c.shapes()
    axis = axis_of(c, len(first), 1)
    for other in others:
        c.equal(len(other), len(first), "the ranks of what is joined")
        for d, size in enumerate(other):
            if d != axis:
                first = (*first[:d], c.equal(first[d], size, "the sizes of what is joined"), *first[d + 1 :])
    return [(*first[:axis], sum(shape[axis] for shape in shapes), *first[axis + 1 :])]


@rule("Split")
def split(c: Context) -> Sequence[Sizes]:
    data, count = c.shape(0), max(int(c.attribute("num_outputs", 0)), c.results)
    axis = axis_of(c, len(data), 0)
    parts: list[AnySize]
    if c.has(1) or c.attribute("split") is not None:
        with counted(c, lambda: [(*data[:axis], c.unknown(f"part {i}"), *data[axis + 1 :]) for i in range(count)]):
            parts = list(known_sizes(c, 1)) if c.has(1) else list(c.attribute("split"))
        c.equal(len(parts), count, "the number of parts and of results")
        for part in parts:
            c.at_least(part, 0, "a part and nothing")
        c.equal(sum(parts), data[axis], "the sum of the parts and the whole")
    else:
        part = (data[axis] + count - 1) // count
        parts = [*[part] * (count - 1), data[axis] - part * (count - 1)]
        if c.attribute("num_outputs") is None:
            c.at_least(parts[-1], part, "the last part and the others")  # It is never larger.
        c.at_least(parts[-1], 0, "the last part and nothing")
    return [(*data[:axis], part, *data[axis + 1 :]) for part in parts[: c.results]]


@rule("Slice")
def slice_(c: Context) -> Sequence[Sizes]:
    data, starts, ends = list(c.shape(0)), c.values(1, "starts"), c.values(2, "ends")
    with counted(c, lambda: [_unknown(c, len(data))]):
        count = len(starts or ends or known_values(c, 1, "starts"))
        axes = axes_of(c, len(data), 3) or range(count)
    steps = c.values(4) or [1] * count
    for values, what in ((starts, "starts"), (ends, "ends"), (axes, "axes"), (steps, "steps")):
        c.equal(len(values or range(count)), count, f"the number of starts and of {what}")
    c.at_least(len(data), count, "the rank of the data and the number of starts")
    for d, start, end, step in zip(axes, starts or [None] * count, ends or [None] * count, steps, strict=True):
        data[d] = _taken(c, data[d], start, end, step, d)
    return [tuple(data)]


def _unknown(c: Context, rank: int) -> Sizes:
    return tuple([c.unknown(f"size {d}") for d in range(rank)])


def _taken(c: Context, size: AnySize, start: AnySize | None, end: AnySize | None, step: AnySize | None, d: int) -> AnySize:
    if start is None or end is None or not isinstance(step, int):
        return c.unknown(f"size {d} of the slice")
    if not step:
        raise Unknown("a step of 0")
    try:
        first = size + start if not c.usually(start, 0) else start
        last = size if isinstance(end, int) and end >= END else size + end if not c.usually(end, 0) else end
    except Unknown:
        if not c.reading.is_exact:
            raise
        return c.unknown(f"size {d} of the slice")
    if step > 0:
        first = c.within(first, 0, size)
        return (c.within(last, first, size) - first + step - 1) // step
    least = -1 if size == 0 else 0  # ONNX clamps a start before the first element to the first.
    first = size - 1 if isinstance(start, int) and start >= END else c.within(first, least, size - 1)
    before = -1 if isinstance(end, int) and end <= -END else c.within(last, -1, first)
    return (first - before - step - 1) // -step


@rule("Gather")
def gather(c: Context) -> Sequence[Sizes]:
    data = c.shape(0)
    axis = axis_of(c, len(data), 0)
    check_indices(c)
    return [(*data[:axis], *c.shape(1), *data[axis + 1 :])]


@rule("GatherElements")
def gather_elements(c: Context) -> Sequence[Sizes]:
    indices = c.shape(1)
    with counted(c, lambda: [indices]):
        data = c.shape(0)
    axis = axis_of(c, len(data), 0)
    c.equal(len(indices), len(data), "the ranks of the indices and of the data")
    for d, (size, other) in enumerate(zip(data, indices, strict=True)):
        if d != axis:
            c.at_least(size, other, "the sizes of the data and of the indices")
    check_indices(c)
    return [indices]


@rule("Scatter", "ScatterElements")
def scatter_elements(c: Context) -> Sequence[Sizes]:
    data = c.shape(0)
    with counted(c, lambda: [data]):
        gather_elements(c)
        alike(c, c.shape(1), c.shape(2), "the sizes of the indices and of the updates")
    return [data]


@rule("GatherND")
def gather_rows(c: Context) -> Sequence[Sizes]:
    data, indices, batch = c.shape(0), c.shape(1), int(c.attribute("batch_dims", 0))
    count = indices[-1]
    if not isinstance(count, int):
        raise Unknown("the number of dimensions that an index has")
    c.at_least(len(data) - batch, count, "the rank of the data and the numbers of an index")
    for size, other in zip(data[:batch], indices, strict=False):
        c.equal(size, other, "the batches of the data and of the indices")
    check_indices(c)
    return [(*indices[:-1], *data[batch + count :])]


@rule("ScatterND")
def scatter_rows(c: Context) -> Sequence[Sizes]:
    data = c.shape(0)
    with counted(c, lambda: [data]):
        indices = c.shape(1)
    if not isinstance(indices[-1], int):
        raise Unknown("the number of dimensions that an index has", [data])
    c.at_least(len(data), indices[-1], "the rank of the data and the numbers of an index")
    alike(c, c.shape(2), (*indices[:-1], *data[indices[-1] :]), "the sizes of the updates and of what they replace")
    check_indices(c)
    return [data]


def check_indices(c: Context) -> None:
    """Requires that known indices are within the dimensions that they index; others are checked at run time."""
    indices, data = c.constant(1), c.shape(0)
    if indices is None or not indices.size:
        _check_symbolic(c, data)
        return
    if c.op.endswith("ND"):
        first = int(c.attribute("batch_dims", 0))
        columns = list(zip(indices.reshape(-1, indices.shape[-1]).T, data[first:], strict=False))
    else:
        columns = [(indices.reshape(-1), data[axis_of(c, len(data), 0)])]
    for numbers, size in columns:
        if numbers.size:
            try:
                c.at_least(size, max(int(numbers.max()) + 1, -int(numbers.min())), _INDICES)
            except TypeMismatch as error:
                raise IndexOutside(error.cause, where=error.where, remedy=error.remedy) from error


def _check_symbolic(c: Context, data: Sizes) -> None:
    """Like `check_indices`, for a small vector of indices that depend on sizes."""
    indices = c.elements(1)
    if indices is None or c.op.endswith("ND"):
        return
    size = data[axis_of(c, len(data), 0)]
    for index in indices.reshape(-1):
        with contextlib.suppress(Unknown):  # its sign depends on values: checked at run time
            if index is not None:
                c.at_least(size, index + 1 if c.usually(index, 0) else -index, _INDICES)


@rule("Pad")
def pad(c: Context) -> Sequence[Sizes]:
    data = list(c.shape(0))
    given = c.values(1, "pads" if c.version > 1 else "paddings")
    axes = axes_of(c, len(data), 3) or list(range(len(data)))
    pads = given or [None] * 2 * len(axes)
    c.equal(len(pads), 2 * len(axes), "the number of paddings and twice that of the axes")
    single(c, 2)
    mode = c.attribute("mode", "constant")
    for i, d in enumerate(axes):
        around = [pads[i], pads[len(axes) + i]]
        for amount in around:
            if amount is not None and mode in ("reflect", "edge", "wrap") and is_at_least(amount, 1):
                c.at_least(data[d], 1, "a dimension and what its padding reads")
        before, after = around
        padded = c.unknown(f"size {d}") if before is None or after is None else data[d] + before + after
        c.at_least(padded, 0, "a padded dimension and nothing")
        if before is not None and after is not None and not (isinstance(before, Size) or isinstance(after, Size)):
            c.at_least(data[d], max(-before, 0) + max(-after, 0), "a dimension and what is cut off it")
        data[d] = padded
    return [tuple(data)]


@rule("Resize", "Upsample")
def resize(c: Context) -> Sequence[Sizes]:
    data, slot = c.shape(0), 2 if c.op == "Resize" and c.version > 10 else 1
    axes = [int(axis) % len(data) for axis in c.attribute("axes") or range(len(data))]
    policy, mode = c.attribute("keep_aspect_ratio_policy", "stretch"), c.attribute("coordinate_transformation_mode", "")
    resized = [tuple([c.unknown(f"size {d}") if d in axes else size for d, size in enumerate(data)])]
    if "crop" in mode and not c.has(3):
        raise Unknown("the sizes of a region", resized)
    if c.has(3):
        with counted(c, lambda: resized):
            wanted = list(known_sizes(c, 3))
        if policy != "stretch":
            old = [size for d in axes if isinstance(size := data[d], int) and size > 0]
            new = [size for size in wanted if isinstance(size, int)]
            if not len(old) == len(new) == len(axes):
                raise Unknown("sizes that keep the proportions", resized)
            wanted = [*sizes_and_ratios(old, new, policy)[0]]
        for d, size in zip(axes, wanted, strict=False):
            if is_at_least(size, 1):
                c.at_least(data[d], 1, _PIXELS)
            elif not is_at_least(data[d], 1):
                c.at_least(data[d] * END, size, _PIXELS)
    else:
        factors = c.constant(slot)
        numbers = c.attribute("scales") if factors is None else factors.reshape(-1).tolist()
        if not numbers:
            raise Unknown("the factors", resized)
        c.equal(len(numbers), len(axes), "the number of factors and of dimensions")
        wanted = [scaled(data[d], factor) for d, factor in zip(axes, numbers, strict=True)]
    c.equal(len(wanted), len(axes), "the number of sizes and of dimensions")
    sizes = dict(zip(axes, wanted, strict=True))
    return [tuple([sizes.get(d, size) for d, size in enumerate(data)])]


@rule("DepthToSpace")
def depth_to_space(c: Context) -> Sequence[Sizes]:
    data, block = c.shape(0), int(c.attribute("blocksize"))
    c.at_least(block, 1, "the size of a block and 1")
    channels = c.parted(data[1], block * block, "the channels and the blocks that they make")
    return [(data[0], channels, data[2] * block, data[3] * block)]


@rule("SpaceToDepth")
def space_to_depth(c: Context) -> Sequence[Sizes]:
    data, block = c.shape(0), int(c.attribute("blocksize"))
    c.at_least(block, 1, "the size of a block and 1")
    height, width = [c.parted(size, block, "a dimension and the blocks that it is divided into") for size in data[2:]]
    return [(data[0], data[1] * (block * block), height, width)]


@rule("TensorScatter")
def scattered_cache(c: Context) -> Sequence[Sizes]:
    past, update = c.shape(0), c.shape(1)
    axis = axis_of(c, len(past), -2)
    c.equal(len(update), len(past), "the ranks of the cache and of the update")
    for d, (size, other) in enumerate(zip(past, update, strict=True)):
        if d == axis:
            c.at_least(size, other, "the sizes of the cache and of the update")
        else:
            c.equal(size, other, "the sizes of the cache and of the update")
    if c.has(2):
        alike(c, c.shape(2), past[:1], "the number of positions and the batch")
    return [past]


@rule("CenterCropPad")
def cropped(c: Context) -> Sequence[Sizes]:
    data = list(c.shape(0))
    axes = [int(axis) % len(data) for axis in c.attribute("axes") or range(len(data))]
    for d, size in zip(axes, known_sizes(c, 1), strict=True):
        data[d] = size
    return [tuple(data)]


@rule("Col2Im")
def from_columns(c: Context) -> Sequence[Sizes]:
    data, rank = c.shape(0), c.shape(1)[0]
    with counted(c, lambda: [(data[0], *_unknown(c, 1 + rank))] if isinstance(rank, int) and rank <= MOST_RANKS else []):
        image, block = known_sizes(c, 1), integers(c, 2)
    count = len(image)
    taps, pads = math.prod(block), c.attribute("pads") or [0] * 2 * count
    strides, dilations = c.attribute("strides") or [1] * count, c.attribute("dilations") or [1] * count
    windows = math.prod(
        (image[d] + pads[d] + pads[count + d] - dilations[d] * (block[d] - 1) - 1) // strides[d] + 1 for d in range(count)
    )
    c.equal(data[2], windows, "the number of columns and of windows")
    c.equal(data[1] // taps * taps, data[1], "the rows and the numbers of a block")
    return [(data[0], data[1] // taps, *image)]
