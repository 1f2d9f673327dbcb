"""Drawn sizes on machines that need not be here: how products, convolutions and layers of each kind are cut, what every candidate
costs that was not taken, and the layouts that follow.

`python -m tests.accelerators.tvm.kept_cuts` writes the file that `test_kept_cuts.py` compares with anew."""

from __future__ import annotations

import itertools
import json
import math
import random
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from partita.accelerators.errors import CompileError
from partita.accelerators.tvm.code import launch_sizes
from partita.accelerators.tvm.code import launches as launches_of
from partita.accelerators.tvm.compiled import gpu_serialization, launch_list
from partita.accelerators.tvm.kernels.contraction import gpu_tiles, instructions, packing, tile_registers, tiles
from partita.accelerators.tvm.kernels.contraction.convolution import bands, channels, plain
from partita.accelerators.tvm.kernels.contraction.convolution.image import Image
from partita.accelerators.tvm.kernels.contraction.matmul import gemm
from partita.accelerators.tvm.kernels.contraction.quantized import byte_depthwise, cut, matmul
from partita.accelerators.tvm.kernels.contraction.quantized.bands import Frame, bands_of
from partita.accelerators.tvm.kernels.contraction.recurrent import weights
from partita.accelerators.tvm.kernels.contraction.recurrent.cells import HIDDEN, Part
from partita.accelerators.tvm.kernels.language import (
    Buffer,
    Kernel,
    Operand,
    Value,
    bfloat16,
    float32,
    int8,
    int32,
    uint8,
    uint16,
)
from partita.accelerators.tvm.kernels.language.values import as_index
from partita.accelerators.tvm.kernels.shared import loops, window
from partita.accelerators.tvm.kernels.shared.choice import choose
from partita.accelerators.tvm.machine.gpu import CORES, cuda_gpu, opencl_gpu
from partita.accelerators.tvm.machine.instructions import INSTRUCTIONS, WARP_PRODUCTS, Used, best_instructions
from partita.accelerators.tvm.machine.machine import Machine, gpu_machine, named_machine, opencl_machine
from partita.accelerators.tvm.machine.processor import PROCESSORS as NAMED_PROCESSORS
from partita.accelerators.tvm.machine.processor import processor_named
from partita.accelerators.tvm.sizes.extent import floor_named, is_less, is_multiple, known_least, symbol, value_of
from partita.accelerators.tvm.sizes.floors import floored, same_padding
from partita.accelerators.tvm.sizes.views import SizedView
from partita.graph.types import numpy_dtype
from tests.accelerators.tvm.planned import MACHINES

KEPT = Path(__file__).with_name("kept_cuts.txt")

NEON = Machine("cpu", "neoverse-n1", 2, 4, 32, (Used("sdot"), Used("fmlal")), fuses=True, near=48 << 10)
ROWS = Machine("cpu", "neoverse-v1", 4, 4, 32, (Used("usmmla"), Used("bfmmla"), Used("fmlal")), fuses=True, near=48 << 10)
EMULATED = attrs.evolve(MACHINES["amx"], threads=2, instructions=(Used("amx-int8", True), Used("amx-bf16", True)))
SLOW = attrs.evolve(MACHINES["many"], arch="sapphirerapids", threads=3)
PROCESSORS = [*(machine for machine in MACHINES.values() if not machine.is_gpu), NEON, ROWS, EMULATED, SLOW]
GPUS = [*map(cuda_gpu, ("sm_70", "sm_75", "sm_80", "sm_86", "sm_90a")), opencl_gpu("256x32768"), opencl_gpu("64x16384+fp16")]

CHANNELS = (1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 24, 31, 32, 33, 48, 63, 64, 65, 96, 128, 192, 256, 320, 512, 1024)
BLOCKS = (16, 32, 48, 64, 80, 112, 128, 192, 240, 256, 320, 512, 576, 768, 1024, 1536, 2048, 4096)
SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 14, 15, 16, 17, 27, 28, 31, 32, 33, 55, 56, 64, 112, 150)
LONG = (*CHANNELS, 100, 197, 384, 511, 768, 1000, 1536, 2048, 3072, 4096)
"""Sizes at which a plan turns, and beside these."""
DEEP = (60, 61, 63, 64, 252, 253, 255, 256, 257, 260, 1020, 1024, 1025, 1028)
"""Depths of products of bytes at which one turns."""


