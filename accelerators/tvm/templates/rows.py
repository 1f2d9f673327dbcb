"""Row reductions: softmax, layer and RMS normalisation, sums and means over the last dimensions.

Rows are shared out among the threads. A row is read in vectors, each sum is kept in several vectors that are joined at the end,
and what is left of a row that no vector divides is done number by number. Softmax writes exp(x - max) where its result will
stand, so that nothing is kept aside."""

from __future__ import annotations

import math

from accelerators.tvm.bodies import Body
from accelerators.tvm.machine import Machine
from accelerators.tvm.schedules import for_threads
from accelerators.tvm.templates import Draft, template
from accelerators.tvm.templates.row_text import Place, Row, across
from accelerators.tvm.templates.script import Lines, Vectors, kernel, local, loop
from graph.node import Node
from graph.types import TensorType

PASSES = 4
"""How many steps a number is worth where a row is read several times."""

REDUCTIONS = {
    "ReduceSum": "sum", "ReduceMean": "sum", "ReduceMax": "max", "ReduceMin": "min", "ReduceSumSquare": "square",
    "ReduceL2": "square", "GlobalAveragePool": "sum", "GlobalMaxPool": "max",
}  # fmt: skip
"""By op, what is reduced."""


@template("cpu", ops=frozenset({"Softmax", "LogSoftmax"}))
def softmax(body: Body, machine: Machine) -> Draft | None:
    """Softmax over the last dimension."""
    node = _only(body)
    shape = _shape(node)
    if node is None or shape is None:
        return None
    version = body.graph.opsets.get("", 1)
    axis = node.attrs.get("axis", -1 if version >= 13 else 1) % max(len(shape), 1)
    if not shape or (axis != len(shape) - 1 and version >= 13):
        return None
    size = shape[-1] if version >= 13 else math.prod(shape[axis:])
    row = Row(size, machine.lanes)
    lines = row.reduce("max", lambda p: p.row("x0"), "m[0]")
    if node.op == "LogSoftmax":
        lines += [*_exps(row, machine), "m[1] = T.log(m[1])"]
        lines += row.each(lambda p: [f"{p.row('y0')} = {p.row('x0')} - {p.all('m[0]')} + {p.all('m[1]')}"])
    else:
        lines += _exps(row, machine)
        lines += row.each(lambda p: [f"{p.row('y0')} = {p.row('y0')} * {p.all('m[1]')}"])
    return _draft(body, size, row, machine, lines, "softmax")


def _exps(row: Row, machine: Machine) -> Lines:
    """y = exp(x - max), m[1] = 1 / their sum."""
    text = Vectors(machine.lanes)
    sums = text.at("s0", 0)

    def vector(p: Place) -> Lines:
        return [
            f"{text.at('s1', 0)} = {p.row('x0')} - {p.all('m[0]')}",
            *text.exp(text.at("s1", 0), text.at("s2", 0)),
            f"{sums} = {sums} + {text.at('s2', 0)}",
            f"{p.row('y0')} = {text.at('s2', 0)}",
        ]

    def scalar(p: Place) -> Lines:
        return [f"m[2] = T.exp({p.row('x0')} - m[0])", "m[1] = m[1] + m[2]", f"{p.row('y0')} = m[2]"]

    return [
        f"{sums} = {text.const(0.0)}",
        *row.vectors(vector),
        *across("sum", "s0", machine.lanes, "m[1]"),
        *row.rest(scalar),
        "m[1] = T.float32(1.0) / m[1]",
    ]


@template("cpu", ops=frozenset({"LayerNormalization", "RMSNormalization"}))
def normalization(body: Body, machine: Machine) -> Draft | None:
    """Layer or RMS normalisation over the last dimensions."""
    node = _only(body)
    shape = _shape(node)
    if node is None or not shape or len([name for name in node.output_names if name]) != 1:
        return None
    axis = node.attrs.get("axis", -1) % len(shape)
    if any(_type(entry).shape != shape[axis:] for entry in node.inputs[1:] if entry is not None):
        return None
    size = math.prod(shape[axis:])
    row = Row(size, machine.lanes)
    lines: Lines = []
    if node.op == "LayerNormalization":
        lines += [*row.reduce("sum", lambda p: p.row("x0"), "m[0]"), f"m[0] = m[0] * T.float32({1 / size!r})"]
        centred = _centred
    else:
        centred = _as_it_is
    lines += row.reduce("sum", lambda p: f"{centred(p)} * {centred(p)}", "m[1]")
    epsilon = float(node.attrs.get("epsilon", 1e-5))
    lines.append(f"m[1] = T.float32(1.0) / T.sqrt(m[1] * T.float32({1 / size!r}) + T.float32({epsilon!r}))")
    names = dict(zip((n[0] for n in body.graph.inputs), _names(body), strict=True))
    scale = names.get(node.inputs[1]) if node.inputs[1] is not None else None
    bias = names.get(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] is not None else None
    if scale is None or (bias is None and len(node.inputs) > 2 and node.inputs[2] is not None):
        return None

    def result(p: Place) -> Lines:
        text = f"{centred(p)} * {p.all('m[1]')} * {p.flat(scale)}"
        return [f"{p.row('y0')} = {text}{f' + {p.flat(bias)}' if bias else ''}"]

    return _draft(body, size, row, machine, [*lines, *row.each(result)], "normalization")


