"""Serialization of compiled subgraphs: a description of their launches, outputs and weights as JSON, then machine code; for a
processor that is a shared library."""

from __future__ import annotations

import json
import os
import struct
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import attrs
import numpy as np

from partita.accelerators.errors import AcceleratorError, CompileError, NotSupported
from partita.accelerators.interface.stub_body import is_skeleton
from partita.accelerators.tvm.code.linking import Sharing, check_linker, not_linked
from partita.accelerators.tvm.compiled.assembling import Assembled
from partita.accelerators.tvm.compiled.subgraph import CompiledTvm, Launch, RunsOn
from partita.accelerators.tvm.machine.library import compiling
from partita.accelerators.tvm.machine.tvm_errors import first_line, quiet
from partita.accelerators.tvm.run.runtime import load_library
from partita.graph.errors import PartitaError
from partita.graph.graph import Graph
from partita.graph.types import Array

C = TypeVar("C", bound=CompiledTvm)


_LENGTH = struct.Struct("<Q")


def packed(compiled: CompiledTvm, more: Mapping[str, Any], *code: bytes) -> bytes:
    """The subgraph as bytes, without its weights: its description, `more` of it, and its code."""
    outputs = ["constant" if isinstance(origin, np.ndarray) else origin for origin in compiled.assembled.outputs]
    words = {
        "launches": [attrs.astuple(launch) for launch in compiled.launches],
        "outputs": outputs,
        "weights": len(compiled.export_weights()),
        "notes": list(compiled.notes),
        "checks": compiled.assembled.checks,
        **more,
    }
    head = json.dumps(words).encode()
    return b"".join([_LENGTH.pack(len(head)), head, *code])


def unpacked(data: bytes, where: str, kind: str) -> tuple[dict[str, Any], memoryview]:
    """The description, and the code after it; AcceleratorError if the bytes are none of this kind of subgraph."""
    try:
        (length,) = _LENGTH.unpack_from(data)
        end = _LENGTH.size + length
        return dict(json.loads(bytes(data[_LENGTH.size : end]))), memoryview(data)[end:]
    except (struct.error, ValueError, TypeError) as error:
        raise AcceleratorError(f"this is not a subgraph {kind}: {error}", where=where) from None


def compiling_again(graph: Graph, compile_again: Callable[[], C], cause: str) -> Callable[[], C]:
    """A function that compiles the exported graph again to show its kernels; NotSupported, for this cause, if it came without its
    body."""

    def again() -> C:
        if is_skeleton(graph):
            raise NotSupported(cause, where=f"subgraph {graph.name!r}", remedy="Export it with its body")
        return compile_again()

    return again


@attrs.frozen(slots=True, eq=False)
class ExportedWords:
    """The description, parsed and checked against the weights that came with it."""

    launches: tuple[Launch, ...]
    weights: tuple[Array, ...]
    """Constants that the kernels read."""
    outputs: tuple[int | Array, ...]
    """Source of each output, as in `Assembled`."""
    checks: tuple[str, ...]
    notes: tuple[str, ...]


def read_words(words: Mapping[str, Any], weights: Sequence[Array], where: str) -> ExportedWords:
    """The parsed description; AcceleratorError if its form is unknown or it is for other weights."""
    try:
        needed, origins = int(words["weights"]), list(words["outputs"])
        launches = tuple(map(Launch.of, words["launches"]))
        checks, notes = (tuple(map(str, words.get(key, ()))) for key in ("checks", "notes"))
        numbers = [None if origin == "constant" else int(origin) for origin in origins]
    except (TypeError, ValueError, KeyError, AttributeError):
        cause = "its list of launches is not what this version of Partita writes"
        raise AcceleratorError(cause, where=where, remedy="Compile the model again") from None
    constants = numbers.count(None)
    if needed != len(weights) or constants > needed:
        raise AcceleratorError(f"it needs {max(needed, constants)} weights, and {len(weights)} came with it", where=where)
    own, late = weights[: needed - constants], iter(weights[needed - constants :])
    outputs = tuple(next(late) if number is None else number for number in numbers)
    return ExportedWords(launches, tuple(own), outputs, checks, notes)


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
