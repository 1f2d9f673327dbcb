"""MXNet 1.9.1: MXBuildSubgraphByOpNames through its own package."""

from __future__ import annotations

import ctypes
import json
import os
from typing import Any

import mxnet as mx
from mxnet.base import _LIB, MXNetError, SymbolHandle, c_str, c_str_array, check_call, mx_uint

from benchmarks.partitioners import Color, Finding, Preds, clocked, read_by_nobody, report

TAKEN = ("add_n",)
"""The ops that the backend is told to take."""


def symbol(preds: Preds, color: Color) -> Any:
    """The shape as a symbol: sums where the device takes them, others where not."""
    nodes: list[dict[str, Any]] = [{"op": "null", "name": "x", "inputs": []}]
    for v, producers in enumerate(preds):
        node: dict[str, Any] = {"op": "add_n", "name": f"n{v}", "inputs": [[u + 1, 0, 0] for u in producers] or [[0, 0, 0]]}
        if color[v] is None:
            node["op"] = "_maximum" if len(producers) > 1 else "softsign"
        else:
            node["attrs"] = {"num_args": str(len(node["inputs"]))}
        nodes.append(node)
    heads = [[v + 1, 0, 0] for v in read_by_nobody(preds)]
    rows = list(range(len(nodes) + 1))
    about = {"mxnet_version": ["int", 10901]}
    return mx.sym.load_json(json.dumps({"nodes": nodes, "arg_nodes": [0], "node_row_ptr": rows, "heads": heads, "attrs": about}))


def measure(preds: Preds, color: Color) -> Finding:
    """Partition once and measure it."""
    given, partitioned = symbol(preds, color), SymbolHandle()
    names = c_str_array(TAKEN)
    seconds, _ = clocked(
        lambda: check_call(
            _LIB.MXBuildSubgraphByOpNames(given.handle, c_str("default"), mx_uint(len(TAKEN)), names, ctypes.byref(partitioned))
        )
    )
    try:
        text = mx.sym.Symbol(partitioned).tojson()
    except MXNetError as error:
        if "_Map_base" not in str(error):
            raise
        return seconds, 0, "cyclic"  # the writer met a node before the one that it reads
    return seconds, sum(node["op"] == "_CachedOp" for node in json.loads(text)["nodes"]), ""


if __name__ == "__main__":
    os.environ.setdefault("MXNET_SUBGRAPH_VERBOSE", "0")
    report(measure)
