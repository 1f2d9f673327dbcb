"""Readers of files and of other programs' models."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from partita.graph.errors import ReadError
from partita.graph.graph import Graph
from partita.graph.types import Dim, require_shapes

ZOO = "zoo:"
"""Prefix of the names of models of the zoo."""


def load(
    source: Any,
    shapes: Mapping[str, Sequence[Dim]] | None = None,
    params: str | os.PathLike[str] | bytes | Mapping[str, Any] | None = None,
    inline: bool = False,
    base_dir: str | os.PathLike[str] | None = None,
    strict: bool = False,
) -> Graph:
    """Reads a model, see `partita.accelerators.load`; declared types are not checked here."""
    require_shapes(shapes or {})
    name = os.fspath(source) if isinstance(source, (str, os.PathLike)) else None
    if isinstance(name, str) and name.startswith(ZOO):
        from partita.graph.readers.zoo import load_zoo

        graph = load_zoo(name[len(ZOO) :])
        return _with_shapes(graph, shapes, inline) if shapes else graph
    if isinstance(name, str) and name.endswith(".json"):
        from partita.graph.readers.mxnet import load_mxnet

        return load_mxnet(name, params=params, shapes=shapes)
    if isinstance(name, str) and holds_torch(name):
        cause = "this is a file of PyTorch's, which holds no graph that can be read without its Python code"
        raise ReadError(cause, where=name, remedy=TORCH)
    if params is not None:
        raise ReadError("params= goes with an MXNet symbol", remedy='Give the path of a "-symbol.json" with it')
    from partita.graph.readers.onnx import load_onnx

    return load_onnx(source, shapes=shapes, inline=inline, base_dir=base_dir, strict=strict)


TORCH = (
    "Load the module with torch, then pt.from_torch(module, example_inputs) makes a graph of it (pip install 'partita[torch]'), "
    "or torch.onnx.export(module, example_inputs, 'model.onnx', dynamo=True) an ONNX file"
)
"""Remedy: ways to import a torch module."""


def holds_torch(path: str) -> bool:
    """True for a file written by torch.save or torch.export.save, by its name and first bytes (a zip archive or a pickle)."""
    if not path.lower().endswith((".pt", ".pth", ".pt2")):
        return False
    try:
        with open(path, "rb") as file:
            return file.read(2) in (b"PK", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
    except OSError:
        return False


def mxnet_ops(*names: str) -> frozenset[str]:
    """The ONNX ops for these MXNet ops, for a selector: `ContainOpSelector(mxnet_ops("Convolution", "Activation"))`.
    The table is that of the reader of MXNet's symbols. An MXNet op that becomes one of several ONNX ops, depending on a
    parameter (`Activation`, `Pooling`), gives all of them.

    >>> sorted(mxnet_ops("Convolution", "BatchNorm", "elemwise_add"))
    ['Add', 'BatchNormalization', 'Conv']
    """
    from partita.graph.readers.mxnet import onnx_ops

    return onnx_ops(names)


def _with_shapes(graph: Graph, shapes: Mapping[str, Sequence[Dim]], inline: bool) -> Graph:
    """The graph, read again with other input shapes."""
    from partita.graph.readers.onnx import load_onnx
    from partita.graph.writers.onnx import to_model

    return load_onnx(to_model(graph), shapes=shapes, inline=inline)
