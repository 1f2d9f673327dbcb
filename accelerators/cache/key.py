"""The key of a compiled subgraph: everything that its code depends on, by parts."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from partita.accelerators.cache.digest import graph_digest
from partita.accelerators.interface.accelerator import Accelerator
from partita.graph.graph import Graph

IRRELEVANT = frozenset(("CACHE_DIR", "DEVICE_ID", "ISOLATE", "ISOLATE_SECONDS", "PERF_COUNT", "PROGRESS"))
"""Configuration keys that compiled code does not depend on."""


@attrs.frozen(slots=True)
class Key:
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

    def differences(self, other: Key) -> tuple[str, ...]:
        """The names of the parts that differ from another key."""
        return tuple(field.name for field in attrs.fields(Key) if getattr(self, field.name) != getattr(other, field.name))


def make_key(accelerator: Accelerator, graph: Graph, config: Mapping[str, Any]) -> Key:
    """The key of this subgraph on the accelerator."""
    identity = dict(accelerator.identity(config))
    library = identity.pop("library", "")
    digest = graph_digest(graph)
    meant = accelerator.meaning(config)
    with np.printoptions(threshold=sys.maxsize, floatmode="unique"):  # arrays are printed in full
        options = " ".join(f"{key}={meant[key]!r}" for key in sorted(meant) if key not in IRRELEVANT)
    target = "; ".join(f"{key} {value}" for key, value in sorted(identity.items()))
    versions = f"{library}, Partita {source_digest()[:12]}".lstrip(", ")
    return Key(accelerator.name, digest.body, digest.shapes, digest.weights, target, options, versions)


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
