"""Serialization of compiled subgraphs for a processor: a description of the calls, and a shared library."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from partita.accelerators.errors import AcceleratorError, CompileError
from partita.accelerators.tvm.code.linking import Sharing, check_linker, not_linked
from partita.accelerators.tvm.compiled.assembling import Assembled
from partita.accelerators.tvm.compiled.export_header import compiling_again, packed, read_words, unpacked
from partita.accelerators.tvm.compiled.subgraph import CompiledTvm, RunsOn
from partita.accelerators.tvm.machine.library import compiling
from partita.accelerators.tvm.machine.tvm_errors import first_line, quiet
from partita.accelerators.tvm.run.runtime import load_library
from partita.graph.errors import PartitaError
from partita.graph.graph import Graph

ROOM = 32 << 20
"""Free bytes needed for object files."""


def export(compiled: CompiledTvm) -> bytes:
    """The subgraph as bytes, without its weights."""
    return packed(compiled, {}, compiled.library or _library(compiled.assembled.executable, compiled.runs_on.machine.triple))


def _library(executable: Any, triple: str) -> bytes:
    check_linker(triple)
    with tempfile.TemporaryDirectory(prefix="partita-") as folder:
        path = Path(folder) / "library.so"
        try:
            _check_room(Path(folder))
            with compiling.lock, quiet():
                executable.export_library(str(path), fcompile=Sharing(triple))
        except CompileError:
            raise
        except Exception as error:
            raise not_linked(error) from error
        return path.read_bytes()


def _check_room(folder: Path) -> None:
    """OSError if the disk is full: LLVM, which writes object files there, would end the process."""
    with open(folder / "room", "wb") as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, ROOM)
    (folder / "room").unlink()


def read(
    data: bytes, weights: Sequence[Any], graph: Graph, runs_on: RunsOn, perf_count: bool, compile_again: Callable[[], CompiledTvm]
) -> CompiledTvm:
    """The subgraph that `export` wrote. Its code is loaded into this process."""
    where = f"subgraph {graph.name!r}"
    head, library = unpacked(data, where, "that TVM compiled")
    said = read_words(head, weights, where)
    executable = _loaded(library, where) if runs_on.machine.is_here else None
    assembled = Assembled(executable, said.weights, (), said.outputs, said.checks)
    cause = "the code of its kernels cannot be shown: it was exported without its body, and only machine code is here"
    again = compiling_again(graph, compile_again, cause)
    compiled = CompiledTvm(assembled, said.launches, again, runs_on, perf_count)
    compiled.library = bytes(library)
    compiled.notes = said.notes
    return compiled


def _loaded(library: memoryview, where: str) -> Any:
    """The library as a module; its file is deleted once it is mapped."""
    with tempfile.TemporaryDirectory(prefix="partita-") as folder:
        path = Path(folder) / "library.so"
        path.write_bytes(library)
        try:
            return load_library(str(path))
        except PartitaError as error:
            raise AcceleratorError(error.cause, where=where, remedy=error.remedy) from error
        except Exception as error:
            raise AcceleratorError(f"TVM does not load its library: {first_line(error)}", where=where) from error
