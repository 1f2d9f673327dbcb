"""Machine code of scheduled kernels.

LLVM takes most of the compile time and releases the interpreter lock, so callers with many kernels run `generate` on several
threads. TVM checks every argument at each call, in code longer than many kernels; these checks are left out, because the virtual
machine passes what the kernels were compiled for. TVM also assumes arguments aligned to 64 bytes, which numpy's arrays seldom
are: code without that assumption is no slower, and saves a copy of each input."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from partita.accelerators.process.descriptors import above_streams
from partita.accelerators.tvm.code.elf import check_symbols
from partita.accelerators.tvm.code.launches import cuda_code, opencl_code
from partita.accelerators.tvm.code.rewriting import in_pieces, on_stack, rewritten
from partita.accelerators.tvm.kernels.language.emit import LARGE, THOROUGH, WRITTEN
from partita.accelerators.tvm.machine.library import function, part, tvm
from partita.accelerators.tvm.machine.tvm_errors import refused

_DECLARED = re.compile(r'^declare .*?@"?([\w.$]+)', re.MULTILINE)
"""A function that a module calls and does not define, in LLVM's text form."""

ALIGNMENT = 4
"""Alignment in bytes of the arrays that kernels take."""


def generate(kernels: Mapping[str, Any], target: Any) -> Any:
    """Runtime module of these kernels under their names.

    For a processor, LLVM compiles it to machine code on first use. For a GPU it is source code.
    """
    named = {name: _called(kernel, name) for name, kernel in kernels.items()}
    with refused("code generation"):
        module = tvm().IRModule(named)
        if str(target.kind.name) == "opencl":
            return opencl_code(module, target)
        if str(target.kind.name) != "llvm":
            return cuda_code(module, target)
        tirx = part("tirx")
        pipeline, finalize, _ = tirx.get_default_tir_pipeline(target)
        if is_written(named):
            pipeline = _lowering()
        target = _at_level(target, named)
        module = pipeline(tirx.transform.BindTarget(target.with_host(target))(module))
        finished = finalize()(_finished(module, int(target.attrs["num-cores"])))
        return function("target.build.llvm")(finished, target)


def is_written(kernels: Mapping[str, Any]) -> bool:
    """True if all of them are written in our kernel language."""
    return all(kernel.attrs and WRITTEN in kernel.attrs for kernel in kernels.values())


def expressions_if_large(kernels: Mapping[str, Any]) -> int:
    """Number of expressions of the largest kernel, if that makes LLVM use its lowest optimization level; otherwise 0."""
    return max([int(kernel.attrs[LARGE]) for kernel in kernels.values() if kernel.attrs and LARGE in kernel.attrs], default=0)


def _at_level(target: Any, kernels: Mapping[str, Any]) -> Any:
    """The target with the optimization level for these kernels: the lowest one if a kernel is large, the second with AVX-512 if
    none is thorough. Kernels of our own language already have the vectors and loops that the third level looks for, and compile
    in up to a third less time; with fewer registers they are 3 to 5 % slower at the second level, and TVM's own loops take up to
    three times as long."""
    if expressions_if_large(kernels):
        return tvm().target.Target({**target.export(), "opt-level": 0})
    is_thorough = not is_written(kernels) or any(THOROUGH in kernel.attrs for kernel in kernels.values())
    if is_thorough or not function("target.llvm_cpu_has_feature")("avx512f", target):
        return target
    return tvm().target.Target({**target.export(), "opt-level": 2})


@cache
def _lowering() -> Any:
    """The passes that kernels of our own language need. The others of TVM's pipeline look for constructs that these kernels lack,
    or remove what LLVM removes too, and take more than half of its time."""
    tirx, scheduled = part("tirx").transform, part("s_tir").transform
    return tvm().transform.Sequential(
        [
            scheduled.LowerOpaqueBlock(),
            tirx.FlattenBuffer(),
            tirx.BF16ComputeLegalize(),
            tirx.NarrowDataType(32),
            tirx.VectorizeLoop(True),
            tirx.StorageRewrite(),
            tirx.UnrollLoop(),
            tirx.StmtSimplify(),
            tirx.MakePackedAPI(),
            tirx.BF16StorageLegalize(),
        ]
    )


def check_declared(module: Any) -> None:
    """CompileError if kernels that LLVM compiles in memory call an undefined function, since LLVM would end the process."""
    names = _DECLARED.findall(module.inspect_source("ll"))
    check_symbols(name for name in names if not name.startswith("llvm."))


def object_code(module: Any) -> bytes:
    """The module as an object file for a linker."""
    with tempfile.TemporaryDirectory(prefix="partita-") as folder, refused("code generation"):
        return written(module, Path(folder))


def written(module: Any, folder: Path) -> bytes:
    """Bytes of the object file that TVM writes for a module.

    The file is in memory if the system allows it, because LLVM ends the process when the disk is full.
    """
    path = folder / "object.o"
    if not hasattr(os, "memfd_create"):
        module.write_to_file(str(path))
        return path.read_bytes()
    number = above_streams(os.memfd_create("partita"))
    try:
        path.symlink_to(f"/proc/self/fd/{number}")
        module.write_to_file(str(path))
        return path.read_bytes()
    finally:
        path.unlink(missing_ok=True)
        os.close(number)


def _called(kernel: Any, name: str) -> Any:
    return kernel.with_attr("global_symbol", name)


def _finished(module: Any, threads: int) -> Any:
    """The functions without TVM's argument checks (the kernels' own checks stay), with parallel loops cut for this many threads
    and small buffers on the stack."""
    bodies = {var: on_stack(in_pieces(_unchecked(kernel.body), threads)) for var, kernel in module.functions.items()}
    finished = {var: module[var].with_body(body) for var, body in bodies.items()}
    return tvm().IRModule(finished, attrs=module.attrs)


def _unchecked(statement: Any) -> Any:
    """The statement without TVM's argument checks. The kernel's own body, which is innermost, stays as it is."""
    tirx = part("tirx")

    def change(inner: Any) -> Any:
        if isinstance(inner, tirx.AssertStmt):
            return tirx.Evaluate(0)
        if not isinstance(inner, tirx.AttrStmt):
            return inner if isinstance(inner, (tirx.For, tirx.While)) else None
        if inner.attr_key == "storage_alignment":
            return tirx.AttrStmt(inner.node, inner.attr_key, ALIGNMENT, rewritten(inner.body, change))
        return inner if inner.attr_key == "compute_scope" else None

    return rewritten(statement, change)
