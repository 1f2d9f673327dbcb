"""Pools of blocked values: the largest or the mean of what a window sees (`sliding.py`), or of all places."""

from __future__ import annotations

import math

from accelerators.tvm.bodies import Body
from accelerators.tvm.layouts.blocked import DOMAIN
from accelerators.tvm.machine import Machine
from accelerators.tvm.templates import Draft, template
from accelerators.tvm.templates.epilogue import (
    Epilogue,
    alone,
    input_name,
    make_epilogue,
    output_name,
    static_shape,
)
from accelerators.tvm.templates.script import Lines, Vectors, kernel, local, loop
from accelerators.tvm.templates.sliding import Slide, slide_text
from accelerators.tvm.templates.window import window_of
from graph.node import Node


@template("cpu", ops=frozenset(f"{DOMAIN}.{op}" for op in ("MaxPool", "AveragePool", "GlobalAveragePool")))
def blocked_pool(body: Body, machine: Machine) -> Draft | None:
    """A pool and what follows it number by number."""
    roots = [node for node in body.ops if node.domain == DOMAIN]
    root = roots[0]
    source = next((i for i, node in enumerate(body.graph.inputs) if node[0] == root.inputs[0]), None)
    after = make_epilogue(body, root, alone, [(i, i + 1) for i in range(4)])
    given = static_shape(root.inputs[0])
    if len(roots) != 1 or source is None or after is None or given is None:
        return None
    batch, blocks, places, _ = given
    if root.op == "GlobalAveragePool":
        lines = _mean(after, input_name(source), batch, blocks, places, machine)
    else:
        slide = _largest(root, after, machine) if root.op == "MaxPool" else _average(root, after, machine)
        lines = slide_text(slide, input_name(source), batch, blocks, machine)
    shapes = {i: after.operands.get(i, static_shape(node[0]) or ()) for i, node in enumerate(body.graph.inputs)}
    params = [(input_name(i), shape, "float32") for i, shape in shapes.items()]
    params += [(output_name(i), after.results, "float32") for i in range(len(body.graph.outputs))]
    return Draft(kernel(params, lines, after.functions), "blocked pool", {}, after.operands)


def _largest(root: Node, after: Epilogue, machine: Machine) -> Slide:
    """Maxima. They pass over what is no number; the sum of squares is none only where one of the numbers is none, and is the
    result there."""

    def write(total: str, row: str, place: str, inside: int) -> Lines:
        return after.store(total, ["n", "block", place, "l"])

    return Slide(window_of(root), -math.inf, lambda total, image, kw: f"T.max({total}, {image})", write, has_squares=True)


def _average(root: Node, after: Epilogue, machine: Machine) -> Slide:
    """Sums, divided by how many places of the window count."""
    window, padded = window_of(root), bool(root.attrs.get("count_include_pad", 0))

    def write(total: str, row: str, place: str, inside: int) -> Lines:
        if padded:
            scaled = f"{total} * T.float32({1.0 / window.count!r})"
        else:
            scaled = f'{total} / T.Cast("float32", (high - low) * {max(inside, 1)})'
        return after.store(scaled, ["n", "block", place, "l"])

    return Slide(window, 0.0, lambda total, image, kw: f"{total} + {image}", write)


def _mean(after: Epilogue, source: str, batch: int, blocks: int, places: int, machine: Machine) -> Lines:
    """The mean of all places, in a few sums at a time."""
    text, lanes = Vectors(machine.lanes), machine.lanes
    several = max(k for k in (8, 7, 6, 5, 4, 3, 2, 1) if k <= places)
    full, rest = divmod(places, several)
    accs = [text.at("acc", i * lanes) for i in range(several)]

    def added(count: int, first: str) -> Lines:
        return [f"{accs[i]} = {accs[i]} + {source}[n, block, {first} + {i}, T.ramp(0, 1, {lanes})]" for i in range(count)]

    total = " + ".join(f"acc[{i * lanes} + l]" for i in range(several))
    work = [
        f"n: T.let = task // {blocks}",
        f"block: T.let = task % {blocks}",
        local("acc", several * lanes),
        *[f"{acc} = {text.const(0.0)}" for acc in accs],
        *loop("i", full, added(several, f"i * {several}")),
        *added(rest, str(full * several)),
        *loop("l", lanes, after.store(f"({total}) * T.float32({1.0 / places!r})", ["n", "block", "0", "l"]), "vectorized"),
    ]
    parallel = machine.threads > 1 and batch * blocks * places * lanes >= 200_000
    return loop("task", batch * blocks, work, "parallel" if parallel else "serial")
