"""A subgraph as a list of launches with planned memory: for static sizes, or for sizes that depend on those of its inputs, where
the list for new sizes is made when they first occur, without compiling anything.

Concatenations need no launch where their inputs are written directly into the result. If all dimensions before the axis are 1,
as for the channels of a single image, each input is a contiguous part of the result. So it gets its memory there, and the kernel
that computes it writes it there. A result may be an input of another concatenation, as in DenseNet's layers: then all are parts
of the last one."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import attrs

from partita.accelerators.tvm.bodies.body import Body, shape_of
from partita.accelerators.tvm.code.launch_sizes import Formula, number_at
from partita.accelerators.tvm.code.launches import Number
from partita.accelerators.tvm.kernels.shared.kernel_io import Problem
from partita.accelerators.tvm.sizes.extent import Extent, Size, symbol, value_of


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


@attrs.frozen(slots=True)
class Slot:
    """A value in the device's memory."""

    block: int
    """Index of the memory block that holds it."""
    shape: tuple[int, ...]
    dtype: str


@attrs.frozen(slots=True)
class Part:
    """A value inside a memory block, beside others."""

    block: int
    """Index of the block."""
    first: int
    """Offset in the block in bytes."""
    bytes: int


@attrs.frozen(slots=True)
class Step:
    """One launch on a GPU."""

    number: int
    """Number of the TensorIR kernel that it belongs to, in the order in which they run."""
    kernel: str
    arguments: tuple[int | Number, ...]
    """Indices of memory blocks, then of parts (numbered after all blocks); or numbers."""
    groups: tuple[int, int, int]
    local: tuple[int, int, int]
    shared: int = 0
    """Bytes of dynamic shared memory of a group, in addition to what the source declares."""


@attrs.frozen(slots=True, eq=False)
class StepList:
    """A subgraph as consecutive launches."""

    sources: tuple[str, ...]
    """OpenCL C or CUDA of all kernels, each text a program of its own."""
    blocks: tuple[int, ...]
    """Size of each memory block in bytes."""
    inputs: tuple[Slot, ...]
    """Memory of the inputs, then of the weights."""
    outputs: tuple[Slot, ...]
    """Memory of the results."""
    steps: tuple[Step, ...]
    parts: tuple[Part, ...] = ()
    """Values inside memory blocks; blocks of inputs and results have no parts."""

    @property
    def source(self) -> str:
        """All sources as one text."""
        return "\n".join(self.sources)


def planned(sizes: Sequence[int], calls: Sequence[Sequence[int]], kept: Sequence[int]) -> tuple[dict[int, int], list[int]]:
    """Memory block of each value that is used, and the size of each block in bytes. A value takes the smallest free block that is
    large enough and at most twice its size; kept values share their block with none."""
    last = {value: i for i, values in enumerate(calls) for value in values}
    blocks, pieces, free, whole = dict[int, int](), list[int](), list[int](), set(kept)

    def take(value: int) -> None:
        fitting = [b for b in free if sizes[value] <= pieces[b] <= 2 * sizes[value]] if value not in whole else []
        if fitting:
            blocks[value] = min(fitting, key=pieces.__getitem__)
            free.remove(blocks[value])
        else:
            blocks[value] = len(pieces)
            pieces.append(sizes[value])

    for value in dict.fromkeys(kept):
        take(value)
    for i, values in enumerate(calls):
        for value in dict.fromkeys(values):
            if value not in blocks:
                take(value)
        free += [blocks[value] for value in dict.fromkeys(values) if last[value] == i and value not in whole]
    return blocks, pieces


@attrs.frozen(slots=True)
class OpenSlot:
    """An input, weight or result."""

    value: int
    """Number of the value."""
    shape: tuple[Size, ...]
    dtype: str

    def at(self, blocks: Mapping[int, int], sizes: Mapping[str, int]) -> Slot:
        """Its shape and memory in a call."""
        return Slot(blocks[self.value], tuple([value_of(size, sizes) for size in self.shape]), self.dtype)


