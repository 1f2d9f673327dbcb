"""The sizes of what each op makes, from those of what it reads, as extents."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from partita.accelerators.errors import CompileError
from partita.accelerators.tvm.sizes.extent import Extent, Size, is_less
from partita.accelerators.tvm.sizes.image_sizes import IMAGE_RULES
from partita.graph.node import Node, NodeEntry
from partita.graph.ops.traits import ops

if TYPE_CHECKING:
    from partita.accelerators.tvm.sizes.reading import Reading

Sizes = tuple[Size, ...]

Rule = Callable[["Reading", Node], Sequence[Sizes]]
"""The sizes of a node's outputs."""

TO_THE_END = 2**31 - 1
"""A slice's end from which on it means the end of the dimension."""


def sizes_made(reading: Reading, node: Node) -> Sequence[Sizes]:
    """The sizes of the node's outputs; CompileError where no rule says them."""
    rule = None if node.bodies else _RULES.get(f"{node.domain}.{node.op}" if node.domain else str(node.op))
    if rule is None:
        raise CompileError(f"no rule says which sizes {node.domain}{'.' if node.domain else ''}{node.op} makes of any size")
    return rule(reading, node)


def broadcast(reading: Reading, shapes: Sequence[Sizes]) -> Sizes:
    """The shape that all of these are broadcast to, where sizes other than one are equal; those that cannot be are refused."""
    rank = max(map(len, shapes))
    aligned = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    whole = []
    for sizes in zip(*aligned, strict=True):
        others = sorted({size for size in sizes if size != 1}, key=str)
        if not all(reading.are_same(others[0], size) for size in others[1:]):
            raise CompileError(f"sizes {' and '.join(map(str, others))} are broadcast to one another")
        whole.append(others[0] if others else 1)
    return tuple(whole)


def _number_by_number(reading: Reading, node: Node) -> Sequence[Sizes]:
    return (broadcast(reading, [reading.sizes(entry) for entry in node.reads]),)


def _same(reading: Reading, node: Node) -> Sequence[Sizes]:
    if any(node.output_names[1:]):
        raise CompileError(f"{node.op} with several results has no rule for any size")
    return (reading.sizes(node.inputs[0]),)


def _matmul(reading: Reading, node: Node) -> Sequence[Sizes]:
    left, right = (reading.sizes(entry) for entry in node.inputs[:2])
    if not left or not right or not reading.are_same(left[-1], right[-2:][0]):
        raise CompileError(f"matrices of {list(left)} and {list(right)} are not multiplied at any size")
    batch = broadcast(reading, [left[:-2], right[:-2]]) if len(left) > 2 or len(right) > 2 else ()
    return ((*batch, *left[:-1][-1:], *right[1:][-1:]),)  # A vector has no rows, or no columns.


def _dynamically_quantized(reading: Reading, node: Node) -> Sequence[Sizes]:
    return (reading.sizes(node.inputs[0]), (), ())


def _gemm(reading: Reading, node: Node) -> Sequence[Sizes]:
    left, right = reading.sizes(node.inputs[0]), reading.sizes(node.inputs[1])
    left = left[::-1] if node.attrs.get("transA", 0) else left
    right = right[::-1] if node.attrs.get("transB", 0) else right
    if not reading.are_same(left[1], right[0]):
        raise CompileError(f"matrices of {list(left)} and {list(right)} are not multiplied at any size")
    return ((left[0], right[1]),)


def _transpose(reading: Reading, node: Node) -> Sequence[Sizes]:
    sizes = reading.sizes(node.inputs[0])
    return (tuple([sizes[d] for d in node.attrs.get("perm") or reversed(range(len(sizes)))]),)


def _reshape(reading: Reading, node: Node) -> Sequence[Sizes]:
    sizes, target = reading.sizes(node.inputs[0]), reading.vector(node.inputs[1])
    copies = not node.attrs.get("allowzero", 0)
    wanted = [sizes[d] if size == 0 and copies else size for d, size in enumerate(target)]
    if -1 in wanted:
        wanted[wanted.index(-1)] = _rest(reading, sizes, wanted)
    if not reading.are_same(math.prod(wanted), math.prod(sizes)):
        raise CompileError(f"{list(sizes)} is reshaped to {wanted}, which is not as many numbers at any size")
    return (tuple(wanted),)