@attrs.define(slots=True)
class Costs:
    """What candidates cost, as they are chosen from."""

    asked: list[str] = attrs.field(factory=list)

    def choose(self, what: str, candidates: Iterable[Any], cost: Callable[[Any], Any]) -> Any:
        """The candidate that is chosen; the costs of all are noted."""
        listed = list(candidates)
        self.asked += [f"{what} {len(listed)}", *(_number(cost(one)) for one in listed)]
        return choose(what, listed, cost)


@contextmanager
def costs() -> Iterator[Costs]:
    """Inside the block, costs of candidates are noted."""
    noted = Costs()
    modules = [module for name, module in sys.modules.items() if name.startswith("partita.accelerators.tvm.kernels.contraction")]
    patched = [module for module in modules if getattr(module, "choose", None) is choose]
    for module in patched:
        module.choose = noted.choose  # type: ignore[attr-defined]
    try:
        yield noted
    finally:
        for module in patched:
            module.choose = choose  # type: ignore[attr-defined]


def _number(cost: Any) -> str:
    """A cost without the last digits of its fractions."""
    return " ".join(f"{float(part):.9g}" for part in cost) if isinstance(cost, tuple) else f"{float(cost):.9g}"


def _sum(*parts: object) -> str:
    """A sum over the texts of these, or over the bytes of arrays."""
    total = 0
    for part in parts:
        total = zlib.crc32(part.tobytes() if isinstance(part, np.ndarray) else str(part).encode(), total)
    return f"{total:08x}"


def dynamic(name: str) -> Any:
    """A size that is known when a model is called."""
    return symbol(name)


