"""Several ops on rows as one kernel: norms and softmax, as ops or in pieces, with the element-wise ops around them.

Each op becomes steps: an expression at each place of a row, a number of the row, or a sum, maximum or minimum over it. A row is
passed over once for every reduction that waits for another; expressions are worked out again in each pass, but for dear ones,
which are kept. The next row begins when all is done with this one, while it is in the nearest cache."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from accelerators.tvm.bodies import Body
from accelerators.tvm.library import part
from accelerators.tvm.machine import Machine
from accelerators.tvm.schedules import for_threads
from accelerators.tvm.templates import Draft, template
from accelerators.tvm.templates.epilogue import input_name, output_name, static_shape
from accelerators.tvm.templates.flat import LONG, Size, read_size
from accelerators.tvm.templates.formulas import Number, formula
from accelerators.tvm.templates.numbers import const, exp_of_negative
from accelerators.tvm.templates.row_text import JOINS, across
from accelerators.tvm.templates.script import Lines, Vectors, kernel, local, loop, number
from graph.node import Node, NodeEntry

REDUCTIONS = {"ReduceSum": "sum", "ReduceMean": "sum", "ReduceMax": "max", "ReduceMin": "min"}
"""By op, what is reduced."""

SUMS = 4
"""Vectors of partial sums: one addition need not wait for the one before."""

STACK = 4096
"""So many numbers are kept on the stack."""

PASSES = 4
"""How many steps a number is worth where a row is read several times."""


@attrs.define(slots=True, eq=False)
class Step:
    """A value of the program."""

    kind: str
    """"given" (read or constant), "each" (computed from the values at the same place), or what a reduction is called."""
    is_full: bool
    """Does it differ from place to place of a row?"""
    reads: tuple[Step, ...] = ()
    """What it is computed from."""
    compute: Callable[..., Number] | None = None
    """Its number from those of `reads`."""
    text: Callable[[str], str] | None = None
    """What is given, at a column."""
    dear: bool = False
    """Is it kept, if a later pass needs it? It takes a long function, or several steps from what is given."""
    level: int = 0
    """After how many passes it can be computed."""


@attrs.frozen(slots=True, eq=False)
class Program:
    """What a body does with each of its rows."""

    rows: int
    columns: int
    inputs: dict[int, Size]
    """By input of the body, the size under which it is read."""
    steps: list[Step]
    """In order."""
    results: list[Step]
    """Of the body's outputs."""


def find_program(body: Body) -> Program | None:
    """The body's program; None if one of its ops is no row op."""
    return _Making(body).run()


def row_kind(node: Node, version: int) -> str | None:
    """What the op is to rows: "norm", "softmax", a reduction, "each" (number by number), or nothing."""
    made = static_shape(node[0]) if not node.domain else None
    first = None if not node.inputs or node.inputs[0] is None else static_shape(node.inputs[0])
    if not made or not first or 0 in made or any(name for name in node.output_names[1:]):
        return None
    if node.op in ("LayerNormalization", "RMSNormalization"):
        beside = [static_shape(entry) for entry in node.inputs[1:] if entry is not None]
        last = node.attrs.get("axis", -1) % len(first) == len(first) - 1
        return "norm" if last and all(shape == first[-1:] for shape in beside) else None
    if node.op == "Softmax":
        return "softmax" if node.attrs.get("axis", -1 if version >= 13 else 1) % len(first) == len(first) - 1 else None
    if node.op in REDUCTIONS:
        return REDUCTIONS[str(node.op)] if node.attrs.get("keepdims", 1) and _axes(node) in ([-1], [len(first) - 1]) else None
    if formula(node, version) is None or any(read_size(static_shape(entry), made) is None for entry in node.reads):
        return None
    return "each"


def _axes(node: Node) -> list[int]:
    given = node.inputs[1] if len(node.inputs) > 1 else None
    if given is None:
        return list(node.attrs.get("axes") or ())
    return [] if given.node.value is None else [int(axis) for axis in given.node.value.reshape(-1)]


