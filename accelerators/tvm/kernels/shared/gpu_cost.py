"""Estimated time of a product on a GPU, for the choice among its cuts (ways to tile it).

The slowest of these bounds a launch: the core with the most blocks, which multiplies and reads its operands; the L2 cache, which
all cores read; memory, from which each busy core gets its share and an idle one nothing; and the chain of steps of a block, whose
reads have a latency however small they are. Blocks that are resident on a core together hide each other's latency; the others
follow wave by wave.

None of this is more exact than 20%. Among the cuts that are this close to the fastest one, the one with the lowest roofline wins:
the least time for its arithmetic and bytes, on the cores that it fills, at the GPU's peak. Ties go to cuts that give every core a
block, since the GPU may have more cores than the one that the code is made for.

Splitting a sum among blocks, with a second launch that adds up the parts, is no candidate: that launch alone takes some 2,800
cycles, in which all cores make 310 million float16 products. The cores that products of few blocks leave idle would gain less."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import attrs

from partita.accelerators.tvm.machine.gpu import Gpu

Cut = TypeVar("Cut")

Rank = tuple[bool, float, bool, float]
"""The rank of a cut, least first: slower than the cuts that count as fastest, roofline (0 if slower), leaves cores idle,
estimated cycles."""

_START = 1500
"""Cycles of a block besides its steps."""

_CORE_BANDWIDTH = 64
"""Bytes per cycle that a core reads from the L2 cache, at most."""

_CACHE_BANDWIDTH = 40
"""A core's share, in bytes per cycle, of the L2 cache's bandwidth for all cores."""

_MEMORY_BANDWIDTH = 10
"""A core's share, in bytes per cycle, of the memory bandwidth: 1.55 TB/s are 10 for each of 108 cores at 1.41 GHz."""

_CORE_THREADS, _CORE_SHARED = 2048, 100 << 10
"""Threads, and bytes of shared memory, of all resident blocks of a core."""

_CLOSE = 1.2
"""Cuts within this factor of the fastest one's time are ranked by their roofline."""


@attrs.frozen(slots=True)
class Demand:
    """The demand of a product, cut in some way, on a GPU."""

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
    """Cycles in which a core multiplies one step of a block."""
    loading: float
    """Cycles in which it reads the operands of a step from shared memory."""
    alone: float
    """Cycles of a step if a block has a core to itself."""
    fetched: float
    """Bytes that a block reads in a step."""
    ending: float
    """Cycles of a block after the last step."""
    moved: int
    """Bytes that all blocks together read and write, each counted once."""

    def roofline(self, gpu: Gpu) -> float:
        """Cycles of its arithmetic and its bytes on the cores that it fills: a lower bound for any kernel."""
        return max(self._on_core(gpu) * self.steps * self.multiplying, self._moving(gpu))

    def cycles(self, gpu: Gpu) -> float:
        """Estimated cycles, good enough to rank cuts only."""
        room = gpu.registers // (self.registers * self.threads)
        resident = max(1, min(_CORE_THREADS // self.threads, _CORE_SHARED // self.shared, room))
        waves = math.ceil(self._on_core(gpu) / resident)
        busy = max(self.multiplying, self.loading, self.fetched / _CORE_BANDWIDTH)
        working = self._on_core(gpu) * self.steps * busy
        fetching = self.blocks * self.steps * self.fetched / (_CACHE_BANDWIDTH * gpu.cores)
        waiting = waves * self.steps * self.alone
        return max(working, fetching, self._moving(gpu), waiting) + waves * (_START + self.ending)

    def _on_core(self, gpu: Gpu) -> int:
        """Number of blocks of the core that has the most."""
        return -(-self.blocks // gpu.cores)

    def _moving(self, gpu: Gpu) -> float:
        """Cycles in which the cores that have blocks read and write all bytes in memory."""
        return self.moved / (_MEMORY_BANDWIDTH * min(self.blocks, gpu.cores))


def ranking(cuts: Sequence[Cut], demand: Callable[[Cut], Demand], gpu: Gpu) -> Callable[[Cut], Rank]:
    """A function that ranks these cuts of a product by their demands; the least is best. Linear."""
    demands = {cut: demand(cut) for cut in cuts}
    cycles = {cut: asked.cycles(gpu) for cut, asked in demands.items()}
    most = _CLOSE * min(cycles.values())

    def rank(cut: Cut) -> Rank:
        is_slower = cycles[cut] > most
        roofline = 0.0 if is_slower else demands[cut].roofline(gpu)
        return is_slower, roofline, demands[cut].blocks < gpu.cores, cycles[cut]

    return rank


def ranking_of_all(cuts: Sequence[Cut], demands: Sequence[Callable[[Cut], Demand]], gpu: Gpu) -> Callable[[Cut], Any]:
    """A function that ranks the cuts for several products of equal weight, by the product of their cycles; the least is best. A
    single product is ranked by `ranking`."""
    if len(demands) == 1:
        return ranking(cuts, demands[0], gpu)
    return lambda cut: math.prod(demand(cut).cycles(gpu) for demand in demands)
