"""Ops that move integers, channels last: interleaved phases of a transposed convolution, resizes, concatenation of channels, and
bytes looked up in a table. On a GPU a thread moves some neighbouring channels of a pixel at once.

Tables list the pixels of the image that each pixel of an enlarged result reads. Images of dynamic size are enlarged by integer
factors, from which the pixels are computed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import attrs

from partita.accelerators.tvm.bodies.body import Body, shape_of
from partita.accelerators.tvm.bodies.quantized import DOMAIN
from partita.accelerators.tvm.kernels.contraction.gpu_tiles import WIDTH
from partita.accelerators.tvm.kernels.contraction.quantized.draft import times_scale
from partita.accelerators.tvm.kernels.language import Buffer, Kernel, Operand, Value, exactly, float32, int32, uint8
from partita.accelerators.tvm.kernels.shared.epilogue import Writer, make_channel_epilogue
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft, Problem
from partita.accelerators.tvm.kernels.shared.loops import counted, each_item, each_vector, is_shared_out, kept
from partita.accelerators.tvm.kernels.shared.window import between
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.machine.parallel_thresholds import LOOKUPS
from partita.accelerators.tvm.sizes.extent import Extent
from partita.graph.node import Node


def interleave(body: Body, machine: Machine) -> Draft:
    """The kernel that interleaves rows and columns of all phases."""
    node = body.ops[0]
    (batch, high, wide, channels), (_, rows, columns, outs) = shape_of(node[0]), shape_of(node.reads[0])
    (down, across), (top, left), groups = node.attrs["strides"], node.attrs["pads"], int(node.attrs["group"])
    own, of_group = channels // groups, outs // groups
    problem = Problem.of(body)
    sizes = (batch * rows * columns * outs,), (batch * high * wide * channels,)
    kernel, (source,), (result,) = problem.kernel("interleave", {0: sizes[0]}, [sizes[1]])

    def write(n: Value, h: Value) -> None:
        row = kernel.name_value("row", (n * rows + (h + top) // down) * columns)
        with kernel.loop(wide, "w") as w:
            phase = (h + top) % down * across + (w + left) % across
            start = kernel.name_value("start", (row + (w + left) // across) * outs + phase * own)
            to = kernel.name_value("to", ((n * high + h) * wide + w) * channels)
            with kernel.loop(groups, "group") as group:
                _copied(kernel, source, result, start + group * of_group, to + group * own, own, machine)

    _each_row(kernel, batch, high, wide * channels // 4, machine, write)
    return problem.draft(kernel, "interleaved phases")


def resize(body: Body, machine: Machine) -> Draft:
    """The kernel for a resize in which each pixel of the result copies one of the image."""
    node, problem = body.ops[0], Problem.of(body)
    (batch, high, wide, channels), (deep, across) = shape_of(node[0]), node.attrs["image"]
    position = problem.positions[node.reads[0]]
    sizes = {position: (batch * deep * across * channels,)}
    kernel, inputs, (result,) = problem.kernel("resize", sizes, [(batch * high * wide * channels,)])
    source, *tables = (inputs[problem.positions[entry]] for entry in node.reads)

    def read_at(axis: int, at: Value) -> Value:
        return tables[axis][at, 0].as_index() if tables else at // node.attrs["times"][axis]

    def write(n: Value, h: Value) -> None:
        row = kernel.name_value("row", (n * deep + read_at(0, h)) * across)
        with kernel.loop(wide, "w") as w:
            start = kernel.name_value("start", (row + read_at(1, w)) * channels)
            to = kernel.name_value("to", ((n * high + h) * wide + w) * channels)
            _copied(kernel, source, result, start, to, channels, machine)

    _each_row(kernel, batch, high, wide * channels // 4, machine, write)
    return problem.draft(kernel, "resized integers")


Read = Callable[[Value], Sequence[tuple[Value, Value]]]
"""Returns the two pixels that a position of the result blends in one dimension, and their weights."""


@attrs.frozen(slots=True, eq=False)
class Mixing:
    """A kernel for a resize that blends integers, and its epilogue."""

    root: Node
    problem: Problem
    kernel: Kernel
    image: Buffer
    """The integers of the image, flat."""
    reads: tuple[Read, Read]
    """The pixels that rows, and columns, of the result read."""
    writer: Writer

    @classmethod
    def of(cls, body: Body) -> Mixing | None:
        """The kernel for a body with one Mix; None for any other body."""
        roots = [node for node in body.ops if node.domain == DOMAIN and node.op == "Mix"]
        if len(roots) != 1:
            return None
        root, problem = roots[0], Problem.of(body)
        (batch, high, wide, channels), (deep, across) = shape_of(root[0]), root.attrs["image"]
        after, positions = make_channel_epilogue(body, root, times_scale), [problem.position(entry) for entry in root.reads]
        image, _, *tables = positions
        if after is None or image is None or image in after.operands or any(table is None for table in tables):
            return None
        shapes = {**after.operands, image: (batch * deep * across * channels,)}
        results = (batch * high * wide, channels)
        kernel, inputs, outputs = problem.kernel("mix", shapes, [results] * len(problem.outputs))
        reads = _reads(kernel, root, [inputs[table] for table in tables if table is not None])
        return cls(root, problem, kernel, inputs[image], reads, Writer(after, inputs, outputs))


def mix(body: Body, machine: Machine) -> Draft | None:
    """The kernel that blends each pixel of the result from two rows and two columns (rows first), with its epilogue."""
    mixing = Mixing.of(body)
    if mixing is None:
        return None
    root, kernel, image = mixing.root, mixing.kernel, mixing.image
    (batch, high, wide, channels), (deep, across), (read_row, read_column) = shape_of(root[0]), root.attrs["image"], mixing.reads
    lanes, width = machine.lanes, counted(across * channels)

    def write(n: Value, h: Value) -> None:
        mixed = kernel.memory("mixed", float32, (width,))
        lines = [(kernel.name_value(f"row{i}", (n * deep + at) * width), share) for i, (at, share) in enumerate(read_row(h))]

        def rows_at(at: Operand, count: int) -> None:
            parts = [image.vector(count, first + at).cast(int32) - int(root.attrs["zero"]) for first, _ in lines]
            halves = [part.cast(float32) * share.spread(count) for part, (_, share) in zip(parts, lines, strict=True)]
            mixed[at] = halves[0] + halves[1]

        each_vector(kernel, width, lanes, rows_at)
        with kernel.loop(wide, "w") as w:
            starts = [(kernel.name_value(f"at{i}", at * channels), share) for i, (at, share) in enumerate(read_column(w))]
            pixel = kernel.name_value("pixel", (n * high + h) * wide + w)

            def columns_at(first: Operand, count: int) -> None:
                with kernel.lanes(count) as lane:
                    halves = [mixed[at + first + lane] * share for at, share in starts]
                    mixing.writer.store(halves[0] + halves[1], (pixel, first + lane))

            each_vector(kernel, channels, lanes, columns_at)

    _each_row(kernel, batch, high, wide * channels, machine, write)
    return mixing.problem.draft(kernel, "mixed integers")


def _reads(kernel: Kernel, root: Node, tables: Sequence[Buffer]) -> tuple[Read, Read]:
    """The pixels that rows and columns of the result read, with weights: from tables, or computed from integer factors."""
    if tables:
        pairs = (tables[0], tables[1]), (tables[2], tables[3])
        down, across = ((lambda at, p=p, s=s: [(p[at, i].as_index(), s[at, i]) for i in (0, 1)]) for p, s in pairs)
        return down, across

    def computed(axis: int) -> Read:
        times, size, name = root.attrs["times"][axis], root.attrs["image"][axis], ("line", "column")[axis]

        def read(at: Value) -> list[tuple[Value, Value]]:
            lies = between(at, times, size, bool(root.attrs["centred"]))
            before, after = (kept(kernel, f"{name}{i}", pixel) for i, pixel in enumerate(lies.pixels))
            shares = attrs.evolve(lies, pixels=(before, after)).shares
            return [(before, shares[0]), (after, shares[1])]

        return read

    return computed(0), computed(1)


def _copied(
    kernel: Kernel, source: Buffer, result: Buffer, start: Value, to: Value, channels: int, machine: Machine
) -> None:
    """Copies the channels of one pixel."""

    def copy(first: Operand, count: int) -> None:
        result[to + first] = source.vector(count, start + first)

    each_vector(kernel, channels, machine.lanes * 32 // result.element.bits, copy)


def _each_row(
    kernel: Kernel, batch: int, high: int, steps: int, machine: Machine, write: Callable[[Value, Value], None]
) -> None:
    """Writes the work for each row of the results, which threads share."""
    is_any = any(isinstance(size, Extent) for size in (batch, high, steps))
    # Only a parallel loop gives each task its own memory of dynamic size.
    with kernel.tasks(batch * high, "task", is_any or machine.threads_for(batch * high * steps) > 1) as task:
        write(kept(kernel, "n", task // high, is_any), kept(kernel, "h", task % high, is_any))


LOOKUP_TASK = 4096
"""Bytes of a task."""

LOOKUP_STEP = 8
"""Bytes of an unrolled step."""


def lookup(body: Body, machine: Machine) -> Draft:
    """The kernel for a Table."""
    node = body.ops[0]
    problem, size = Problem.of(body), math.prod(shape_of(node[0]))
    given, table = (problem.positions[entry] for entry in node.reads)
    kernel, inputs, (result,) = problem.kernel("lookup", {given: (size,), table: (256,)}, [(size,)])
    whole = counted(size)
    pieces, rest = whole // LOOKUP_TASK, whole % LOOKUP_TASK
    tasks = kernel.tasks(pieces, "task", is_shared_out(size, machine, LOOKUPS))
    with tasks as task, kernel.loop(LOOKUP_TASK // LOOKUP_STEP, "i") as i, kernel.unroll(LOOKUP_STEP, "u") as u:
        at = task * LOOKUP_TASK + i * LOOKUP_STEP + u
        result[at] = inputs[table][inputs[given][at].bits_as(uint8).as_index()]
    with kernel.loop(rest, "i") as i:
        result[pieces * LOOKUP_TASK + i] = inputs[table][inputs[given][pieces * LOOKUP_TASK + i].bits_as(uint8).as_index()]
    return problem.draft(kernel, "lookup")


PIXELS = 64
"""Approximate pixels of a task."""


def joined(body: Body, machine: Machine) -> Draft:
    """The kernel for a Concat of channels."""
    node, problem = body.ops[0], Problem.of(body)
    *sizes, channels = shape_of(node[0])
    pixels = math.prod(sizes)
    shapes = {i: (pixels, shape_of(entry)[-1]) for i, entry in enumerate(problem.inputs)}
    kernel, inputs, (result,) = problem.kernel("joined", shapes, [(pixels, channels)])
    known = math.prod(size for size in sizes if not isinstance(size, Extent))
    each = next(count for count in range(min(PIXELS, known), 0, -1) if known % count == 0)
    lanes = machine.lanes * 32 // result.element.bits
    parallel = machine.threads_for(pixels * channels // 4) > 1
    with kernel.tasks(pixels // each, "task", parallel) as task, kernel.loop(each, "p") as p:
        pixel, first = kernel.name_value("pixel", task * each + p), 0
        for entry in node.reads:
            source = inputs[problem.positions[entry]]

            def copy(start: Operand, count: int, source: Buffer = source, first: int = first) -> None:
                result[pixel, start + first] = source.vector(count, pixel, start)

            each_vector(kernel, source.sizes[1], lanes, copy)
            first += source.sizes[1]
    return problem.draft(kernel, "joined channels")


Move = Callable[[Value, Value], None]
"""Moves some channels of a pixel, from one on."""


def gpu_joined(body: Body, machine: Machine) -> Draft:
    """The kernel for a Concat of channels."""
    node, problem = body.ops[0], Problem.of(body)
    *sizes, channels = shape_of(node[0])
    pixels = math.prod(sizes)
    shapes = {i: (pixels, shape_of(entry)[-1]) for i, entry in enumerate(problem.inputs)}
    kernel, inputs, (result,) = problem.kernel("joined", shapes, [(pixels, channels)])
    lanes = _beside_each_other(*(own for _, own in shapes.values()))

    def move(pixel: Value, channel: Value) -> None:
        first = 0
        for entry in node.reads:
            source, own = inputs[problem.positions[entry]], shape_of(entry)[-1]
            with kernel.when((channel >= first) & (channel < first + own)):
                result[pixel, channel] = source.vector(lanes, pixel, channel - first)
            first += own

    _each_channels(kernel, machine, pixels, channels, lanes, move)
    return problem.draft(kernel, "gpu_joined_channels")


def gpu_resized_bytes(body: Body, machine: Machine) -> Draft:
    """The kernel for a resize in which each pixel of the result copies one of the image."""
    node, problem = body.ops[0], Problem.of(body)
    (batch, high, wide, channels), (deep, across) = shape_of(node[0]), node.attrs["image"]
    sizes = {problem.positions[node.reads[0]]: (batch * deep * across, channels)}
    kernel, inputs, (result,) = problem.kernel("resize", sizes, [(batch * high * wide, channels)])
    source, *tables = (inputs[problem.positions[entry]] for entry in node.reads)
    lanes = _beside_each_other(channels)

    def move(pixel: Value, channel: Value) -> None:
        n, *coordinates = coordinates_of(kernel, pixel, high, wide)
        times = node.attrs.get("times")
        h, w = (tables[d][at, 0].as_index() if times is None else at // times[d] for d, at in enumerate(coordinates))
        at = (n * deep + h) * across + w
        result[pixel, channel] = source.vector(lanes, at, channel)

    _each_channels(kernel, machine, batch * high * wide, channels, lanes, move)
    return problem.draft(kernel, "gpu_resized_integers")


def gpu_interleaved_bytes(body: Body, machine: Machine) -> Draft:
    """The kernel that interleaves rows and columns of all phases."""
    node, problem = body.ops[0], Problem.of(body)
    (batch, high, wide, channels), (_, rows, columns, outs) = shape_of(node[0]), shape_of(node.reads[0])
    (down, across), (top, left), groups = node.attrs["strides"], node.attrs["pads"], int(node.attrs["group"])
    own, of_group = channels // groups, outs // groups
    kernel, (source,), (result,) = problem.kernel(
        "interleave", {0: (batch * rows * columns, outs)}, [(batch * high * wide, channels)]
    )
    lanes = _beside_each_other(own, of_group)

    def move(pixel: Value, channel: Value) -> None:
        n, h, w = coordinates_of(kernel, pixel, high, wide)
        h, w = h + top, w + left
        at = (n * rows + h // down) * columns + w // across
        phase = h % down * across + w % across
        first = channel // own * of_group + phase * own + channel % own
        result[pixel, channel] = source.vector(lanes, at, first)

    _each_channels(kernel, machine, batch * high * wide, channels, lanes, move)
    return problem.draft(kernel, "gpu_interleaved_phases")


def coordinates_of(kernel: Kernel, pixel: Value, high: int, wide: int) -> tuple[Value, Value, Value]:
    """The image, the row and the column of a pixel, given the sizes of an image."""
    named = ("n", pixel // (high * wide)), ("h", pixel // wide % high), ("w", pixel % wide)
    is_any = isinstance(high, Extent) or isinstance(wide, Extent)
    n, h, w = (kept(kernel, name, number, is_any) for name, number in named)
    return n, h, w


def _beside_each_other(*counts: int) -> int:
    """Number of neighbouring channels that a thread moves."""
    return WIDTH if all(count % WIDTH == 0 for count in counts) else 1


def _each_channels(kernel: Kernel, machine: Machine, pixels: int, channels: int, lanes: int, move: Move) -> None:
    """Writes a thread for every `lanes` channels of each pixel."""
    each = channels // lanes
    with each_item(kernel, pixels * each, machine.gpu) as item:
        move(kernel.name_value("pixel", item // each), kernel.name_value("channel", item % each * lanes))


def gpu_mix(body: Body, machine: Machine) -> Draft | None:
    """The kernel for a Mix and its epilogue; None for any other body."""
    mixing = Mixing.of(body)
    if mixing is None:
        return None
    root, kernel = mixing.root, mixing.kernel
    sizes, (deep, across), (read_row, read_column) = shape_of(root[0]), root.attrs["image"], mixing.reads
    _, high, wide, channels = sizes

    def mixed(pixel: Value, channel: Value) -> Value:
        """The blend of two columns, each a blend of two rows."""
        n, h, w = coordinates_of(kernel, pixel, high, wide)
        lines = [(kernel.name_value(f"row{i}", (n * deep + at) * across), share) for i, (at, share) in enumerate(read_row(h))]
        halves = []
        for at, share in read_column(w):
            numbers = [mixing.image[(line + at) * channels + channel].cast(int32) - int(root.attrs["zero"]) for line, _ in lines]
            parts = [exactly(number.cast(float32) * own) for number, (_, own) in zip(numbers, lines, strict=True)]
            halves.append(exactly((parts[0] + parts[1]) * share))
        return halves[0] + halves[1]

    with each_item(kernel, math.prod(sizes), machine.gpu) as item:
        pixel, channel = kernel.name_value("pixel", item // channels), kernel.name_value("channel", item % channels)
        mixing.writer.store(mixed(pixel, channel), (pixel, channel))
    return mixing.problem.draft(kernel, "gpu_mixed_integers")