class _Making:
    """From ops to steps."""

    def __init__(self, body: Body) -> None:
        self.body = body
        self.version = body.graph.opsets.get("", 1)
        self.steps: list[Step] = []
        self.values: dict[NodeEntry, Step] = {}
        self.inputs: dict[int, Size] = {}
        self.positions = {node[0]: i for i, node in enumerate(body.graph.inputs)}

    def run(self) -> Program | None:
        """All of it."""
        wholes = {static_shape(node.inputs[0] if node.op in REDUCTIONS else node[0]) for node in self.body.ops if node.inputs}
        full = {shape for shape in wholes if shape and shape[-1] > 1}
        if len({(math.prod(shape[:-1]), shape[-1]) for shape in full}) != 1:
            return None
        whole = next(iter(full))
        for node in self.body.ops:
            if not self._node(node, whole):
                return None
        results = [self.values[entry] for entry in self.body.graph.outputs]
        if not any(step.kind in JOINS for step in self.steps) or any(step.kind == "given" for step in results):
            return None
        return Program(math.prod(whole[:-1]), whole[-1], self.inputs, self.steps, results)

    def _node(self, node: Node, whole: tuple[int, ...]) -> bool:
        kind, shape = row_kind(node, self.version), static_shape(node[0])
        if kind is None or shape is None or math.prod(shape[:-1]) != math.prod(whole[:-1]) or shape[-1] not in (1, whole[-1]):
            return False
        given = node.inputs if kind in ("each", "norm") else node.inputs[:1]
        read: list[Step | None] = []
        for entry in given:
            step = None if entry is None else self._read(entry, shape if kind == "each" else whole)
            if entry is not None and step is None:
                return False
            read.append(step)
        first = read[0]
        if kind == "each":
            compute = formula(node, self.version)
            assert compute is not None
            made = self._each([s for s in read if s is not None], _with_gaps(node, compute, read), node.op in LONG)
        elif kind == "norm":
            made = self._norm(node, [s for s in read if s is not None])
        elif first is None or not first.is_full:
            return False
        elif kind == "softmax":
            made = self._softmax(first)
        else:
            made = self._reduced(kind, first)
            if node.op == "ReduceMean":
                made = self._each([made], lambda x: x * const(1 / whole[-1]))
        self.values[node[0]] = made
        return True

    def _read(self, entry: NodeEntry, shape: tuple[int, ...]) -> Step | None:
        known = self.values.get(entry)
        if known is not None:
            return known
        value, position = entry.node.value, self.positions.get(entry)
        if value is not None and value.size == 1:
            return self._add(Step("given", False, text=_constant(float(value.item()))))
        size = None if position is None else read_size(static_shape(entry), shape)
        if position is None or size is None or self.inputs.setdefault(position, size) != size:
            return None
        self.values[entry] = step = self._add(Step("given", size[1] > 1, text=_reader(position, size)))
        return step

    def _add(self, step: Step) -> Step:
        self.steps.append(step)
        return step

    def _each(self, reads: Sequence[Step], compute: Callable[..., Number], dear: bool = False) -> Step:
        full = any(step.is_full for step in reads)
        level = max((step.level for step in reads), default=0)
        far = any(step.kind == "each" and step.is_full for step in reads)
        return self._add(Step("each", full, tuple(reads), compute, dear=full and (dear or far), level=level))

    def _reduced(self, how: str, of: Step) -> Step:
        return self._add(Step(how, False, (of,), level=of.level + 1))

    def _softmax(self, x: Step) -> Step:
        power = self._each([x, self._reduced("max", x)], lambda x, top: exp_of_negative(x - top), dear=True)
        over = self._each([self._reduced("sum", power)], lambda total: const(1.0) / total)
        return self._each([power, over], lambda power, over: power * over)

    def _norm(self, node: Node, read: Sequence[Step]) -> Step:
        x, scale, *bias = read
        columns = (static_shape(node[0]) or (1,))[-1]
        centred = x
        if node.op == "LayerNormalization":
            mean = self._each([self._reduced("sum", x)], lambda total: total * const(1 / columns))
            centred = self._each([x, mean], lambda x, mean: x - mean)
        square = self._reduced("sum", self._each([centred], lambda c: c * c))
        epsilon = float(node.attrs.get("epsilon", 1e-5))
        over = self._each(
            [square], lambda total: const(1.0) / part("tirx").sqrt(total * const(1 / columns) + const(epsilon))
        )
        return self._each(
            [centred, over, scale, *bias], lambda c, over, scale, *bias: c * over * scale + bias[0] if bias else c * over * scale
        )