def _rest(reading: Reading, sizes: Sizes, wanted: Sequence[Size]) -> Size:
    """The size that a Reshape leaves to be worked out. Where no division says it, the other sizes are taken to be those that the
    tensor has in the same dimensions."""
    try:
        return math.prod(sizes) // math.prod(size for size in wanted if size != -1)
    except CompileError:
        for size, other in zip(sizes, wanted, strict=False):
            if isinstance(size, Extent) and isinstance(other, Extent):
                reading.are_same(size, other)
        raise


def _flatten(reading: Reading, node: Node) -> Sequence[Sizes]:
    sizes = reading.sizes(node.inputs[0])
    axis = int(node.attrs.get("axis", 1))
    axis += len(sizes) if axis < 0 else 0
    return ((math.prod(sizes[:axis]), math.prod(sizes[axis:])),)


def _axes(reading: Reading, node: Node) -> list[int] | None:
    given = node.inputs[1] if len(node.inputs) > 1 else None
    axes = node.attrs.get("axes") if given is None else reading.numbers(given)
    return None if axes is None else [int(axis) for axis in axes]


def _squeeze(reading: Reading, node: Node) -> Sequence[Sizes]:
    sizes, axes = reading.sizes(node.inputs[0]), _axes(reading, node)
    if axes is None and any(isinstance(size, Extent) for size in sizes):
        raise CompileError("Squeeze names no dimensions, and one may be 1 or not")
    chosen = {axis % len(sizes) for axis in axes} if axes is not None else {d for d, size in enumerate(sizes) if size == 1}
    if not all(reading.are_same(sizes[d], 1) for d in chosen):
        raise CompileError(f"Squeeze of a dimension of {next(sizes[d] for d in chosen if sizes[d] != 1)}")
    return (tuple([size for d, size in enumerate(sizes) if d not in chosen]),)


def _unsqueeze(reading: Reading, node: Node) -> Sequence[Sizes]:
    left, axes = list(reading.sizes(node.inputs[0])), _axes(reading, node) or []
    rank = len(left) + len(axes)
    chosen = {axis % rank for axis in axes}
    return (tuple([1 if d in chosen else left.pop(0) for d in range(rank)]),)


def _expand(reading: Reading, node: Node) -> Sequence[Sizes]:
    return (broadcast(reading, [reading.sizes(node.inputs[0]), tuple(reading.vector(node.inputs[1]))]),)


def _concat(reading: Reading, node: Node) -> Sequence[Sizes]:
    shapes = [reading.sizes(entry) for entry in node.reads]
    axis = int(node.attrs.get("axis", 1)) % len(shapes[0])
    others = [(*shape[:axis], *shape[axis + 1 :]) for shape in shapes]
    if not all(reading.are_alike(others[0], other) for other in others[1:]):
        raise CompileError(f"{' and '.join(str(list(shape)) for shape in shapes)} are not joined at any size")
    return ((*shapes[0][:axis], sum(shape[axis] for shape in shapes), *shapes[0][axis + 1 :]),)


def _split(reading: Reading, node: Node) -> Sequence[Sizes]:
    sizes = reading.sizes(node.inputs[0])
    axis, count = int(node.attrs.get("axis", 0)) % len(sizes), len(node.output_names)
    given = node.inputs[1] if len(node.inputs) > 1 else None
    parts = node.attrs.get("split") if given is None else reading.vector(given)
    if parts is None:
        parts = _even_parts(reading, sizes[axis], count, may_leave_less="num_outputs" in node.attrs)
    if not reading.are_same(sum(parts), sizes[axis]):
        raise CompileError(f"a dimension of {sizes[axis]} is not split into {count} at any size")
    return [(*sizes[:axis], part, *sizes[axis + 1 :]) for part in parts]