def _window(rng: random.Random, is_any: bool = False, taps: Sequence[int] = (1, 1, 2, 3, 3, 5, 7)) -> window.Window:
    """A window over an image of drawn sizes, or of dynamic ones."""
    def pair(values: Sequence[int]) -> tuple[int, int]:
        first = rng.choice(values)
        return first, first if rng.random() < 0.7 else rng.choice(values)

    sizes, size, strides = pair(SIZES), pair(taps), pair((1, 1, 1, 2, 3))
    column, tall = ((rng.choice(LONG), 1), (size[0], 1)), ((rng.choice(SIZES) * 9, sizes[1]), size)
    sizes, size = rng.choice((*((sizes, size),) * 5, column, tall))
    gaps = pair((1, 1, 1, 1, 2, 6, 12)) if max(size) > 1 else (1, 1)
    span = [(k - 1) * d + 1 for k, d in zip(size, gaps)]
    before = rng.choice(((0, 0), tuple((part - 1) // 2 for part in span), tuple((part - 1) // 2 for part in span)))
    padded = [n + 2 * b for n, b in zip(sizes, before)]
    out = tuple(max(1, (n - part) // s + 1) for n, part, s in zip(padded, span, strides))
    if is_any:
        turned: Any = [(symbol(f"s{i}"), (symbol(f"s{i}") - rng.choice((0, 0, 1))) * rng.choice((1, 1, 2, 4, 8))) for i in (0, 1)]
        sizes, out = zip(*(turned if rng.random() < 0.7 else [turned[0], (7, 7)]))
    return window.Window(sizes, out, size, strides, gaps, before)  # type: ignore[arg-type]


def windows(rng: random.Random) -> Iterator[object]:
    """The geometry of windows."""
    one = _window(rng)
    yield (one.span, one.is_inside, round(one.share_inside, 6), one.is_pointwise, one.is_flat, one.is_sampled, one.flat(),
           [(one.low(i), one.high(i)) for i in (0, 1)], bands.all_taps(one)[0].count)
    if 8 <= one.pixels < 1000:
        yield [round(bands.mean_seen(one, pixels), 6) for pixels in (1, 3, 8)]
    sizes, strides = zip(*[(rng.randint(1, 5), rng.randint(1, 5)) for _ in range(rng.choice((1, 2, 3)))])
    yield window.kinds_of(sizes, strides), window.all_alike(sizes, strides), window.have_taps(sizes, strides)


def _grouped(rng: random.Random) -> tuple[int, int, int]:
    """Channels of an image, of a result, and groups."""
    groups, listed = rng.choice((1, 1, 1, 1, 2, 3, 4, 8)), rng.choice((CHANNELS, BLOCKS))
    return rng.choice(listed) * groups, rng.choice(listed) * groups, groups


def blocked(rng: random.Random) -> Iterator[object]:
    """Convolutions of floats in the blocked layout."""
    is_any, is_narrow = rng.random() < 0.2, rng.random() < 0.3
    ins, outs, groups = _grouped(rng)
    own = rng.choice((False, False, True)), groups > 1 and rng.random() < 0.3
    narrow = (2, rng.choice((2, 4)), rng.random() < 0.5, rng.random() < 0.3) if is_narrow else ()
    shape = bands.BlockedShape(rng.choice((1, 1, 2, 8)), _window(rng, is_any), ins, outs, groups, *own, *narrow)
    if not is_any:
        shape = attrs.evolve(shape, skips=shape.window.pixels < 300 and rng.random() < 0.5)
    for machine in rng.sample(PROCESSORS, 2):
        made = bands.cut_bands(shape, machine)
        yield attrs.astuple(made)
        reached = channels.reaches(ins, outs, groups, made.vectors * machine.lanes)
        widths, shuffle = (made.vectors, machine.lanes, shape.plain), groups if shape.shuffled else 1
        layout = channels.Channels(ins, outs, groups, *widths, shuffle, made.chunk or max(reached), rng.choice((1, 1, 2)))
        yield layout.blocks, layout.panels, layout.reach, layout.whole, layout.chunks, layout.by_block, layout.taken
        yield layout.weights(shape.window.count)
        if is_any:
            yield _running(shape, made, machine)


def _running(shape: bands.BlockedShape, made: bands.Bands, machine: Machine) -> str:
    """How a kernel cuts the image of a call, and the taps that a tile of it meets."""
    kernel = Kernel("bands")
    cut_then = bands.cut_while_running(kernel, shape, made, machine)
    with kernel.loop(cut_then.down, "band") as band:
        top, own = bands.band_while_running(kernel, shape.window, cut_then, band)
        rows, columns = bands.seen_taps(kernel, shape.window, top, made.pixels)
        _count(kernel, cut_then.rows, cut_then.tiles, cut_then.across, own.rows, own.tiles, rows.count, columns.count)
    return str(kernel)


def _count(kernel: Kernel, *counts: Operand) -> None:
    """Writes a loop for each of these numbers."""
    for count in counts:
        with kernel.loop(count, "i"):
            pass


@attrs.frozen
class Plain:
    """Writes sums as they are."""

    out: Buffer

    def store(self, total: Value, indices: Sequence[Operand]) -> None:
        """Writes the sum of a position."""
        self.out[tuple(indices)] = total


def images(rng: random.Random) -> Iterator[object]:
    """Convolutions of plain images of any rank."""
    rank, (ins, outs, groups) = rng.choice((1, 2, 2, 3)), _grouped(rng)
    drawn = SIZES, (1, 1, 2, 3, 5), (1, 1, 1, 2, 3), (1, 1, 1, 2, 3)
    sizes, taps, strides, gaps = (tuple([rng.choice(listed) for _ in range(rank)]) for listed in drawn)
    before = tuple([rng.choice((0, (k - 1) * d // 2)) for k, d in zip(taps, gaps)])
    out = tuple([max(1, (n + 2 * b - (k - 1) * d - 1) // s + 1) for n, b, k, d, s in zip(sizes, before, taps, gaps, strides)])
    image = Image(rng.choice((1, 2, 5)), ins, groups, outs, sizes, taps, strides, gaps, before, out)
    yield image.is_pointwise, image.phases, image.copied, image.steps, image.plane, image.tap([k - 1 for k in taps]), image.depth
    for machine in rng.sample(PROCESSORS, 2):
        listed = [walk for tile in (machine.lanes, 3 * machine.lanes) for walk in plain.walks(image, tile)]
        yield [(type(walk).__name__, walk.rows, walk.width, walk.along, walk.count, walk.numbers) for walk in listed]
        if image.pixels >= machine.lanes:
            tile, walk = plain._best(image, machine)
            whole = plain._WalkedConvolution(image, tile, walk, machine)
            yield tile.rows, tile.vectors, type(walk).__name__, attrs.astuple(whole.cut), whole.weights
            kernel = Kernel("convolution")
            source = kernel.input("source", float32, (image.batch, ins, math.prod(sizes)))
            weight = kernel.input("weight", float32, (whole.weights,))
            writer: Any = Plain(kernel.output("out", float32, (image.batch, outs, image.pixels)))
            whole.write(kernel, source, weight, writer)
            yield str(kernel)


def quantized(rng: random.Random) -> Iterator[object]:
    """Products and convolutions of bytes."""
    ins, outs, groups = _grouped(rng)
    is_matrix, is_any = rng.random() < 0.3, rng.random() < 0.15
    if is_matrix:
        rows = dynamic("s0") if is_any else rng.choice((*SIZES, *LONG))
        sliding = window.Window((rows, 1), (rows, 1), (1, 1), (1, 1), (1, 1), (0, 0))
        groups, ins, outs = 1, rng.choice((*LONG, *DEEP)), rng.choice((*LONG, *DEEP))
    else:
        sliding = _window(rng, is_any)
    given = cut.ByteShape(rng.choice((1, 1, 2, 4)), sliding, ins, outs, groups, not is_matrix and ins < 5 and rng.random() < 0.5)
    for machine in rng.sample(PROCESSORS, 2):
        made = cut.make_cut(given, machine)
        shape = made.shape
        yield str(made.dot), attrs.astuple(made.tile), made.rows, made.parts, made.parallel, made.unit and made.unit.half_cycles
        yield (shape.unit, shape.element.name, shape.near, shape.reach, shape.across, shape.runs, shape.run, shape.copies,
               shape.is_winograd, shape.may_cross, made.blocks, made.stored, made.block_bytes, made.weight_bytes, made.beginnings)
        frame, kernel = Frame(shape, made.rows, 3), Kernel("bands")
        if is_any:
            running = bands_of(kernel, made, machine)
            _count(kernel, running.count, running.rows, running.room, running.parts, frame.down, frame.size)
            yield str(kernel), str(running.parallel)[:5], running.cuts_panels
        else:
            yield made.bands, made.pixels, made.squares, made.tiles, made.widens, [tile.rows for tile in made.heights()]
            yield frame.down, frame.wide, frame.size, frame.is_straight, [_number(made.cycles(parts)) for parts in (1, 2, 5)]
            if not shape.copies or shape.element.name:
                yield byte_depthwise._sizes(shape, machine), _number(byte_depthwise._until_the_last(shape, made.rows, 3))
        if made.weight_bytes < 5000:
            stored = np.arange(outs * (ins // groups) * sliding.count).reshape(outs, -1, *sliding.taps) % 251 - 125
            yield _sum(made.pack(stored.astype(np.int8)), made.pack_beginning(np.arange(outs, dtype=np.int32)))


def matrices(rng: random.Random) -> Iterator[object]:
    """Matrix products on processors."""
    rows, columns, depth, many = rng.choice((*SIZES, *LONG)), rng.choice(LONG), rng.choice(LONG), dynamic("s0")
    for machine in rng.sample(PROCESSORS, 2):
        threads = rng.choice((1, 2, 8))
        apart = rng.choice((None, depth * 4, depth * 2))
        made = [tiles.best_tile(rows, columns, machine, threads=threads, apart=apart), tiles.open_tile(columns, machine)]
        for tile in filter(None, made):
            kinds = tile.heights(), tile.heights(is_fetched=True)
            yield tile.rows, tile.vectors, [[low.rows for low in listed] for listed in kinds], tile.half_cycles, tile.few_steps
            yield _number((tile.fetched_cycles, tile.first_cycles, tile.cycles_over(rows)))
            yield tile.starts(columns), tile.across(columns)
            two = tile.for_rows(machine.registers)
            yield two and two.rows, [gemm._blocks(Kernel("blocks"), rows, depth, tile.down(rows))]
        yield gemm.thin_tile(rows, min(columns, 7), machine), gemm.thin_tile(many, 3, machine)
        pair = matmul._PairCut.of(rows, columns, depth, machine)
        yield str(pair.dot), pair.tile.rows, pair.tile.vectors, pair.blocks
        for kind in ("bfloat16", "int8"):
            unit = tile_registers.unit_for(kind, rows, columns, depth, machine)
            yield unit and (unit.rows, unit.high, unit.wide, unit.depth, unit.half_cycles, [low.rows for low in unit.heights()],
                            sorted(unit._configuration().items()))
        unit = tile_registers.unit_for_bytes(rows, depth * 4, rng.randint(1, 3), is_emulated=True)
        yield unit.rows, unit.high, unit.wide, unit.depth, unit.group


def on_gpus(rng: random.Random) -> Iterator[object]:
    """Matrix products on GPUs."""
    rows, columns, depth = rng.choice((*SIZES, *LONG)), rng.choice((*SIZES, *LONG)), rng.choice(LONG)
    size = rng.choice((4, 2, 1))
    work = gpu_tiles.Work(rows, columns, depth, rng.choice((1, 1, 8, 96)), size, rng.choice((None, None, rows * depth)))
    works = [work] if rng.random() < 0.8 else [work, gpu_tiles.usual_work(dynamic("s0"), columns, depth, dynamic("s1"), size)]
    gpu = rng.choice(GPUS)
    usual = gpu_tiles.usual_pixels(columns, rows)
    every: list[list[Any]] = [list(gpu_tiles.tiles(gpu)), list(gpu_tiles.tensor_tiles(gpu, size))]
    for listed in filter(None, every):
        best = gpu_tiles.fastest(listed[rng.randrange(min(7, len(listed))) :: 7], works, gpu)
        demand = best.demand(work)
        yield len(listed), attrs.astuple(best), best.across, best.slice_threads, best.threads, best.shared, usual
        yield best.steps(depth), best.all_steps(depth)
        yield _number(attrs.astuple(demand)), _number((demand.cycles(gpu), demand.roofline(gpu)))


def recurrent(rng: random.Random) -> Iterator[object]:
    """The panels of recurrent layers."""
    hidden, rows, directions = rng.choice(CHANNELS), rng.choice((1, 2, 3, 4, 8)), rng.choice((1, 2))
    for machine in rng.sample(PROCESSORS, 2):
        gates, lanes = rng.choice((1, 2, 3, 4)), min(machine.lanes, 1 << (hidden.bit_length() - 1))
        fitting = [tile for tile in tiles.panel_tiles(attrs.evolve(machine, lanes=lanes)) if tile.vectors % gates == 0]
        yield [_number(weights._cost(hidden, gates, rows, tile)) for tile in fitting[:: rng.choice((1, 2, 3))]]
        part = Part(tuple(range(gates)), HIDDEN, lambda numbers, functions: None)
        panels = weights.PartPanels(part, fitting[-1], 5, max(hidden, fitting[-1].width // gates))
        yield panels.vectors, panels.width, panels.count, panels.size, panels.start(1, 2), directions


def chosen(rng: random.Random) -> Iterator[object]:
    """The instructions of machines by element type, and how many threads share work."""
    machine = rng.choice([*PROCESSORS, *(machine for machine in MACHINES.values() if machine.is_gpu)])
    kind, depth, amount = rng.choice(("float32", "bfloat16", "float16", "int8")), rng.choice(LONG), rng.choice(LONG) ** 2
    for takes_groups in (True, False):
        one = instructions.instruction_for(kind, machine, takes_groups)
        yield str(one), one.lanes, one.group, one.rows, one.widens, one.steps(depth), one.is_by_columns, one.position(3, 1)
    yield [
        str(instructions.instruction_for_rows(kind, depth, machine)), str(instructions.instruction_for_stored(kind, machine)),
        str(instructions.instruction_in_tiles(kind, machine)), str(instructions.instruction_for_bytes(machine)),
        instructions.is_faster(kind, machine), instructions.narrowing_of(machine), instructions.lookup_for(16, machine) is None,
    ]
    yield machine.fills_lines, machine.has_fma, machine.rounds_products
    for least in (amount, amount + 1, 65_536):
        yield machine.threads_for(amount, least), machine.tasks_for(amount, least)
    yield machine.threads_for(amount), machine.tasks_for(amount)


NAMED = sorted(NAMED_PROCESSORS) + ["aarch64", "aarch64+i8mm+bf16", "aarch64+fp16fml"]


def machines(rng: random.Random) -> Iterator[object]:
    """Processors, GPUs and instructions that have a name."""
    name, threads = rng.choice(NAMED), rng.choice((0, 3))
    yield attrs.evolve(named_machine(name, threads), hidden=()), processor_named(name)
    gpu = rng.choice([*CORES, "sm_90a", "sm_121"])
    yield gpu_machine(gpu, takes_tf32=True).rounds_products, gpu_machine(gpu).rounds_products, cuda_gpu(gpu)
    yield opencl_machine(rng.choice((64, 256)), 32768, frozenset(("cl_khr_fp16", "a"))), opencl_gpu("64x16384")
    yield _listed(rng.choice(INSTRUCTIONS)), rng.choice(WARP_PRODUCTS)
    yield best_instructions(NAMED_PROCESSORS[rng.choice(NAMED[:9])].features)


def _listed(row: Any) -> list[object]:
    """The fields of a row; the extensions of a set in order."""
    return [sorted(map(sorted, field)) if name == "needs" else sorted(field) if name == "slow" else field
            for name, field in attrs.asdict(row).items()]


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
    """What is known of dynamic sizes, and views of tensors that have such."""
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
        unit = tile_registers.unit_for_bytes(rows * 7, 4 * depth, vectors, rng.random() < 0.5)
        numbers = buffers["bytes"], buffers["columns"]
    else:
        tile = tiles.PanelTile(rows * one.rows, vectors, one.lanes or machine.lanes)
        panel = tiles.Panel(buffers["right"], 3, tile.width * one.group, one)
        left, words = buffers["left"], buffers["words"]
        acc = tile.product(
            kernel, rng.choice((depth, dynamic("s0"))) if one.group == 1 else depth, lambda r, k: left[r * depth + k], panel,
            lambda r, k: one.left(words, r * depth + k * one.group), rng.choice((1, 2, 4)))

        def store(total: Value, r: Value, c: Value) -> None:
            out[r * tile.width + c] = total

        tile.finish(kernel, acc, store, rng.random() < 0.3)
        unit = tile_registers.TileUnit(rows, *rng.choice(((1, 2), (2, 2), (1, 4))), 2 * min(depth, 16), rng.random() < 0.5)
        numbers = rounded, buffers["packed"]

    def operands(k: Value) -> tuple[list[tile_registers.Left], list[tile_registers.Right]]:
        at = (k, k * 4) if unit.is_rounded else (k * 4,)
        return ([tile_registers.Left(numbers[0], at, depth) for _ in range(unit.high)],
                [tile_registers.Right(numbers[1], k * 8 + j, 64) for j in range(unit.wide)])

    with unit.configured(kernel):
        tile_registers.product_of_tiles(unit, kernel, rng.randint(1, 3), operands)
    tasks, pairs, height = rng.choice((1, 2, 8)), rng.choice((3, 8)), rng.choice((5, dynamic("s1")))
    cell = kernel.stack("cell", int32, (4,))

    def work(pair: Value) -> Callable[[Value], None]:
        def each(t: Value) -> None:
            cell[0] = (pair * 8 + t).cast(int32)

        return each

    tiles.share_out(kernel, pairs, height if isinstance(height, int) else as_index(height), tasks, work)
    tiles.by_size(kernel, as_index(height), {2: 5, 4: rng.choice((8, 10, 11))}, lambda size: work(as_index(size))(as_index(1)))
    yield str(kernel), tiles.at_most(tasks, pairs), unit.heights()[0].rows, unit.size, unit.group


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
    yield flat.steps, flat.panel_size, flat.size, _sum(made.astype(np.float32))
    bits, is_signed = rng.choice((8, 4)), rng.random() < 0.5
    packed = packing.Packing(bits, is_signed, depth, columns, lanes)
    stored = numbers if bits == 8 else numbers % 16 - 8 * is_signed
    yield packed.attributes, packing.Packing.of(packed.attributes) == packed, packed.blocks, packed.panels, packed.steps
    yield _sum(packed.pack(stored + 127 * (not is_signed and bits == 8))), _sum(packed.by_block(numbers)), packed.element.name
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
    yield order.by_block, _sum(order.pack(filters)), _sum(order.pack_bias(np.arange(outs, dtype=np.float32)))
    rounded = np.array([1.0, 1 + 2**-11, 1 + 3 * 2**-12, -1e-40, np.inf, 3.0 + rng.random()], np.float32)
    yield _sum(gpu_tiles.round_to_tf32(rounded))


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


KINDS: dict[str, tuple[Callable[[random.Random], Iterator[object]], int]] = {
    "windows": (windows, 500), "blocked": (blocked, 350), "images": (images, 250), "quantized": (quantized, 300),
    "matrices": (matrices, 100), "on gpus": (on_gpus, 80), "recurrent": (recurrent, 100), "chosen": (chosen, 150),
    "machines": (machines, 80), "sizes": (sizes, 600), "counts": (counts, 200),
    "fragments": (fragments, 250), "launches": (launches, 40), "layouts": (layouts, 250), "lists": (lists, 150),
}

SUBJECTS = [f"{kind} {number}" for kind, (_, count) in KINDS.items() for number in range(count)]


def lines(subject: str) -> list[str]:
    """What is kept of a subject: what was chosen first, and a sum over all of it and over what candidates cost."""
    made, _ = KINDS[subject.rpartition(" ")[0]]
    with costs() as noted:
        listed = [str(one) for one in made(random.Random(subject))]
    first = " ".join(listed[0].split())[:60]
    return [f"{subject} | {first} | {_sum(*listed, *noted.asked)}"]


def main() -> None:
    """Write the file."""
    KEPT.write_text("".join(f"{line}\n" for subject in SUBJECTS for line in lines(subject)), "utf-8")


if __name__ == "__main__":
    main()
