"""What ops on rows do, step by step: an expression at each place of a row, a number of the row, or a sum, maximum or minimum
over it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import attrs

from accelerators.tvm.bodies import Body
from accelerators.tvm.library import part
from accelerators.tvm.templates.epilogue import LONG, input_name, static_shape
from accelerators.tvm.templates.flat import Size, read_size
from accelerators.tvm.templates.formulas import Number, formula
from accelerators.tvm.templates.numbers import const, exp_of_negative
from accelerators.tvm.templates.row_text import JOINS
from accelerators.tvm.templates.script import number
from graph.node import Node, NodeEntry

REDUCTIONS = {"ReduceSum": "sum", "ReduceMean": "sum", "ReduceMax": "max", "ReduceMin": "min"}
"""By op, what is reduced."""


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
    is_long: bool = False
    """Is computing it many instructions?"""
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
        last = node.attrs.get("axis", -1) % len(first) == len(first) - 1 and first[-1] > 1
        return "norm" if last and all(shape == first[-1:] for shape in beside) else None
    if node.op == "Softmax":
        last = node.attrs.get("axis", -1 if version >= 13 else 1) % len(first) == len(first) - 1 and first[-1] > 1
        return "softmax" if last else None
    if node.op in REDUCTIONS:
        last = _axes(node) in ([-1], [len(first) - 1]) and first[-1] > 1
        return REDUCTIONS[str(node.op)] if node.attrs.get("keepdims", 1) and last else None
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
            made = self._reduced(kind, first) if kind == "sum" else self._extreme(kind, first)
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

    def _each(self, reads: Sequence[Step], compute: Callable[..., Number], is_long: bool = False) -> Step:
        full = any(step.is_full for step in reads)
        level = max((step.level for step in reads), default=0)
        far = any(step.kind == "each" and step.is_full for step in reads)
        dear = full and (is_long or far)
        return self._add(Step("each", full, tuple(reads), compute, is_long=is_long, dear=dear, level=level))

    def _reduced(self, how: str, of: Step) -> Step:
        return self._add(Step(how, False, (of,), level=of.level + 1))

    def _extreme(self, how: str, of: Step) -> Step:
        """The largest or smallest number. It passes over what is no number; a sum of squares is none only where one of them is
        none, and is the result there."""
        squares = self._reduced("sum", self._each([of], lambda x: x * x))
        return self._each(
            [self._reduced(how, of), squares],
            lambda best, total: part("tirx").Select(total <= const(math.inf), best, total),
        )

    def _softmax(self, x: Step) -> Step:
        power = self._each([x, self._reduced("max", x)], lambda x, top: exp_of_negative(x - top), is_long=True)
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