def _even_parts(reading: Reading, size: Size, count: int, may_leave_less: bool) -> list[Size]:
    """A dimension in so many parts as large as each other, save the last where it may be smaller; it is taken to have some
    numbers."""
    part = reading.divide(size + (count - 1), count)
    last = size - part * (count - 1)
    reading.assume(last - 1 if may_leave_less else last - part)
    return [*[part] * (count - 1), last]


def _gather(reading: Reading, node: Node) -> Sequence[Sizes]:
    data, indices = reading.sizes(node.inputs[0]), reading.sizes(node.inputs[1])
    axis = int(node.attrs.get("axis", 0)) % len(data)
    return ((*data[:axis], *indices, *data[axis + 1 :]),)


def _gather_elements(reading: Reading, node: Node) -> Sequence[Sizes]:
    return (reading.sizes(node.inputs[1]),)


def _gather_rows(reading: Reading, node: Node) -> Sequence[Sizes]:
    data, indices = reading.sizes(node.inputs[0]), reading.sizes(node.inputs[1])
    count = indices[-1]
    if isinstance(count, Extent):
        raise CompileError("GatherND with indices of any length")
    return ((*indices[:-1], *data[int(node.attrs.get("batch_dims", 0)) + count :]),)


def _slice(reading: Reading, node: Node) -> Sequence[Sizes]:
    sizes = list(reading.sizes(node.inputs[0]))
    given = [None if entry is None else reading.vector(entry) for entry in node.inputs[1:]]
    starts, ends, axes, steps = [*given, None, None, None][:4]
    if starts is None or ends is None:
        raise CompileError("Slice with attributes has no rule for any size")
    for start, end, axis, step in zip(starts, ends, axes or range(len(starts)), steps or [1] * len(starts), strict=True):
        d = int(axis) % len(sizes)
        if all(isinstance(value, int) for value in (start, end, step, sizes[d])):
            sizes[d] = len(range(*slice(start, end, step).indices(sizes[d])))
        elif not isinstance(step, int) or step == 0:
            raise CompileError(f"a slice with steps of {step} of a dimension of {sizes[d]}")
        elif step < 0:
            sizes[d] = reading.divide(_backward(reading, start, end, sizes[d]) + (-step - 1), -step)
        else:
            sizes[d] = reading.divide(_between(reading, start, end, sizes[d]) + (step - 1), step)
    return (tuple(sizes),)


def _backward(reading: Reading, start: Size, end: Size, size: Size) -> Size:
    """Number of positions that a slice passes on its way backward."""
    if not isinstance(start, int) or not isinstance(end, int):
        raise CompileError(f"a slice backward from {start} to {end}")
    first: Size = size + start if start < 0 else size - 1 if start >= TO_THE_END else start
    before: Size = -1 if end <= -TO_THE_END else size + end if end < 0 else end
    for room in (before + 1, first - before, size - 1 - first):
        reading.assume(room)
    return first - before


def _between(reading: Reading, start: Size, end: Size, size: Size) -> Size:
    """How many numbers a slice takes; that it begins and ends inside is assumed where it is not known."""
    first = size + start if is_less(start, 0) else start
    last = size if isinstance(end, int) and end >= TO_THE_END else size + end if is_less(end, 0) else end
    for room in (first, last - first, size - last):
        reading.assume(room)
    return last - first


def _pad(reading: Reading, node: Node) -> Sequence[Sizes]:
    """Padding by amounts that are known or follow from sizes, nothing cut off."""
    sizes = list(reading.sizes(node.inputs[0]))
    given = (*node.inputs, None, None, None)[1:4]
    pads = node.attrs.get("pads") if given[0] is None else reading.vector(given[0])
    axes = range(len(sizes)) if given[2] is None else reading.numbers(given[2])
    if pads is None or len(pads) != 2 * len(axes) or any(isinstance(size, int) and size < 0 for size in pads):
        raise CompileError(f"Pad by {pads} has no rule for any size")
    for i, axis in enumerate(axes):
        before, after = pads[i], pads[len(axes) + i]
        for amount in (before, after):
            reading.assume(amount)
            reading.assume(sizes[axis] - _needed(node.attrs.get("mode", "constant"), amount))
        sizes[axis] = sizes[axis] + before + after
    return (tuple(sizes),)


