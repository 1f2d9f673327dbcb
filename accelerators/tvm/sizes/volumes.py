"""Convolutions of volumes of any size as those of images: the slices that a result sees are put side by side as channels.

A volume of D slices becomes D images, or fewer where the window steps over some, and a filter of three slices becomes one of
three times as many channels. Which slices those are the host says, once for each size."""

from __future__ import annotations

from typing import Any

import numpy as np

from partita.accelerators.tvm.sizes.extent import Extent, Size
from partita.accelerators.tvm.sizes.in_parts import whole
from partita.graph.build import constant, op, variable
from partita.graph.graph import Graph
from partita.graph.node import Node

LEAST_OPSET = 15
"""Since this version of ONNX a Shape says some of the sizes."""


def is_sliced(node: Node, sizes: tuple[Size, ...], version: int) -> bool:
    """Is it a convolution of volumes, of any depth, height or width, by constant weights that see all channels?"""
    if node.op != "Conv" or node.domain or version < LEAST_OPSET or len(sizes) != 5:
        return False
    weight, *others = node.inputs[1:]
    is_constant = all(entry is None or entry.node.value is not None for entry in (weight, *others))
    is_whole = node.attrs.get("group", 1) == 1 and node.attrs.get("auto_pad", "NOTSET") in ("NOTSET", "VALID")
    return is_constant and is_whole and any(isinstance(size, Extent) for size in sizes[2:])


def sliced_parts(node: Node, graph: Graph) -> Graph:
    """The body of one convolution, which reads the volumes."""
    version, (given, weight, *bias) = graph.opsets.get("", 1), node.inputs
    assert given is not None and weight is not None and weight.node.value is not None
    x, array = variable("x", type=given.type), weight.node.value
    outs, channels, taps, *window = array.shape
    steps, apart = (list(node.attrs.get(name) or [1, 1, 1]) for name in ("strides", "dilations"))
    pads = list(node.attrs.get("pads") or [0] * 6)

    def computed(kind: str, *inputs: Node | None, **attributes: Any) -> Node:
        return op(kind, *inputs, opset=version, **attributes)

    def size(value: Node, start: int, end: int) -> Node:
        return computed("Shape", value, start=start, end=end)

    framed = x if not (pads[0] or pads[3]) else computed("Pad", x, whole([0, 0, pads[0], 0, 0, 0, 0, pads[3], 0, 0]))
    span = (taps - 1) * apart[0] + 1
    room = computed("Sub", size(framed, 2, 3), whole([span]))
    down = computed("Add", computed("Div", room, whole([steps[0]])), whole([1]))
    first = computed("Range", whole(0), computed("Squeeze", down, whole([0])), whole(1))
    first = computed("Mul", first, whole(steps[0]))
    seen = [computed("Gather", framed, computed("Add", first, whole(t * apart[0])), axis=2) for t in range(taps)]
    joined = computed("Concat", *seen, axis=1) if taps > 1 else seen[0]
    turned = computed("Transpose", joined, perm=[0, 2, 1, 3, 4])
    shape = computed("Concat", whole([-1, taps * channels]), size(x, 3, 5), axis=0)
    images = computed("Reshape", turned, shape)
    filters = constant(np.ascontiguousarray(array.swapaxes(1, 2)).reshape(outs, taps * channels, *window))
    others = [constant(entry.node.value) for entry in bias if entry is not None]
    attributes = {"strides": steps[1:], "dilations": apart[1:], "pads": [*pads[1:3], *pads[4:]], "kernel_shape": window}
    convolved = computed("Conv", images, filters, *others, **attributes)
    apart_again = computed("Concat", size(x, 0, 1), down, whole([outs]), size(convolved, 2, 4), axis=0)
    back = computed("Transpose", computed("Reshape", convolved, apart_again), perm=[0, 2, 1, 3, 4])
    return Graph([back], [x], "sliced", graph.opsets)
