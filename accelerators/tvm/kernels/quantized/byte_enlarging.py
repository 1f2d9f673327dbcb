"""Images made larger, their channels side by side: the phases of a transposed convolution dealt out, and resizes."""

from __future__ import annotations

from collections.abc import Callable

from accelerators.tvm.bodies.body import Body, shape_of
from accelerators.tvm.bodies.quantized import DOMAIN
from accelerators.tvm.kernels.language import Buffer, Kernel, Operand, Value, float32, int32
from accelerators.tvm.kernels.quantized.following import make_following
from accelerators.tvm.kernels.shared.draft import Draft
from accelerators.tvm.kernels.shared.epilogue import Writer
from accelerators.tvm.kernels.shared.formulas import Numbers
from accelerators.tvm.kernels.shared.problem import Problem
from accelerators.tvm.machine.machine import Machine
from graph.node import Node

SCALE = 1
"""The input of a Mix beside its image."""


def interleave(body: Body, machine: Machine) -> Draft | None:
    """Rows and columns of all phases between each other."""
    node = body.ops[0]
    if len(body.ops) != 1 or node.domain != DOMAIN:
        return None
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


def resize(body: Body, machine: Machine) -> Draft | None:
    """Each pixel of the result is a pixel of the image."""
    node = body.ops[0]
    if len(body.ops) != 1 or node.domain != DOMAIN:
        return None
    (batch, high, wide, channels), (deep, across) = shape_of(node[0]), node.attrs["image"]
    problem = Problem.of(body)
    position = problem.positions[node.reads[0]]
    sizes = {position: (batch * deep * across * channels,)}
    kernel, inputs, (result,) = problem.kernel("resize", sizes, [(batch * high * wide * channels,)])
    source, rows, columns = (inputs[problem.positions[entry]] for entry in node.reads)

    def write(n: Value, h: Value) -> None:
        row = kernel.name_value("row", (n * deep + rows[h, 0].as_index()) * across)
        with kernel.loop(wide, "w") as w:
            start = kernel.name_value("start", (row + columns[w, 0].as_index()) * channels)
            to = kernel.name_value("to", ((n * high + h) * wide + w) * channels)
            _copied(kernel, source, result, start, to, channels, machine)

    _each_row(kernel, batch, high, wide * channels // 4, machine, write)
    return problem.draft(kernel, "resized integers")


def mix(body: Body, machine: Machine) -> Draft | None:
    """Each pixel of the result of two rows and two columns, as a number, and what follows. Rows are mixed first."""
    roots = [node for node in body.ops if node.domain == DOMAIN and node.op == "Mix"]
    if len(roots) != 1:
        return None
    root, problem = roots[0], Problem.of(body)
    (batch, high, wide, channels), (deep, across) = shape_of(root[0]), root.attrs["image"]
    after, positions = make_following(body, root, _scaled), [problem.position(entry) for entry in root.reads]
    image, _, *tables = positions
    if after is None or image is None or image in after.operands or any(table is None for table in tables):
        return None
    shapes = {**after.operands, image: (batch * deep * across * channels,)}
    results = (batch * high * wide, channels)
    kernel, inputs, outputs = problem.kernel("mix", shapes, [results] * len(problem.outputs))
    rows, row_shares, columns, shares = (inputs[table] for table in tables if table is not None)
    writer, lanes, width = Writer(after, inputs, outputs), machine.lanes, across * channels

    def write(n: Value, h: Value) -> None:
        mixed = kernel.memory("mixed", float32, (width,))
        firsts = [kernel.name_value(f"row{i}", (n * deep + rows[h, i].as_index()) * width) for i in (0, 1)]

        def rows_at(at: Operand, count: int) -> None:
            parts = [inputs[image].vector(count, first + at).cast(int32) - int(root.attrs["zero"]) for first in firsts]
            halves = [part.cast(float32) * row_shares[h, i].spread(count) for i, part in enumerate(parts)]
            mixed[at] = halves[0] + halves[1]

        _chunks(kernel, width, lanes, rows_at)
        with kernel.loop(wide, "w") as w:
            starts = [kernel.name_value(f"at{i}", columns[w, i].as_index() * channels) for i in (0, 1)]
            pixel = kernel.name_value("pixel", (n * high + h) * wide + w)

            def columns_at(first: Operand, count: int) -> None:
                with kernel.lanes(count) as lane:
                    halves = [mixed[at + first + lane] * shares[w, i] for i, at in enumerate(starts)]
                    writer.store(halves[0] + halves[1], (pixel, first + lane))

            _chunks(kernel, channels, lanes, columns_at)

    _each_row(kernel, batch, high, wide * channels, machine, write)
    return problem.draft(kernel, "mixed integers")


def _scaled(node: Node, x: Numbers) -> Value:
    """The mixture of the integers without their zero point, times their scale."""
    number: Value = x[0] * x[SCALE + 1]
    return number


def _chunks(kernel: Kernel, size: int, lanes: int, work: Callable[[Operand, int], None]) -> None:
    """The work for each vector, and for what is left at the end."""
    whole, rest = divmod(size, lanes)
    with kernel.loop(whole, "v") as v:
        work(v * lanes, lanes)
    if rest:
        work(whole * lanes, rest)


def _copied(
    kernel: Kernel, source: Buffer, result: Buffer, start: Value, to: Value, channels: int, machine: Machine
) -> None:
    """The channels of one pixel."""

    def copy(first: Operand, count: int) -> None:
        result[to + first] = source.vector(count, start + first)

    _chunks(kernel, channels, machine.lanes * 32 // result.element.bits, copy)


def _each_row(
    kernel: Kernel, batch: int, high: int, steps: int, machine: Machine, write: Callable[[Value, Value], None]
) -> None:
    """What is done for each row of the results; the threads share them."""
    with kernel.tasks(batch * high, "task", machine.threads_for(batch * high * steps) > 1) as task:
        write(kernel.name_value("n", task // high), kernel.name_value("h", task % high))
