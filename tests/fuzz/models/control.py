"""Recipes: control flow, with random bodies that read values from outside."""

from __future__ import annotations

import partita as pt
from partita.graph.node import Node, NodeEntry
from partita.graph.types import dtype_name
from tests.fuzz.models.builder import Builder, typed
from tests.fuzz.models.recipes import recipe

INNER = "Add Mul Sub Relu Neg Sigmoid Tanh Max Min Abs".split()
"""Ops of bodies: they keep sizes, so that a loop's values stay what they are."""


def steps(b: Builder, values: list[NodeEntry], count: int) -> NodeEntry:
    """A few ops over values of one type and shape; the last one's output."""
    last = values[0]
    for _ in range(count):
        op = b.choice(*INNER)
        inputs = (last, b.choice(*values)) if op in ("Add", "Mul", "Sub", "Max", "Min") else (last,)
        last = pt.op(op, *inputs, name=b.name("inner"), opset=b.opset)[0]
    if last in values:
        last = pt.op("Identity", last, name=b.name("inner"), opset=b.opset)[0]
    return last


def formal(b: Builder, entry: NodeEntry) -> Node:
    """An input of a body for this value."""
    array = b.array(entry)
    return pt.variable(b.name("formal"), dtype_name(array.dtype), array.shape)


@recipe("If")
def condition(b: Builder, op: str) -> None:
    """Two bodies, one of which runs."""
    first = b.tensor("float32")
    second = b.tensor("float32", b.shape(first))

    def body() -> pt.Graph:
        inputs = [formal(b, first), formal(b, second)]
        return pt.Graph(
            [steps(b, [node[0] for node in inputs], b.rng.randint(1, 3))],
            inputs,
            name=b.name("branch"),
            opsets={"": b.opset},
        )

    b.add(op, b.tensor("bool", ()), captures=[first, second], then_branch=body(), else_branch=body())


@recipe("Loop")
def loop(b: Builder, op: str) -> None:
    """A state that goes round, and what each turn leaves behind."""
    state = b.tensor("float32")
    outer = b.tensor("float32", b.shape(state))
    turn, go = pt.variable(b.name("turn"), "int64", ()), pt.variable(b.name("go"), "bool", ())
    inner, captured = formal(b, state), formal(b, outer)
    after = steps(b, [inner[0], captured[0]], b.rng.randint(1, 3))
    kept = pt.op("Identity", go, name=b.name("inner"), opset=b.opset)
    scanned = [pt.op("Tanh", after, name=b.name("inner"), opset=b.opset)] if b.chance(0.5) else []
    outputs = [kept, after, *scanned]
    # A loop without a turn leaves what the types of its body say.
    body = typed(pt.Graph(outputs, [turn, go, inner, captured], name=b.name("body"), opsets={"": b.opset}))
    count = b.number(b.choice(0, 1, 2, 3))
    b.add(
        op,
        count,
        b.constant(True) if b.chance(0.5) else None,
        state,
        captures=[outer],
        n_outputs=1 + len(scanned),
        body=body,
    )


@recipe("Scan")
def scan(b: Builder, op: str) -> None:
    """Along the first axis, or the last, in either direction."""
    rows = b.tensor("float32", when=lambda array: array.ndim in (2, 3) and bool(array.size))
    axis = b.choice(0, len(b.shape(rows)) - 1)
    shape = tuple(size for i, size in enumerate(b.shape(rows)) if i != axis)
    state = b.tensor("float32", shape)
    inner, row = (pt.variable(b.name("formal"), "float32", shape) for _ in range(2))
    after = steps(b, [inner[0], row[0]], b.rng.randint(1, 3))
    seen = pt.op("Mul", after, row, name=b.name("inner"), opset=b.opset)
    body = typed(pt.Graph([after, seen], [inner, row], name=b.name("body"), opsets={"": b.opset}))
    b.add(
        op, state, rows, n_outputs=2, body=body, num_scan_inputs=1, scan_input_axes=[axis] if axis else None,
        scan_input_directions=b.choice(None, [1]), scan_output_axes=b.choice(None, [len(shape)]),
        scan_output_directions=b.choice(None, [1]),
    )


@recipe("Call")
def call(b: Builder, op: str) -> None:
    """A local function: a subgraph behind one node."""
    first = b.tensor("float32")
    second = b.tensor("float32", b.shape(first))
    inputs = [formal(b, first), formal(b, second)]
    outputs = [steps(b, [node[0] for node in inputs], b.rng.randint(1, 3)) for _ in range(b.choice(1, 2))]
    body = pt.Graph(outputs, inputs, name=b.name("function"), opsets={"": b.opset})
    b.record(pt.call(body, first, second, name=b.name("call")))
