"""Where two graphs differ, found without the text form: the judge of what reading and writing must keep."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from partita.graph import Graph, Node, NodeEntry
from partita.graph.sparse import SparseTensor

FIELDS = ("name", "op", "domain", "output_names", "output_types", "affinity")


class Judge:
    """Remembers which bodies were paired, so that sharing is compared too."""

    def __init__(self) -> None:
        self.pairs: dict[int, Graph] = {}

    def graphs(self, a: Graph, b: Graph, at: str) -> str | None:
        known = self.pairs.get(id(a))
        if known is not None:
            return None if known is b else f"{at}: a shared body became two"
        if any(value is b for value in self.pairs.values()):
            return f"{at}: two bodies became one"
        self.pairs[id(a)] = b
        for key in ("name", "output_names"):
            if getattr(a, key) != getattr(b, key):
                return f"{at}.{key}: {getattr(a, key)!r} != {getattr(b, key)!r}"
        for key in ("opsets", "metadata"):
            if dict(getattr(a, key)) != dict(getattr(b, key)):
                return f"{at}.{key}: {getattr(a, key)!r} != {getattr(b, key)!r}"
        if [n.name for n in a.nodes] != [n.name for n in b.nodes]:
            return f"{at}: nodes {[n.name for n in a.nodes]} != {[n.name for n in b.nodes]}"
        if [n.name for n in a.inputs] != [n.name for n in b.inputs]:
            return f"{at}: inputs"
        if refs(a.outputs) != refs(b.outputs):
            return f"{at}: outputs"
        return next((w for x, y in zip(a.nodes, b.nodes, strict=True) if (w := self.nodes(x, y, f"{at}/{x.name}"))), None)

    def nodes(self, a: Node, b: Node, at: str) -> str | None:
        for key in FIELDS:
            if getattr(a, key) != getattr(b, key):
                return f"{at}.{key}: {getattr(a, key)!r} != {getattr(b, key)!r}"
        for key in ("inputs", "captures"):
            if refs(getattr(a, key)) != refs(getattr(b, key)):
                return f"{at}.{key}"
        if [n.name for n in a.after] != [n.name for n in b.after] or dict(a.metadata) != dict(b.metadata):
            return f"{at}: after or metadata"
        if list(a.attrs) != list(b.attrs):
            return f"{at}: attributes {list(a.attrs)} != {list(b.attrs)}"
        result = (self.values(a.attrs[key], b.attrs[key], f"{at}.{key}") for key in a.attrs)
        return next(
            filter(None, [*result, self.values(a.value, b.value, at), self.values(a.subgraph, b.subgraph, f"{at}()")]), None
        )

    def values(self, a: Any, b: Any, at: str) -> str | None:
        if type(a) is not type(b) and not (isinstance(a, np.ndarray) and isinstance(b, np.ndarray)):
            return f"{at}: {type(a)} != {type(b)}"
        if isinstance(a, Graph):
            return self.graphs(a, b, at)
        if isinstance(a, np.ndarray):
            return None if same_bits(a, b) else f"{at}: {a!r} != {b!r}"
        if isinstance(a, SparseTensor):
            return self.values(list(attrs.astuple(a, recurse=False)), list(attrs.astuple(b, recurse=False)), at)
        if isinstance(a, (list, tuple)):
            if len(a) != len(b):
                return f"{at}: {a!r} != {b!r}"
            return next((w for x, y in zip(a, b, strict=True) if (w := self.values(x, y, at))), None)
        return None if repr(a) == repr(b) else f"{at}: {a!r} != {b!r}"


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """The same dtype, shape and bits."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return a.tolist() == b.tolist() if a.dtype == object else a.tobytes() == b.tobytes()


def refs(entries: Any) -> list[tuple[str, int] | None]:
    """Values as node name and number."""
    return [(e.node.name, e.index) if isinstance(e, NodeEntry) else None for e in entries]


def difference(a: Graph, b: Graph) -> str | None:
    """The first difference found, or None."""
    return Judge().graphs(a, b, a.name)
