"""`load_mxnet`: reads a network of MXNet's as a graph of ONNX ops."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from partita.graph.errors import ReadError
from partita.graph.graph import Graph
from partita.graph.readers.mxnet.convert import to_graph
from partita.graph.readers.mxnet.params import read_params
from partita.graph.readers.mxnet.symbol import parse_symbol
from partita.graph.types import Dim

__all__ = ["load_mxnet"]


def load_mxnet(
    source: str | os.PathLike[str] | bytes | Mapping[str, Any],
    params: str | os.PathLike[str] | bytes | Mapping[str, Any] | None = None,
    shapes: Mapping[str, Sequence[Dim]] | None = None,
) -> Graph:
    """The graph of a MXNet symbol: the path of a "-symbol.json" file, or JSON as text, bytes or a dictionary.

    `params` are the weights: the path of the ".params" file, its bytes, or a mapping from names to arrays. They become
    constants; without them, the weights are inputs of the graph. Only the files that are named here are opened.
    `shapes` are shapes of inputs. Many networks load without them; an op that needs more raises an error.

    Each op becomes ONNX's (opset 21) in inference mode: Dropout is the identity, BatchNorm uses its moving
    statistics, SoftmaxOutput is a softmax and its label no input. The node that computes an op's value has the op's name,
    further nodes `<name>_<what>`. Values and outputs are named as in MXNet: `<name>_output`. MXNet's
    placement annotation `ctx_group` is kept in the node's metadata under "mxnet.ctx_group". If several nodes in the file have
    one name, the first keeps it, the others get a number appended and keep the file's name in their metadata, under
    "mxnet.name". Variables of one name stay separate, and share one array if the parameters have one of that name.

        g = load_mxnet("resnet-symbol.json", params="resnet-0000.params", shapes={"data": (1, 3, 224, 224)})"""
    content, where, name = _content(source)
    arrays = {} if params is None else read_params(params)
    return to_graph(parse_symbol(content, where), arrays, shapes or {}, name)


def _content(source: Any) -> tuple[Any, str, str]:
    """The JSON, its name for messages, and the graph's name."""
    if isinstance(source, Mapping):
        return source, "symbol", "net"
    if isinstance(source, (bytes, bytearray, memoryview)):
        return bytes(source), "symbol", "net"
    if isinstance(source, str) and source.lstrip().startswith("{"):
        return source, "symbol", "net"
    if not isinstance(source, (str, os.PathLike)):
        raise ReadError(
            f"a MXNet symbol cannot be read from a {type(source).__name__}",
            remedy="Give the path of a '-symbol.json' file, or its content",
        )
    path = Path(source)
    try:
        if path.exists() and not path.is_file():
            raise ReadError("this is not a file", where=str(path), remedy="Give the path of a '-symbol.json' file")
        return path.read_bytes(), str(path), path.stem.removesuffix("-symbol") or "net"
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ReadError(f"the symbol file cannot be opened: {reason}", where=str(path)) from error
