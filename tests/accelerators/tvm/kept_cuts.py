"""Drawn sizes on machines that need not be here: how products, convolutions and layers of each kind are cut, what every candidate
costs that was not taken, and the layouts that follow.

`python -m tests.accelerators.tvm.kept_cuts` writes the file that `test_kept_cuts.py` compares with anew."""

from __future__ import annotations

import math
import random
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from partita.accelerators.tvm.kernels.contraction import amx, gpu_tiles, panels
from partita.accelerators.tvm.kernels.contraction import instruction_meanings as instructions
from partita.accelerators.tvm.kernels.contraction.convolution import bands, channels, plain
from partita.accelerators.tvm.kernels.contraction.convolution.plain import Image
from partita.accelerators.tvm.kernels.contraction.matmul import gemm
from partita.accelerators.tvm.kernels.contraction.quantized import byte_depthwise, cut, matmul
from partita.accelerators.tvm.kernels.contraction.quantized.bands import Frame, bands_of
from partita.accelerators.tvm.kernels.contraction.recurrent import weights
from partita.accelerators.tvm.kernels.contraction.recurrent.cells import HIDDEN, Part
from partita.accelerators.tvm.kernels.language import Buffer, Kernel, Operand, Value, float32
from partita.accelerators.tvm.kernels.shared import window
from partita.accelerators.tvm.kernels.shared.choice import choose
from partita.accelerators.tvm.machine.gpu import CORES, cuda_gpu, opencl_gpu
from partita.accelerators.tvm.machine.instructions import INSTRUCTIONS, WARP_PRODUCTS, Used, best_instructions
from partita.accelerators.tvm.machine.machine import Machine, gpu_machine, named_machine, opencl_machine
from partita.accelerators.tvm.machine.processor import PROCESSORS as NAMED_PROCESSORS
from partita.accelerators.tvm.machine.processor import processor_named
from partita.accelerators.tvm.sizes.extent import symbol
from tests.accelerators.tvm.planned import MACHINES
from tests.kept import write_kept

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
    """The costs of candidates, as they are chosen from."""

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


def sum_of(*parts: object) -> str:
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
    """The cut of a kernel for the image of a call, and the taps that a tile of it meets."""
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
    image = Image(rng.choice((1, 2, 5)), window.Window(sizes, out, taps, strides, gaps, before), ins, outs, groups)
    is_single, last = image.window.is_single, image.tap([k - 1 for k in taps])
    yield is_single, image.phases, image.copied, image.steps, image.plane, last, image.depth
    for machine in rng.sample(PROCESSORS, 2):
        listed = [walk for tile in (machine.lanes, 3 * machine.lanes) for walk in plain.walks(image, tile)]
        yield [(type(walk).__name__, walk.rows, walk.width, walk.along, walk.count, walk.numbers) for walk in listed]
        if image.window.pixels >= machine.lanes:
            tile, walk = plain._best(image, machine)
            whole = plain._WalkedConvolution(image, tile, walk, machine)
            yield tile.rows, tile.vectors, type(walk).__name__, attrs.astuple(whole.cut), whole.weights
            kernel = Kernel("convolution")
            source = kernel.input("source", float32, (image.batch, ins, math.prod(sizes)))
            weight = kernel.input("weight", float32, (whole.weights,))
            writer: Any = Plain(kernel.output("out", float32, (image.batch, outs, image.window.pixels)))
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
            yield sum_of(made.pack(stored.astype(np.int8)), made.pack_beginning(np.arange(outs, dtype=np.int32)))


