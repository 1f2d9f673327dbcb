"""Ops that only reorder elements: transposes, slices, splits, broadcasts, concatenations. Of blocked values: conversions from and
to plain ones, concatenation and shuffling of channels.

The result of an op on plain values is a view of its input, whose strides numpy computes (`strides.py`). Adjacent dimensions that
are contiguous in input and result are merged. If neighbours of the result are not neighbours in the input, the copy
proceeds square by square, so that each cache line is used completely while it is cached."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext

import attrs
import numpy as np

from partita.accelerators.tvm.bodies.blocked import DOMAIN
from partita.accelerators.tvm.bodies.body import Body, element_of, shape_of
from partita.accelerators.tvm.kernels.contraction.convolution.blocked_values import JoinedBlocks
from partita.accelerators.tvm.kernels.language import Buffer, Kernel, Operand, Value, if_inside, minimum
from partita.accelerators.tvm.kernels.shared.element_access import read, real_shape, write
from partita.accelerators.tvm.kernels.shared.epilogue import Writer, alone, make_epilogue
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft, Problem
from partita.accelerators.tvm.kernels.shared.loops import is_shared_out, nest
from partita.accelerators.tvm.kernels.shared.strides import Ghost, followed, ghost, part_of, strides_in
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.machine.parallel_thresholds import MOVES
from partita.accelerators.tvm.sizes.extent import Extent, is_multiple
from partita.accelerators.tvm.sizes.views import SizedView
from partita.graph.node import Node, NodeEntry
from partita.graph.ops.traits import ops

LARGEST = 2**31
"""Bound of positions, which are 32-bit integers."""

SQUARE = 16
"""Rows of a square as wide as a vector."""

COPIES = ops("copying") - ops("shuffle")
"""The ops that this kernel supports."""


@attrs.frozen(slots=True)
class Dimension:
    """A loop of a copy."""

    size: int
    read: int
    """Distance between neighbours in the input."""
    written: int
    """Distance between neighbours in the result."""


@attrs.frozen(slots=True)
class Piece:
    """Elements of one input that are copied to one result."""

    source: int
    """The index of the input."""
    target: int
    """The index of the result."""
    first: int
    """Start in the input."""
    start: int
    """Start in the result."""
    dimensions: tuple[Dimension, ...]
    """The outermost first; neighbours of the result are along the last."""

    @property
    def count(self) -> int:
        """The number of elements that the piece copies."""
        return math.prod(dimension.size for dimension in self.dimensions)


def copies(body: Body, machine: Machine) -> Draft | None:
    """The kernel for one op that only moves elements."""
    problem, pieces = Problem.of(body), find_pieces(body)
    if pieces is None:
        return None
    flat = {i: (math.prod(shape_of(entry)),) for i, entry in enumerate(problem.inputs)}
    results = [(math.prod(shape_of(entry)),) for entry in problem.outputs]
    kernel, inputs, outputs = problem.kernel("copies", flat, results)
    for piece in pieces:
        _write(kernel, piece, inputs[piece.source], outputs[piece.target], machine)
    return problem.draft(kernel, "copies")


def find_pieces(body: Body) -> list[Piece] | None:
    """The pieces that the body's op copies; None if a copy has no constant strides, or an unsupported size."""
    node, problem = body.ops[0], Problem.of(body)
    sizes = [math.prod(shape_of(entry)) for entry in (*problem.inputs, *problem.outputs)]
    fit = all(isinstance(size, Extent) or 0 < size < LARGEST for size in sizes)
    if not fit:
        return None
    moves = _joined(node) if node.op == "Concat" else _repeated(node) if node.op == "Tile" else _moved(node, problem)
    pieces, targets = [], {entry: i for i, entry in enumerate(problem.outputs)}
    for given, view, result, target in moves:
        source = problem.position(given)
        if source is None or view is None or element_of(given) != element_of(result):
            return None
        pieces.append(_piece(source, targets[result], view, shape_of(given), target, shape_of(result)))
    return pieces or None


Move = tuple[NodeEntry, tuple[Ghost, Ghost] | None, NodeEntry, tuple[Ghost, Ghost]]
"""An input; a view of it, with its base array; a result; and the part of it that is written, with its base array."""


def _moved(node: Node, problem: Problem) -> list[Move]:
    """The moves of an op whose results are views of its first input."""
    given = node.inputs[0]
    assert given is not None
    moves: list[Move] = []
    for result in problem.outputs:
        whole, target = ghost(shape_of(given)), ghost(shape_of(result))
        view = followed(whole, [node], result)
        moves.append((given, None if view is None else (view, whole), result, (target, target)))
    return moves