def _needed(mode: str, padding: Size) -> Size:
    """How many numbers a dimension must have for so much padding, so that none is read outside of it."""
    return {"reflect": padding + 1, "wrap": padding, "edge": int(padding != 0)}.get(mode, 0)


def _tile(reading: Reading, node: Node) -> Sequence[Sizes]:
    sizes, times = reading.sizes(node.inputs[0]), reading.vector(_second(node))
    if len(times) != len(sizes):
        raise CompileError(f"{list(sizes)} is repeated {times} times at any size")
    for count in times:
        reading.assume(count - 1)
    return (tuple([size * count for size, count in zip(sizes, times, strict=True)]),)


def _top(reading: Reading, node: Node) -> Sequence[Sizes]:
    sizes, count = list(reading.sizes(node.inputs[0])), reading.numbers(_second(node))
    axis = int(node.attrs.get("axis", -1)) % len(sizes)
    if len(count) != 1:
        raise CompileError("TopK of a number of results that is not constant has no rule for any size")
    reading.assume(sizes[axis] - count[0])
    sizes[axis] = count[0]
    return (tuple(sizes), tuple(sizes))


def _second(node: Node) -> NodeEntry:
    """The op's second input."""
    entry = node.inputs[1] if len(node.inputs) > 1 else None
    if entry is None:
        raise CompileError(f"{node.op} with attributes has no rule for any size")
    return entry


def _range(reading: Reading, node: Node) -> Sequence[Sizes]:
    start, limit, delta = (reading.vector(entry)[0] for entry in node.inputs)
    if not isinstance(delta, int) or delta == 0:
        raise CompileError(f"a range with steps of {delta}")
    passed = limit - start if delta > 0 else start - limit
    reading.assume(passed)
    return ((reading.divide(passed + (abs(delta) - 1), abs(delta)),),)


def _constant_of_shape(reading: Reading, node: Node) -> Sequence[Sizes]:
    return (tuple(reading.vector(node.inputs[0])),)


def _shape(reading: Reading, node: Node) -> Sequence[Sizes]:
    rank = len(reading.sizes(node.inputs[0]))
    return ((len(range(rank)[node.attrs.get("start", 0) : node.attrs.get("end", rank)]),),)


def _size(reading: Reading, node: Node) -> Sequence[Sizes]:
    return ((),)


def _one_hot(reading: Reading, node: Node) -> Sequence[Sizes]:
    sizes, depth = reading.sizes(node.inputs[0]), reading.numbers(_second(node))
    axis = int(node.attrs.get("axis", -1)) % (len(sizes) + 1)
    if len(depth) != 1:
        raise CompileError("OneHot of a depth that is not constant has no rule for any size")
    return ((*sizes[:axis], depth[0], *sizes[axis:]),)


def _reduce(reading: Reading, node: Node) -> Sequence[Sizes]:
    sizes, axes = reading.sizes(node.inputs[0]), _axes(reading, node)
    if axes is None or not axes:
        axes = [] if node.attrs.get("noop_with_empty_axes", 0) else list(range(len(sizes)))
    chosen, keeps = {axis % len(sizes) for axis in axes}, node.attrs.get("keepdims", 1)
    return (tuple([1 if d in chosen else size for d, size in enumerate(sizes) if keeps or d not in chosen]),)


def _position(reading: Reading, node: Node) -> Sequence[Sizes]:
    sizes = reading.sizes(node.inputs[0])
    axis, keeps = int(node.attrs.get("axis", 0)) % len(sizes), node.attrs.get("keepdims", 1)
    return (tuple([1 if d == axis else size for d, size in enumerate(sizes) if keeps or d != axis]),)


