"""Blocked values laid out anew: from and to plain ones, and several beside each other along the channels."""

from __future__ import annotations

from accelerators.tvm.bodies import Body
from accelerators.tvm.layouts.blocked import DOMAIN
from accelerators.tvm.machine import Machine
from accelerators.tvm.templates import Draft, template
from accelerators.tvm.templates.epilogue import alone, input_name, make_epilogue, output_name, static_shape
from accelerators.tvm.templates.script import Lines, indent, kernel, loop

SERIAL = 32_768
"""Fewer numbers than this are one thread's work."""


@template("cpu", ops=frozenset({f"{DOMAIN}.ToBlocked"}))
def to_blocked(body: Body, machine: Machine) -> Draft | None:
    """[N, C, places] becomes blocked; what fills up the last block is zero."""
    given, made = _shapes(body)
    (batch, channels, places), (_, blocks, _, lanes) = given, made
    number = f"x0[n, block * {lanes} + l, p]"
    whole = loop("p", places, loop("l", lanes, [f"y0[n, block, p, l] = {number}"], "vectorized"))
    if channels % lanes:
        part = loop(
            "p",
            places,
            loop("l", lanes, [f"y0[n, block, p, l] = T.if_then_else(l < {channels % lanes}, {number}, T.float32(0.0))"]),
        )
        whole = [f"if block < {blocks - 1}:", *indent(whole), "else:", *indent(part)]
    return _draft(batch, blocks, whole, given, made, machine, "to blocked")


@template("cpu", ops=frozenset({f"{DOMAIN}.FromBlocked"}))
def from_blocked(body: Body, machine: Machine) -> Draft | None:
    """Blocked becomes [N, C, places]."""
    given, made = _shapes(body)
    (batch, blocks, places, lanes), (_, channels, _) = given, made
    copy = [f"y0[n, block * {lanes} + l, p] = x0[n, block, p, l]"]
    whole = loop("l", lanes, loop("p", places, copy))
    if channels % lanes:
        part = loop("l", channels % lanes, loop("p", places, copy))
        whole = [f"if block < {blocks - 1}:", *indent(whole), "else:", *indent(part)]
    return _draft(batch, blocks, whole, given, made, machine, "from blocked")


def _shapes(body: Body) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shapes of input and output; plain ones with all places as one dimension."""
    root = body.ops[0]
    given, made = static_shape(root.inputs[0]) or (), static_shape(root[0]) or ()
    plain = made if root.op == "FromBlocked" else given
    folded = (*plain[:2], _product(plain[2:]))
    return (given, folded) if root.op == "FromBlocked" else (folded, made)


def _product(sizes: tuple[int, ...]) -> int:
    made = 1
    for size in sizes:
        made *= size
    return made


def _draft(
    batch: int, blocks: int, work: Lines, given: tuple[int, ...], made: tuple[int, ...], machine: Machine, name: str
) -> Draft:
    parallel = machine.threads > 1 and _product(made) >= SERIAL
    decoded = [f"n: T.let = task // {blocks}", f"block: T.let = task % {blocks}"]
    lines = loop("task", batch * blocks, [*decoded, *work], "parallel" if parallel else "serial")
    params = [(input_name(0), given, "float32"), (output_name(0), made, "float32")]
    return Draft(kernel(params, lines), name, {}, {0: given}, [made])


@template("cpu", ops=frozenset({f"{DOMAIN}.Concat"}))
def concat(body: Body, machine: Machine) -> Draft | None:
    """Blocks of several values, one after another, and what follows number by number."""
    root = next(node for node in body.ops if node.domain == DOMAIN)
    after = make_epilogue(body, root, alone, [(i, i + 1) for i in range(4)])
    made = static_shape(root[0])
    if after is None or made is None:
        return None
    batch, blocks, places, lanes = made
    sources = {node[0]: i for i, node in enumerate(body.graph.inputs)}
    work: Lines = []
    start = 0
    for entry in root.reads:
        own = (static_shape(entry) or ())[1]
        number = f"{input_name(sources[entry])}[n, block - {start}, p, l]"
        copy = loop("p", places, loop("l", lanes, after.store(number, ["n", "block", "p", "l"]), "vectorized"))
        work += [f"if block >= {start} and block < {start + own}:", *indent(copy)]
        start += own
    parallel = machine.threads > 1 and _product(made) >= SERIAL
    decoded = [f"n: T.let = task // {blocks}", f"block: T.let = task % {blocks}"]
    lines = loop("task", batch * blocks, [*decoded, *work], "parallel" if parallel else "serial")
    shapes = {i: after.operands.get(i, static_shape(node[0]) or ()) for i, node in enumerate(body.graph.inputs)}
    params = [(input_name(i), shape, "float32") for i, shape in shapes.items()]
    params += [(output_name(i), after.results, "float32") for i in range(len(body.graph.outputs))]
    return Draft(kernel(params, lines, after.functions), "concat", {}, after.operands)


@template("cpu", ops=frozenset({f"{DOMAIN}.Shuffle"}))
def shuffle(body: Body, machine: Machine) -> Draft | None:
    """Channels of a matrix of so many rows, transposed."""
    root = body.ops[0]
    made = static_shape(root[0]) or ()
    batch, blocks, places, lanes = made
    rows, channels = int(root.attrs["rows"]), int(root.attrs["channels"])
    from_channel = f"T.min(block * {lanes} + {{0}}, {channels - 1})"
    work: Lines = []
    for lane in range(lanes):
        channel = from_channel.format(lane)
        work += [f"c{lane}: T.let = {channel} % {rows} * {channels // rows} + {channel} // {rows}"]
    copies = [f"y0[n, block, p, {i}] = x0[n, c{i} // {lanes}, p, c{i} % {lanes}]" for i in range(lanes)]
    return _draft(batch, blocks, [*work, *loop("p", places, copies)], made, made, machine, "shuffle")