def _repeated(node: Node) -> list[Move]:
    """The moves of a Tile with constant repeats: each dimension is split into repeats and size."""
    given, counts = node.inputs[0], node.reads[-1].node.value
    assert given is not None
    whole, target = ghost(shape_of(given)), ghost(shape_of(node[0]))
    if counts is None or counts.size != whole.ndim or isinstance(whole, SizedView) or isinstance(target, SizedView):
        return []
    split = [size for pair in zip(counts.tolist(), whole.shape, strict=True) for size in pair]
    once = whole.reshape([size for own in whole.shape for size in (1, own)])
    return [(given, (np.broadcast_to(once, split), whole), node[0], (target.reshape(split), target))]


def _joined(node: Node) -> list[Move]:
    """The moves of a Concat: each input is a part of the result."""
    target, moves, first = ghost(shape_of(node[0])), list[Move](), 0
    axis = int(node.attrs.get("axis", 1)) % target.ndim
    for given in node.reads:
        whole = ghost(shape_of(given))
        part = part_of(target, axis, first, shape_of(given)[axis])
        first += shape_of(given)[axis]
        moves.append((given, (whole, whole), node[0], (part, target)))
    return moves


def _piece(
    source: int, target: int, view: tuple[Ghost, Ghost], given: Sequence[int], part: tuple[Ghost, Ghost], output: Sequence[int]
) -> Piece:
    """The copy from a view to a part, with adjacent dimensions merged if they are contiguous in both."""
    read, written = strides_in(*view), strides_in(*part)
    dimensions: list[Dimension] = []
    for size, near, far in zip(view[0].shape, read.steps, written.steps, strict=True):
        before = dimensions[-1] if dimensions else None
        if size == 1:
            continue
        if before is not None and before.read == near * size and before.written == far * size:
            dimensions[-1] = Dimension(before.size * size, near, far)
        else:
            dimensions.append(Dimension(size, near, far))
    return Piece(source, target, read.offset, written.offset, tuple(dimensions) or (Dimension(1, 0, 1),))


