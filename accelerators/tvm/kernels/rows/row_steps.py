"""Ops on rows as steps: an expression at each position of a row, a value per row, or a sum, maximum or minimum over it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import attrs

from partita.accelerators.tvm.bodies.body import Body
from partita.accelerators.tvm.bodies.quantized import DOMAIN
from partita.accelerators.tvm.kernels.language import Buffer, Kernel, Operand, Value, constant, float32, log, select, sqrt
from partita.accelerators.tvm.kernels.language.values import as_index
from partita.accelerators.tvm.kernels.shared.element_access import Shape, number_shape, read, real_shape
from partita.accelerators.tvm.kernels.shared.elementwise import Formula, formula
from partita.accelerators.tvm.kernels.shared.epilogue import Size, read_size
from partita.accelerators.tvm.kernels.shared.functions import exp_of_negative
from partita.accelerators.tvm.kernels.shared.kernel_io import Problem
from partita.accelerators.tvm.kernels.shared.row import JOINS
from partita.accelerators.tvm.sizes.extent import Extent
from partita.graph.node import Node, NodeEntry
from partita.graph.ops.traits import ops

REDUCTIONS = {"ReduceSum": "sum", "ReduceMean": "sum", "ReduceMax": "max", "ReduceMin": "min"}
"""The kind of reduction of each op."""

ALONE = {
    **REDUCTIONS, "ReduceSumSquare": "sum", "ReduceL2": "sum", "GlobalAveragePool": "sum", "GlobalMaxPool": "max",
}
"""The reductions above, and those that only make a kernel by themselves."""

SOFTMAXES = ops("softmax") - {"Hardmax"}
OF_CHANNELS = "InstanceNormalization"
"""The norm of each channel of each image, which only makes a kernel by itself."""

@attrs.define(slots=True, eq=False)
class RowStep:
    """A value of a program."""

    kind: str
    """"given" (an input or constant), "each" (computed from the values at the same position), or the name of a reduction."""
    is_full: bool
    """True if it has a value per position of a row, not one per row."""
    reads: tuple[RowStep, ...] = ()
    """The steps that it is computed from."""
    compute: Callable[..., Value] | None = None
    """Computes its value from those of `reads`."""
    source: tuple[int, Size] | None = None
    """The index of the body's input that the step reads, with its rows and columns; None if it reads none. If it has fewer rows
    than the program, but more than one, they repeat for each image."""
    constant: float | None = None
    """The value of a step that is a constant of the body."""
    is_long: bool = False
    """True if computing it takes many instructions."""
    dear: bool = False
    """True if it is kept for later passes that need it: it takes a long function, or several steps from the inputs."""
    level: int = 0
    """The number of passes after which it can be computed."""


@attrs.frozen(slots=True, eq=False)
class Program:
    """The steps that a body applies to each of its rows."""

    rows: int
    columns: int
    inputs: dict[int, Size]
    """The rows and columns under which each input of the body is read, by input number."""
    steps: list[RowStep]
    """All steps, each after those that it reads."""
    results: list[RowStep]
    """The steps whose values are the body's outputs."""

    def kernel(self, body: Body) -> tuple[Problem, Kernel, list[Buffer], list[Buffer]]:
        """A kernel with the body's arguments as rows."""
        problem = Problem.of(body)
        sizes = {i: self.inputs.get(i, (1, 1)) for i in range(len(problem.inputs))}
        results = [(self.rows, self.columns if step.is_full else 1) for step in self.results]
        return problem, *problem.kernel("rows", sizes, results)

    @property
    def single(self) -> dict[RowStep, int]:
        """The steps with one value per row, numbered."""
        return {step: i for i, step in enumerate(s for s in self.steps if s.kind != "given" and not s.is_full)}

    @property
    def levels(self) -> range:
        """The numbers of passes after which steps can be computed."""
        return range(max(step.level for step in self.steps) + 1)

    def joins_after(self, level: int) -> list[RowStep]:
        """The reductions that can be computed after `level` passes."""
        return [step for step in self.steps if step.kind in JOINS and step.level == level + 1]

    def complete_after(self, level: int) -> list[tuple[int, RowStep]]:
        """The results with a value per position that are complete after `level` passes, with their numbers."""
        return [(i, step) for i, step in enumerate(self.results) if step.level == level and step.is_full]

    def needed(self, wanted: Sequence[RowStep], is_kept: Callable[[RowStep], bool] = lambda step: False) -> list[RowStep]:
        """The element-wise steps that `wanted` depends on, in order, down to those that are kept."""
        needed, waiting = set(), list(wanted)
        while waiting:
            step = waiting.pop()
            if step.is_full and step not in needed:
                needed.add(step)
                waiting += [] if is_kept(step) else step.reads
        return [step for step in self.steps if step in needed and step.kind == "each"]

    def given(self, step: RowStep, inputs: Sequence[Buffer], row: Value, column: Operand) -> Value | None:
        """The value at a position of a step that is a constant or an input of the body; None for another step."""
        if step.constant is not None:
            return constant(step.constant, float32)
        if step.source is None:
            return None
        position, (rows, columns) = step.source
        at = 0 if rows == 1 else row if rows == self.rows else row % rows
        return read(inputs[position], (at, 0 if columns == 1 else column))


