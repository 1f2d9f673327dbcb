"""A subgraph as a list of launches whose sizes depend on those of its inputs. The list for new sizes is made when they first
occur, without compiling anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from partita.accelerators.tvm.code.launch_sizes import Formula, number_at
from partita.accelerators.tvm.code.launches import Number
from partita.accelerators.tvm.compiled.joining import Inside
from partita.accelerators.tvm.compiled.launch_list import Part, Slot, Step, StepList, planned
from partita.accelerators.tvm.sizes.extent import Extent, Size, symbol, value_of


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
