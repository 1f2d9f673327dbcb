"""The origin of a compiled subgraph: cache or compilation, the reason, and where the time went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from partita.graph.formatting import counted

SHOWN = 10
"""Number of kernels listed, the slowest ones."""


@attrs.frozen(slots=True)
class KernelWork:
    """The cost of compiling one kernel."""

    kernel: str
    """The kernel's second-level call."""
    nodes: tuple[str, ...]
    """The ops that it computes."""
    seconds: float
    """Seconds of one thread; kernels that LLVM compiled together share its time equally."""
    is_shared: bool = False
    """True if it shares the code of another kernel of the same structure, which this process compiled before."""

    @property
    def cost(self) -> str:
        """The compile time, in words."""
        return "shares the code of an equal kernel" if self.is_shared else f"{self.seconds:.2f} s"

    def __str__(self) -> str:
        return f"{self.kernel} ({', '.join(self.nodes)}): {self.cost}"


@attrs.frozen(slots=True)
class CompileStory:
    """Why a subgraph was compiled, and where the time went, possibly in an earlier process."""

    from_cache: bool
    """True if it was read from the cache."""
    because: str
    """Why it was compiled: the parts of its key that differ from the nearest entry of the cache at that time."""
    seconds: float
    """The seconds that its compilation took."""
    kernels: tuple[KernelWork, ...] = ()
    """The cost of each kernel; empty if the device does not report it."""

    def __str__(self) -> str:
        verb = "read from the cache; was compiled" if self.from_cache else "compiled"
        return f"{verb} in {self.seconds:.2f} s because {self.because}"

    def lines(self, most: int = SHOWN) -> list[str]:
        """The story and the slowest kernels, one a line."""
        slowest = sorted(self.kernels, key=lambda work: -work.seconds)
        lines = [str(self), *(f"  {work}" for work in slowest[:most])]
        return lines + ([f"  and {counted(len(slowest) - most, 'more kernel')}"] if len(slowest) > most else [])


def read_work(rows: Sequence[Sequence[Any]], names: Mapping[str, str]) -> tuple[KernelWork, ...]:
    """Reads kernel rows from a file; `names` maps the ops' names there to those of now."""
    return tuple(
        KernelWork(str(kernel), tuple(names.get(name, name) for name in nodes), float(seconds), bool(is_shared))
        for kernel, nodes, seconds, is_shared in rows
    )
