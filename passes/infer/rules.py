"""Rules of ops: the shapes of the results, and the requirements on the shapes of the inputs.

A rule gets a `Context` and handles integers and symbols alike. `Unknown` leaves an op to a reading with the integers of a
call, if these tell more."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from partita.graph.errors import TypeMismatch
from partita.graph.ops.traits import ops
from partita.graph.symbols import AnySize, Size, Sizes, larger

if TYPE_CHECKING:
    from partita.passes.infer.reading import Context

Rule = Callable[["Context"], Sequence[Sizes | None]]

RULES: dict[str, Rule] = {}
"""The rules by op; prefixed with the domain for ops outside ONNX's own."""


class Unknown(Exception):
    """The shapes cannot be derived: the rank or values of an input are unknown."""

    def __init__(self, what: str, shapes: Sequence[Sizes | None] = ()) -> None:
        super().__init__(what)
        self.shapes = shapes
        """The known part of the results: the number of dimensions, or some of their sizes."""


class IndexOutside(TypeMismatch):
    """A constant index is outside of the dimension: an error of a call, which never reads or writes there."""


def rule(*ops: str) -> Callable[[Rule], Rule]:
    """Registers the decorated function as the rule of these ops."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(ops, function))
        return function

    return register


@contextmanager
def counted(c: Context, shapes: Callable[[], Sequence[Sizes | None]]) -> Iterator[None]:
    """In the block `Unknown` gets what is known nevertheless."""
    try:
        yield
    except Unknown as error:
        raise Unknown(str(error), shapes()) from error


def known_values(c: Context, slot: int, attribute: str = "") -> list[AnySize]:
    """The elements of an input, or `Unknown`."""
    values = c.values(slot, attribute)
    if values is None or None in values:
        raise Unknown(f"the values of input {slot}")
    return values  # type: ignore[return-value]


def integers(c: Context, slot: int, attribute: str = "") -> list[int]:
    """The elements of an input as integers, or `Unknown`."""
    values = known_values(c, slot, attribute)
    if not all(isinstance(value, int) for value in values):
        raise Unknown(f"the values of input {slot}")
    return [int(value) for value in values]  # type: ignore[arg-type]


def known_sizes(c: Context, slot: int) -> Sizes:
    """The elements of an input as sizes, with symbols for unknown ones."""
    values = c.values(slot)
    if values is None:
        raise Unknown(f"how many values input {slot} has")
    return tuple([c.unknown(f"value {i}") if value is None else value for i, value in enumerate(values)])


def axis_of(c: Context, rank: int, default: int) -> int:
    """The dimension in an attribute."""
    axis = int(c.attribute("axis", default))
    inside(c, axis, rank)
    return axis % rank if rank else 0


def inside(c: Context, axis: int, rank: int) -> None:
    """Requires that a dimension exists."""
    if rank:
        c.at_least(rank, axis + 1 if axis >= 0 else -axis, "the rank of the data and an axis")


def axes_of(c: Context, rank: int, slot: int = 1) -> list[int] | None:
    """The dimensions in an input or attribute; None if it is absent."""
    if not c.has(slot) and c.attribute("axes") is None:
        return None
    axes = integers(c, slot, "axes")
    for axis in axes:
        inside(c, axis, rank)
    return [axis % rank if rank else 0 for axis in axes]


def one_way(c: Context, sizes: Sizes, target: Sizes, what: str) -> None:
    """Requires that `sizes` can be broadcast to `target`, but not vice versa."""
    c.at_least(len(target), len(sizes), f"the ranks of {what}")
    for size, other in zip(reversed(sizes), reversed(target), strict=False):
        c.one_or_equal(size, other, what)


def alike(c: Context, sizes: Sizes, others: Sizes, what: str) -> None:
    """Requires that the shapes are equal."""
    c.equal(len(sizes), len(others), f"the ranks of {what}")
    for size, other in zip(sizes, others, strict=False):
        c.equal(size, other, what)


def single(c: Context, *slots: int) -> None:
    """Requires that these inputs have one element, if present."""
    for slot in slots:
        for size in c.shape(slot) if c.has(slot) else ():
            c.equal(size, 1, f"the size of input {slot} and that of a single number")


@rule(*ops("unary"), "Bernoulli", "CastLike", "Identity", "LRN", "LpNormalization", "MeanVarianceNormalization")
@rule("RandomNormalLike", "RandomUniformLike", "RegexFullMatch")
@rule("partita.quantized.Weight")
def same(c: Context) -> Sequence[Sizes]:
    return [c.shape(0)] * c.results


@rule(*ops("broadcast") - {"Clip", "PRelu"})
def broadcast(c: Context) -> Sequence[Sizes]:
    if c.version < 7 and c.op not in ops("variadic") | {"Where"}:
        return _aligned(c)
    return [c.broadcast(c.shapes(), "the sizes of the operands")]


def _aligned(c: Context) -> Sequence[Sizes]:
    """Broadcasting below opset 7, where the second operand is aligned with the first at an axis."""
    first, second = c.shape(0), c.shape(1)
    if not c.attribute("broadcast", 0):
        alike(c, first, second, "the sizes of the operands")
        return [first]
    axis = int(c.attribute("axis", len(first) - len(second))) % max(len(first), 1)
    one_way(c, second, first[axis : axis + len(second)], "the sizes of the operands")
    return [first]


@rule("PRelu")
def prelu(c: Context) -> Sequence[Sizes]:
    data, slope = c.shape(0), c.shape(1)
    by_channel = len(slope) == 1 and len(data) > 1 and slope[0] == data[1]
    if not by_channel and (c.version >= 7 or len(slope) != 1):
        one_way(c, slope, data, "the sizes of the slope and of the data")
    elif not by_channel:
        c.broadcast([slope, data[1:2]], "the sizes of the slope and of the data")
    return [data]


@rule("Clip")
def clip(c: Context) -> Sequence[Sizes]:
    single(c, 1, 2)
    return [c.shape(0)]


@rule("Dropout")
def dropout(c: Context) -> Sequence[Sizes]:
    return [c.shape(0)] * c.results


@rule("Softmax", "LogSoftmax", "Hardmax")
def along_an_axis(c: Context) -> Sequence[Sizes]:
    axis_of(c, len(c.shape(0)), -1 if c.version >= 13 else 1) if len(c.shape(0)) > 1 or c.version >= 13 else None
    return [c.shape(0)]


@rule("CumSum", "CumProd")
def cumulated(c: Context) -> Sequence[Sizes]:
    single(c, 1)
    for axis in c.values(1) or ():
        if isinstance(axis, int):
            inside(c, axis, len(c.shape(0)))
    return [c.shape(0)]


@rule("Trilu")
def triangle(c: Context) -> Sequence[Sizes]:
    c.at_least(len(c.shape(0)), 2, "the rank of the data and that of a matrix")
    single(c, 1)
    return [c.shape(0)]


@rule("BatchNormalization", "InstanceNormalization")
def by_channel(c: Context) -> Sequence[Sizes]:
    data = c.shape(0)
    channels = data[1] if len(data) > 1 else 1
    for slot in range(1, 5 if c.op == "BatchNormalization" else 3):
        alike(c, c.shape(slot), (channels,), "the sizes of the statistics and the channels of the data")
    return [data, *[c.shape(1)] * 4][: c.results]


@rule("GroupNormalization")
def by_group(c: Context) -> Sequence[Sizes]:
    data, groups = c.shape(0), int(c.attribute("num_groups"))
    c.at_least(groups, 1, "the number of groups and one")
    c.equal(data[1] // groups * groups, data[1], "the channels and the groups that they are divided into")
    for slot in (1, 2):
        wanted = groups if c.version < 21 and c.shape(slot)[0] == groups else data[1]
        if c.version < 21 and isinstance(c.shape(slot)[0], Size):
            raise Unknown("scales for groups or for channels")
        one_way(c, c.shape(slot), (wanted,), "the sizes of the scales and the channels of the data")
    return [data]


@rule(*ops("row_norm"))
def by_layer(c: Context) -> Sequence[Sizes]:
    data = c.shape(0)
    axis = axis_of(c, len(data), -1)
    for slot in (1, 2):
        if c.has(slot):
            one_way(c, c.shape(slot), data, "the sizes of the scale and of the data")
    return [data, *[(*data[:axis], *[1] * (len(data) - axis))] * 2][: c.results]


@rule("QuantizeLinear", "DequantizeLinear")
def scaled_elements(c: Context) -> Sequence[Sizes]:
    data, scale, block = c.shape(0), c.shape(1), int(c.attribute("block_size", 0))
    if block > 0:
        axis = axis_of(c, len(data), 1)
        blocks = (*data[:axis], (data[axis] + block - 1) // block, *data[axis + 1 :])
        alike(c, scale, blocks, "the sizes of the scales and those that the data have to have")
    elif len(scale) == 1 and scale[0] != 1:
        axis = int(c.attribute("axis", 1))
        if isinstance(scale[0], int):
            inside(c, axis, len(data))
        other = data[axis] if -len(data) <= axis < len(data) else 1
        c.one_or_equal(scale[0], other, "the sizes of the scales and those that the data have to have")
    elif len(scale) > 1:
        raise Unknown("scales of several dimensions")
    if c.has(2):
        zeros, what = c.shape(2), "the sizes of the zero points and of the scales"
        if len(zeros) == len(scale):
            alike(c, zeros, scale, what)
        elif not scale and len(zeros) == 1:  # onnxruntime allows a scalar scale with one zero point per column
            axis = int(c.attribute("axis", 1))
            c.one_or_equal(zeros[0], data[axis] if -len(data) <= axis < len(data) else 1, what)
        else:  # a single element of either rank
            for size in (*zeros, *scale):
                c.equal(size, 1, what)
    return [data]


@rule("DynamicQuantizeLinear")
def dynamically_quantized(c: Context) -> Sequence[Sizes]:
    return [c.shape(0), (), ()]


@rule(*ops("reduction"))
def reduced(c: Context) -> Sequence[Sizes]:
    data = c.shape(0)
    axes, keeps = axes_of(c, len(data)), c.attribute("keepdims", 1)
    if not axes:
        axes = [] if c.attribute("noop_with_empty_axes", 0) else list(range(len(data)))
    return [tuple([1 if d in axes else size for d, size in enumerate(data) if keeps or d not in axes])]


@rule("ArgMax", "ArgMin")
def position(c: Context) -> Sequence[Sizes]:
    data = c.shape(0)
    axis = axis_of(c, len(data), 0)
    return [tuple([1 if d == axis else size for d, size in enumerate(data) if d != axis or c.attribute("keepdims", 1)])]


@rule("TopK")
def top(c: Context) -> Sequence[Sizes]:
    data = c.shape(0)
    axis = axis_of(c, len(data), -1)
    single(c, 1)
    values = c.values(1) if c.has(1) else [c.attribute("k")]
    count = values[0] if values else None
    count = c.unknown("k") if count is None else count
    c.at_least(count, 0, "k and nothing")
    c.at_least(data[axis], count, "a dimension and k")
    return [(*data[:axis], count, *data[axis + 1 :])] * 2


@rule("Shape")
def shape(c: Context) -> Sequence[Sizes]:
    with counted(c, lambda: [(c.unknown("how many there are"),)]):
        rank = len(c.shape(0))
    return [(len(range(rank)[c.attribute("start", 0) : c.attribute("end", rank)]),)]


@rule("Size")
def size_(c: Context) -> Sequence[Sizes]:
    return [()]


@rule("NonZero")
def nonzero(c: Context) -> Sequence[Sizes]:
    count = c.unknown("how many are not zero")
    with counted(c, lambda: [(c.unknown("the rank"), count)]):
        return [(len(c.shape(0)), count)]


@rule("Compress")
def compressed(c: Context) -> Sequence[Sizes]:
    count = c.unknown("how many are true")
    if c.attribute("axis") is None:
        return [(count,)]
    data = c.shape(0)
    axis = axis_of(c, len(data), 0)
    return [(*data[:axis], count, *data[axis + 1 :])]


@rule("OneHot")
def one_hot(c: Context) -> Sequence[Sizes]:
    data = c.shape(0)
    axis = axis_of(c, len(data) + 1, -1)
    single(c, 1)
    number = c.constant(1)
    depth = (c.values(1) or [None])[0] if number is None else int(number.reshape(-1)[0])
    result = (*data[:axis], c.unknown("the depth") if depth is None else depth, *data[axis:])
    with counted(c, lambda: [result]):
        c.equal(c.shape(2)[0], 2, "the number of values and 2")
    return [result]


@rule("EyeLike")
def eye(c: Context) -> Sequence[Sizes]:
    c.equal(len(c.shape(0)), 2, "the rank of the data and 2")
    return [c.shape(0)]


@rule("Range")
def range_(c: Context) -> Sequence[Sizes]:
    with counted(c, lambda: [(c.unknown("how many there are"),)]):
        single(c, 0, 1, 2)
    numbers = [c.constant(slot) for slot in range(3)]
    if all(number is not None and number.dtype.kind == "f" for number in numbers):
        first, last, gap = (float(number.reshape(-1)[0]) for number in numbers)  # type: ignore[union-attr]
        return [(max(math.ceil((last - first) / gap), 0),)]
    start, limit, step = ((c.values(slot) or [None])[0] for slot in range(3))
    if start is None or limit is None or not isinstance(step, int) or not step:
        return [(c.unknown("how many there are"),)]
    passed = limit - start if step > 0 else start - limit
    return [((c.within(passed, 0, larger(passed, 0)) + abs(step) - 1) // abs(step),)]


@rule("ConstantOfShape")
def filled(c: Context) -> Sequence[Sizes]:
    sizes = known_sizes(c, 0)
    for size in sizes:
        c.at_least(size, 0, "a size and nothing")
    return [sizes]


@rule("ReverseSequence")
def reversed_(c: Context) -> Sequence[Sizes]:
    data, batch = c.shape(0), int(c.attribute("batch_axis", 1))
    alike(c, c.shape(1), (data[batch],), "the number of lengths and the batch of the data")
    lengths = c.constant(1)
    if lengths is not None and lengths.size:
        c.at_least(data[int(c.attribute("time_axis", 0))], int(lengths.max()), "the steps of the data and a length")
    return [data]


@rule("NonMaxSuppression")
def boxes_kept(c: Context) -> Sequence[Sizes]:
    result = (c.unknown("how many are kept"), 3)
    with counted(c, lambda: [result]):
        boxes, scores = c.shape(0), c.shape(1)
    alike(c, (boxes[0], boxes[1], boxes[2]), (scores[0], scores[2], 4), "the sizes of the boxes and of the scores")
    return [result]


@rule("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
def loss(c: Context) -> Sequence[Sizes]:
    data, labels = c.shape(0), c.shape(1)
    wanted = (data[0], *data[2:])
    alike(c, labels, wanted, "the sizes of the labels and of the data")
    if c.has(2):
        alike(c, c.shape(2), data[1:2], "the number of the weights and of the classes")
    return [wanted if c.attribute("reduction", "mean") == "none" else (), data][: c.results]


@rule("Det")
def determinant(c: Context) -> Sequence[Sizes]:
    data = c.shape(0)
    c.equal(data[-1], data[-2], "the rows and columns of a matrix")
    return [data[:-2]]
