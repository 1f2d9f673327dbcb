"""Concatenations that take no launch: what they join is written where the whole stands.

Where only dimensions of one come before the axis, as with the channels of a single picture, each input is one piece of the
result. So it gets its memory there, and the kernel that makes it writes it there. A result may be joined in turn, as layer after
layer of a DenseNet: then all stand in the last one."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import attrs

from partita.accelerators.tvm.bodies.body import Body, shape_of
from partita.accelerators.tvm.kernels.shared.problem import Problem
from partita.accelerators.tvm.sizes.extent import Size


@attrs.frozen(slots=True)
class Joint:
    """A concatenation, with values by their numbers."""

    inputs: tuple[int, ...]
    """What it joins, in order."""
    whole: int
    """What it makes."""


@attrs.frozen(slots=True)
class Inside:
    """A value whose memory is a part of another one's."""

    value: int
    whole: int
    """The other one, which is inside none."""
    first: int
    """Where it begins there, in bytes."""


def order_of(body: Body) -> tuple[int, ...] | None:
    """The numbers of the body's inputs, in the order in which they stand behind each other in its result; None where it is not a
    concatenation that has each of them in one piece."""
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
    """The numbers of the calls that need no launch, and the values that are then parts of others.

    A value is part of one other. The fixed ones, which come from outside and go there, have memory of their own; so has what
    would not begin at a multiple of the alignment. Linear."""
    dropped, inside = set[int](), dict[int, tuple[int, int]]()
    for call, joint in joints.items():
        firsts = _firsts([sizes[value] for value in joint.inputs], alignment)
        is_free = not any(value in inside or value in fixed for value in (*joint.inputs, joint.whole))
        if firsts is not None and is_free and len({*joint.inputs}) == len(joint.inputs):
            dropped.add(call)
            inside.update({value: (joint.whole, first) for value, first in zip(joint.inputs, firsts, strict=True)})
    placed: dict[int, Inside] = {}
    for value, (whole, first) in reversed(inside.items()):  # The wholes that are parts themselves come before their own parts.
        outer = placed.get(whole)
        placed[value] = Inside(value, whole, first) if outer is None else Inside(value, outer.whole, outer.first + first)
    return dropped, tuple(placed.values())


def _firsts(sizes: Sequence[Size], alignment: int) -> list[int] | None:
    """Where values of so many bytes begin, one behind the other; None where one would begin elsewhere than it may, or takes none
    or a number of bytes that is not known."""
    firsts, total = list[int](), 0
    for size in sizes:
        if not isinstance(size, int) or size == 0 or total % alignment:
            return None
        firsts.append(total)
        total += size
    return firsts
