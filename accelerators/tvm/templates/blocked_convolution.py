"""Convolution on blocked values: [batch, blocks, places, lanes].

The kernel is a matrix product: rows are places, columns are output channels, each step is one tap of one input channel. A tile
keeps places x vectors of channels in registers; a step loads the vectors of weights, and spreads the image's number at each
place over the lanes. The places of a tile need not be neighbours: each has an address of its own, so rows, strides and short
images are all one case.

Work is cut into bands of rows and ranges of panels (a panel is what a tile's vectors cover). Where the window sees padding, a
task copies its band with zeros around it, which then stays in the core's cache. Where a panel's weights are more than the
first-level cache holds, the input channels are walked in chunks, and the sums wait in memory of the task meanwhile."""

from __future__ import annotations

import math

import attrs

from accelerators.tvm.bodies import Body
from accelerators.tvm.layouts.blocked import DOMAIN
from accelerators.tvm.machine import Machine
from accelerators.tvm.templates import Draft, template
from accelerators.tvm.templates.band_copy import BandCopy
from accelerators.tvm.templates.bands import Bands, Shape, cut_bands
from accelerators.tvm.templates.channels import Channels
from accelerators.tvm.templates.epilogue import (
    Epilogue,
    input_name,
    make_epilogue,
    output_name,
    plus_bias,
    static_shape,
)
from accelerators.tvm.templates.script import Lines, Vectors, indent, kernel, local, loop
from accelerators.tvm.templates.tile import start
from accelerators.tvm.templates.window import Window, window_of
from graph.node import Node

LINE = 64
"""Bytes of a line of the cache."""

LEAST_SHARE = 0.4
"""So many lines of the next panel are fetched for each block of input channels; where it would be fewer, none."""


@template("cpu", ops=frozenset({f"{DOMAIN}.Conv"}))
def blocked_convolution(body: Body, machine: Machine) -> Draft | None:
    """A convolution that makes a blocked value."""
    roots = [node for node in body.ops if node.domain == DOMAIN]
    if len(roots) != 1:
        return None
    root = roots[0]
    positions = {node[0]: i for i, node in enumerate(body.graph.inputs)}
    source, weight = (positions.get(entry) if entry is not None else None for entry in root.inputs[:2])
    if source is None or weight is None:
        return None
    layer = make_layer(root, machine)
    blocks, lanes = layer.channels.blocks, machine.lanes
    beside = {2: (1, blocks, 1, lanes)} if len(root.inputs) > 2 else {}
    after = make_epilogue(body, root, plus_bias, [(i, i + 1) for i in range(4)], beside)
    if after is None or weight in after.operands or (source in after.operands and layer.plain):
        return None
    text = _Text(layer, after, input_name(source), input_name(weight))
    shapes = {**after.operands, weight: (layer.channels.weights(layer.window.count),)}
    packs = {weight: layer.channels.pack}
    if beside and root.inputs[2] is not None:
        packs[positions[root.inputs[2]]] = layer.channels.pack_bias
    given = {i: static_shape(node[0]) or () for i, node in enumerate(body.graph.inputs)}
    params = [(input_name(i), shapes.get(i, given[i]), "float32") for i in given]
    params += [(output_name(i), after.results, "float32") for i in range(len(body.graph.outputs))]
    return Draft(kernel(params, text.lines(), after.functions), "blocked convolution", packs, shapes)


@attrs.frozen(slots=True)
class Layer:
    """A convolution and how it is cut."""

    batch: int
    """How many images."""
    plain: bool
    """Is the image it reads not blocked?"""
    window: Window
    """What it sees."""
    channels: Channels
    """Which channels each panel reads and makes."""
    bands: Bands
    """How places, panels and input channels are cut."""
    lanes: int
    """How many numbers a vector holds."""


def make_layer(root: Node, machine: Machine) -> Layer:
    """The cut of a blocked Conv for a machine."""
    window, plain = window_of(root), bool(root.attrs["plain"])
    if window.is_pointwise and not plain:
        window = window.flat()
    shuffle = int(root.attrs.get("shuffle", 1))
    batch, *_ = static_shape(root[0]) or ()
    shape = Shape(batch, window, root.attrs["channels"], root.attrs["outs"], root.attrs["group"], plain, shuffle > 1)
    bands = cut_bands(shape, machine)
    given = shape.channels, shape.outs, shape.groups, bands.vectors, machine.lanes, plain, shuffle
    channels = Channels(*given, bands.chunk)
    channels = channels if bands.chunk else attrs.evolve(channels, chunk=channels.reach)
    return Layer(shape.batch, plain, window, channels, bands, machine.lanes)