def _centred(p: Place) -> str:
    return f"({p.row('x0')} - {p.all('m[0]')})"


def _as_it_is(p: Place) -> str:
    return p.row("x0")


@template("cpu", ops=frozenset(REDUCTIONS))
def reduction(body: Body, machine: Machine) -> Draft | None:
    """A sum, mean, maximum or minimum over the last dimensions.

    A maximum passes over what is no number, and a sum of squares is none only where one of the numbers is none: there it is the
    result."""
    node = _only(body)
    shape = _shape(node)
    size = _reduced(node, shape, body.graph.opsets.get("", 1)) if node is not None and shape else None
    how = REDUCTIONS[str(node.op)] if node is not None else ""
    if node is None or size is None or (size < 2 * machine.lanes and how not in ("max", "min")):
        return None  # but TVM's own maximum begins at the smallest finite number: wrong for a row of nothing but -inf
    row = Row(size, machine.lanes)
    square = how == "square"
    lines = row.reduce(
        "sum" if square else how, lambda p: f"{p.row('x0')} * {p.row('x0')}" if square else p.row("x0"), "m[0]"
    )
    if how in ("max", "min"):
        lines += row.reduce("sum", lambda p: f"{p.row('x0')} * {p.row('x0')}", "m[1]")
        lines.append('m[0] = T.Select(m[1] <= T.float32("inf"), m[0], m[1])')
    if node.op in ("ReduceMean", "GlobalAveragePool"):
        lines.append(f"m[0] = m[0] * T.float32({1 / size!r})")
    if node.op == "ReduceL2":
        lines.append("m[0] = T.sqrt(m[0])")
    return _draft(body, size, row, machine, [*lines, "y0[r, 0] = m[0]"], "reduction", result=1)


def _reduced(node: Node, shape: tuple[int, ...], version: int) -> int | None:
    """How many numbers make one, if they are neighbours."""
    if str(node.op).startswith("Global"):
        return math.prod(shape[2:])
    axes = node.attrs.get("axes")
    given = node.inputs[1] if len(node.inputs) > 1 else None
    if given is not None:
        if given.node.value is None:
            return None
        axes = given.node.value.tolist()
    if not axes:
        return None if node.attrs.get("noop_with_empty_axes", 0) else math.prod(shape)
    last = sorted(axis % len(shape) for axis in axes)
    return math.prod(shape[last[0] :]) if last == list(range(last[0], len(shape))) else None


def _draft(
    body: Body, size: int, row: Row, machine: Machine, lines: Lines, name: str, result: int | None = None
) -> Draft | None:
    """The kernel that does the lines for every row."""
    whole = math.prod(_shape(body.ops[0]) or (0,))
    if whole == 0:
        return None
    rows = whole // size
    width = size if result is None else result
    names = _names(body)
    shapes = {0: (rows, size), **dict.fromkeys(range(1, len(names)), (size,))}
    params = [(name, shapes[i], "float32") for i, name in enumerate(names)]
    inner = [*row.buffers, local("m", 3), *lines]
    kind = "parallel" if for_threads(machine, whole * (1 if result else PASSES)) and rows > 1 else "serial"
    function = kernel([*params, ("y0", (rows, width), "float32")], loop("r", rows, inner, kind))
    return Draft(function, name, shapes=shapes, results=((rows, width),))


def _names(body: Body) -> list[str]:
    return [node.name for node in body.graph.inputs]


def _only(body: Body) -> Node | None:
    """The body's one op, if it reads the first input first and all is float32."""
    ops = body.ops
    if len(ops) != 1 or not body.graph.inputs or ops[0].inputs[0] != body.graph.inputs[0][0]:
        return None
    used = [entry for entry in ops[0].reads if entry.node.value is None] + list(ops[0].outputs)
    distinct = len(set(ops[0].reads)) == len(ops[0].reads)
    return ops[0] if distinct and all(_type(entry).dtype == "float32" for entry in used if entry.name) else None


def _type(entry: object) -> TensorType:
    made = entry.type  # type: ignore[attr-defined]
    assert isinstance(made, TensorType)
    return made


def _shape(node: Node | None) -> tuple[int, ...] | None:
    made = None if node is None or node.inputs[0] is None else node.inputs[0].type
    return made.shape if isinstance(made, TensorType) and made.is_static else None  # type: ignore[return-value]
