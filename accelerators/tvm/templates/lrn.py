"""Local response normalisation of blocked values: a place's squares are laid side by side, so that sums over
neighbouring channels are sums of shifted vectors."""

from __future__ import annotations

from accelerators.tvm.bodies import Body
from accelerators.tvm.layouts.blocked import DOMAIN
from accelerators.tvm.library import part
from accelerators.tvm.machine import Machine
from accelerators.tvm.templates import Draft, template
from accelerators.tvm.templates.epilogue import static_shape
from accelerators.tvm.templates.numbers import const
from accelerators.tvm.templates.script import Lines, Vectors, kernel, local, loop
from graph.node import Node

SERIAL = 16_384
"""Fewer numbers than this are one thread's work."""


@template("cpu", ops=frozenset({f"{DOMAIN}.LRN"}))
def lrn(body: Body, machine: Machine) -> Draft | None:
    """The square window of each channel's neighbours."""
    root = body.ops[0]
    made = static_shape(root[0])
    if made is None:
        return None
    batch, blocks, places, lanes = made
    bands = machine.threads if machine.threads > 1 and batch * blocks * places * lanes >= SERIAL else 1
    first, last = f"band * {places} // {bands}", f"(band + 1) * {places} // {bands}"
    work = [
        f"n: T.let = task // {bands}",
        f"band: T.let = task % {bands}",
        *loop("p_", f"{last} - {first}", [f"p: T.let = {first} + p_", *_place(root, blocks, lanes)]),
    ]
    lines = loop("task", batch * bands, work, "parallel" if bands > 1 else "serial")
    params = [("x0", made, "float32"), ("y0", made, "float32")]
    return Draft(kernel(params, lines, {"scaled": lambda x, total: _scaled(root, x, total)}), "lrn")


def _place(root: Node, blocks: int, lanes: int) -> Lines:
    """All channels of one place."""
    size, channels, text = int(root.attrs["size"]), int(root.attrs["channels"]), Vectors(lanes)
    before, after = (size - 1) // 2, size // 2
    image = f"x0[n, block, p, T.ramp(0, 1, {lanes})]"
    square = f"{text.at('squares', f'{before} + block * {lanes}')} = {image} * {image}"
    total = " + ".join(text.at("squares", f"block * {lanes} + {d}") for d in range(size))
    zeros = [
        f"squares[{i}] = T.float32(0.0)" for i in (*range(before), *range(before + channels, before + blocks * lanes + after))
    ]
    return [
        local("squares", before + blocks * lanes + after),
        *loop("block", blocks, [square]),
        *zeros,
        *loop("block", blocks, [f"y0[n, block, p, T.ramp(0, 1, {lanes})] = scaled({image}, {total})"]),
    ]


def _scaled(root: Node, x: object, total: object) -> object:
    """x over a power of the mean square; the usual power is made of square roots."""
    tirx, lanes = part("tirx"), int(str(x.ty.dtype if hasattr(x, "ty") else x.dtype).rpartition("x")[2])  # type: ignore[attr-defined]

    def every(value: float) -> object:
        return tirx.Broadcast(const(value), lanes)

    alpha, beta, bias = (float(root.attrs.get(*pair)) for pair in (("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0)))
    base = total * every(alpha / int(root.attrs["size"])) + every(bias)  # type: ignore[operator]
    if beta == 0.75:
        return x / (tirx.sqrt(base) * tirx.sqrt(tirx.sqrt(base)))  # type: ignore[operator]
    return x / tirx.pow(base, every(beta))  # type: ignore[operator]