class _Text:
    """The text of one convolution."""

    def __init__(self, layer: Layer, after: Epilogue, source: str, weight: str) -> None:
        self.layer = layer
        self.after = after
        self.source = source
        self.weight = weight
        self.vectors = Vectors(layer.lanes)
        channels, lanes = layer.channels, 1 if layer.plain else layer.lanes
        blocks = channels.chunk // lanes if channels.chunks > 1 else channels.whole
        self.copy = BandCopy(layer.window, layer.bands.rows, blocks, lanes, layer.plain, channels.chunks > 1)

    def lines(self) -> Lines:
        """The tasks: images, bands of rows, ranges of panels."""
        bands, layer = self.layer.bands, self.layer
        count = bands.down * bands.across
        decoded = [
            f"n: T.let = task // {count}",
            f"top: T.let = T.min(task % {count} // {bands.across} * {bands.rows}, {layer.window.out[0] - bands.rows})",
            f"across: T.let = task % {bands.across}",
        ]
        work = [*decoded, *self._buffers(), *self._chunks()]
        kind = "parallel" if bands.parallel and layer.batch * count > 1 else "serial"
        return loop("task", layer.batch * count, work, kind)

    # -- what a task keeps ---------------------------------------------------------------------------------

    def _buffers(self) -> Lines:
        bands, made = self.layer.bands, []
        if bands.copies:
            made.append(f'image = T.alloc_buffer(({self.copy.numbers},), "float32")')
        if self.layer.channels.chunks > 1:
            made.append(f'sums = T.alloc_buffer(({self._panels * bands.tiles * self._tile},), "float32")')
        return made

    @property
    def _tile(self) -> int:
        return self.layer.bands.places * self.layer.bands.vectors * self.layer.lanes

    @property
    def _panels(self) -> int:
        """The panels of a task, the last and narrower one among them."""
        return math.ceil(self.layer.channels.panels / self.layer.bands.across) + 1

    # -- the product ---------------------------------------------------------------------------------------

    def _chunks(self) -> Lines:
        bands, channels = self.layer.bands, self.layer.channels
        full, rest = divmod(channels.blocks, bands.vectors)
        first, end = f"across * {full} // {bands.across}", f"(across + 1) * {full} // {bands.across}"
        if bands.across == 1:
            first, end = "0", str(full)
        begin = [f"first: T.let = {first}"]
        lines = loop("p_", f"{end} - first", ["panel: T.let = first + p_", *self._tiles(bands.vectors, "p_")]) if full else []
        if rest:
            tail = [f"panel: T.let = {full}", *self._tiles(rest, f"({end} - first)")]
            lines += tail if bands.across == 1 else [f"if across == {bands.across - 1}:", *indent(tail)]
        lines = [*(self.copy.lines(self.source) if bands.copies else []), *lines]
        return [*begin, *(loop("chunk", channels.chunks, lines) if channels.chunks > 1 else lines)]

    def _tiles(self, vectors: int, local_panel: str) -> Lines:
        """All tiles of the band for one panel."""
        bands, channels, window = self.layer.bands, self.layer.channels, self.layer.window
        pixels = bands.rows * window.out[1]
        lines = [f"base: T.let = {start('tile', bands.places, pixels)}", *self._addresses()]
        lines += [local("acc", bands.places * vectors * self.layer.lanes)]
        clear = [f"{self._acc(p, v, vectors)} = {self.vectors.const(0.0)}" for p, v in self._each(vectors)]
        work = self._steps(vectors)
        write = self._write(vectors)
        if channels.chunks == 1:
            return loop("tile", bands.tiles, [*lines, *clear, *work, *write])
        lines += [f"kept: T.let = ({local_panel} * {bands.tiles} + tile) * {self._tile}"]
        sums = [
            (self._acc(p, v, vectors), self.vectors.at("sums", f"kept + {(p * vectors + v) * self.layer.lanes}"))
            for p, v in self._each(vectors)
        ]
        lines += ["if chunk == 0:", *indent(clear), "else:", *indent([f"{acc} = {kept}" for acc, kept in sums]), *work]
        lines += [
            f"if chunk == {channels.chunks - 1}:",
            *indent(write),
            "else:",
            *indent([f"{kept} = {acc}" for acc, kept in sums]),
        ]
        return loop("tile", bands.tiles, lines)

    def _each(self, vectors: int) -> list[tuple[int, int]]:
        return [(p, v) for p in range(self.layer.bands.places) for v in range(vectors)]

    def _acc(self, place: int, vector: int, vectors: int) -> str:
        return self.vectors.at("acc", (place * vectors + vector) * self.layer.lanes)

    def _addresses(self) -> Lines:
        """Where each place of the tile reads the first tap: in the copy, or in the image."""
        window, bands = self.layer.window, self.layer.bands
        if window.out[1] == 1 and not bands.copies:
            return [f"at{p}: T.let = (top + base + {p}) * {window.strides[0] * window.sizes[1]}" for p in range(bands.places)]
        wide, top = (self.copy.wide, "") if bands.copies else (window.sizes[1], "top + ")
        down, step = self.copy.strides[0] * wide, self.copy.strides[1]
        return [
            f"at{p}: T.let = ({top}(base + {p}) // {window.out[1]}) * {down} + (base + {p}) % {window.out[1]} * {step}"
            for p in range(bands.places)
        ]

    def _steps(self, vectors: int) -> Lines:
        """The loops over input channels and taps."""
        channels, window = self.layer.channels, self.layer.window
        lanes, width = self.layer.lanes, vectors * self.layer.lanes
        lines = []
        for p, v in self._each(vectors):
            acc = self._acc(p, v, vectors)
            vector = self.vectors.at(self.weight, f"at_weight + {v * lanes}")
            lines.append(f"{acc} = {acc} + {self.vectors.every(self._number(p))} * {vector}")
        begin = f"{channels.offset(window.count)} + "
        taps = f"* {window.count} + kh * {window.taps[1]} + kw)"
        if channels.by_block:
            lines = [f"at_weight: T.let = {begin}((c {taps} * {lanes} + l) * {width}", *lines]
            lines = loop("l", lanes, lines, "unroll")
            count = str(channels.chunk // lanes)
        else:
            lines = [f"at_weight: T.let = {begin}(c {taps} * {width}", *lines]
            count = channels.count("panel")
        if window.count > 1:
            small = not channels.by_block and window.taps[1] <= 8
            lines = loop("kh", window.taps[0], loop("kw", window.taps[1], lines, "unroll" if small else "serial"))
        else:
            lines = ["kh: T.let = 0", "kw: T.let = 0", *lines]
        return loop("c", count, [*self._channel(), *self._ahead(width), *lines])

    def _ahead(self, width: int) -> Lines:
        """A share of the next panel's weights into the cache, where few tiles would wait for them to come from memory."""
        channels, window, tiles = self.layer.channels, self.layer.window, self.layer.bands.tiles
        if not channels.by_block:
            return []
        lines, count = channels.chunk * window.count * width * 4 // LINE, channels.chunk // self.layer.lanes
        share = lines / (tiles * count)
        if share < LEAST_SHARE:
            return []
        share = math.ceil(share)
        next_panel = f"{channels.offset(window.count)} + {channels.chunk * window.count * width}"
        at = f"{self.weight}[{next_panel} + ((tile * {count} + c) * {share} + q) * {LINE // 4}]"
        return loop("q", share, [f'T.evaluate(T.call_intrin("void", "tirx.prefetch", T.address_of({at}), 0, 3, 1))'], "unroll")

    def _channel(self) -> Lines:
        """Which channel step c reads: `block` and `lane`."""
        channels = self.layer.channels
        if channels.by_block:
            first = channels.first_block("panel")
            first = (
                f"{first} + chunk * {channels.chunk // self.layer.lanes}"
                if channels.chunks > 1 and not self.layer.bands.copies
                else first
            )
            return [f"block: T.let = {first} + c"]
        if self.layer.plain:
            return [f"block: T.let = {channels.first('panel')} + c"]
        return [
            f"logical: T.let = {channels.first('panel')} + c",
            f"channel: T.let = {channels.stands_at('logical')}",
            f"block: T.let = channel // {self.layer.lanes}",
            f"lane: T.let = channel % {self.layer.lanes}",
        ]

    def _number(self, place: int) -> str:
        """The image's number at a place of the tile, for the tap and the channel of the step."""
        window, copies = self.layer.window, self.layer.bands.copies
        lane = "l" if self.layer.channels.by_block else "lane"
        wide = self.copy.wide if copies else window.sizes[1]
        at = f"at{place} + kh * {window.dilations[0] * wide} + kw * {window.dilations[1]}" if window.count > 1 else f"at{place}"
        if copies:
            first = f"(block * {self.copy.down * self.copy.wide} + {at}) * {self.copy.lanes}"
            return f"image[{first}]" if self.layer.plain else f"image[{first} + {lane}]"
        if self.layer.plain:
            return f"{self.source}[n, block, ({at}) // {window.sizes[1]}, ({at}) % {window.sizes[1]}]"
        return f"{self.source}[n, block, {at}, {lane}]"

    def _write(self, vectors: int) -> Lines:
        """The epilogue for every sum of the tile; a long one is written once, in a loop over sums that were put aside."""
        lanes, first = self.layer.lanes, f"top * {self.layer.window.out[1]} + base"

        def stored(total: str, place: str, vector: str) -> Lines:
            block = f"panel * {self.layer.bands.vectors} + {vector}"
            return self.after.store(total, ["n", block, f"{first} + {place}", "l"])

        if self.after.is_long:
            each = loop("l", lanes, stored(f"held[(p * {vectors} + v) * {lanes} + l]", "p", "v"), "vectorized")
            places = self.layer.bands.places
            aside = []
            for p, v in self._each(vectors):
                aside.append(f"{self.vectors.at('held', (p * vectors + v) * lanes)} = {self._acc(p, v, vectors)}")
            return [local("held", places * vectors * lanes), *aside, *loop("p", places, loop("v", vectors, each, "unroll"))]
        lines: Lines = []
        for p, v in self._each(vectors):
            lines += stored(f"acc[{(p * vectors + v) * lanes} + l]", str(p), str(v))
        return loop("l", lanes, lines, "vectorized")
