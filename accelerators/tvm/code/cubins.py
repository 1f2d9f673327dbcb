"""Machine code for a GPU that travels with a subgraph compiled where there is none: there TVM leaves the source in its library,
and would call the CUDA compiler where the subgraph is loaded."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from accelerators.process.forking import Guard
from accelerators.tvm.code.nvcc import cubins_of_all
from accelerators.tvm.run.runtime import function, runtime

_COMPILE = "tvm_callback_cuda_compile"
"""The function that TVM's CUDA runtime calls for source code that it finds in a library."""

_guard = Guard()


def cubins(executable: Any, arch: str) -> dict[str, bytes]:
    """The machine code of each CUDA source in an executable, by the digest of the source; empty where TVM compiled the
    sources itself.
    """
    if function("ffi.Module.create.cuda") is not None:
        return {}
    sources, waiting = set(), [executable.mod]
    while waiting:
        module = waiting.pop()
        waiting += list(module.imports)
        if module.kind == "cuda":
            sources.add(str(module.inspect_source("cuda")))
    return {_digest(source): code for source, code in cubins_of_all(sources, arch).items()}


@contextmanager
def served(known: Mapping[str, bytes]) -> Iterator[None]:
    """Inside, TVM's CUDA runtime is handed this machine code for its source."""
    if not known:
        yield
        return
    with _guard.lock:
        before = function(_COMPILE)

        def compile_(source: Any) -> Any:
            code = known.get(_digest(str(source)))
            if code is None and before is not None:
                return before(source)
            return code or b""

        runtime().register_global_func(_COMPILE, compile_, override=True)
        try:
            yield
        finally:
            if before is None:
                runtime().remove_global_func(_COMPILE)
            else:
                runtime().register_global_func(_COMPILE, before, override=True)


def _digest(source: str) -> str:
    return hashlib.sha256(source.encode()).hexdigest()
