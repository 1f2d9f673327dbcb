"""Serialization of compiled subgraphs for a processor: a description of the calls, and a shared library."""

from __future__ import annotations

import json
import os
import struct
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from partita.accelerators.errors import AcceleratorError, CompileError, NotSupported
from partita.accelerators.interface.stub_body import is_skeleton
from partita.accelerators.tvm.code.linking import MISSING, NEEDED, Sharing, can_link, not_linked
from partita.accelerators.tvm.compiled.assembling import Assembled
from partita.accelerators.tvm.compiled.export_header import read_words
from partita.accelerators.tvm.compiled.subgraph import CompiledTvm, RunsOn
from partita.accelerators.tvm.machine.library import compiling
from partita.accelerators.tvm.machine.tvm_errors import first_line, quiet
from partita.accelerators.tvm.run.runtime import load_library
from partita.graph.errors import PartitaError
from partita.graph.graph import Graph

ROOM = 32 << 20
"""Free bytes needed for object files."""

_LENGTH = struct.Struct("<Q")


def export(compiled: CompiledTvm) -> bytes:
    """The subgraph as bytes, without its weights."""
    assembled, outputs, constants = compiled.assembled, [], 0
    for origin in assembled.outputs:
        outputs.append("constant" if isinstance(origin, np.ndarray) else origin)
        constants += isinstance(origin, np.ndarray)
    launches = [attrs.astuple(launch) for launch in compiled.launches]
    weights = len(assembled.weights) + constants
    words = {
        "launches": launches,
        "outputs": outputs,
        "weights": weights,
        "notes": list(compiled.notes),
        "checks": assembled.checks,
    }
    head = json.dumps(words).encode()
    library = compiled.library or _library(assembled.executable)
    return b"".join([_LENGTH.pack(len(head)), head, library])


def _library(executable: Any) -> bytes:
    if not can_link():
        raise NotSupported(MISSING, remedy=NEEDED)
    with tempfile.TemporaryDirectory(prefix="partita-") as folder:
        path = Path(folder) / "library.so"
        try:
            _check_room(Path(folder))
            with compiling.lock, quiet():
                executable.export_library(str(path), fcompile=Sharing())
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
    head, library = _taken_apart(data, where)
    said = read_words(head, weights, where)
    assembled = Assembled(_loaded(library, where), said.weights, (), said.outputs, said.checks)

    def again() -> CompiledTvm:
        if is_skeleton(graph):
            cause = "the code of its kernels cannot be shown: it was exported without its body, and only machine code is here"
            raise NotSupported(cause, where=where, remedy="Export it with its body")
        return compile_again()

    compiled = CompiledTvm(assembled, said.launches, again, runs_on, perf_count)
    compiled.library = bytes(library)
    compiled.notes = said.notes
    return compiled


def _taken_apart(data: bytes, where: str) -> tuple[Mapping[str, Any], memoryview]:
    """The description and the library."""
    try:
        (length,) = _LENGTH.unpack_from(data)
        end = _LENGTH.size + length
        head = json.loads(data[_LENGTH.size : end])
        return head, memoryview(data)[end:]
    except (struct.error, ValueError, KeyError, TypeError, AttributeError) as error:
        raise AcceleratorError(f"this is no subgraph that TVM compiled: {error}", where=where) from None


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
