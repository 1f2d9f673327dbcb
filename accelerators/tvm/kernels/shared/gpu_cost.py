"""About how long a product takes on a GPU, by which one of its cuts is chosen.

A launch waits for the slowest of these: the core with the most blocks, which multiplies and reads its operands; the second cache,
which all cores read; memory, from which a core gets its share and an idle core nothing; and the chain of steps of a block, whose
reads take their time however little is read. Blocks that a core has room for hide each other's waits; the others come after them,
wave by wave.

None of this is more exact than a fifth. Of the cuts that are so close to the fastest one, that comes first whose roofline is the
lowest: whose arithmetic and bytes, on the cores that it fills, take the least time at the peak of the GPU. Of equal ones those
come first that give every core a block, since the GPU may have more cores than the one that the code is made for.

That blocks share a sum too, whose parts a second launch adds up, is no candidate: that launch alone takes some 2,800 cycles, in
which all cores make 310 million products of float16. The cores that products of few blocks leave idle would win less."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import attrs

from partita.accelerators.tvm.machine.gpu import Gpu

Cut = TypeVar("Cut")

Rank = tuple[bool, float, bool, float]
"""Is a cut slower than those that count as fastest, its roofline if it is not, does it leave cores idle, and about how many
cycles it takes."""

_START = 1500
"""The cycles that a block takes beside its steps."""

_CORE_BANDWIDTH = 64
"""The bytes that a core reads from the second cache in a cycle, at most."""

_CACHE_BANDWIDTH = 40
"""Its share of what the second cache gives to all cores in a cycle."""

_MEMORY_BANDWIDTH = 10
"""Its share of the bytes that come from memory in a cycle: 1.55 TB in a second are 10 for each of 108 cores of 1.41 GHz."""

_CORE_THREADS, _CORE_SHARED = 2048, 100 << 10
"""What the blocks of a core have together."""

_CLOSE = 1.2
"""Cuts that take so many times as long as the fastest one are told apart by their roofline."""


@attrs.frozen(slots=True)
class Demand:
    """What a product asks of a GPU, cut in some way."""

    blocks: int
    threads: int
    """The threads of a block."""
    shared: int
    """The bytes of shared memory of a block."""
    registers: int
    """The registers of a thread."""
    steps: int
    """The steps of a block."""
    multiplying: float
    """The cycles in which a core makes the products of a step of a block."""
    loading: float
    """The cycles in which it reads the operands of a step from shared memory."""
    alone: float
    """The cycles that a step takes where a block has a core to itself."""
    fetched: float
    """The bytes that a block reads in a step."""
    ending: float
    """The cycles of a block after the last step."""
    moved: int
    """The bytes that all blocks together read and write, each counted once."""

    def roofline(self, gpu: Gpu) -> float:
        """The cycles of its arithmetic and its bytes on the cores that it fills: no kernel takes fewer."""
        return max(self._on_core(gpu) * self.steps * self.multiplying, self._moving(gpu))

    def cycles(self, gpu: Gpu) -> float:
        """About how long it takes; it ranks cuts, no more."""
        room = gpu.registers // (self.registers * self.threads)
        resident = max(1, min(_CORE_THREADS // self.threads, _CORE_SHARED // self.shared, room))
        waves = math.ceil(self._on_core(gpu) / resident)
        busy = max(self.multiplying, self.loading, self.fetched / _CORE_BANDWIDTH)
        working = self._on_core(gpu) * self.steps * busy
        fetching = self.blocks * self.steps * self.fetched / (_CACHE_BANDWIDTH * gpu.cores)
        waiting = waves * self.steps * self.alone
        return max(working, fetching, self._moving(gpu), waiting) + waves * (_START + self.ending)

    def _on_core(self, gpu: Gpu) -> int:
        """The blocks of the core that has the most."""
        return -(-self.blocks // gpu.cores)

    def _moving(self, gpu: Gpu) -> float:
        """The cycles in which the cores that have blocks get all bytes from memory."""
        return self.moved / (_MEMORY_BANDWIDTH * min(self.blocks, gpu.cores))


def ranking(cuts: Sequence[Cut], demand: Callable[[Cut], Demand], gpu: Gpu) -> Callable[[Cut], Rank]:
    """Ranks these cuts of a product, of which each has a demand: the least is the one to take. Linear."""
    demands = {cut: demand(cut) for cut in cuts}
    cycles = {cut: asked.cycles(gpu) for cut, asked in demands.items()}
    most = _CLOSE * min(cycles.values())

    def rank(cut: Cut) -> Rank:
        is_slower = cycles[cut] > most
        roofline = 0.0 if is_slower else demands[cut].roofline(gpu)
        return is_slower, roofline, demands[cut].blocks < gpu.cores, cycles[cut]

    return rank


def ranking_of_all(cuts: Sequence[Cut], demands: Sequence[Callable[[Cut], Demand]], gpu: Gpu) -> Callable[[Cut], Any]:
    """Ranks the cuts for several products, each of which counts alike: the least is the one whose cycles, multiplied, are the
    least. One product alone is ranked by itself."""
    if len(demands) == 1:
        return ranking(cuts, demands[0], gpu)
    return lambda cut: math.prod(demand(cut).cycles(gpu) for demand in demands)
