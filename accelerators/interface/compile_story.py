"""How a compiled subgraph came to be: read from the cache or compiled, why, and where the time went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from partita.graph.words import counted

SHOWN = 10
"""The kernels that are listed, those that took longest."""


@attrs.frozen(slots=True)
class KernelWork:
    """What it took to compile one kernel."""

    kernel: str
    """The kernel's second-level call."""
    nodes: tuple[str, ...]
    """The ops that it computes."""
    seconds: float
    """The seconds of one thread; kernels that LLVM compiled together share its time equally."""
    is_shared: bool = False
    """Is its code that of another kernel of the same structure, which this process compiled before?"""

    @property
    def cost(self) -> str:
        """How long it took, in words."""
        return "shares the code of an equal kernel" if self.is_shared else f"{self.seconds:.2f} s"

    def __str__(self) -> str:
        return f"{self.kernel} ({', '.join(self.nodes)}): {self.cost}"


@attrs.frozen(slots=True)
class CompileStory:
    """Why a subgraph was compiled, and where the time went, also if that was in an earlier process."""

    from_cache: bool
    """Was it read from the cache?"""
    because: str
    """Why it was compiled, when that was: the parts of its key that differ from those of the nearest entry of the cache."""
    seconds: float
    """The seconds that compiling it took then."""
    kernels: tuple[KernelWork, ...] = ()
    """What each kernel took; empty if the device does not tell."""

    def __str__(self) -> str:
        verb = "read from the cache; was compiled" if self.from_cache else "compiled"
        return f"{verb} in {self.seconds:.2f} s because {self.because}"

    def lines(self, most: int = SHOWN) -> list[str]:
        """The story and the kernels that took longest, a line each."""
        slowest = sorted(self.kernels, key=lambda work: -work.seconds)
        lines = [str(self), *(f"  {work}" for work in slowest[:most])]
        return lines + ([f"  and {counted(len(slowest) - most, 'more kernel')}"] if len(slowest) > most else [])


def read_work(rows: Sequence[Sequence[Any]], names: Mapping[str, str]) -> tuple[KernelWork, ...]:
    """The kernels' rows as a file holds them; ops are called otherwise now."""
    return tuple(
        KernelWork(str(kernel), tuple(names.get(name, name) for name in nodes), float(seconds), bool(is_shared))
        for kernel, nodes, seconds, is_shared in rows
    )
