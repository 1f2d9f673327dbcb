"""Depthwise convolution on blocked values: each channel by itself, a block of them in a vector (`sliding.py`)."""

from __future__ import annotations

import math

import numpy as np

from accelerators.tvm.bodies import Body
from accelerators.tvm.layouts.blocked import DOMAIN
from accelerators.tvm.machine import Machine
from accelerators.tvm.templates import Array, Draft, template
from accelerators.tvm.templates.epilogue import (
    input_name,
    make_epilogue,
    output_name,
    plus_bias,
    static_shape,
)
from accelerators.tvm.templates.script import Lines, Vectors, kernel
from accelerators.tvm.templates.sliding import Slide, slide_text
from accelerators.tvm.templates.window import window_of


@template("cpu", ops=frozenset({f"{DOMAIN}.DepthwiseConv"}))
def depthwise(body: Body, machine: Machine) -> Draft | None:
    """A convolution with one filter for each channel."""
    roots = [node for node in body.ops if node.domain == DOMAIN]
    root, lanes = roots[0], machine.lanes
    positions = {node[0]: i for i, node in enumerate(body.graph.inputs)}
    source, weight = (positions.get(entry) if entry is not None else None for entry in root.inputs[:2])
    given = static_shape(root.inputs[0])
    if len(roots) != 1 or source is None or weight is None or given is None:
        return None
    batch, blocks, _, _ = given
    window, vectors = window_of(root), Vectors(lanes)
    beside = {2: (1, blocks, 1, lanes)} if len(root.inputs) > 2 else {}
    after = make_epilogue(body, root, plus_bias, [(i, i + 1) for i in range(4)], beside)
    if after is None or weight in after.operands:
        return None

    def tap(total: str, image: str, kw: int) -> str:
        weights = vectors.at(input_name(weight), f"((block * {window.taps[0]} + kh) * {window.taps[1]} + {kw}) * {lanes}")
        return f"{total} + {image} * {weights}"

    def write(total: str, row: str, place: str, inside: int) -> Lines:
        return after.store(total, ["n", "block", place, "l"])

    def filled(array: Array) -> Array:
        """[block, tap, lane]; what fills up the last block is zero."""
        made = np.zeros((blocks * lanes, math.prod(array.shape[1:])), array.dtype)
        made[: array.shape[0]] = array.reshape(array.shape[0], -1)
        return made.reshape(blocks, lanes, -1).transpose(0, 2, 1).reshape(-1)

    packs = {weight: filled}
    if beside and root.inputs[2] is not None:
        packs[positions[root.inputs[2]]] = lambda array: filled(array).reshape(1, blocks, 1, lanes)
    shapes = {**after.operands, weight: (blocks * lanes * window.count,)}
    given_shapes = {i: shapes.get(i, static_shape(node[0]) or ()) for i, node in enumerate(body.graph.inputs)}
    params = [(input_name(i), shape, "float32") for i, shape in given_shapes.items()]
    params += [(output_name(i), after.results, "float32") for i in range(len(body.graph.outputs))]
    lines = slide_text(Slide(window, 0.0, tap, write, after.is_long), input_name(source), batch, blocks, machine)
    return Draft(kernel(params, lines, after.functions), "depthwise", packs, shapes)
