"""Passes between a GPU kernel and its source.

Kernels of our own language are already bound to blocks and threads and contain their barriers; TVM's pipeline spends most of its
time looking for constructs that they lack."""

from __future__ import annotations

from functools import cache
from typing import Any

from partita.accelerators.tvm.kernels.language.emit import WRITTEN
from partita.accelerators.tvm.machine.library import part, tvm


def are_written(kernels: Any) -> bool:
    """True if all kernels of the module are written in our kernel language."""
    return all(kernel.attrs and WRITTEN in kernel.attrs for kernel in kernels.functions.values())


def passes_for(kernels: Any, target: Any) -> Any:
    """The passes over the module, those that finish host code, and those that finish code for the GPU."""
    tirx = part("tirx")
    return _own() if are_written(kernels) else tirx.get_default_tir_pipeline(target)


@cache
def _own() -> tuple[Any, Any, Any]:
    tirx, scheduled = part("tirx").transform, part("s_tir").transform
    sequence = tvm().transform.Sequential
    passes = [
        scheduled.LowerOpaqueBlock(),
        tirx.FlattenBuffer(),
        tirx.BF16ComputeLegalize(),
        tirx.NarrowDataType(32),
        tirx.VectorizeLoop(True),
        tirx.UnrollLoop(),
        tirx.StmtSimplify(),
        tirx.VerifyMemory(),
        tirx.AnnotateEntryFunc(),
        tirx.SplitHostDevice(),
        tirx.MakePackedAPI(),
        tirx.BF16StorageLegalize(),
    ]
    host, device = sequence([tirx.LowerTVMBuiltin(), tirx.LowerIntrin()]), sequence([tirx.LowerIntrin()])
    return sequence(passes), lambda: host, lambda: device
