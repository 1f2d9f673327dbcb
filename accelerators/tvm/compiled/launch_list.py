"""A subgraph as a list of launches with statically planned memory."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from partita.accelerators.tvm.code.launches import Number


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