def _recurrent(reading: Reading, node: Node) -> Sequence[Sizes]:
    """Any number of steps of any number of sequences, by constant weights."""
    given = node.inputs[0]
    first, second, _ = reading.sizes(given)
    ways, _, hidden = reading.sizes(node.inputs[2])
    batch_first = bool(node.attrs.get("layout", 0))
    batch = first if batch_first else second
    is_constant = all(entry is not None and entry.node.value is not None for entry in node.inputs[1:3])
    if given is None or reading.type_of(given).dtype != "float32" or not is_constant:
        raise CompileError(f"{node.op} has kernels for any size of float32 by constant weights")
    steps = (batch, second, ways) if batch_first else (first, ways, batch)
    state = (batch, ways, hidden) if batch_first else (ways, batch, hidden)
    return [(*steps, hidden), state, state][: len(node.output_names)]


def inside(reading: Reading, node: Node) -> None:
    """Constant indices lie inside of the dimensions that they count, which is assumed where it is not known."""
    indices = node.inputs[1].node.value if node.op in ops("indexed") and node.inputs[1] is not None else None
    if indices is None or not indices.size:
        return
    data = reading.sizes(node.inputs[0])
    if str(node.op).endswith("ND"):
        first = int(node.attrs.get("batch_dims", 0))
        columns = list(zip(indices.reshape(-1, indices.shape[-1]).T, data[first:], strict=False))
    else:
        columns = [(indices.reshape(-1), data[int(node.attrs.get("axis", 0)) % len(data)])]
    for numbers, size in columns:
        reading.assume(size + min(int(numbers.min()), 0))
        reading.assume(size - 1 - max(int(numbers.max()), 0))


def not_empty(reading: Reading, node: Node) -> None:
    """What is joined along dimensions has some numbers there, which is assumed where it is not known: of none kernels make
    other results than ONNX."""
    if node.op in _JOINING and not node.domain:
        for size in reading.sizes(node.inputs[0]):
            if isinstance(size, Extent):
                reading.assume(size - 1)


_JOINING = ops("reduction", "arg_reduction", "pool", "global_pool", "softmax", "norm") - {"BatchNormalization", "LRN"}
"""Ops that make one number of several."""

_RULES: Mapping[str, Rule] = {
    **IMAGE_RULES,
    **dict.fromkeys(ops("unary", "broadcast"), _number_by_number),
    **dict.fromkeys("BatchNormalization CastLike CumSum GroupNormalization Identity InstanceNormalization LRN".split(), _same),
    **dict.fromkeys("LayerNormalization LogSoftmax RMSNormalization Softmax Trilu".split(), _same),
    **dict.fromkeys("DequantizeLinear EyeLike QuantizeLinear Scatter ScatterElements ScatterND".split(), _same),
    **dict.fromkeys("Hardmax MeanVarianceNormalization".split(), _same),
    **dict.fromkeys("ReduceL1 ReduceL2 ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare".split(), _reduce),
    **dict.fromkeys("ReduceLogSum ReduceLogSumExp".split(), _reduce),
    **dict.fromkeys(("ArgMax", "ArgMin"), _position),
    **dict.fromkeys(("GRU", "LSTM", "RNN"), _recurrent),
    "partita.quantized.Weight": _same,
    "Concat": _concat, "ConstantOfShape": _constant_of_shape, "Expand": _expand, "Flatten": _flatten, "Gather": _gather,
    "GatherElements": _gather_elements, "GatherND": _gather_rows, "Gemm": _gemm, "MatMul": _matmul,
    "MatMulInteger": _matmul, "DynamicQuantizeLinear": _dynamically_quantized, "Range": _range,
    "OneHot": _one_hot, "Pad": _pad, "Reshape": _reshape,
    "Shape": _shape, "Size": _size, "Slice": _slice, "Split": _split, "Squeeze": _squeeze,
    "Tile": _tile, "TopK": _top, "Transpose": _transpose, "Unsqueeze": _unsqueeze,
}