def matrices(rng: random.Random) -> Iterator[object]:
    """Matrix products on processors."""
    rows, columns, depth, many = rng.choice((*SIZES, *LONG)), rng.choice(LONG), rng.choice(LONG), dynamic("s0")
    for machine in rng.sample(PROCESSORS, 2):
        threads = rng.choice((1, 2, 8))
        apart = rng.choice((None, depth * 4, depth * 2))
        made = [panels.best_tile(rows, columns, machine, threads=threads, apart=apart), panels.open_tile(columns, machine)]
        for tile in filter(None, made):
            kinds = tile.heights(), tile.heights(is_fetched=True)
            yield tile.rows, tile.vectors, [[low.rows for low in listed] for listed in kinds], tile.half_cycles, tile.few_steps
            yield _number((tile.fetched_cycles, tile.first_cycles, tile.cycles_over(rows)))
            yield tile.starts(columns), tile.across(columns)
            two = tile.for_rows(machine.registers)
            yield two and two.rows, [gemm._blocks(Kernel("blocks"), rows, depth, tile.down(rows))]
        yield gemm.thin_tile(rows, min(columns, 7), machine), gemm.thin_tile(many, 3, machine)
        pair = matmul._cut_of(rows, columns, depth, machine)
        yield str(pair.dot), pair.tile.rows, pair.tile.vectors, pair.blocks
        for kind in ("bfloat16", "int8"):
            unit = amx.unit_for(kind, rows, columns, depth, machine)
            yield unit and (unit.rows, unit.high, unit.wide, unit.depth, unit.half_cycles, [low.rows for low in unit.heights()],
                            sorted(unit._configuration().items()))
        unit = amx.unit_for_bytes(rows, depth * 4, rng.randint(1, 3), is_emulated=True)
        yield unit.rows, unit.high, unit.wide, unit.depth, unit.group


def on_gpus(rng: random.Random) -> Iterator[object]:
    """Matrix products on GPUs."""
    rows, columns, depth = rng.choice((*SIZES, *LONG)), rng.choice((*SIZES, *LONG)), rng.choice(LONG)
    size = rng.choice((4, 2, 1))
    work = gpu_tiles.Work(rows, columns, depth, rng.choice((1, 1, 8, 96)), size, rng.choice((None, None, rows * depth)))
    works = [work] if rng.random() < 0.8 else [work, gpu_tiles.usual_work(dynamic("s0"), columns, depth, dynamic("s1"), size)]
    gpu = rng.choice(GPUS)
    any_column = (dynamic("s0"), 1)
    sliding = window.Window(any_column, any_column, (1, 1), (1, 1), (1, 1), (0, 0))
    usual = [one.columns for one in gpu_tiles.works_of(window.Convolved(1, sliding, columns, rows, 1), size)]
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
        fitting = [tile for tile in panels.panel_tiles(attrs.evolve(machine, lanes=lanes)) if tile.vectors % gates == 0]
        yield [_number(weights._cost(hidden, gates, rows, tile)) for tile in fitting[:: rng.choice((1, 2, 3))]]
        part = Part(tuple(range(gates)), HIDDEN, lambda numbers, functions: None)
        laid_out = weights.PartPanels(part, fitting[-1], 5, max(hidden, fitting[-1].width // gates))
        yield laid_out.vectors, laid_out.width, laid_out.count, laid_out.size, laid_out.start(1, 2), directions


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


NAMED = sorted(set(NAMED_PROCESSORS) - {"spacemit-x60"}) + ["aarch64", "aarch64+i8mm+bf16", "aarch64+fp16fml"]


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


KINDS: dict[str, tuple[Callable[[random.Random], Iterator[object]], int]] = {
    "windows": (windows, 500), "blocked": (blocked, 350), "images": (images, 250), "quantized": (quantized, 300),
    "matrices": (matrices, 100), "on gpus": (on_gpus, 80), "recurrent": (recurrent, 100), "chosen": (chosen, 150),
    "machines": (machines, 80),
}

SUBJECTS = [f"{kind} {number}" for kind, (_, count) in KINDS.items() for number in range(count)]


def lines(subject: str) -> list[str]:
    """The kept form of a subject: what was chosen first, and a sum over all of it and over what candidates cost."""
    made, _ = KINDS[subject.rpartition(" ")[0]]
    with costs() as noted:
        told = [str(one) for one in made(random.Random(subject))]
    return line_of(subject, [*told, *noted.asked])


def line_of(subject: str, told: list[str]) -> list[str]:
    """The line of a subject: the beginning of what is told of it, and a sum over all of it."""
    return [f"{subject} | {' '.join(told[0].split())[:60]} | {sum_of(*told)}"]


if __name__ == "__main__":
    write_kept(KEPT, SUBJECTS, lines)
