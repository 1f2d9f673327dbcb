"""Exported subgraphs as bytes: a description of their launches, outputs and weights as JSON, then machine code."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import attrs
import numpy as np

from partita.accelerators.errors import AcceleratorError, NotSupported
from partita.accelerators.interface.stub_body import is_skeleton
from partita.accelerators.tvm.compiled.subgraph import CompiledTvm, Launch
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
        raise AcceleratorError(f"this is no subgraph {kind}: {error}", where=where) from None


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
