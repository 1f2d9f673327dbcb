"""Several ops on rows as one kernel: norms and softmax, as ops or in pieces, with the element-wise ops around them.

Each op becomes steps: an expression at each place of a row, a number of the row, or a sum, maximum or minimum over it. A row is
passed over once for every reduction that waits for another; expressions are worked out again in each pass, but for dear ones,
which are kept. The next row begins when all is done with this one, while it is in the nearest cache."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from accelerators.tvm.bodies import Body
from accelerators.tvm.machine import Machine
from accelerators.tvm.schedules import for_threads
from accelerators.tvm.templates import Draft, template
from accelerators.tvm.templates.epilogue import input_name, output_name
from accelerators.tvm.templates.row_steps import REDUCTIONS, Program, Step, find_program
from accelerators.tvm.templates.row_text import JOINS, across
from accelerators.tvm.templates.script import Lines, Vectors, kernel, local, loop

SUMS = 4
"""Vectors of partial sums: one addition need not wait for the one before. (A long function takes longer than an addition, and
needs the registers: one is enough there.)"""

STACK = 4096
"""So many numbers are kept on the stack."""

PASSES = 4
"""How many steps a number is worth where a row is read several times."""


@template("cpu", ops=frozenset({"LayerNormalization", "RMSNormalization", "Softmax", *REDUCTIONS}))
def row_program(body: Body, machine: Machine) -> Draft | None:
    """Bodies of several row ops."""
    found = find_program(body) if len(body.ops) > 1 or body.ops[0].op not in REDUCTIONS else None
    if found is None:
        return None
    writing = _Writing(found, machine)
    lines = writing.lines()
    sizes = {i: found.inputs.get(i, (1, 1)) for i in range(len(body.graph.inputs))}
    results = [(found.rows, found.columns if step.is_full else 1) for step in found.results]
    params = [(input_name(i), size, "float32") for i, size in sizes.items()]
    params += [(output_name(i), size, "float32") for i, size in enumerate(results)]
    shapes: dict[int, tuple[int, ...]] = dict(sizes)
    return Draft(kernel(params, lines, writing.functions), "rows", shapes=shapes, results=results)


class _Writing:
    """From steps to text. `m` holds the row's numbers, `s` partial sums, `kept` what is dear; t0, t1, … are values at a vector's
    places. (Buffers, since TVM writes out named expressions wherever they are used.)"""

    def __init__(self, program: Program, machine: Machine) -> None:
        self.program = program
        self.machine = machine
        self.functions: dict[str, Any] = {}
        self.rows = {s: f"m[{i}]" for i, s in enumerate(s for s in program.steps if s.kind != "given" and not s.is_full)}
        self.lent: set[int] = set()
        self.aside = 0
        late = {(read, step.level) for step in program.steps for read in step.reads if step.kind == "each"}
        late |= {(read, step.level - 1) for step in program.steps for read in step.reads if step.kind in JOINS}
        dear = [step for step in program.steps if step.dear and any(step is s and step.level < level for s, level in late)]
        self.kept = {step: self._place(step, late) for step in dear}
        self.names = {step: f"t{i}" for i, step in enumerate(program.steps) if step.kind == "each"}

    def _place(self, step: Step, late: Collection[tuple[Step, int]]) -> Callable[[str], str]:
        """Where a value is kept: in the row of a result that is not written before the value was last read, else aside."""
        last = max(level for other, level in late if other is step)
        for i, result in enumerate(self.program.results):
            if i not in self.lent and result.is_full and (result is step or result.level >= last):
                self.lent.add(i)
                return lambda column: f"{output_name(i)}[r, {column}]"
        start = self.aside * self.program.columns
        self.aside += 1
        return lambda column: f"kept[{start} + {column}]"

    def lines(self) -> Lines:
        """A loop over the rows."""
        program, lanes = self.program, self.machine.lanes
        joined = sum(step.kind in JOINS for step in program.steps)
        lines = [local("m", len(self.rows)), local("s", SUMS * lanes * joined)]
        lines += [local(name, lanes) for step, name in self.names.items() if step.is_full]
        if self.aside:
            size = self.aside * program.columns
            lines.append(local("kept", size) if size <= STACK else f'kept = T.alloc_buffer(({size},), "float32")')
        for level in range(max(step.level for step in program.steps) + 1):
            lines += self._numbers(level) + self._pass(level)
        for i, step in enumerate(program.results):
            lines += [] if step.is_full else [f"{output_name(i)}[r, 0] = {self.rows[step]}"]
        many = for_threads(self.machine, program.rows * program.columns * PASSES) and program.rows > 1
        return loop("r", program.rows, lines, "parallel" if many else "serial")

    def _numbers(self, level: int) -> Lines:
        """What is one number for the row, and known after so many passes."""
        steps = [step for step in self.rows if step.kind == "each" and step.level == level]
        return [f"{self.rows[step]} = {self._called(step, '0')}" for step in steps]

    def _pass(self, level: int) -> Lines:
        """The reductions that can be made after so many passes, and what is kept or written now."""
        program, text, width = self.program, Vectors(self.machine.lanes), self.machine.lanes
        joins = [step for step in program.steps if step.kind in JOINS and step.level == level + 1]
        kept = [step for step in self.kept if step.level == level]
        results = [(i, step) for i, step in enumerate(program.results) if step.level == level and step.is_full]
        if not joins and not kept and not results:
            return []
        needed = self._needed([*kept, *(step.reads[0] for step in joins), *(step for _, step in results)], level)
        vectors, most = program.columns // width, 1 if any(self._is_long(step, level) for step in needed) else SUMS
        groups, single = divmod(vectors, most)
        count = most if groups else 1

        def at(column: str, lane: str, sums: Callable[[int], str]) -> Lines:
            made = [f"{self._text(s, column, lane)} = {self._value(s, column, lane, level)}" for s in needed]
            made += [f"{self.kept[step](column)} = {self._text(step, column, lane)}" for step in kept]
            for k, step in enumerate(joins):
                made.append(f"{sums(k)} = {JOINS[step.kind][1](sums(k), self._text(step.reads[0], column, lane))}")
            return made + [f"{output_name(i)}[r, {column}] = {self._text(step, column, lane)}" for i, step in results]

        def partial(k: int, u: int) -> str:
            return text.at("s", (k * SUMS + u) * width)

        lines = [f"{partial(k, u)} = {text.const(JOINS[s.kind][0])}" for k, s in enumerate(joins) for u in range(count)]
        if groups:
            body = at(f"(v * {most} + u) * {width} + l", "l", lambda k: f"s[({k * SUMS} + u) * {width} + l]")
            lines += loop("v", groups, loop("u", most, loop("l", width, body, "vectorized"), "unroll"))
        if single:
            body = at(f"({groups * most} + v) * {width} + l", "l", lambda k: f"s[{k * SUMS * width} + l]")
            lines += loop("v", single, loop("l", width, body, "vectorized"))
        for k, step in enumerate(joins):
            join = JOINS[step.kind][1]
            lines += [f"{partial(k, 0)} = {join(partial(k, 0), partial(k, u))}" for u in range(1, count)]
            lines += across(step.kind, "s", width, self.rows[step], k * SUMS * width)
        done = vectors * width
        rest = at(f"{done} + e", "0", lambda k: self.rows[joins[k]])
        return lines + (loop("e", program.columns - done, rest) if done < program.columns else [])

    def _needed(self, wanted: Sequence[Step], level: int) -> list[Step]:
        """The values at a place that these are computed from, in order."""
        found, waiting = set(), list(wanted)
        while waiting:
            step = waiting.pop()
            if step.is_full and step not in found:
                found.add(step)
                waiting += [] if self._stands(step, level) else step.reads
        return [step for step in self.program.steps if step in found and step.kind == "each"]

    def _is_long(self, step: Step, level: int) -> bool:
        return step.is_long and not self._stands(step, level)

    def _stands(self, step: Step, level: int) -> bool:
        return step in self.kept and step.level < level

    def _text(self, step: Step, column: str, lane: str) -> str:
        """Where a value at a place is found."""
        if step.text is not None:
            return step.text(column)
        return f"{self.names[step]}[{lane}]" if step.is_full else self.rows[step]

    def _value(self, step: Step, column: str, lane: str, level: int) -> str:
        """How it is made there."""
        return self.kept[step](column) if self._stands(step, level) else self._called(step, column, lane)

    def _called(self, step: Step, column: str, lane: str = "0") -> str:
        assert step.compute is not None
        name = f"f{self.names[step]}"
        self.functions[name] = step.compute
        return f"{name}({', '.join(self._text(read, column, lane) for read in step.reads)})"
