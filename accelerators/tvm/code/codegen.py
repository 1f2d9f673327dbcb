"""Machine code of scheduled kernels.

LLVM takes most of the compile time and releases the interpreter lock, so callers with many kernels run `generate` on several
threads. TVM checks every argument at each call, in code longer than many kernels; these checks are left out, because the virtual
machine passes what the kernels were compiled for. TVM also assumes arguments aligned to 64 bytes, which numpy's arrays seldom
are: code without that assumption is no slower, and saves a copy of each input."""

from __future__ import annotations

import math
import os
import re
import tempfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from partita.accelerators.process.descriptors import above_streams
from partita.accelerators.tvm.code.elf import check_symbols
from partita.accelerators.tvm.code.launches import cuda_code, opencl_code
from partita.accelerators.tvm.kernels.language.emit import LARGE, THOROUGH, WRITTEN
from partita.accelerators.tvm.machine.library import function, part, tvm
from partita.accelerators.tvm.machine.tvm_errors import refused

_DECLARED = re.compile(r'^declare .*?@"?([\w.$]+)', re.MULTILINE)
"""A function that a module calls and does not define, in LLVM's text form."""

ALIGNMENT = 4
"""Alignment in bytes of the arrays that kernels take."""


def generate(kernels: Mapping[str, Any], target: Any) -> Any:
    """Runtime module of these kernels under their names.

    For a processor, LLVM compiles it to machine code on first use. For a GPU it is source code."""
    named = {name: kernel.with_attr("global_symbol", name) for name, kernel in kernels.items()}
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
        lowered = _of_known_length(target)
        module = pipeline(tirx.transform.BindTarget(lowered.with_host(lowered))(module))
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
    three times as long. On Arm the innermost loop of a convolution took 1.36 times the cycles on neoverse-v1."""
    if expressions_if_large(kernels):
        return tvm().target.Target({**target.export(), "opt-level": 0})
    is_thorough = not is_written(kernels) or any(THOROUGH in kernel.attrs for kernel in kernels.values())
    if is_thorough or not function("target.llvm_cpu_has_feature")("avx512f", target):
        return target
    return tvm().target.Target({**target.export(), "opt-level": 2})


def _of_known_length(target: Any) -> Any:
    """The target, without the extension for vectors of unknown length of RISC-V: TVM would make them of our vectors, and cannot
    do it for all. LLVM computes vectors of known length with that extension."""
    if not str(target.attrs.get("mtriple", "")).startswith("riscv64"):
        return target
    return tvm().target.Target({**target.export(), "mcpu": "generic", "mattr": []})


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

    The file is in memory if the system allows it, because LLVM ends the process when the disk is full."""
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


Change = Callable[[Any], Any]
"""Returns the replacement of a statement, whose inner statements are not visited; None keeps the statement and rewrites its inner
statements."""


def rewritten(statement: Any, change: Change) -> Any:
    """The rewritten statement; unchanged parts are shared. Linear."""
    changed = change(statement)
    if changed is not None:
        return changed
    tirx = part("tirx")
    if isinstance(statement, tirx.SeqStmt):
        inner = [rewritten(one, change) for one in statement.seq]
        same = all(new.same_as(old) for new, old in zip(inner, statement.seq, strict=True))
        return statement if same else tirx.SeqStmt(inner)
    if isinstance(statement, tirx.IfThenElse):
        other = None if statement.else_case is None else rewritten(statement.else_case, change)
        return tirx.IfThenElse(statement.condition, rewritten(statement.then_case, change), other)
    if not isinstance(statement, (tirx.For, tirx.While, tirx.AttrStmt)):
        return statement
    body = rewritten(statement.body, change)
    return statement if body.same_as(statement.body) else _around(statement, body)


def _around(statement: Any, body: Any) -> Any:
    tirx = part("tirx")
    if isinstance(statement, tirx.AttrStmt):
        return tirx.AttrStmt(statement.node, statement.attr_key, statement.value, body)
    if isinstance(statement, tirx.While):
        return tirx.While(statement.condition, body)
    rest = statement.thread_binding, statement.annotations, statement.step
    return tirx.For(statement.loop_var, statement.min, statement.extent, statement.kind, body, *rest)


FEW, FEW_THREADS, MANY = 64, 16, 1024
"""Pieces of a loop for up to FEW_THREADS threads, and for more; pool.c has the same numbers."""

_LARGE = 1 << 31


def in_pieces(statement: Any, threads: int) -> Any:
    """The statement with its parallel loops cut into pieces that this many threads take one after another. Parallel loops are not
    nested. Linear.

    A loop of any length becomes FEW pieces of sizes as equal as possible, with empty ones spread evenly among them. So the thread
    pool need not know the length of the loop to give each thread an equal share."""
    tirx, count = part("tirx"), FEW if threads <= FEW_THREADS else MANY

    def change(inner: Any) -> Any:
        cut = isinstance(inner, tirx.For) and inner.kind == tirx.ForKind.PARALLEL and inner.step is None
        return _cut(inner, count) if cut else None

    return rewritten(statement, change)


def _cut(loop: Any, count: int) -> Any:
    """The loop over pieces around the loop over the iterations of one piece."""
    tirx, piece = part("tirx"), part("tirx").Var("piece", "int32")
    kind, extent = str(loop.loop_var.ty.dtype), loop.extent
    small = isinstance(extent, tirx.IntImm) and extent.value * count < _LARGE

    def start(number: Any) -> Any:
        scaled = number * extent if small else tirx.Cast("int64", number) * tirx.Cast("int64", extent)
        return loop.min + tirx.Cast(kind, scaled >> (count.bit_length() - 1))

    begin = start(piece)
    inner = tirx.For(loop.loop_var, begin, start(piece + 1) - begin, tirx.ForKind.SERIAL, loop.body)
    return tirx.For(piece, 0, count, tirx.ForKind.PARALLEL, inner)


_LARGEST, _ALL = 1 << 15, 1 << 17
"""Maximum bytes of one buffer and of all together; larger ones use the workspace, since the stacks of threads are small."""


def on_stack(statement: Any) -> Any:
    """The statement with its local buffers on the stack, where LLVM keeps them in registers, as far as there is room. Linear.

    Marks set by kernels get lost, because TVM's storage pass rewrites all allocations. Without them, each buffer is allocated
    from and returned to TVM's workspace in every iteration of a parallel loop."""
    tirx, room = part("tirx"), _ALL

    def change(inner: Any) -> Any:
        nonlocal room
        if not isinstance(inner, tirx.AllocBuffer):
            return None
        size = _bytes(inner.buffer)
        if not 0 < size <= min(_LARGEST, room):
            return inner
        room -= size
        return tirx.AllocBuffer(inner.buffer, {"disable_lower_builtin": tirx.const(1, "bool")})

    return rewritten(statement, change)


def _bytes(buffer: Any) -> int:
    """Size in bytes of a local buffer; 0 for other buffers and dynamic ones."""
    if buffer.scope() != "local" or not all(isinstance(size, part("tirx").IntImm) for size in buffer.shape):
        return 0
    number = part("runtime").DataType(str(buffer.dtype))
    return math.prod(int(size) for size in buffer.shape) * (int(number.bits * number.lanes + 7) // 8)