def find_program(body: Body) -> Program | None:
    """The body's program; None if one of its ops is not a row op."""
    alone = _alone(body.ops[0], body.graph.opset) if len(body.ops) == 1 else None
    return _Making(body, alone or {}).run(None if alone is None else body.ops[0])


def row_kind(node: Node, version: int) -> str | None:
    """The kind of an op on rows, the last dimension: "norm", "softmax", a reduction, "each" (element-wise), or None."""
    if node.domain == DOMAIN:
        return "each" if _is_rounding(node) else None
    shape = real_shape(node[0]) if not node.domain else None
    first = None if not node.inputs or node.inputs[0] is None else real_shape(node.inputs[0])
    if not shape or not first or 0 in shape or any(name for name in node.output_names[1:]):
        return None
    if node.op in ops("row_norm") | SOFTMAXES | REDUCTIONS.keys():
        return _kind(node) if _trailing(node, first, version) == 1 and first[-1] != 1 and _is_kept(node) else None
    if formula(node, version) is None or any(read_size(real_shape(entry), shape) is None for entry in node.reads):
        return None
    return "each"


def _is_rounding(node: Node) -> bool:
    """True if it quantizes or dequantizes with a single scale."""
    shape, given = number_shape(node[0]), number_shape(node.inputs[0] if node.inputs else None)
    scaling = [number_shape(entry) for entry in node.reads[1:]]
    if not shape or shape != given or 0 in shape:
        return False
    return node.op in ops("quantizing") and all(sizes is not None and math.prod(sizes) == 1 for sizes in scaling)


def _kind(node: Node) -> str:
    if node.op in ops("row_norm") or node.op == OF_CHANNELS:
        return "norm"
    return "softmax" if node.op in SOFTMAXES else ALONE[str(node.op)]


def _is_kept(node: Node) -> bool:
    """True if reduced dimensions are kept."""
    return node.op not in REDUCTIONS or bool(node.attrs.get("keepdims", 1))


def _trailing(node: Node, shape: Shape, version: int) -> int | None:
    """The number of trailing dimensions that make a row of the op; None for any other op."""
    rank = len(shape)
    if node.op in ops("row_norm"):
        axis = node.attrs.get("axis", -1) % rank
        beside = [real_shape(entry) for entry in node.inputs[1:] if entry is not None]
        return rank - axis if beside and all(own == shape[axis:] for own in beside) else None
    if node.op in SOFTMAXES:
        axis = node.attrs.get("axis", -1 if version >= 13 else 1) % rank
        return None if version >= 13 and axis != rank - 1 else rank - axis
    if node.op in ("GlobalAveragePool", "GlobalMaxPool", OF_CHANNELS):
        return rank - 2 if rank > 2 else None
    if node.op not in ALONE:
        return None
    axes = axes_of(node, rank)
    return len(axes) if axes and axes == list(range(axes[0], rank)) else None


def axes_of(node: Node, rank: int) -> list[int]:
    """The dimensions that are reduced; empty if the op reduces nothing, or its axes are not constant."""
    axes = node.attrs.get("axes")
    given = node.inputs[1] if len(node.inputs) > 1 else None
    if given is not None:
        if given.node.value is None:
            return []
        axes = [int(axis) for axis in given.node.value.reshape(-1)]
    if not axes:
        return [] if node.attrs.get("noop_with_empty_axes", 0) else list(range(rank))
    return sorted({axis % rank for axis in axes})


