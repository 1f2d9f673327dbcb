"""The kernel of a recurrent layer: a loop over steps, each a product with the state's weights and the cell's formulas.

Products with the state are computed in tiles (`contraction/panels.py`); a tile holds all gates of an element. States that pass
from step to step have two copies: a step reads one and writes the other. If the tile does not divide a size, the last tile
overlaps the one before.

Directions and sequences are independent, so threads share them, each for all steps. If there are too few of them and the state is
large, threads share the panels of each step instead."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import reduce
from operator import add

import attrs

from partita.accelerators.tvm.bodies.body import Body
from partita.accelerators.tvm.bodies.recurrent import Layer, resets_later
from partita.accelerators.tvm.kernels.contraction.instruction_meanings import Number
from partita.accelerators.tvm.kernels.contraction.panels import Panel, PanelTile
from partita.accelerators.tvm.kernels.contraction.recurrent.cells import CELLS, HIDDEN, RESET, UPDATE, kept_by
from partita.accelerators.tvm.kernels.contraction.recurrent.weights import LayerSizes, PartPanels, packed_weights, panels_of
from partita.accelerators.tvm.kernels.language import (
    Buffer,
    Kernel,
    Operand,
    Registers,
    Value,
    constant,
    float32,
    minimum,
    select,
)
from partita.accelerators.tvm.kernels.language.values import as_index
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft, Problem
from partita.accelerators.tvm.kernels.shared.loops import counted, kept, start
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.machine.parallel_thresholds import MATRIX_PRODUCTS, STEP_PRODUCTS, TASKS
from partita.accelerators.tvm.sizes.extent import Extent
from partita.graph.node import NodeEntry

OPEN_BATCH = 8
"""Number of sequences that the tile is chosen for if it is dynamic."""

LATE = 2
"""The gate of a GRU whose state bias may be added before the reset."""


def recurrence(body: Body, machine: Machine) -> Draft:
    """The kernel of one layer without its input projection."""
    layer, problem = Layer.of(body.ops[0]), Problem.of(body)
    sizes = LayerSizes.of(layer)
    panels, shared = _shared_out(layer, sizes, machine)
    weights = problem.positions[layer.state_weights]
    is_constant = problem.weight_at(layer.state_weights) is not None
    packed = sum(sizes.directions * part.size for part in panels)
    kernel, inputs, outputs = problem.kernel("recurrent", {weights: (packed,)} if is_constant else {})
    given = {entry: inputs[position] for entry, position in problem.positions.items()}
    results = {entry.index: outputs[i] for i, entry in enumerate(problem.outputs)}
    _LayerLoops(kernel, layer, sizes, panels, given, results).write(shared, None if is_constant else packed)
    return problem.draft(kernel, "recurrent", {weights: lambda array: packed_weights(array, panels)} if is_constant else None)


@attrs.frozen(slots=True)
class Shared:
    """The work that threads share."""

    blocks: int = 1
    """Number of blocks of the batch."""
    sequences: bool = False
    """True if directions and blocks are tasks, each for all steps."""
    panels: bool = False
    """True if the panels of each step are tasks."""


def _shared_out(layer: Layer, sizes: LayerSizes, machine: Machine) -> tuple[list[PartPanels], Shared]:
    """The panels, and the work that threads share. The batch is split into several blocks per thread, as far as tiles allow."""
    if isinstance(sizes.batch, Extent):
        panels = panels_of(layer, sizes, OPEN_BATCH, machine)
        return panels, Shared(math.ceil(machine.threads / sizes.directions), sequences=machine.threads > 1)
    step = sizes.directions * sizes.batch * sizes.products
    threads = machine.threads_for(step * sizes.steps, MATRIX_PRODUCTS)
    wanted = math.ceil(threads / sizes.directions)
    if min(sizes.batch, wanted) * sizes.directions < threads and machine.threads_for(step, STEP_PRODUCTS) > 1:
        return panels_of(layer, sizes, sizes.batch, machine), Shared(panels=True)
    panels = panels_of(layer, sizes, max(1, sizes.batch // wanted), machine)
    most = sizes.batch // max(part.tile.rows for part in panels)
    blocks = min(most, math.ceil(TASKS * threads / sizes.directions)) if threads > 1 else 1
    return panels, Shared(blocks, sequences=threads > 1 and blocks * sizes.directions > 1)


@attrs.frozen(slots=True, eq=False)
class StepSpan:
    """Some directions of some sequences."""

    direction: Operand
    """The first direction."""
    directions: int
    first: Operand
    """The first sequence."""
    count: Operand
    """Number of sequences."""


@attrs.define(slots=True, eq=False)
class _LayerLoops:
    """Writes the kernel of one layer."""

    kernel: Kernel
    layer: Layer
    sizes: LayerSizes
    panels: list[PartPanels]
    given: Mapping[NodeEntry, Buffer]
    results: Mapping[int, Buffer]
    """The outputs that are used, by index."""
    kept: dict[str, Buffer] = attrs.field(factory=dict)
    """The buffers of the states, by name; those that the next step reads have two copies."""
    origin: tuple[Operand, Operand] | None = None
    """The direction and the sequence at which the memory for states begins; None: the first ones."""

    def write(self, shared: Shared, packed: int | None) -> None:
        """Writes the whole kernel. Weights that are values are packed first, into `packed` elements."""
        kernel, sizes, blocks = self.kernel, self.sizes, shared.blocks
        self._check_lengths()
        weights = self.given[self.layer.state_weights] if packed is None else self._pack(packed)
        if isinstance(sizes.batch, Extent):
            self._any_batch(blocks, weights)
            return
        self._keep(StepSpan(0, sizes.directions, 0, sizes.batch))
        if shared.panels:
            self._steps(StepSpan(0, sizes.directions, 0, sizes.batch), weights, parallel=True)
            return
        with kernel.tasks(sizes.directions * blocks, "task", shared.sequences) as task:
            first = kernel.name_value("first", task % blocks * sizes.batch // blocks)
            last = kernel.name_value("last", (task % blocks + 1) * sizes.batch // blocks)
            self._steps(StepSpan(task // blocks, 1, first, last - first), weights, parallel=False)

    def _any_batch(self, most: int, weights: Buffer) -> None:
        """Writes all steps for a dynamic batch, in at most `most` blocks. Memory of dynamic size is private only to a parallel
        task, so the tasks are parallel even if one thread runs them all."""
        kernel, batch = self.kernel, as_index(self.sizes.batch)
        blocks = kept(kernel, "blocks", minimum(batch, most))
        longest = kept(kernel, "longest", (batch + blocks - 1) // blocks)
        with kernel.tasks(blocks * self.sizes.directions, "task", parallel=True) as task:
            first = kept(kernel, "first", task % blocks * batch // blocks)
            count = kept(kernel, "count", (task % blocks + 1) * batch // blocks - first)
            span = StepSpan(kept(kernel, "direction", task // blocks), 1, first, count)
            self.origin = (span.direction, span.first)
            self._keep(attrs.evolve(span, count=longest))
            self._steps(span, weights, parallel=False)

    def _keep(self, span: StepSpan) -> None:
        """Allocates the states of these directions and sequences."""
        whole = (span.directions, counted(span.count), self.sizes.hidden)
        self.kept.update({name: self.kernel.memory(name, float32, (2, *whole)) for name in kept_by(self.layer)})
        if len(self.panels) > 1:
            self.kept.update({name: self.kernel.memory(name, float32, whole) for name in (UPDATE, RESET)})

    def kept_at(self, d: Operand, b: Operand) -> tuple[Operand, Operand]:
        """The indices of a sequence and direction in the states."""
        return (d, b) if self.origin is None else (d - self.origin[0], b - self.origin[1])

    def _check_lengths(self) -> None:
        """Makes the run fail if a sequence is longer than the steps."""
        if self.layer.lengths is None:
            return
        lengths, steps = self.given[self.layer.lengths], self.sizes.steps
        most = "the number of steps" if isinstance(steps, Extent) else steps
        with self.kernel.loop(self.sizes.batch, "row") as row:
            inside = (lengths[row] >= 0) & (lengths[row] <= steps)
            self.kernel.require(inside, f"the length of a sequence is not between 0 and {most}")

    def _pack(self, size: int) -> Buffer:
        """Packs weights that are values into panels."""
        kernel, hidden, weights = self.kernel, self.sizes.hidden, self.given[self.layer.state_weights]
        packed = kernel.memory("packed", float32, (size,))
        for panels in self.panels:
            with kernel.loop(self.sizes.directions, "d") as d, kernel.loop(panels.count, "j") as j:
                column = kernel.name_value("column", start(j, panels.width, hidden))
                with kernel.loop(hidden, "k") as k, kernel.loop(panels.width, "c") as c:
                    at = panels.start(d, j) + k * panels.tile.width + c
                    for number, gate in enumerate(panels.part.gates):
                        packed[at + number * panels.width] = weights[d, gate * hidden + (column + c), k]
        return packed

    # -- all steps of some sequences -----------------------------------------------------------------------

    def _steps(self, span: StepSpan, weights: Buffer, parallel: bool) -> None:
        """Loads the initial states, runs all steps, and stores the final states."""
        for name, entry in zip((HIDDEN, CELLS), self.layer.states, strict=False):
            initial = None if entry is None else self.given[entry]
            with self._each_number(span) as (d, b, h):
                self.kept[name][0, *self.kept_at(d, b), h] = 0.0 if initial is None else initial[self._state(d, b, h)]
        with self.kernel.loop(self.sizes.steps, "t") as t:
            for panels in self.panels:
                self._part(panels, t, span, weights, parallel)
        last = as_index(self.sizes.steps) % 2
        for number, name in enumerate(kept_by(self.layer), 1):
            if number in self.results:
                with self._each_number(span) as (d, b, h):
                    self.results[number][self._state(d, b, h)] = self.kept[name][last, *self.kept_at(d, b), h]

    @contextmanager
    def _each_number(self, span: StepSpan) -> Iterator[tuple[Operand, Operand, Operand]]:
        """A block for each element of a state: its direction, its sequence, and its position."""
        kernel = self.kernel
        with kernel.loop(span.directions, "d") as d, kernel.loop(span.count, "b") as b, kernel.loop(self.sizes.hidden, "h") as h:
            yield span.direction + d, span.first + b, h

    def _state(self, d: Operand, b: Operand, h: Operand) -> tuple[Operand, Operand, Operand]:
        """The index of an element of a state in the inputs and outputs."""
        return (b, d, h) if self.layer.batch_first else (d, b, h)

    # -- a part of one step --------------------------------------------------------------------------------

    def _part(self, panels: PartPanels, t: Value, span: StepSpan, weights: Buffer, parallel: bool) -> None:
        """Writes a loop over panels, each of which goes through all tiles of sequences."""
        kernel, tile, hidden = self.kernel, panels.tile, self.sizes.hidden
        with kernel.tasks(span.directions * panels.count, "pair", parallel) as pair:
            d = kernel.name_value("d", span.direction + pair // panels.count)
            j = kernel.name_value("j", pair % panels.count)
            column = kernel.name_value("column", start(j, panels.width, hidden))
            panel = Panel(weights, kernel.name_value("panel", panels.start(d, j)), tile.width)
            if not isinstance(self.sizes.batch, Extent):
                self._tiles(panels, tile, t, d, column, span, panel)
                return
            with kernel.when(as_index(span.count) >= tile.rows):
                self._tiles(panels, tile, t, d, column, span, panel)
            with kernel.otherwise():
                self._tiles(panels, attrs.evolve(tile, rows=1), t, d, column, span, panel)

    def _tiles(
        self, panels: PartPanels, tile: PanelTile, t: Value, d: Value, column: Value, span: StepSpan, panel: Panel
    ) -> None:
        """Multiplies the tiles of sequences by a panel, and computes their states."""
        kernel, hidden = self.kernel, self.sizes.hidden
        with kernel.loop((span.count + (tile.rows - 1)) // tile.rows, "i") as i:
            row = kernel.name_value("row", span.first + minimum(i * tile.rows, span.count - tile.rows))
            state = self._reader(panels.part.source, t, d, row)
            sums = tile.spilled(kernel, tile.product(kernel, hidden, state, panel))
            with kernel.loop(tile.rows, "r") as r, kernel.loop(panels.vectors, "v") as v:
                b, h = kernel.name_value("b", row + r), kernel.name_value("h", column + v * tile.lanes)
                self._finish(Numbers(self, panels, sums, t, d, b, h, r, v))

    def _reader(self, name: str, t: Value, d: Value, row: Value) -> Number:
        """The function that reads an element of the input state, by sequence of the tile and position."""
        source, (direction, first) = self.kept[name], self.kept_at(d, row)
        return lambda r, k: source[(t % 2, direction, first + r, k) if len(source.shape) == 4 else (direction, first + r, k)]

    def _finish(self, x: Numbers) -> None:
        """Computes the states from the products; a sequence that has ended keeps its state, and its results are zeros."""
        if self.layer.lengths is None:
            self._compute(x, self.sizes.steps)
            return
        length = self.kernel.name_value("length", self.given[self.layer.lengths][x.b].as_index())
        with self.kernel.when(x.t < length):
            self._compute(x, length)
        if x.panels is self.panels[-1]:
            with self.kernel.otherwise():
                for name in kept_by(self.layer):
                    x.store(name, x.state(name))
                x.write_result(x.t, constant(0.0, float32, x.lanes))

    def _compute(self, x: Numbers, length: Operand) -> None:
        """Applies the part's formulas. The position of the inputs and results depends on the direction."""
        backwards, activations = self.layer.backwards, self.layer.activations
        turned = length - 1 - x.t
        position = select(x.d.equals(0), x.t, turned) if len(backwards) > 1 else turned if backwards[0] else x.t
        step = attrs.evolve(x, position=self.kernel.name_value("position", position))
        if all(functions == activations[0] for functions in activations):
            x.panels.part.finish(step, activations[0])
            return
        for d, functions in enumerate(activations):
            with self.kernel.when(x.d.equals(d)):
                x.panels.part.finish(step, functions)


