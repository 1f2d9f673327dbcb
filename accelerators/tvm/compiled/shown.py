"""A kernel of a compiled subgraph, for inspection."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from partita.accelerators.tvm.bodies.body import Body
from partita.accelerators.tvm.code.building import Built
from partita.accelerators.tvm.code.nvcc import ptx
from partita.accelerators.tvm.lower.lowering import own_draft
from partita.accelerators.tvm.machine.machine import Machine
from partita.graph.graph import Graph


@attrs.frozen(slots=True, eq=False)
class Origin:
    """Sources of a kernel."""

    body: Body
    """Body of its second-level call, without the weights."""
    built: Built
    """Lowered loops and machine code of the body."""
    symbol: str
    """Name of the kernel among those of the body."""


@attrs.frozen(slots=True, eq=False)
class Kernel:
    """A kernel that runs, and the ops that it computes."""

    name: str
    """Name of the second-level call."""
    symbol: str
    """Name of the kernel; calls of equal structure share it."""
    nodes: tuple[str, ...]
    """Names of the ops that it computes."""
    schedule: str
    """Name of our kernel, or of the rule, that made its loops."""
    types: str
    """Element types that it reads and stores, as "bfloat16 -> float32"; a single type if all are the same."""
    why_wide: str
    """Why it computes in float32 although a narrower type was requested; else empty."""
    machine: Machine
    """The machine that it was compiled for."""
    _origin: Callable[[], Origin]

    @property
    def body(self) -> Graph:
        """The ops that it computes as a graph; `str(body)` is the text form."""
        return self._origin().body.graph

    @property
    def text(self) -> str:
        """The loops in our kernel language; for a kernel that TVM scheduled, TVM's text."""
        draft = own_draft(self._origin().body, self.machine)
        return self.tir if draft is None or draft.kernel is None else str(draft.kernel)

    @property
    def tir(self) -> str:
        """The scheduled loops as TVM's text."""
        origin = self._origin()
        return str(origin.built.lowered.kernels()[origin.symbol].script())

    @property
    def source(self) -> str:
        """The code that TVM generated: assembly for a processor, CUDA or OpenCL source for a GPU."""
        library = self._origin().built.library
        return str(library.source if self.machine.is_gpu else library.inspect_source("asm"))

    @property
    def assembly(self) -> str:
        """Assembly, or PTX; for OpenCL the source, because each driver has its own assembly."""
        return self.source if self.machine.kind != "cuda" else ptx(self.source, self.machine.arch)