def _alone(node: Node, version: int) -> dict[NodeEntry, Shape] | None:
    """The shapes of an op's values with all row dimensions merged, and all others; None if it is not an op on rows."""
    values = [entry for entry in node.reads if entry.node.value is None]
    given = [real_shape(entry) for entry in (*values, node[0])]
    first = None if not node.inputs or node.inputs[0] is None else real_shape(node.inputs[0])
    used = [name for name in node.output_names if name]
    if node.domain or not first or 0 in first or None in given or len(used) != 1 or len(set(node.reads)) < len(node.reads):
        return None
    trailing = _trailing(node, first, version)
    if trailing is None:
        return None
    rows, columns = math.prod(first[: len(first) - trailing]), math.prod(first[len(first) - trailing :])
    beside: Shape = (columns,)
    if node.op == OF_CHANNELS:
        beside = (first[1], 1)
        if any(math.prod(real_shape(entry) or ()) != first[1] for entry in node.reads[1:]):
            return None
    shapes: dict[NodeEntry, Shape] = dict.fromkeys(values, beside)
    assert node.inputs[0] is not None
    return {**shapes, node.inputs[0]: (rows, columns), node[0]: (rows, 1) if node.op in ALONE else (rows, columns)}


class _Making:
    """Converts the ops of a body into steps."""

    def __init__(self, body: Body, shapes: Mapping[NodeEntry, Shape]) -> None:
        """`shapes` override the shapes of the values."""
        self.body = body
        self.is_of_channels = body.ops[0].op == OF_CHANNELS
        self.shapes = shapes
        self.version = body.graph.opset
        self.steps: list[RowStep] = []
        self.values: dict[NodeEntry, RowStep] = {}
        self.inputs: dict[int, Size] = {}
        self.problem = Problem.of(body)

    def run(self, alone: Node | None) -> Program | None:
        """The program; `alone` is the body's op if it has only one."""
        reduced = {node.inputs[0] if node.op in ALONE else node[0] for node in self.body.ops if node.inputs}
        wholes = {None if entry is None else self._shape(entry) for entry in reduced}
        full = {shape for shape in wholes if shape and (shape[-1] != 1 or alone is not None)}
        if len({(math.prod(shape[:-1]), shape[-1]) for shape in full}) != 1:
            return None
        whole = next(iter(full))
        for node in self.body.ops:
            kind = row_kind(node, self.version) if alone is None else _kind(node)
            if kind is None or not self._node(node, kind, whole):
                return None
        results = [self.values[entry] for entry in self.body.graph.outputs]
        if not any(step.kind in JOINS for step in self.steps) or any(step.kind == "given" for step in results):
            return None
        return Program(math.prod(whole[:-1]), whole[-1], self.inputs, self.steps, results)

    def _shape(self, entry: NodeEntry) -> Shape | None:
        return self.shapes.get(entry) or number_shape(entry)

    def _node(self, node: Node, kind: str, whole: Shape) -> bool:
        shape = self._shape(node[0])
        if shape is None or math.prod(shape[:-1]) != math.prod(whole[:-1]) or shape[-1] not in (1, whole[-1]):
            return False
        given = node.inputs if kind in ("each", "norm") else node.inputs[:1]
        read: list[RowStep | None] = []
        for entry in given:
            step = None if entry is None else self._read(entry, shape if kind == "each" else whole, whole[-1])
            if entry is not None and step is None:
                return False
            read.append(step)
        first = read[0]
        if kind == "each":
            compute = formula(node, self.version)
            assert compute is not None
            computed = _with_gaps(node, compute, read)
            step = self._each([s for s in read if s is not None], computed, node.op in ops("long"))
        elif kind == "norm":
            step = self._norm(node, [s for s in read if s is not None], whole[-1])
        elif first is None or not first.is_full:
            return False
        elif kind == "softmax":
            step = self._softmax(first, node.op == "LogSoftmax")
        else:
            step = self._reduction(node, kind, first, whole[-1])
        self.values[node[0]] = step
        return True

    def _read(self, entry: NodeEntry, shape: Shape, columns: int) -> RowStep | None:
        known = self.values.get(entry)
        if known is not None:
            return known
        value, position = entry.node.value, self.problem.position(entry)
        if value is not None and value.size == 1:
            return self._add(RowStep("given", False, constant=float(value.item())))
        size = None if position is None else self._size(entry, shape)
        if position is None or size is None or self.inputs.setdefault(position, size) != size:
            return None
        is_full = size[1] != 1 or columns == 1
        self.values[entry] = step = self._add(RowStep("given", is_full, source=(position, size)))
        return step

    def _size(self, entry: NodeEntry, shape: Shape) -> Size | None:
        """The rows and columns of an input of an op with a result of this shape."""
        own = self._shape(entry)
        if self.is_of_channels and own is not None and own != shape:
            return own[0], own[1]
        return read_size(own, shape)

    def _add(self, step: RowStep) -> RowStep:
        self.steps.append(step)
        return step

    def _each(self, reads: Sequence[RowStep], compute: Callable[..., Value], is_long: bool = False) -> RowStep:
        full = any(step.is_full for step in reads)
        level = max((step.level for step in reads), default=0)
        far = any(step.kind == "each" and step.is_full for step in reads)
        dear = full and (is_long or far)
        return self._add(RowStep("each", full, tuple(reads), compute, is_long=is_long, dear=dear, level=level))

    def _reduced(self, how: str, of: RowStep) -> RowStep:
        return self._add(RowStep(how, False, (of,), level=of.level + 1))

    def _squares(self, of: RowStep) -> RowStep:
        return self._reduced("sum", self._each([of], lambda x: x * x))

    def _reduction(self, node: Node, how: str, of: RowStep, columns: int) -> RowStep:
        """The step for a reduction of the row to one value."""
        if how != "sum":
            return self._extreme(how, of)
        total = self._squares(of) if node.op in ("ReduceSumSquare", "ReduceL2") else self._reduced("sum", of)
        if node.op in ("ReduceMean", "GlobalAveragePool"):
            return self._each([total], lambda total: _share(total, columns))
        return self._each([total], sqrt) if node.op == "ReduceL2" else total

    def _extreme(self, how: str, of: RowStep) -> RowStep:
        """The maximum or minimum. The reduction itself ignores NaN. A sum of squares is NaN only if one of them is, and then
        replaces the result."""
        squares = self._squares(of)
        return self._each([self._reduced(how, of), squares], lambda best, total: select(total <= math.inf, best, total))

    def _softmax(self, x: RowStep, is_log: bool) -> RowStep:
        top = self._reduced("max", x)
        power = self._each([x, top], lambda x, top: exp_of_negative(x - top), is_long=True)
        total = self._reduced("sum", power)
        if is_log:
            return self._each([x, top, self._each([total], log)], lambda x, top, lost: x - top - lost)
        over = self._each([total], lambda total: 1.0 / total)
        return self._each([power, over], lambda power, over: power * over)

    def _norm(self, node: Node, read: Sequence[RowStep], columns: int) -> RowStep:
        x, scale, *bias = read
        centred = x
        if node.op in ("LayerNormalization", OF_CHANNELS):
            mean = self._each([self._reduced("sum", x)], lambda total: _share(total, columns))
            centred = self._each([x, mean], lambda x, mean: x - mean)
        square = self._squares(centred)
        epsilon = float(node.attrs.get("epsilon", 1e-5))
        over = self._each([square], lambda total: 1.0 / sqrt(_share(total, columns) + epsilon))
        return self._each(
            [centred, over, scale, *bias], lambda c, over, scale, *bias: c * over * scale + bias[0] if bias else c * over * scale
        )


def _share(total: Value, columns: int) -> Value:
    """The total divided by the number of columns."""
    return total / as_index(columns).cast(float32) if isinstance(columns, Extent) else total * (1 / columns)


def _with_gaps(node: Node, compute: Formula, read: Sequence[RowStep | None]) -> Callable[..., Value]:
    """The op's formula as a function of only those inputs that are present."""

    def computed(*numbers: Value) -> Value:
        given = iter(numbers)
        number = compute(node, [None if step is None else next(given) for step in read])
        return number.cast(float32) if node.domain == DOMAIN else number

    return computed
