"""`load`: reads a file as a graph; `strict` checks the types that it declares."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from partita.graph.graph import Graph
from partita.graph.readers import load as read
from partita.graph.types import Dim


def load(
    source: Any,
    shapes: Mapping[str, Sequence[Dim]] | None = None,
    params: str | os.PathLike[str] | bytes | Mapping[str, Any] | None = None,
    inline: bool = False,
    base_dir: str | os.PathLike[str] | None = None,
    strict: bool = False,
) -> Graph:
    """Read a model: the path of an ONNX file or MXNet's "-symbol.json", a ModelProto, the bytes of an ONNX file, or "zoo:NAME".
    `shapes` replaces the file's shapes of inputs; `params` are an MXNet symbol's parameters (the file, its bytes, or
    arrays by name); `inline` replaces calls of model-local functions by their bodies; `base_dir` is the folder of external data
    of an ONNX model given as a ModelProto or as bytes. A file that deviates from ONNX (nodes out of order, an op of
    another opset) is read if its meaning is clear, as onnxruntime reads it, and `graph.attrs["notes"]` lists the deviations.
    With `strict` that is an error, and so is a declared type that contradicts the one inferred from the inputs."""
    graph = read(source, shapes, params, inline, base_dir, strict)
    if strict:
        from partita.passes.infer import infer

        infer(graph, strict=False, check_declared=True)
    return graph
