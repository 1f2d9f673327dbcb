"""A subgraph as a list of launches over memory that is planned beforehand."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from partita.accelerators.tvm.code.launches import Number


@attrs.frozen(slots=True)
class Slot:
    """A value in the device's memory."""

    block: int
    """The number of the piece of memory that it is in."""
    shape: tuple[int, ...]
    dtype: str


@attrs.frozen(slots=True)
class Part:
    """A value inside a piece of memory, beside others."""

    block: int
    """The number of the piece."""
    first: int
    """Where it begins there, in bytes."""
    bytes: int


@attrs.frozen(slots=True)
class Step:
    """One launch on a GPU."""

    number: int
    """The number of the kernel of TensorIR that it belongs to, in the order in which they run."""
    kernel: str
    arguments: tuple[int | Number, ...]
    """Pieces of memory and, numbered behind them all, parts of them; or numbers."""
    groups: tuple[int, int, int]
    local: tuple[int, int, int]
    shared: int = 0
    """The bytes of memory that a group shares, besides what the source states."""


@attrs.frozen(slots=True, eq=False)
class StepList:
    """A subgraph as launches one after the other."""

    sources: tuple[str, ...]
    """OpenCL C or CUDA of all kernels, each text a program of its own."""
    blocks: tuple[int, ...]
    """The bytes of each piece of memory."""
    inputs: tuple[Slot, ...]
    """Where the inputs go, then the weights."""
    outputs: tuple[Slot, ...]
    """Where the results are."""
    steps: tuple[Step, ...]
    parts: tuple[Part, ...] = ()
    """What stands inside of pieces; no piece of an input or of a result has parts."""

    @property
    def source(self) -> str:
        """All of it as one text."""
        return "\n".join(self.sources)


def planned(sizes: Sequence[int], calls: Sequence[Sequence[int]], kept: Sequence[int]) -> tuple[dict[int, int], list[int]]:
    """The piece of memory of each value that is used, and the bytes of each piece. A value takes the smallest piece that is free
    and large enough, but none of twice its size; the kept ones share with nobody."""
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
