"""One kernel of a compiled subgraph, to look at."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from partita.accelerators.tvm.bodies.body import Body
from partita.accelerators.tvm.code.building import Built
from partita.accelerators.tvm.code.nvcc import ptx
from partita.accelerators.tvm.machine.machine import Machine
from partita.graph.graph import Graph


@attrs.frozen(slots=True, eq=False)
class Origin:
    """What a kernel was made from."""

    body: Body
    """The body of its second-level call, without the weights."""
    built: Built
    """The loops and the machine code of the body."""
    symbol: str
    """The kernel's name among those of the body."""


@attrs.frozen(slots=True, eq=False)
class Kernel:
    """A kernel that runs, and the ops that it comes from."""

    name: str
    """The second-level call."""
    symbol: str
    """The kernel's own name; calls of one structure share it."""
    nodes: tuple[str, ...]
    """The ops that it computes."""
    schedule: str
    """The kernel of ours, or the rule, that made its loops."""
    types: str
    """The element types of what it reads and stores: "bfloat16 -> float32"; one alone where all are the same."""
    why_wide: str
    """Why it computes in float32, where less was asked for; else empty."""
    machine: Machine
    """The target that it was compiled for."""
    _origin: Callable[[], Origin]

    @property
    def body(self) -> Graph:
        """The ops that it computes as a graph; `str(body)` is the text form."""
        return self._origin().body.graph

    @property
    def text(self) -> str:
        """The loops as they were written; of a kernel that TVM scheduled, its own text."""
        from partita.accelerators.tvm.lower.lowering import own_draft

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
        """The machine's own language: assembly, or PTX; of OpenCL, whose drivers have one each, the source."""
        return self.source if self.machine.kind != "cuda" else ptx(self.source, self.machine.arch)