def _write(kernel: Kernel, piece: Piece, source: Buffer, target: Buffer, machine: Machine) -> None:
    """Writes the loops of one piece."""
    is_shared = is_shared_out(piece.count, machine)
    *outer, last = piece.dimensions
    turned = [d for d in outer if d.read == 1 and not _is_open(d, last)] if last.read not in (0, 1) else []
    if not turned:
        width = machine.lanes if is_multiple(last.size, machine.lanes) else 1
        lanes = kernel.lanes(width) if width > 1 else nullcontext(0)
        vectors = kernel.loop(last.size // width, "v")
        with nest(kernel, [d.size for d in outer], is_shared) as indices, vectors as v, lanes as lane:
            _copy(piece, source, target, [*zip(outer, indices, strict=True), (last, v * width + lane)])
        return
    across, width = turned[-1], min(last.size, machine.lanes)
    rest, high = [d for d in outer if d is not across], min(across.size, SQUARE * max(machine.lanes // width, 1))
    squares = [math.ceil(across.size / high), math.ceil(last.size / width)]
    with nest(kernel, [*(d.size for d in rest), *squares], is_shared) as indices:
        top, left = _first(across.size, high, indices[-2]), _first(last.size, width, indices[-1])
        narrow = width < machine.lanes
        with kernel.loop(high, "i") as i, kernel.unroll(width, "j") if narrow else kernel.lanes(width, "j") as j:
            _copy(piece, source, target, [*zip(rest, indices, strict=False), (across, top + i), (last, left + j)])


def _is_open(*dimensions: Dimension) -> bool:
    """True if one of the sizes is dynamic. Squares need static sizes."""
    return any(isinstance(dimension.size, Extent) for dimension in dimensions)


def _first(size: int, step: int, square: Operand) -> Operand:
    """Start of a square. If squares do not divide the size, the last overlaps the one before."""
    first = square * step
    return minimum(first, size - step) if size % step and not isinstance(first, int) else first


def _copy(piece: Piece, source: Buffer, target: Buffer, at: Sequence[tuple[Dimension, Operand]]) -> None:
    """Copies the element at one position of the loops."""
    number = source[_address(piece.first, [(dimension.read, index) for dimension, index in at])]
    target[_address(piece.start, [(dimension.written, index) for dimension, index in at])] = number


def _address(first: int, steps: Sequence[tuple[int, Operand]]) -> Operand:
    """A position in the flat buffer."""
    terms: list[Operand] = [index if step == 1 else index * step for step, index in steps if step]
    total: Operand = first if first or not terms else terms.pop(0)
    for term in terms:
        total = total + term
    return total


def to_blocked(body: Body, machine: Machine) -> Draft | None:
    """The kernel from [N, C, pixels] to blocked; the last block is padded with zeros."""
    given, result = _shapes(body)
    (_, channels, pixels), (_, _, _, lanes) = given, result
    problem = Problem.of(body)
    kernel, (x,), (y,) = problem.kernel("to_blocked", {0: given}, [result])

    def copy(n: Value, block: Value, width: int) -> None:
        if width == lanes:
            with kernel.loop(pixels, "p") as p, kernel.lanes(lanes) as lane:
                write(y, (n, block, p, lane), read(x, (n, block * lanes + lane, p)))
            return
        with kernel.loop(pixels, "p") as p, kernel.loop(lanes, "l") as lane:
            write(y, (n, block, p, lane), if_inside(lane < width, read(x, (n, block * lanes + lane, p)), 0.0))

    _each_block(kernel, result, channels, machine, copy)
    return problem.draft(kernel, "to blocked")


def from_blocked(body: Body, machine: Machine) -> Draft | None:
    """The kernel from blocked to [N, C, pixels]."""
    given, result = _shapes(body)
    (_, _, pixels, lanes), (_, channels, _) = given, result
    problem = Problem.of(body)
    kernel, (x,), (y,) = problem.kernel("from_blocked", {0: given}, [result])

    def copy(n: Value, block: Value, width: int) -> None:
        with kernel.loop(width, "l") as lane, kernel.loop(pixels, "p") as p:
            write(y, (n, block * lanes + lane, p), read(x, (n, block, p, lane)))

    _each_block(kernel, given, channels, machine, copy)
    return problem.draft(kernel, "from blocked")


def _each_block(
    kernel: Kernel, blocked: tuple[int, ...], channels: int, machine: Machine, copy: Callable[[Value, Value, int], None]
) -> None:
    """Writes a copy for each block of channels, the last of which may be narrower."""
    _, blocks, _, lanes = blocked

    def work(n: Value, block: Value) -> None:
        if channels % lanes == 0:
            copy(n, block, lanes)
            return
        with kernel.when(block < blocks - 1):
            copy(n, block, lanes)
        with kernel.otherwise():
            copy(n, block, channels % lanes)

    over_blocks(kernel, blocked, machine, work)


def over_blocks(
    kernel: Kernel, blocked: tuple[int, ...], machine: Machine, work: Callable[[Value, Value], None]
) -> None:
    """Writes the work for each image and block, shared among the threads if it pays off."""
    batch, blocks = blocked[:2]
    with kernel.tasks(batch * blocks, "task", machine.threads_for(math.prod(blocked), MOVES) > 1) as task:
        work(kernel.name_value("n", task // blocks), kernel.name_value("block", task % blocks))


def _shapes(body: Body) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shapes of input and output; plain ones with all pixels merged."""
    root = body.ops[0]
    given, result = real_shape(root.inputs[0]) or (), real_shape(root[0]) or ()
    plain = result if root.op == "FromBlocked" else given
    folded = (*plain[:2], math.prod(plain[2:]))
    return (given, folded) if root.op == "FromBlocked" else (folded, result)


def concat(body: Body, machine: Machine) -> Draft | None:
    """The kernel that concatenates blocks of values, with the element-wise ops after it: one loop for any number of values."""
    root = next(node for node in body.ops if node.domain == DOMAIN)
    after = make_epilogue(body, root, alone, [(i, i + 1) for i in range(4)])
    result = real_shape(root[0])
    if after is None or result is None:
        return None
    _, _, pixels, lanes = result
    problem = Problem.of(body)
    kernel, inputs, outputs = problem.kernel("concat", after.operands, [after.results] * len(problem.outputs))
    writer = Writer(after, inputs, outputs)
    joined = JoinedBlocks.of(kernel, [inputs[problem.positions[entry]] for entry in root.reads])

    def work(n: Value, block: Value) -> None:
        with joined.seen(kernel, n, block) as (source, first), kernel.loop(pixels, "p") as p, kernel.lanes(lanes) as lane:
            writer.store(read(source, (first, p, lane)), (n, block, p, lane))

    over_blocks(kernel, result, machine, work)
    return problem.draft(kernel, "concat")


def shuffle(body: Body, machine: Machine) -> Draft | None:
    """The kernel that shuffles channels: it transposes them as a matrix of `rows` rows."""
    root = body.ops[0]
    shape = real_shape(root[0]) or ()
    _, _, pixels, lanes = shape
    rows, channels = int(root.attrs["rows"]), int(root.attrs["channels"])
    problem = Problem.of(body)
    kernel, (x,), (y,) = problem.kernel("shuffle")

    def work(n: Value, block: Value) -> None:
        sources: list[Operand] = []
        for lane in range(lanes):
            channel = minimum(block * lanes + lane, channels - 1)
            sources.append(kernel.name_value(f"c{lane}", channel % rows * (channels // rows) + channel // rows))
        with kernel.loop(pixels, "p") as p:
            for lane, source in enumerate(sources):
                y[n, block, p, lane] = x[n, source // lanes, p, source % lanes]

    over_blocks(kernel, shape, machine, work)
    return problem.draft(kernel, "shuffle")
