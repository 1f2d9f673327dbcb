"""One kernel of a compiled subgraph, to look at."""

from __future__ import annotations

from typing import Any

import attrs

from accelerators.tvm.bodies.body import Body
from accelerators.tvm.code.building import Built
from accelerators.tvm.code.nvcc import ptx
from accelerators.tvm.compiled.assembling import Step
from accelerators.tvm.machine.machine import Machine
from graph.graph import Graph


@attrs.frozen(slots=True, eq=False)
class Kernel:
    """A kernel that runs, and the ops that it comes from."""

    name: str
    """The second-level call."""
    symbol: str
    """The kernel's own name; calls of one structure share it."""
    nodes: tuple[str, ...]
    """The ops that it computes."""
    body: Graph
    """The same as a graph; `str(body)` is the text form."""
    schedule: str
    """The kernel of ours, or the rule, that made its loops."""
    machine: Machine
    """The target that it was compiled for."""
    _lowered_body: Body
    _function: Any
    _built: Built

    @property
    def text(self) -> str:
        """The loops as they were written; of a kernel that TVM scheduled, its own text."""
        from accelerators.tvm.kernels.catalogue import draft_kernel

        draft = draft_kernel(self._lowered_body, self.machine)
        return self.tir if draft is None or draft.kernel is None else str(draft.kernel)

    @property
    def tir(self) -> str:
        """The scheduled loops as TVM's text."""
        return str(self._function.script())

    @property
    def source(self) -> str:
        """The code that TVM generated: assembly for a processor, CUDA source for a GPU."""
        library = self._built.library
        device = next(iter(library.imports), None)
        return str(library.inspect_source("asm") if device is None else device.inspect_source("cuda"))

    @property
    def assembly(self) -> str:
        """The machine's own language: assembly, or PTX."""
        return self.source if self.machine.kind == "cpu" else ptx(self.source, self.machine.arch)


def make_kernel(step: Step, machine: Machine, body: Body, built: Built, nodes: tuple[str, ...]) -> Kernel:
    """The kernel of one step."""
    lowered, symbol = built.lowered, step.symbol
    function, schedule = lowered.kernels()[symbol], lowered.schedules[symbol]
    return Kernel(step.call, symbol, nodes, body.graph, schedule, machine, body, function, built)