def _with_gaps(node: Node, compute: Callable[..., Number], read: Sequence[Step | None]) -> Callable[..., Number]:
    """The op's formula on the numbers of those inputs that are there."""

    def made(*numbers: Number) -> Number:
        given = iter(numbers)
        return compute(node, [None if step is None else next(given) for step in read])

    return made


def _reader(position: int, size: Size) -> Callable[[str], str]:
    """Text of an input's number at a column."""
    row = "0" if size[0] == 1 else "r"
    return lambda column: f"{input_name(position)}[{row}, {'0' if size[1] == 1 else column}]"


def _constant(value: float) -> Callable[[str], str]:
    return lambda column: f"T.float32({number(value)})"


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
        late = {(read, step.level) for step in program.steps for read in step.reads if step.kind == "each"}
        late |= {(read, step.level - 1) for step in program.steps for read in step.reads if step.kind in JOINS}
        dear = [step for step in program.steps if step.dear and any(step is s and step.level < level for s, level in late)]
        self.kept = {step: i for i, step in enumerate(dear)}
        self.names = {step: f"t{i}" for i, step in enumerate(program.steps) if step.kind == "each"}

    def lines(self) -> Lines:
        """A loop over the rows."""
        program, lanes = self.program, self.machine.lanes
        joined = sum(step.kind in JOINS for step in program.steps)
        lines = [local("m", len(self.rows)), local("s", SUMS * lanes * joined)]
        lines += [local(name, lanes) for step, name in self.names.items() if step.is_full]
        if self.kept:
            size = len(self.kept) * program.columns
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
        vectors = program.columns // width
        groups, single = divmod(vectors, SUMS)
        count = min(vectors, SUMS) if groups else 1

        def at(column: str, lane: str, sums: Callable[[int], str]) -> Lines:
            made = [f"{self._text(s, column, lane)} = {self._value(s, column, lane, level)}" for s in needed]
            made += [f"kept[{self.kept[step] * program.columns} + {column}] = {self._text(step, column, lane)}" for step in kept]
            for k, step in enumerate(joins):
                made.append(f"{sums(k)} = {JOINS[step.kind][1](sums(k), self._text(step.reads[0], column, lane))}")
            return made + [f"{output_name(i)}[r, {column}] = {self._text(step, column, lane)}" for i, step in results]

        def partial(k: int, u: int) -> str:
            return text.at("s", (k * SUMS + u) * width)

        lines = [f"{partial(k, u)} = {text.const(JOINS[s.kind][0])}" for k, s in enumerate(joins) for u in range(count)]
        if groups:
            body = at(f"(v * {SUMS} + u) * {width} + l", "l", lambda k: f"s[({k * SUMS} + u) * {width} + l]")
            lines += loop("v", groups, loop("u", SUMS, loop("l", width, body, "vectorized"), "unroll"))
        if single:
            body = at(f"({groups * SUMS} + v) * {width} + l", "l", lambda k: f"s[{k * SUMS * width} + l]")
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

    def _stands(self, step: Step, level: int) -> bool:
        return step in self.kept and step.level < level

    def _text(self, step: Step, column: str, lane: str) -> str:
        """Where a value at a place is found."""
        if step.text is not None:
            return step.text(column)
        return f"{self.names[step]}[{lane}]" if step.is_full else self.rows[step]

    def _value(self, step: Step, column: str, lane: str, level: int) -> str:
        """How it is made there."""
        kept = f"kept[{self.kept.get(step, 0) * self.program.columns} + {column}]"
        return kept if self._stands(step, level) else self._called(step, column, lane)

    def _called(self, step: Step, column: str, lane: str = "0") -> str:
        assert step.compute is not None
        name = f"f{self.names[step]}"
        self.functions[name] = step.compute
        return f"{name}({', '.join(self._text(read, column, lane) for read in step.reads)})"
