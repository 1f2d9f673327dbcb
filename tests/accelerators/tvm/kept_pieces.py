"""Drawn pieces of kernels and of what surrounds them: dynamic sizes and views, loops over counts, the code of tiles, layouts of
weights, lists of launches, and kernels for Arm.

`python -m tests.accelerators.tvm.kept_pieces` writes the file that `test_kept_cuts.py` compares with anew."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import partita as pt
from partita.accelerators import accelerator
from partita.accelerators.errors import CompileError
from partita.accelerators.tvm.code import launch_sizes
from partita.accelerators.tvm.code import launches as launches_of
from partita.accelerators.tvm.compiled import gpu_serialization, launch_list
from partita.accelerators.tvm.kernels.contraction import amx, gpu_tiles, packing, panels
from partita.accelerators.tvm.kernels.contraction import instruction_meanings as instructions
from partita.accelerators.tvm.kernels.contraction.convolution import channels
from partita.accelerators.tvm.kernels.language import Kernel, Operand, Value, bfloat16, float32, int8, int32, uint8, uint16
from partita.accelerators.tvm.kernels.language.values import as_index
from partita.accelerators.tvm.kernels.shared import loops
from partita.accelerators.tvm.layouts import kept_weights
from partita.accelerators.tvm.sizes.extent import floor_named, is_less, is_multiple, known_least, value_of
from partita.accelerators.tvm.sizes.floors import floored, same_padding
from partita.accelerators.tvm.sizes.sizing import forms_for_any_size
from partita.accelerators.tvm.sizes.views import SizedView
from partita.graph.errors import PartitaError
from partita.graph.types import numpy_dtype
from tests.accelerators.tvm.kept_cuts import NEON, PROCESSORS, ROWS, dynamic, line_of, sum_of
from tests.accelerators.tvm.planned import MACHINES, graph_of, kernels, precision_of, written
from tests.kept import write_kept

KEPT = Path(__file__).with_name("kept_pieces.txt")


def _said(asked: Callable[[], object]) -> object:
    """The answer, or the cause of the error."""
    try:
        answer = asked()
    except CompileError as error:
        return error.cause
    return round(answer, 6) if isinstance(answer, float) else answer


def _size(rng: random.Random, deep: int = 2) -> Any:
    """A size: a number, a symbol, or what is computed of these."""
    if deep == 0 or rng.random() < 0.25:
        return rng.choice((rng.randint(0, 9), dynamic("s0"), dynamic("s1"), dynamic("s2_plus_1_by_2"), dynamic("s0")))
    a, b = _size(rng, deep - 1), _size(rng, deep - 1)
    return rng.choice((a + b, a - b, a * b, a * rng.randint(1, 6), a + rng.randint(-3, 3)))


def sizes(rng: random.Random) -> Iterator[object]:
    """Facts about dynamic sizes, and views of tensors that have such."""
    a, b, n, mode = _size(rng) or 7, _size(rng) or 8, rng.choice((1, 2, 3, 4, 6, 8)), rng.choice(("SAME_UPPER", "SAME_LOWER"))
    asked: list[Callable[[], object]] = [
        lambda: a + b, lambda: a - b, lambda: n - a, lambda: -a, lambda: a * b, lambda: a // n, lambda: a % n, lambda: a // b,
        lambda: (a * b) // a, lambda: a % b, lambda: a < b, lambda: a <= b, lambda: a > b, lambda: a >= n, lambda: a == b,
        lambda: floored(a, n), lambda: floored(a * rng.choice((1, 2, 3)) + 1, n), lambda: same_padding(a, n + 1, n, mode),
        lambda: same_padding(rng.randint(1, 50), rng.randint(1, 7), n, mode), lambda: loops.smaller(a, b) in (a, b),
        lambda: loops.larger(a, b) in (a, b),
    ]
    yield [_said(one) for one in asked]
    yield [known_least(one) for one in (a, b)], is_less(a, b), is_multiple(a, n)
    yield getattr(a, "least", None), getattr(b, "symbols", 0), floor_named(f"s1_plus_{n}_by_{n + 1}")
    yield value_of(a, {"s0": 3, "s1": 5, "s2_plus_1_by_2": 4})
    listed = (1, 2, 3, 6, dynamic("s0"), dynamic("s1"), dynamic("s0") * 2)
    view = SizedView.whole([rng.choice(listed) for _ in range(rng.randint(1, 4))])
    for _ in range(rng.randint(1, 3)):
        moved = _said(partial(_moved, view, rng))
        yield moved
        view = moved if isinstance(moved, SizedView) else view


def _moved(view: SizedView, rng: random.Random) -> object:
    """Another view of the same elements."""
    axis, shape = rng.randrange(view.ndim), view.shape
    kind = rng.choice(("transpose", "part", "every", "one", "broadcast", "joined", "split", "flat", "other"))
    if kind == "transpose":
        return view.transpose(rng.sample(range(view.ndim), view.ndim))
    if kind in ("part", "every"):
        return view.part(axis, 1, 2) if kind == "part" else view.every(axis, 2, 3)
    if kind == "one" and view.ndim > 1:
        return view.one(axis, 1)
    if kind == "broadcast":
        return view.broadcast([2, *shape] if axis else [3 if size == 1 else size for size in shape])
    if kind == "joined" and axis + 1 < view.ndim:
        return view.reshape([*shape[:axis], shape[axis] * shape[axis + 1], 1, *shape[axis + 2 :]])  # type: ignore[operator]
    if kind == "split":
        return view.reshape([*shape[:axis], rng.choice((1, 2, 3)), *shape[axis:]])
    return view.reshape([math.prod(shape)] if kind == "flat" else [*shape[:axis], 2, *shape[axis + 1 :]])


def counts(rng: random.Random) -> Iterator[object]:
    """Loops over counts, and the pieces into which these are cut."""
    kernel, listed = Kernel("counts"), [rng.choice((1, 1, 2, 5, 16, 17, 64, dynamic("s0"), dynamic("s1"))) for _ in range(3)]
    machine = rng.choice([*PROCESSORS, MACHINES["sm_80"]])
    amount: Any = math.prod(listed) * rng.choice((1, 50, 1000))
    is_shared = loops.is_shared_out(amount, machine, rng.choice((100, 1000, 65_536)))
    sums = kernel.stack("sums", float32, (64,))
    with loops.nest(kernel, listed, is_shared) as indices:
        for d, index in enumerate(indices):
            sums[d] = as_index(index).cast(float32)
    step, size = rng.choice((1, 3, 4, 8, 16)), rng.choice((16, 17, 31, 32, 40, dynamic("s0") + 16, dynamic("s0") * 8))

    def work(first: Operand, many: int) -> None:
        sums[as_index(first)] = float(many)

    loops.each_piece(kernel, size, step, work)
    loops.each_vector(kernel, size, step, work)
    with kernel.loop(as_index(loops.pieces(size, step)), "piece") as piece:
        sums[as_index(loops.start(piece, step, size if isinstance(size, int) else as_index(size)))] = 1.0
    a, b = _size(rng), _size(rng)
    sums[as_index(loops.smaller(a, b))] = as_index(loops.larger(a, b)).cast(float32)
    if isinstance(size, int):
        yield loops.starts(size, step)
    yield str(kernel)


def fragments(rng: random.Random) -> Iterator[object]:
    """The code of tiles: of vectors, of tile registers, by each instruction."""
    kernel, depth = Kernel("fragment"), rng.choice((1, 2, 3, 4, 7, 8, 16, 33, 64))
    machine, kind = rng.choice(PROCESSORS), rng.choice(("float32", "bfloat16", "float16", "int8"))
    rows, vectors = rng.choice((1, 2, 3, 4, 6)), rng.choice((1, 2, 3))
    dot = rng.choice((instructions.instruction_for_bytes(machine), instructions.plain_bytes(4)))
    one = instructions.instruction_for(kind, machine) if kind not in ("float32", "int8") else instructions.FMA
    made: dict[str, Any] = {
        "bytes": uint8, "columns": int8, "left": float32, "right": float32 if one.widens else uint16,
        "words": bfloat16 if one.group > 1 else float32, "lefts": dot.left_element, "packed": uint16,
    }
    buffers = {name: kernel.input(name, element, (4096,)) for name, element in made.items()}
    rounded, out = kernel.input("pairs", uint16, (64, 64)), kernel.output("out", float32, (4096,))
    if kind == "int8":
        acc = kernel.registers("acc", int32, (rows, vectors), dot.lanes)
        word = dot.left(buffers["lefts"], rng.randint(0, 9))
        dot.step(kernel, acc, (rows - 1, vectors - 1), word, buffers["columns"], as_index(dot.right_size))
        unit = amx.unit_for_bytes(rows * 7, 4 * depth, vectors, rng.random() < 0.5)
        numbers = buffers["bytes"], buffers["columns"]
    else:
        tile = panels.PanelTile(rows * one.rows, vectors, one.lanes or machine.lanes)
        panel = panels.Panel(buffers["right"], 3, tile.width * one.group, one)
        left, words = buffers["left"], buffers["words"]
        acc = tile.product(
            kernel, rng.choice((depth, dynamic("s0"))) if one.group == 1 else depth, lambda r, k: left[r * depth + k], panel,
            lambda r, k: one.left(words, r * depth + k * one.group), rng.choice((1, 2, 4)))

        def store(total: Value, r: Value, c: Value) -> None:
            out[r * tile.width + c] = total

        tile.finish(kernel, acc, store, rng.random() < 0.3)
        unit = amx.TileUnit(rows, *rng.choice(((1, 2), (2, 2), (1, 4))), 2 * min(depth, 16), rng.random() < 0.5)
        numbers = rounded, buffers["packed"]

    def operands(k: Value) -> tuple[list[amx.Left], list[amx.Right]]:
        at = (k, k * 4) if unit.is_rounded else (k * 4,)
        return ([amx.Left(numbers[0], at, depth) for _ in range(unit.high)],
                [amx.Right(numbers[1], k * 8 + j, 64) for j in range(unit.wide)])

    with unit.configured(kernel):
        amx.product_of_tiles(unit, kernel, rng.randint(1, 3), operands)
    tasks, pairs, height = rng.choice((1, 2, 8)), rng.choice((3, 8)), rng.choice((5, dynamic("s1")))
    cell = kernel.stack("cell", int32, (4,))

    def work(pair: Value) -> Callable[[Value], None]:
        def each(t: Value) -> None:
            cell[0] = (pair * 8 + t).cast(int32)

        return each

    panels.share_out(kernel, pairs, height if isinstance(height, int) else as_index(height), tasks, work)
    panels.by_size(kernel, as_index(height), {2: 5, 4: rng.choice((8, 10, 11))}, lambda size: work(as_index(size))(as_index(1)))
    yield str(kernel), panels.at_most(tasks, pairs), unit.heights()[0].rows, unit.size, unit.group


def launches(rng: random.Random) -> Iterator[object]:
    """The formulas by which the sizes of launches are computed."""
    a, b = rng.choice((rng.randint(-9, 40), rng.randint(-50, 50) / 4)), rng.choice((1, 2, 3, 5, 7, -3, 0, 2.5))
    for name, operator in launch_sizes.ARITHMETIC.items():
        is_whole = isinstance(a, int) and isinstance(b, int) and (b >= 0 or "Shift" not in name)
        if (is_whole or ("Shift" not in name and "Bitwise" not in name)) and (b or not name.endswith(("Div", "Mod"))):
            yield name, operator(a, b)
            given = launch_sizes.joined(name, launch_sizes.Given(1), launch_sizes.joined("Add", b, launch_sizes.Given(0)))
            formula = launch_sizes.with_arguments(given, (0, a, dynamic("s0")))
            yield formula, launch_sizes.number_at(launch_sizes.joined("Add", dynamic("s0"), 2), {"s0": 5})
    for name, function in launch_sizes.CALLS.items():
        taken = (b, a, 3) if name.endswith("else") else (abs(int(a)) + 1, 2) if "shift" in name else (abs(a) + 1,)
        yield name, function(*taken)


def layouts(rng: random.Random) -> Iterator[object]:
    """Weights in the order in which kernels read them."""
    machine, lanes = rng.choice(PROCESSORS), rng.choice((4, 8, 16))
    depth, columns = rng.choice((1, 2, 3, 7, 8, 9, 16, 17, 40)), rng.choice((1, 2, 4, 7, 8, 15, 16, 17, 33, 70))
    numbers = np.arange(depth * columns).reshape(depth, columns) % 255 - 127
    width, kind, is_turned = rng.randint(1, columns), rng.choice(("float32", "bfloat16", "float16")), rng.random() < 0.5
    factor = rng.choice((1.0, 1.0, 0.5)) if kind == "float32" else 1.0
    flat = packing.PanelLayout(depth, columns, width, rng.choice((1, 2, 4)), is_turned, kind, factor)
    made = flat(np.ascontiguousarray(numbers.T if is_turned else numbers).astype(np.float32))
    yield flat.steps, flat.panel_size, flat.size, sum_of(made.astype(np.float32))
    bits, is_signed = rng.choice((8, 4)), rng.random() < 0.5
    packed = packing.Packing(bits, is_signed, depth, columns, lanes)
    stored = numbers if bits == 8 else numbers % 16 - 8 * is_signed
    yield packed.attributes, packing.Packing.of(packed.attributes) == packed, packed.blocks, packed.panels, packed.steps
    yield sum_of(packed.pack(stored + 127 * (not is_signed and bits == 8))), sum_of(packed.by_block(numbers)), packed.element.name
    kernel = Kernel("packed")
    buffer, out = kernel.input("buffer", packed.element, (packed.size,)), kernel.output("out", float32, (64,))
    with kernel.loop(columns, "column") as column, kernel.loop(depth, "k") as k:
        out[as_index(flat.column(column))] = packed.number(buffer, column, k)
        across, count = rng.choice((1, 3, 4)), rng.choice((1, 2, 8)) if bits == 4 else rng.choice((1, 3))
        half = packing.half_of(packed, kernel, machine)
        listed = packed.vectors(kernel, buffer, packed.panel(column), k, across, count, half)
        for i, value in enumerate(itertools.chain.from_iterable(listed)):
            kernel.registers(f"vector{i}", float32, (1,), lanes)[0] = value
        out[as_index(packed.start(column))] = 1.0
    yield str(kernel)
    groups, each = rng.choice((1, 1, 2, 3)), (rng.choice((1, 3, 4, 16, 32)), rng.choice((1, 2, 4, 5, 16, 20)))
    ins, outs, taps = each[0] * groups, each[1] * groups, (rng.choice((1, 3)), rng.choice((1, 2, 3)))
    vectors, is_plain = rng.choice((1, 2, 3)), rng.random() < 0.3
    reach = max(channels.reaches(ins, outs, groups, vectors * lanes))
    chunk = rng.choice([size for size in (lanes, reach) if reach % size == 0 and not is_plain] or [reach])
    order = channels.Channels(ins, outs, groups, vectors, lanes, is_plain, 1, chunk, rng.choice((1, 2)) if ins % 2 == 0 else 1)
    filters = (np.arange(outs * each[0] * math.prod(taps)) % 251).reshape(outs, each[0], *taps).astype(np.float32)
    yield order.by_block, sum_of(order.pack(filters)), sum_of(order.pack_bias(np.arange(outs, dtype=np.float32)))
    rounded = np.array([1.0, 1 + 2**-11, 1 + 3 * 2**-12, -1e-40, np.inf, 3.0 + rng.random()], np.float32)
    yield sum_of(gpu_tiles.round_to_tf32(rounded))


def _lists(rng: random.Random) -> Any:
    """A list of launches, of fixed sizes or of any size."""
    is_open, count = rng.random() < 0.5, rng.randint(1, 4)
    drawn = 1, 3, 8, dynamic("s0") if is_open else 5
    shapes: list[Any] = [[rng.choice(drawn) for _ in range(rng.randint(1, 3))] for _ in range(count)]
    kinds = [rng.choice(("float32", "uint8", "bfloat16")) for _ in shapes]
    sizes = [math.prod(shape) * numpy_dtype(kind).itemsize for shape, kind in zip(shapes, kinds)]
    number = launches_of.Number("int32", launch_sizes.joined("Mul", dynamic("s0") if is_open else 2, 4))
    arguments = (*range(count), *([number] if rng.random() < 0.5 else []))
    slots, made, steps = [i % count for i in range(count + 1)], list[Any](), tuple[Any, ...]()
    if is_open:
        groups = launch_sizes.joined("FloorDiv", launch_sizes.joined("Add", dynamic("s0"), 3), 4), 1, 2
        made = [launch_list.OpenSlot(i, tuple(shapes[i]), kinds[i]) for i in slots]
        steps = tuple([launch_list.OpenStep(i, f"kernel{i}", arguments, groups, (32, 1, 1), 64 * i) for i in range(2)])
        inside = (launch_list.Inside(count, 0, 8),) if isinstance(sizes[0], int) else ()
        calls = tuple([tuple(range(count)) for _ in range(2)])
        return launch_list.OpenSteps(("source",), (*sizes, 4), calls, tuple(made[:-1]), (made[-1],), steps, inside)
    made = [launch_list.Slot(i, tuple(shapes[i]), kinds[i]) for i in slots]
    steps = tuple([launch_list.Step(i, f"kernel{i}", arguments, (2, 1, i + 1), (32, 1, 1), 64 * i) for i in range(2)])
    parts = tuple([launch_list.Part(i, 4 * i, max(1, sizes[i] - 4 * i)) for i in range(rng.randint(0, 2) % count)])
    return launch_list.StepList(("source",), tuple(sizes), tuple(made[:-1]), (made[-1],), steps, parts)


def lists(rng: random.Random) -> Iterator[object]:
    """Lists of launches, written and read again, also with an edit, and what a call makes of one for any size."""
    steps: Any = _lists(rng)
    words = json.loads(json.dumps({**gpu_serialization._written(steps), "source": "source"}))
    check: Any = gpu_serialization._fits_any_size if isinstance(steps, launch_list.OpenSteps) else gpu_serialization._fits
    again = gpu_serialization._read(words)
    yield words, check(steps), gpu_serialization._written(again) == gpu_serialization._written(steps)
    if isinstance(steps, launch_list.OpenSteps):
        sizes = steps.sizes_of([tuple([value_of(size, {"s0": 6}) for size in slot.shape]) for slot in steps.inputs])
        then = steps.at({"s0": 6}, rng.choice(((), (0,))))
        yield sizes, gpu_serialization._written(then), steps.is_open, steps.source
    needed = [rng.choice((1, 4, 8, 9, 16, 17, 40)) for _ in range(8)]
    calls = [rng.sample(range(8), rng.randint(1, 4)) for _ in range(6)]
    yield launch_list.planned(needed, calls, rng.sample(range(8), 2))
    joints = {i: launch_list.Joint(tuple(call[1:]), call[0]) for i, call in enumerate(calls)}
    yield launch_list.joined(joints, [rng.choice((16, 32, 8, 0, dynamic("s0"))) for _ in needed], {1}, rng.choice((1, 8, 16)))
    for _ in range(6):
        place = inner = json.loads(json.dumps(words))
        changed = rng.choice((-1, 0, 1, 2, 9, 1.5, "x", None, [], [1], {"join": "Pow", "of": [1, 2]}))
        while True:
            key = rng.choice(list(inner) if isinstance(inner, dict) else range(len(inner)))
            if not isinstance(inner[key], (dict, list)) or not inner[key] or rng.random() < 0.1:
                break
            inner = inner[key]
        inner[key] = changed
        try:
            yield check(gpu_serialization._read(place))
        except (TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
            yield type(error).__name__


def stored(rng: random.Random) -> Iterator[object]:
    """Constant matrices of integers with scales and zero points: those that stay packed, and those that are beside them."""
    for _ in range(8):
        depth, columns = rng.choice((1, 2, 3, 4, 6, 8)), rng.choice((1, 2, 3, 4, 6, 8))
        is_turned, axis, block = rng.random() < 0.5, rng.choice((0, 1, -1, None)), rng.choice((0, 0, 1, 2, 4))
        kind = rng.choice(("int8", "uint8", "int8", "uint8", "int4", "uint4", "int32", "uint16"))
        low, high = {"int8": (-128, 127), "uint8": (0, 255), "int4": (-8, 7), "uint4": (0, 15)}.get(kind, (0, 99))
        whole = rng.choice((high, high // 2))
        numbers = np.array([rng.randint(low, whole) for _ in range(depth * columns)]).astype(numpy_dtype(kind))
        blocks = -(-depth // (block or depth))
        by_block = (blocks, columns), (columns, blocks)
        sizes = rng.choice(((), (1,), (1, 1), (columns,), (columns,), (depth,), (1, 1, 1), *by_block, *by_block))
        scale = np.array([rng.choice((0.5, 2.0, 1.0)) for _ in range(math.prod(sizes))], rng.choice((np.float32, np.float16)))
        if rng.random() < 0.1:
            scale[:1] = rng.choice((0.0, -1.0, 1e-30, 6e4))
        few = np.array([rng.choice((0, 0, max(low, -3), 3)) for _ in range(math.prod(sizes))]).astype(numbers.dtype)
        matrix = numbers.reshape((columns, depth) if is_turned else (depth, columns))
        inputs = [pt.constant(matrix), pt.constant(scale.reshape(sizes))]
        if rng.random() < 0.6:
            inputs.append(pt.constant(few.reshape(sizes if rng.random() < 0.9 else (*sizes, 1))))
        options: dict[str, Any] = {**({} if axis is None else {"axis": axis}), **({"block_size": block} if block else {})}
        made = kept_weights.stored_matrix(pt.op("DequantizeLinear", *inputs, opset=23, **options), is_turned)
        if made is None:
            yield None
            continue
        yield made.bits, made.signed, made.block, None if made.points is None else sum_of(made.points.astype(np.int16))
        yield sum_of(made.numbers.astype(np.int16), made.scales.astype(np.float32))


SIZED = (
    "(float[N,3] x, int64[2] z) => "
    "(float[] y) {{ s = Shape (x) c = Constant <value_ints = [{a},1]> () d = Sub (s, c) y = Tile (x, d) }}",
    "(float[N,M] x) => "
    "(float[] y) {{ s = Shape <start = 1> (x) o = Constant <value_ints = [{a}]> () d = Concat <axis = 0> (o, s) "
    "y = Tile (x, d) }}",
    "(float[N,8] x) => (float[] y, float[] z) {{ y, z = Split <num_outputs = 2, axis = {b}> (x) }}",
    "(float[N,{a}] x) => (float[] y) {{ y, z, v = Split <num_outputs = 3, axis = 0> (x) }}",
    "(float[1,{a},H,W] x) => "
    "(float[] y) {{ y = MaxPool <kernel_shape = [3,{a}], strides = [{a},2], auto_pad = \"SAME_LOWER\"> (x) }}",
    "(float[1,2,H,W] x) => (float[] y, int64[] z) {{ y, z = MaxPool <kernel_shape = [{a},2]> (x) }}",
    "(float[1,2,H,W] x, float[3,2,3,{a}] w) => "
    "(float[] y) {{ y = Conv <auto_pad = \"SAME_UPPER\", strides = [{a},{a}]> (x, w) }}",
    "(float[1,2,H,9] x, float[3,2,3,3] w) => (float[] y) {{ y = Conv <dilations = [{a},2], auto_pad = \"SAME_LOWER\"> (x, w) }}",
    "(float[1,2,H,W] x, float[3,M,3,3] u) => (float[] y) {{ y = Conv (x, u) }}",
    "(float[1,2,H,W] x, float[2,3,{a},3] w) => "
    "(float[] y) {{ y = ConvTranspose <strides = [2,{a}], pads = [{b},1,1,{b}]> (x, w) }}",
    "(float[1,2,H,W] x, float[2,3,3,3] w) => "
    "(float[] y) {{ y = ConvTranspose <auto_pad = \"SAME_UPPER\", strides = [{a},1]> (x, w) }}",
    "(float[N,M] x) => (float[] y) {{ p = Constant <value_ints = [{b},0,{a},{b}]> () y = Pad <mode = \"{mode}\"> (x, p) }}",
    "(float[N,M] x) => "
    "(float[] y) {{ p = Constant <value_ints = [{a},{b}]> () e = Constant <value_ints = [1]> () "
    "y = Pad <mode = \"{mode}\"> (x, p, , e) }}",
    "(float[N,3] x) => "
    "(float[] y) {{ s = Shape <end = 1> (x) o = Constant <value_ints = [{a},0,{b}]> () p = Concat <axis = 0> (s, o) "
    "y = Pad (x, p) }}",
    "(float[N,{a},4] x) => (float[] y) {{ f = Constant <value_floats = [1.0,{b}.0,2.0]> () y = Resize (x, , f) }}",
    "(float[N,C,H,W] x) => (float[] y) {{ f = Constant <value_floats = [1.0,{a}.0,{b}.0,2.0]> () y = Resize (x, , f) }}",
    "(float[N,H] x) => (float[] y) {{ f = Constant <value_floats = [{b}.0,{a}.0]> () y = Resize (x, , f) }}",
    "(float[N,3,H] x) => (float[] y) {{ s = Shape (x) y = Resize <mode = \"linear\"> (x, , , s) }}",
    "(float[N,3,H] x, float[3] f) => (float[] y) {{ y = Resize (x, , f) }}",
    "(float[N,B,{a}] x, float[1,8,{a}] w, float[1,8,2] w1) => (float[] y) {{ y = LSTM <hidden_size = 2> (x, w, w1) }}",
    "(float[N,B,{a}] x, float[1,8,{a}] u, float[1,8,2] w1) => (float[] y) {{ y = LSTM <hidden_size = 2> (x, u, w1) }}",
    "(double[N,B,2] x, double[1,8,2] w, double[1,8,2] w1) => (double[] y) {{ y = LSTM <hidden_size = 2> (x, w, w1) }}",
    "(float[N,M] x) => (float[] y) {{ a = Constant <value_ints = [{b}]> () y = ReduceMax <keepdims = {b}> (x, a) }}",
    "(float[N,{a}] x, float[K,{a}] z) => (float[] y) {{ c = Concat <axis = 0> (x, z) y = Softmax (c) }}",
    "(float[N,{a}] x) => (float[] y) {{ s = Constant <value_ints = [-1,{a},{a}]> () y = Reshape (x, s) }}",
    "(float[N,M] x) => "
    "(float[] y) {{ i = Constant <value_ints = [{b}]> () e = Constant <value_ints = [{a}]> () y = Slice (x, i, e) }}",
    "(float[N,M] x) => "
    "(float[] y) {{ i = Constant <value_ints = [-{a}]> () e = Constant <value_ints = [-{b}]> () y = Slice (x, i, e) }}",
)
"""Graphs with dynamic sizes, some of whose numbers are drawn."""


def needs(rng: random.Random) -> Iterator[object]:
    """What forms for any size ask of the sizes of a call, or why there is none."""
    text, numbers = rng.choice(SIZED), {"a": rng.choice((1, 2, 3, 4)), "b": rng.choice((0, 1, 1, 2))}
    text = text.format(**numbers, mode=rng.choice(("constant", "reflect", "edge", "wrap")))
    yield text
    try:
        for form in forms_for_any_size(accelerator("cpu").transform(written(text))):
            yield form.inputs, form.conditions, form.counts, dict(form.rounded), form.filled, str(form.graph)
    except (PartitaError, TypeError, ValueError, AssertionError, IndexError) as error:
        yield type(error).__name__, getattr(error, "cause", None)


ARM = (
    "quantized: quantized product 1x64x64", "quantized: quantized product 33x100x7", "quantized: quantized product 128x256x128",
    "quantized: quantized convolution, 3x3", "quantized: quantized convolution, pointwise", "quantized: quantized mean",
    "quantized: quantized convolution, depthwise", "quantized: quantized convolution, first", "quantized: dynamic product",
    "quantized: half bytes 1", "quantized: half bytes 30", "products: float 37x64x48", "products: bfloat16 37x64x48",
    "products: bfloat16 1x768x768", "convolutions: float convolution, 3x3", "convolutions: bfloat16 convolution, 3x3",
    "convolutions: bfloat16 convolution, pointwise", "convolutions: float convolution, depthwise", "recurrent: LSTM 5 2",
    "attention: masked attention 33 33 20", "attention: bfloat16 grouped heads", "any_size: tokens", "any_size: image",
    "narrow: products: product and gelu", "narrow: convolutions: fire",
)
"""Graphs whose kernels contain instructions that Arm's processors alone have."""


def arm(rng: random.Random) -> Iterator[object]:
    """Kernels for Arm's processors, with and without instructions for two rows at once."""
    for name in rng.sample(ARM, 3):
        for machine in (NEON, ROWS):
            yield name, [summary for summary, _ in kernels(graph_of(name), machine, precision_of(name))]


KINDS: dict[str, tuple[Callable[[random.Random], Iterator[object]], int]] = {
    "sizes": (sizes, 600), "counts": (counts, 200), "fragments": (fragments, 250), "launches": (launches, 40),
    "layouts": (layouts, 250), "lists": (lists, 150), "stored": (stored, 150),
    "needs": (needs, 150), "arm": (arm, 24),
}

SUBJECTS = [f"{kind} {number}" for kind, (_, count) in KINDS.items() for number in range(count)]


def lines(subject: str) -> list[str]:
    """The kept form of a subject: the beginning of the first that is told of it, and a sum over all."""
    made, _ = KINDS[subject.rpartition(" ")[0]]
    return line_of(subject, [str(one) for one in made(random.Random(subject))])


if __name__ == "__main__":
    write_kept(KEPT, SUBJECTS, lines)
