"""Several ops on rows as one launch on a GPU: some threads share each row, and each takes every n-th column.

The steps are those of `row_steps.py`. There is one pass over a row for each reduction that depends on another one, and
expressions are recomputed in each pass, since their inputs are in the nearest cache. The partial results of a row's threads are
combined in shared memory, always in the same order."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from partita.accelerators.tvm.bodies.body import Body
from partita.accelerators.tvm.kernels.language import Buffer, Kernel, Operand, Value, float32, minimum
from partita.accelerators.tvm.kernels.language.values import parts_of
from partita.accelerators.tvm.kernels.rows.row_steps import Program, RowStep, find_program
from partita.accelerators.tvm.kernels.shared.element_access import write
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft
from partita.accelerators.tvm.kernels.shared.row import JOINS
from partita.accelerators.tvm.machine.gpu import Gpu
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.sizes.extent import Extent, is_multiple

JOINED = 8
"""Partial results that a thread combines in a round."""

EACH = 4
"""Minimum number of columns per thread, unless there would be too few threads."""

FEWEST, MOST = 32, 256
"""Minimum and maximum number of threads of a row."""

BLOCK = 128
"""Threads of a block, if there are enough rows to give every core a block."""

MANY_ROWS, MANY_COLUMNS = 512, 256
"""Assumed number of rows and of columns if they are dynamic."""


@attrs.frozen(slots=True)
class Share:
    """The division of rows among threads."""

    threads: int
    """Threads of a row, a power of two."""
    rows: int
    """Rows of a block."""

    @classmethod
    def of(cls, program: Program, gpu: Gpu) -> Share:
        """More threads for longer rows, and several rows per block as long as every core still has a block."""
        columns = MANY_COLUMNS if isinstance(program.columns, Extent) else program.columns
        count = MANY_ROWS if isinstance(program.rows, Extent) else program.rows
        threads = min(FEWEST, _power_below(gpu.threads))
        while threads * EACH < columns and threads * 2 <= min(gpu.threads, MOST):
            threads *= 2
        rows = 1
        while threads * rows * 2 <= min(gpu.threads, BLOCK) and count // (rows * 2) >= gpu.cores:
            rows *= 2
        return cls(threads, rows)

    def shared(self, program: Program) -> int:
        """Bytes of shared memory."""
        joined = sum(step.kind in JOINS for step in program.steps)
        return 4 * joined * self.rows * sum(self.sizes)

    @property
    def sizes(self) -> list[int]:
        """Number of partial results of a row before each round of combining."""
        sizes = [self.threads]
        while sizes[-1] > JOINED:
            sizes.append(-(-sizes[-1] // JOINED))
        return sizes


def _power_below(count: int) -> int:
    return 1 << (count.bit_length() - 1)


def gpu_rows(body: Body, machine: Machine) -> Draft | None:
    """The kernel for a body of ops on rows; None for any other body, and for unknown sizes."""
    match = find_program(body)
    if match is None:
        return None
    share = Share.of(match, machine.gpu)
    if share.shared(match) > machine.gpu.shared:
        return None
    problem, kernel, inputs, outputs = match.kernel(body)
    _GpuRowLoops(match, share, kernel, inputs, outputs).write()
    return problem.draft(kernel, "gpu_rows")


class _GpuRowLoops:
    """Writes the loops of a program."""

    def __init__(
        self, program: Program, share: Share, kernel: Kernel, inputs: Sequence[Buffer], outputs: Sequence[Buffer]
    ) -> None:
        self.program, self.share, self.kernel = program, share, kernel
        self.inputs, self.outputs = inputs, outputs
        self.single = program.single
        """The position in `m` of each step with one value per row."""

    def write(self) -> None:
        """Writes the launch, in which each block has some rows."""
        program, kernel, share = self.program, self.kernel, self.share
        blocks = parts_of(program.rows, share.rows)
        with kernel.launch((blocks, 1, 1), share.threads * share.rows) as (block, _, _, thread):
            self.line = kernel.name_value("line", thread // share.threads)
            self.own = kernel.name_value("own", thread % share.threads)
            row = block * share.rows + self.line
            is_rest = not is_multiple(program.rows, share.rows)
            self.row = kernel.name_value("row", minimum(row, program.rows - 1) if is_rest else row)
            self.is_own = row < program.rows if is_rest else None
            self.m = kernel.stack("m", float32, (max(1, len(self.single)),))
            for level in program.levels:
                for step, at in self.single.items():
                    if step.kind == "each" and step.level == level:
                        self.m[at] = self._computed(step, 0, {})
                self._pass(level)
            for output, step in zip(self.outputs, program.results, strict=True):
                if not step.is_full:
                    first = self.own.equals(0)
                    with kernel.when(first if self.is_own is None else first & self.is_own):
                        write(output, (self.row, 0), self.m[self.single[step]])

    def _pass(self, level: int) -> None:
        """Writes the reductions that can be computed after `level` passes, and the results that are complete."""
        program, kernel, share = self.program, self.kernel, self.share
        joins, results = program.joins_after(level), program.complete_after(level)
        if not joins and not results:
            return
        partial = kernel.stack("partial", float32, (max(1, len(joins)),))
        for k, step in enumerate(joins):
            partial[k] = JOINS[step.kind].start

        def at(column: Value) -> None:
            numbers: dict[RowStep, Value] = {}
            for step in program.needed([*(step.reads[0] for step in joins), *(step for _, step in results)]):
                number = kernel.stack("number", float32, (1,))  # TVM rejects functions of named functions, nested three deep.
                number[0] = self._computed(step, column, numbers)
                numbers[step] = number[0]
            for k, step in enumerate(joins):
                partial[k] = JOINS[step.kind].joined(partial[k], self._read(step.reads[0], column, numbers))
            for i, step in results:
                with kernel.when(self.is_own):
                    write(self.outputs[i], (self.row, column), self._read(step, column, numbers))

        if isinstance(program.columns, Extent):
            own = parts_of(program.columns - self.own, share.threads)
            with kernel.loop(own, "i") as i:
                at(i * share.threads + self.own)
            rest = 0
        else:
            whole, rest = divmod(program.columns, share.threads)
            with kernel.loop(whole, "i") as i:
                at(i * share.threads + self.own)
        if rest:
            with kernel.when(self.own < rest):
                at(whole * share.threads + self.own)
        for k, step in enumerate(joins):
            self.m[self.single[step]] = self._joined(step.kind, partial[k])

    def _joined(self, how: str, number: Value) -> Value:
        """The combined partial results of a row's threads: each round combines up to `JOINED` values into one."""
        kernel, join, sizes = self.kernel, JOINS[how].joined, self.share.sizes
        for before, after in zip(sizes, [*sizes[1:], None], strict=True):
            memory = kernel.shared("joined", float32, (self.share.rows * before,))
            with kernel.when(self.own < before):
                memory[self.line * before + self.own] = number
            kernel.barrier()
            total = kernel.stack("total", float32, (1,))
            first = 0 if after is None else minimum(self.own, after - 1)
            total[0] = memory[self.line * before + first]
            step = 1 if after is None else after
            with kernel.loop(before // step - 1, "other") as other:
                total[0] = join(total[0], memory[self.line * before + first + (other + 1) * step])
            number = total[0]
        return number

    def _read(self, step: RowStep, column: Operand, numbers: dict[RowStep, Value]) -> Value:
        """A step's value at a position."""
        given = self.program.given(step, self.inputs, self.row, column)
        if given is not None:
            return given
        return numbers[step] if step.is_full else self.m[self.single[step]]

    def _computed(self, step: RowStep, column: Operand, numbers: dict[RowStep, Value]) -> Value:
        assert step.compute is not None
        return step.compute(*(self._read(other, column, numbers) for other in step.reads))
