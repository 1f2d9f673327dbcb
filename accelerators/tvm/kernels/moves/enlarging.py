"""Enlarged images, in blocked layout: interleaved phases of a transposed convolution, and resizes that blend two pixels of each
dimension. Vectors of channels are moved, or blended, as a whole."""

from __future__ import annotations

import math
from collections.abc import Callable

from partita.accelerators.tvm.bodies.blocked import DOMAIN
from partita.accelerators.tvm.bodies.body import Body
from partita.accelerators.tvm.kernels.language import Kernel, Value, all_of, float32
from partita.accelerators.tvm.kernels.shared.element_access import read, real_shape, write
from partita.accelerators.tvm.kernels.shared.epilogue import Writer, alone, make_epilogue
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft, Problem
from partita.accelerators.tvm.kernels.shared.loops import each_item, kept, smaller
from partita.accelerators.tvm.kernels.shared.window import between, kinds_of
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.machine.parallel_thresholds import MOVES
from partita.accelerators.tvm.sizes.extent import Extent
from partita.graph.node import Node


def interleave(body: Body, machine: Machine) -> Draft | None:
    """The kernel that interleaves rows and columns of all phases; each kind of phases has a value of its own."""
    root, problem = next(node for node in body.ops if node.domain == DOMAIN), Problem.of(body)
    after = make_epilogue(body, root, alone, [(i, i + 1) for i in range(4)])
    result, sources = real_shape(root[0]), [problem.position(entry) for entry in root.inputs]
    if after is None or result is None:
        return None
    batch, blocks, _, lanes = result
    (high, wide), strides, (top, left), (_, width), taps = (
        root.attrs[name] for name in ("result", "strides", "pads", "phases", "taps")
    )
    kernel, inputs, outputs = problem.kernel("interleave", after.operands, [after.results] * len(problem.outputs))
    writer, kinds = Writer(after, inputs, outputs), kinds_of(taps, strides)
    read_from = [inputs[position] for position in sources if position is not None]

    def row(n: Value, block: Value, h: Value) -> None:
        with kernel.loop(wide, "w") as w:
            phase = kernel.name_value("down", (h + top) % strides[0]), kernel.name_value("across", (w + left) % strides[1])
            pixel = kernel.name_value("pixel", (h + top) // strides[0] * width + (w + left) // strides[1])
            for kind, source in zip(kinds, read_from, strict=True):
                own = [at - first for at, first in zip(phase, kind.firsts, strict=True)]
                bounds = zip(own, kind.counts, strides, strict=True)
                tests = [(at >= 0) & (at < count) for at, count, stride in bounds if count < stride]
                with kernel.when(all_of(tests) if tests else None), kernel.lanes(lanes) as lane:
                    number = read(source, (n, (own[0] * kind.counts[1] + own[1]) * blocks + block, pixel, lane))
                    writer.store(number, (n, block, h * wide + w, lane))

    _each_row(kernel, batch, blocks, high, wide * lanes, machine, row)
    return problem.draft(kernel, "interleave")


def resize(body: Body, machine: Machine) -> Draft | None:
    """The kernel for a resize in which each pixel of the result is blended from two rows and two columns of the image."""
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


def enlarge(body: Body, machine: Machine) -> Draft | None:
    """The kernel that turns each pixel of an image of any size into several: copies, or blends with its neighbours."""
    root, problem = body.ops[0], Problem.of(body)
    result = real_shape(root[0])
    if result is None:
        return None
    batch, blocks, _, lanes = result
    (height, width), (high, wide), (down, across) = (root.attrs[name] for name in ("image", "result", "times"))
    kernel, (x,), (y,) = problem.kernel("enlarge")

    def row(n: Value, block: Value, h: Value) -> None:
        if not is_linear(root):
            with kernel.loop(wide, "w") as w:
                write(y, (n, block, h * wide + w, 0), read(x, (n, block, h // down * width + w // across, 0), lanes))
            return
        lines = [
            (kept(kernel, f"line{i}", line * width), share)
            for i, (line, share) in enumerate(mixed_pixels(root, h, down, height))
        ]
        with kernel.loop(wide, "w") as w:
            columns = [
                (kept(kernel, f"column{i}", c), share) for i, (c, share) in enumerate(mixed_pixels(root, w, across, width))
            ]
            rows = []
            for line, row_share in lines:
                parts = [read(x, (n, block, line + c, 0), lanes) * share.spread(lanes) for c, share in columns]
                rows.append((parts[0] + parts[1]) * row_share.spread(lanes))
            write(y, (n, block, h * wide + w, 0), rows[0] + rows[1])

    _each_row(kernel, batch, blocks, high, wide * lanes, machine, row)
    return problem.draft(kernel, "enlarge")


def whole_factors(node: Node, sizes: tuple[int, ...], new_sizes: tuple[int, ...]) -> tuple[int, int] | None:
    """The integer factors, down and across, of a linear Resize, or of one that repeats each pixel, on images of any size; None
    for any other resize."""
    attributes = node.attrs
    mode, transformed = attributes.get("mode", "nearest"), attributes.get("coordinate_transformation_mode", "half_pixel")
    is_plain = attributes.get("axes") is None and not attributes.get("antialias", 0)
    if node.op != "Resize" or not is_plain or attributes.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        return None
    rounding = attributes.get("nearest_mode", "round_prefer_floor")
    repeats = {"asymmetric": ("floor",), "half_pixel": ("round_prefer_floor", "round_prefer_ceil")}.get(transformed, ())
    if mode == "nearest" and rounding not in repeats:
        return None
    if mode not in ("nearest", "linear") or transformed not in ("asymmetric", "half_pixel"):
        return None
    scales = node.inputs[2].node.value if len(node.inputs) > 2 and node.inputs[2] is not None else None
    if scales is None or scales.shape != (4,) or (scales % 1).any():
        return None
    down, across = [int(scale) for scale in scales[2:]]
    return (down, across) if (sizes[0] * down, sizes[1] * across) == tuple(new_sizes) else None


def is_linear(resize: Node) -> bool:
    """True if the resize blends pixels."""
    return bool(resize.attrs.get("mode", "nearest") == "linear")


def mixed_pixels(resize: Node, position: Value, times: int, size: int) -> list[tuple[Value, Value]]:
    """The two pixels that a position of the result blends in one dimension, and their weights, for a linear resize that enlarges
    `times`."""
    is_centred = resize.attrs.get("coordinate_transformation_mode", "half_pixel") == "half_pixel"
    lies = between(position, times, size, is_centred)
    share = lies.beyond.cast(float32) * (1.0 / lies.parts)
    return [(lies.pixels[0], 1.0 - share), (lies.pixels[1], share)]


def _each_row(
    kernel: Kernel, batch: int, blocks: int, high: int, width: int, machine: Machine, row: Callable[[Value, Value, Value], None]
) -> None:
    """Writes the work for each row of each block of each image; tasks are images and bands of rows."""
    threads = machine.threads_for(batch * blocks * high * width, MOVES)
    bands = smaller(threads, high)
    with kernel.tasks(batch * bands, "task", threads > 1) as task:
        is_any = isinstance(high, Extent)
        n, band = kept(kernel, "n", task // bands, is_any), kept(kernel, "band", task % bands, is_any)
        with kernel.loop(blocks, "block") as block:
            first, last = band * high // bands, (band + 1) * high // bands
            with kernel.loop(last - first, "h_") as step:
                row(n, block, kept(kernel, "h", first + step, is_any))


def gpu_enlarge(body: Body, machine: Machine) -> Draft | None:
    """The kernel for a Resize of images [N, C, H, W] alone, nearest or linear, by integer factors; None for any other one."""
    node = body.ops[0]
    image, result = real_shape(node.inputs[0]), real_shape(node[0])
    if image is None or result is None or len(image) != 4:
        return None
    times = whole_factors(node, image[2:], result[2:]) if image[:2] == result[:2] and 0 not in image else None
    if times is None:
        return None
    problem, channels, (height, width), (high, wide) = Problem.of(body), image[0] * image[1], image[2:], result[2:]
    kernel, (x,), (y,) = problem.kernel("enlarge", {0: (channels, height, width)}, [(channels, high, wide)])

    def pixel(channel: Value, row: Value, column: Value) -> Value:
        if not is_linear(node):
            return read(x, (channel, row // times[0], column // times[1]))
        columns = [(kept(kernel, f"c{i}", at), own) for i, (at, own) in enumerate(mixed_pixels(node, column, times[1], width))]
        rows = []
        for line, share in mixed_pixels(node, row, times[0], height):
            parts = [read(x, (channel, line, at)) * own for at, own in columns]
            rows.append((parts[0] + parts[1]) * share)
        return rows[0] + rows[1]

    with each_item(kernel, math.prod((channels, high, wide)), machine.gpu) as item:
        at = kept(kernel, "channel", item // (high * wide)), kept(kernel, "row", item // wide % high), item % wide
        write(y, at, pixel(*at))
    return problem.draft(kernel, "gpu_enlarge")