@attrs.frozen(slots=True)
class OpenStep:
    """One launch."""

    number: int
    """Number of the TensorIR kernel that it belongs to, in the order in which they run."""
    kernel: str
    arguments: tuple[int | Number, ...]
    """Numbers of values, or scalars that depend on sizes."""
    groups: tuple[Formula, Formula, Formula]
    local: tuple[int, int, int]
    shared: int = 0
    """Bytes of dynamic shared memory of a group, in addition to what the source declares."""

    def at(self, blocks: Mapping[int, int], sizes: Mapping[str, int]) -> Step:
        """The launch for the sizes of a call."""
        arguments = tuple([
            attrs.evolve(argument, value=number_at(argument.value, sizes)) if isinstance(argument, Number) else blocks[argument]
            for argument in self.arguments
        ])
        x, y, z = (int(number_at(count, sizes)) for count in self.groups)
        return Step(self.number, self.kernel, arguments, (x, y, z), self.local, self.shared)


@attrs.frozen(slots=True, eq=False)
class OpenSteps:
    """A subgraph as consecutive launches, for any size."""

    sources: tuple[str, ...]
    """OpenCL C or CUDA of all kernels, each text a program of its own."""
    sizes: tuple[Size, ...]
    """Size of each value in bytes."""
    calls: tuple[tuple[int, ...], ...]
    """Values that each kernel reads and writes, in the order in which kernels run; for a value inside another, that other."""
    inputs: tuple[OpenSlot, ...]
    """The inputs, then the weights."""
    outputs: tuple[OpenSlot, ...]
    """The results."""
    steps: tuple[OpenStep, ...]
    inside: tuple[Inside, ...] = ()
    """Values that are parts of others."""

    blocks = ()
    """Empty: the memory is planned for each size."""

    @property
    def source(self) -> str:
        """All sources as one text."""
        return "\n".join(self.sources)

    @property
    def is_open(self) -> bool:
        """True if one of its sizes is symbolic."""
        return any(isinstance(size, Extent) for size in self.sizes)

    def sizes_of(self, shapes: Sequence[tuple[int, ...]]) -> dict[str, int]:
        """Value of each symbol in a call with inputs of these shapes."""
        sizes: dict[str, int] = {}
        for slot, shape in zip(self.inputs, shapes, strict=False):
            for stated_size, size in zip(slot.shape, shape, strict=True):
                if isinstance(stated_size, Extent) and len(stated_size.terms) == 1:
                    ((monomial, count),) = stated_size.terms.items()
                    if len(monomial) == 1:
                        sizes.setdefault(monomial[0], size // count)
        return sizes

    def at(self, sizes: Mapping[str, int], elsewhere: Sequence[int] = ()) -> StepList:
        """The launches for these values of the symbols. Inputs with indices in `elsewhere` are arrays on the device in every run,
        and need no memory of their own."""
        needed = [max(1, value_of(size, sizes)) for size in self.sizes]
        for number in elsewhere:
            needed[self.inputs[number].value] = 1
        blocks, pieces = planned(needed, self.calls, [slot.value for slot in (*self.inputs, *self.outputs)])
        parts = [Part(blocks[part.whole], part.first, needed[part.value]) for part in self.inside]
        blocks.update({part.value: len(pieces) + i for i, part in enumerate(self.inside)})
        steps = [step.at(blocks, sizes) for step in self.steps]
        slots = [tuple([slot.at(blocks, sizes) for slot in listed]) for listed in (self.inputs, self.outputs)]
        launched = tuple([step for step in steps if 0 not in step.groups])
        return StepList(self.sources, tuple(pieces), slots[0], slots[1], launched, tuple(parts))


def stated(expression: Any) -> Size:
    """A size in a Relax function as a size of the graph."""
    kind = type(expression).__name__
    if kind == "Var":
        return symbol(str(expression.name))
    if kind == "Cast":
        return stated(expression.value)
    if kind in ("Add", "Sub", "Mul"):
        left, right = stated(expression.a), stated(expression.b)
        return left + right if kind == "Add" else left - right if kind == "Sub" else left * right
    return int(expression)
