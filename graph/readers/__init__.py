"""Readers of files and of other programs' models."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from partita.graph.errors import ReadError
from partita.graph.graph import Graph
from partita.graph.readers.foreign import TORCH, holds_torch
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
        from partita.graph.readers.zoo import load_zoo  # start-up

        return load_zoo(name[len(ZOO) :], shapes, inline)
    if isinstance(name, str) and name.endswith(".json"):
        from partita.graph.readers.mxnet import load_mxnet  # start-up

        return load_mxnet(name, params=params, shapes=shapes)
    if isinstance(name, str) and holds_torch(name):
        cause = "this is a file of PyTorch's, which holds no graph that can be read without its Python code"
        raise ReadError(cause, where=name, remedy=TORCH)
    if params is not None:
        raise ReadError("params= goes with an MXNet symbol", remedy='Give the path of a "-symbol.json" with it')
    from partita.graph.readers.onnx import load_onnx  # start-up

    return load_onnx(source, shapes=shapes, inline=inline, base_dir=base_dir, strict=strict)


def is_source(value: object) -> bool:
    """True for what `load` reads: a path, the bytes of a file, or a ModelProto. Does not load onnx."""
    model = getattr(sys.modules.get("onnx"), "ModelProto", ())  # Another thread may be importing onnx.
    return isinstance(value, (str, os.PathLike, bytes, bytearray, memoryview, model))


def mxnet_ops(*names: str) -> frozenset[str]:
    """The ONNX ops for these MXNet ops, for a selector: `ContainOpSelector(mxnet_ops("Convolution", "Activation"))`.
    The table is that of the reader of MXNet's symbols. An MXNet op that becomes one of several ONNX ops, depending on a
    parameter (`Activation`, `Pooling`), gives all of them.

    >>> sorted(mxnet_ops("Convolution", "BatchNorm", "elemwise_add"))
    ['Add', 'BatchNormalization', 'Conv']
    """
    from partita.graph.readers.mxnet import onnx_ops  # start-up

    return onnx_ops(names)
