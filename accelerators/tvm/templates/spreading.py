"""Images made larger, on blocked values: the phases of a transposed convolution dealt out, and resizes that mix two places of
each dimension. A vector of channels is moved, or mixed, as a whole."""

from __future__ import annotations

from accelerators.tvm.bodies import Body
from accelerators.tvm.layouts.blocked import DOMAIN
from accelerators.tvm.machine import Machine
from accelerators.tvm.templates import Draft, template
from accelerators.tvm.templates.epilogue import alone, input_name, make_epilogue, output_name, static_shape
from accelerators.tvm.templates.script import Lines, Vectors, kernel, loop

SERIAL = 32_768
"""Fewer numbers than this are one thread's work."""


@template("cpu", ops=frozenset({f"{DOMAIN}.Interleave"}))
def interleave(body: Body, machine: Machine) -> Draft | None:
    """Rows and columns of all phases between each other."""
    root = next(node for node in body.ops if node.domain == DOMAIN)
    positions = {node[0]: i for i, node in enumerate(body.graph.inputs)}
    after = make_epilogue(body, root, alone, [(i, i + 1) for i in range(4)])
    made, entry = static_shape(root[0]), root.inputs[0]
    if after is None or made is None or entry is None or entry not in positions:
        return None
    batch, blocks, _, lanes = made
    (high, wide), (down, across), (top, left), (_, row) = (root.attrs[name] for name in ("result", "strides", "pads", "phases"))
    phase = f"((h + {top}) % {down} * {across} + (w + {left}) % {across})"
    place = f"((h + {top}) // {down} * {row} + (w + {left}) // {across})"
    number = f"{input_name(positions[entry])}[n, {phase} * {blocks} + block, {place}, l]"
    work = loop("w", wide, loop("l", lanes, after.store(number, ["n", "block", f"h * {wide} + w", "l"]), "vectorized"))
    lines = _tasks(batch, blocks, high, work, wide * lanes, machine)
    shapes = {i: after.operands.get(i, static_shape(node[0]) or ()) for i, node in enumerate(body.graph.inputs)}
    params = [(input_name(i), shape, "float32") for i, shape in shapes.items()]
    params += [(output_name(i), after.results, "float32") for i in range(len(body.graph.outputs))]
    return Draft(kernel(params, lines, after.functions), "interleave", {}, after.operands)


@template("cpu", ops=frozenset({f"{DOMAIN}.Resize"}))
def resize(body: Body, machine: Machine) -> Draft | None:
    """Each place of the result from two rows and two columns of the image."""
    root = body.ops[0]
    given, made = static_shape(root.inputs[0]), static_shape(root[0])
    if given is None or made is None:
        return None
    batch, blocks, _, lanes = made
    (_, width), (high, wide), text = root.attrs["image"], root.attrs["result"], Vectors(lanes)
    positions = {node[0]: i for i, node in enumerate(body.graph.inputs)}
    x, rows, row_shares, columns, shares = (input_name(positions[e]) for e in root.inputs if e is not None)

    def at(row: int, column: int) -> str:
        return f"{x}[n, block, {rows}[h, {row}] * {width} + {columns}[w, {column}], T.ramp(0, 1, {lanes})]"

    def mixed(row: int) -> str:
        parts = [f"{at(row, i)} * {text.every(f'{shares}[w, {i}]')}" for i in (0, 1)]
        return f"({parts[0]} + {parts[1]}) * {text.every(f'{row_shares}[h, {row}]')}"

    if root.attrs["nearest"]:
        value = at(0, 0)
    else:
        value = f"{mixed(0)} + {mixed(1)}"
    work = loop("w", wide, [f"y0[n, block, h * {wide} + w, T.ramp(0, 1, {lanes})] = {value}"])
    lines = _tasks(batch, blocks, high, work, wide * lanes, machine)
    params = []
    for i, node in enumerate(body.graph.inputs):
        made_type = node.output_types[0]
        params.append((input_name(i), tuple(made_type.shape), made_type.dtype))  # type: ignore[union-attr,arg-type]
    return Draft(kernel([*params, (output_name(0), made, "float32")], lines), "resize")


def _tasks(batch: int, blocks: int, high: int, row: Lines, width: int, machine: Machine) -> Lines:
    """Tasks over images, bands of rows and blocks; `row` works on row h of block `block` of image n."""
    bands = machine.threads if machine.threads > 1 and batch * blocks * high * width >= SERIAL else 1
    bands = min(bands, high)
    first, last = f"band * {high} // {bands}", f"(band + 1) * {high} // {bands}"
    inner = loop("h_", f"{last} - {first}", [f"h: T.let = {first} + h_", *row])
    decoded = [f"n: T.let = task // {bands}", f"band: T.let = task % {bands}"]
    work = [*decoded, *loop("block", blocks, inner)]
    return loop("task", batch * bands, work, "parallel" if bands > 1 else "serial")
