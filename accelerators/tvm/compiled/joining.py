"""Concatenations without a launch: their inputs are written directly into the result.

If all dimensions before the axis are 1, as for the channels of a single image, each input is a contiguous part of the result. So
it gets its memory there, and the kernel that computes it writes it there. A result may be an input of another concatenation, as
in DenseNet's layers: then all are parts of the last one."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import attrs

from partita.accelerators.tvm.bodies.body import Body, shape_of
from partita.accelerators.tvm.kernels.shared.kernel_io import Problem
from partita.accelerators.tvm.sizes.extent import Size


@attrs.frozen(slots=True)
class Joint:
    """A concatenation; values are given by their numbers."""

    inputs: tuple[int, ...]
    """The concatenated values, in order."""
    whole: int
    """The result."""


@attrs.frozen(slots=True)
class Inside:
    """A value whose memory is a part of another value's memory."""

    value: int
    whole: int
    """The other value, which is not inside a further one."""
    first: int
    """Offset of the value in bytes."""


def order_of(body: Body) -> tuple[int, ...] | None:
    """Indices of the body's inputs in the order in which its result concatenates them; None if it is not a concatenation whose
    inputs are all contiguous in the result."""
    node = body.ops[0]
    if len(body.ops) != 1 or node.op != "Concat" or node.domain:
        return None
    whole, problem = shape_of(node[0]), Problem.of(body)
    axis, order = int(node.attrs["axis"]) % len(whole), [problem.position(entry) for entry in node.inputs]
    positions = tuple([position for position in order if position is not None])
    is_ours = len({*positions}) == len(order) == len(problem.inputs) and math.prod(whole[:axis]) == 1
    return positions if is_ours else None


def joined(
    joints: Mapping[int, Joint], sizes: Sequence[Size], fixed: Collection[int], alignment: int
) -> tuple[set[int], tuple[Inside, ...]]:
    """Numbers of the calls that need no launch, and the values that become parts of others.

    A value is part of one other. Fixed values, the subgraph's inputs and outputs, have memory of their own; so do values that
    would not be aligned. Linear."""
    dropped, inside = set[int](), dict[int, tuple[int, int]]()
    for call, joint in joints.items():
        firsts = _firsts([sizes[value] for value in joint.inputs], alignment)
        is_free = not any(value in inside or value in fixed for value in (*joint.inputs, joint.whole))
        if firsts is not None and is_free and len({*joint.inputs}) == len(joint.inputs):
            dropped.add(call)
            inside.update({value: (joint.whole, first) for value, first in zip(joint.inputs, firsts, strict=True)})
    placed: dict[int, Inside] = {}
    for value, (whole, first) in reversed(inside.items()):  # Results that are parts themselves come before their own parts.
        outer = placed.get(whole)
        placed[value] = Inside(value, whole, first) if outer is None else Inside(value, outer.whole, outer.first + first)
    return dropped, tuple(placed.values())


def _firsts(sizes: Sequence[Size], alignment: int) -> list[int] | None:
    """Byte offsets of values of these sizes in a row; None if one would not be aligned, or if a size is 0 or dynamic."""
    firsts, total = list[int](), 0
    for size in sizes:
        if not isinstance(size, int) or size == 0 or total % alignment:
            return None
        firsts.append(total)
        total += size
    return firsts
