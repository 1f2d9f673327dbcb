"""Images made larger, on blocked values: the phases of a transposed convolution dealt out, and resizes that mix two pixels of
each dimension. A vector of channels is moved, or mixed, as a whole."""

from __future__ import annotations

from collections.abc import Callable

from accelerators.tvm.bodies.blocked import DOMAIN
from accelerators.tvm.bodies.body import Body
from accelerators.tvm.kernels.language import Kernel, Value
from accelerators.tvm.kernels.shared.draft import Draft
from accelerators.tvm.kernels.shared.epilogue import Writer, alone, make_epilogue
from accelerators.tvm.kernels.shared.numbers import read, write
from accelerators.tvm.kernels.shared.problem import Problem
from accelerators.tvm.kernels.shared.shapes import real_shape
from accelerators.tvm.machine.machine import Machine
from accelerators.tvm.machine.work import MOVES


def interleave(body: Body, machine: Machine) -> Draft | None:
    """Rows and columns of all phases between each other."""
    root, problem = next(node for node in body.ops if node.domain == DOMAIN), Problem.of(body)
    after = make_epilogue(body, root, alone, [(i, i + 1) for i in range(4)])
    result, source = real_shape(root[0]), problem.position(root.inputs[0])
    if after is None or result is None or source is None:
        return None
    batch, blocks, _, lanes = result
    (high, wide), (down, across), (top, left), (_, width) = (
        root.attrs[name] for name in ("result", "strides", "pads", "phases")
    )
    kernel, inputs, outputs = problem.kernel("interleave", after.operands, [after.results] * len(problem.outputs))
    writer = Writer(after, inputs, outputs)

    def row(n: Value, block: Value, h: Value) -> None:
        with kernel.loop(wide, "w") as w, kernel.lanes(lanes) as lane:
            phase = (h + top) % down * across + (w + left) % across
            pixel = (h + top) // down * width + (w + left) // across
            number = read(inputs[source], (n, phase * blocks + block, pixel, lane))
            writer.store(number, (n, block, h * wide + w, lane))

    _each_row(kernel, batch, blocks, high, wide * lanes, machine, row)
    return problem.draft(kernel, "interleave")


def resize(body: Body, machine: Machine) -> Draft | None:
    """Each pixel of the result from two rows and two columns of the image."""
    root, problem = body.ops[0], Problem.of(body)
    given, result = real_shape(root.inputs[0]), real_shape(root[0])
    if given is None or result is None:
        return None
    batch, blocks, _, lanes = result
    (_, width), (high, wide) = root.attrs["image"], root.attrs["result"]
    kernel, inputs, (y,) = problem.kernel("resize")
    x, rows, row_shares, columns, shares = (inputs[problem.positions[e]] for e in root.inputs if e is not None)

    def row(n: Value, block: Value, h: Value) -> None:
        def at(w: Value, i: int, j: int) -> Value:
            pixel = rows[h, i].as_index() * width + columns[w, j].as_index()
            return read(x, (n, block, pixel, 0), lanes)

        def mixed(w: Value, i: int) -> Value:
            parts = [at(w, i, j) * shares[w, j].spread(lanes) for j in (0, 1)]
            return (parts[0] + parts[1]) * row_shares[h, i].spread(lanes)

        with kernel.loop(wide, "w") as w:
            write(y, (n, block, h * wide + w, 0), at(w, 0, 0) if root.attrs["nearest"] else mixed(w, 0) + mixed(w, 1))

    _each_row(kernel, batch, blocks, high, wide * lanes, machine, row)
    return problem.draft(kernel, "resize")


def _each_row(
    kernel: Kernel, batch: int, blocks: int, high: int, width: int, machine: Machine, row: Callable[[Value, Value, Value], None]
) -> None:
    """The work for each row of each block of each image; tasks over images and bands of rows."""
    bands = min(machine.threads_for(batch * blocks * high * width, MOVES), high)
    with kernel.tasks(batch * bands, "task", bands > 1) as task:
        n, band = kernel.name_value("n", task // bands), kernel.name_value("band", task % bands)
        with kernel.loop(blocks, "block") as block:
            first, last = band * high // bands, (band + 1) * high // bands
            with kernel.loop(last - first, "h_") as step:
                row(n, block, kernel.name_value("h", first + step))
