"""The key of a compiled subgraph: everything that its code depends on, by parts."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from partita.accelerators.arrays.sharing import array_digests
from partita.accelerators.interface.accelerator import Accelerator
from partita.accelerators.process.json_form import form_error
from partita.accelerators.store.folder import Damaged
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.graph.types import Array

IRRELEVANT = frozenset(("CACHE_DIR", "DEVICE_ID", "ISOLATE", "ISOLATE_SECONDS", "PERF_COUNT", "PROGRESS"))
"""Configuration keys that compiled code does not depend on."""


@attrs.frozen(slots=True)
class EntryKey:
    """The parts that identify a compiled subgraph."""

    device: str
    """The accelerator's name."""
    body: str
    """Digest of its computation."""
    shapes: str
    """The types of its values."""
    weights: str
    """Digest of its large constants."""
    target: str
    """The target that it is compiled for."""
    options: str
    """The configuration."""
    versions: str
    """The versions of the compiling library, and of Partita."""

    @property
    def digest(self) -> str:
        """The key as 64 hexadecimal digits: the entry's name."""
        return hashlib.sha256(json.dumps(attrs.astuple(self)).encode()).hexdigest()

    def differences(self, other: EntryKey) -> tuple[str, ...]:
        """The names of the parts that differ from another key."""
        return tuple(field.name for field in attrs.fields(EntryKey) if getattr(self, field.name) != getattr(other, field.name))


def make_key(accelerator: Accelerator, graph: Graph, config: Mapping[str, Any]) -> EntryKey:
    """The key of this subgraph on the accelerator."""
    identity = dict(accelerator.identity(config))
    library = identity.pop("library", "")
    digest = graph_digest(graph)
    meant = accelerator.meaning(config)
    with np.printoptions(threshold=sys.maxsize, floatmode="unique"):  # arrays are printed in full
        options = " ".join(f"{key}={meant[key]!r}" for key in sorted(meant) if key not in IRRELEVANT)
    target = "; ".join(f"{key} {value}" for key, value in sorted(identity.items()))
    versions = f"{library}, Partita {source_digest()[:12]}".lstrip(", ")
    return EntryKey(accelerator.name, digest.body, digest.shapes, digest.weights, target, options, versions)


@cache
def source_digest() -> str:
    """Digest of Partita's own code, which affects the compiled code."""
    home = Path(__file__).parents[2]
    digest = hashlib.sha256()
    for folder in ("accelerators", "passes", "partition", "graph"):
        for path in sorted(path for kind in ("*.py", "*.c") for path in (home / folder).rglob(kind)):
            digest.update(path.relative_to(home).as_posix().encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


WEIGHT_FROM = 1024
"""Size in bytes from which a constant is a weight; code may depend on smaller ones, which are part of the structure."""


@attrs.frozen(slots=True)
class GraphDigest:
    """The three digests of a subgraph: of its body, its shapes and its weights."""

    body: str
    """Digest of ops, attributes, small constants and connections."""
    shapes: str
    """The types of the inputs, and a digest of all other types."""
    weights: str
    """Digest of the large constants."""


def graph_digest(graph: Graph) -> GraphDigest:
    """Equal for graphs that differ only in names. Linear, counting the nodes of bodies."""
    reading = _GraphReading()
    reading.graph(graph, {})
    inputs = ", ".join(str(node[0].type) for node in graph.inputs)
    digests = array_digests(reading.weights)
    weights = "".join(f"{array.dtype}{array.shape}{digest};" for array, digest in zip(reading.weights, digests, strict=True))
    return GraphDigest(_hex(reading.structure), f"({inputs}) {_hex(reading.types)[:16]}", _hex([weights]))


def _hex(texts: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for text in texts:
        digest.update(text.encode("utf-8", "surrogateescape"))
        digest.update(b"\n")
    return digest.hexdigest()


class _GraphReading:
    def __init__(self) -> None:
        self.structure: list[str] = []
        self.types: list[str] = []
        self.weights: list[Array] = []

    def graph(self, graph: Graph, seen: dict[int, int]) -> None:
        """Adds a graph; its values are numbered from zero."""
        self.structure.append(f"graph {sorted(graph.opsets.items())}")
        numbers: dict[NodeEntry, int] = {}
        for node in graph.nodes:
            self._node(node, numbers, seen)
            for entry in node.outputs:
                numbers[entry] = len(numbers)
        self.structure.append(f"in {[numbers[n[0]] for n in graph.inputs]} out {[numbers[e] for e in graph.outputs]}")

    def _node(self, node: Node, numbers: Mapping[NodeEntry, int], seen: dict[int, int]) -> None:
        reads = ["-" if entry is None else numbers[entry] for entry in (*node.inputs, None, *node.captures)]
        present = [bool(name) for name in node.output_names]
        self.structure.append(f"{node.domain!r} {node.op!r} {reads} {present}")
        self.types.append(str([str(value_type) for value_type in node.output_types]))
        if node.value is not None:
            self._constant(node.value)
        for key in sorted(node.attrs):
            self.structure.append(f" {key}=")
            self._value(node.attrs[key], seen)
        if node.subgraph is not None:
            self._value(node.subgraph, seen)

    def _value(self, value: Any, seen: dict[int, int]) -> None:
        if isinstance(value, Graph):
            if id(value) in seen:
                self.structure.append(f"as before {seen[id(value)]}")
            else:
                seen[id(value)] = len(seen)
                self.graph(value, seen)
        elif isinstance(value, np.ndarray):
            self._constant(value)
        elif isinstance(value, (list, tuple)):
            self.structure.append(f"{len(value)}:")
            for item in value:
                self._value(item, seen)
        else:
            self.structure.append(repr(value))

    def _constant(self, array: Array) -> None:
        self.structure.append(f"{array.dtype}{array.shape}")
        if array.dtype.hasobject:
            self.structure.append(repr(array.tolist()))
        elif array.nbytes < WEIGHT_FROM:
            self.structure.append(array.tobytes().hex())
        else:
            self.weights.append(array)


@attrs.frozen(slots=True)
class Metadata:
    """The metadata of an entry that do not depend on the device."""

    key: EntryKey
    """The key."""
    model: str
    """The name of the model that it was compiled for first."""
    subgraph: str
    """The name of the subgraph when it was compiled."""
    names: tuple[str, ...]
    """The names of its ops then."""
    ops: tuple[str, ...]
    """The kinds of its ops."""
    created: float
    """Time of compilation, in seconds since 1970."""
    seconds: float
    """Compile time in seconds."""
    changed: tuple[str, ...]
    """The parts of the key that differed from the most similar entry."""
    because: str
    """The reason for its compilation, in words."""


_KEY = [field.name for field in attrs.fields(EntryKey)]

_FORM = {
    "key": dict.fromkeys(_KEY, str),
    "model": str,
    "subgraph": str,
    "names": [str],
    "ops": [str],
    "made": float,
    "seconds": float,
    "changed": [str],
    "because": str,
}


def read_metadata(words: Mapping[str, Any]) -> Metadata:
    """The metadata in an entry's file; Damaged if they have another form."""
    error = form_error(words, _FORM)
    if error is not None:
        raise Damaged(f"its metadata cannot be read: {error}")
    key = EntryKey(*(words["key"][name] for name in _KEY))
    model, subgraph, created, seconds, because = (words[part] for part in ("model", "subgraph", "made", "seconds", "because"))
    names, ops, changed = (tuple(words[part]) for part in ("names", "ops", "changed"))
    return Metadata(key, model, subgraph, names, ops, created, seconds, changed, because)