@attrs.frozen(slots=True, eq=False)
class Numbers:
    """A vector of neighbouring elements of the state of one sequence, at one step, in one direction."""

    writing: _LayerLoops
    panels: PartPanels
    tile_sums: Registers
    t: Value
    d: Value
    b: Value
    """The sequence."""
    h: Value
    """The index of the first element."""
    r: Value
    """The row of the sequence in the tile."""
    v: Value
    """The index of the vector in the panel."""
    position: Value | None = None
    """The position of the step in the sequence."""

    @property
    def lanes(self) -> int:
        """Number of elements."""
        return self.panels.tile.lanes

    def sums(self, gate: int) -> Value:
        """The product with the state, for a gate of the part."""
        return self.tile_sums[self.r, gate * self.panels.vectors + self.v]

    def given(self, gate: int) -> Value:
        """The input's projection for a gate of the layer, with all biases except one that is added before the reset."""
        layer, sizes = self.writing.layer, self.writing.sizes
        assert self.position is not None
        step = (self.b, self.position) if layer.batch_first else (self.position, self.b)
        column = (self.d * sizes.gates + gate) * sizes.hidden + self.h
        total = self.writing.given[layer.projected].vector(self.lanes, *step, column)
        biases = [self._bias(gate)]
        if not (resets_later(layer.node) and gate == LATE):
            biases.append(self._bias(sizes.gates + gate))
        return reduce(add, [bias for bias in biases if bias is not None], total)

    def _bias(self, number: int) -> Value | None:
        """The bias of a gate: the inputs' biases come first, then those of the state."""
        entry = self.writing.layer.biases
        if entry is None:
            return None
        return self.writing.given[entry].vector(self.lanes, self.d, number * self.writing.sizes.hidden + self.h)

    def state(self, name: str) -> Value:
        """The elements of the state of this name, from the step before or an earlier part of this one."""
        kept = self.writing.kept[name]
        copy = (self.t % 2,) if len(kept.shape) == 4 else ()
        return kept.vector(self.lanes, *copy, *self.writing.kept_at(self.d, self.b), self.h)

    def keep(self, name: str, value: Value) -> None:
        """Stores the elements of the state of this name; the hidden state is a result too."""
        value = self.named(name, value)
        self.store(name, value)
        if name == HIDDEN:
            assert self.position is not None
            self.write_result(self.position, value)

    def store(self, name: str, value: Value) -> None:
        """Writes the elements to the copy that the next step, or a later part of this one, reads."""
        kept = self.writing.kept[name]
        copy = (1 - self.t % 2,) if len(kept.shape) == 4 else ()
        kept[(*copy, *self.writing.kept_at(self.d, self.b), self.h)] = value

    def write_result(self, position: Value, value: Value) -> None:
        """Writes the elements of the output sequence, if that is used."""
        result = self.writing.results.get(0)
        if result is not None:
            batch_first = self.writing.layer.batch_first
            result[(self.b, position, self.d, self.h) if batch_first else (position, self.d, self.b, self.h)] = value

    def peephole(self, gate: int) -> Value | None:
        """The peephole weights of a gate from the cells; None if it has none."""
        entry = self.writing.layer.peepholes
        if entry is None:
            return None
        return self.writing.given[entry].vector(self.lanes, self.d, gate * self.writing.sizes.hidden + self.h)

    def late_bias(self) -> Value | None:
        """The bias that is added to the candidate's product before the reset."""
        return self._bias(self.writing.sizes.gates + LATE)

    def named(self, name: str, value: Value) -> Value:
        """The value in a register of its own; it is computed once. TVM does not allow nested let-bound values."""
        register = self.writing.kernel.registers(name, float32, (1,), self.lanes)
        register[0] = value
        return register[0]
