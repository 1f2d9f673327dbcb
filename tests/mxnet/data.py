"""What MXNet itself computed, and how to compare with it."""

from __future__ import annotations

import json
import lzma
import zlib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from partita.graph import Graph
from partita.graph.readers.mxnet import load_mxnet

FOLDER = Path(__file__).parents[1] / "data" / "mxnet"
SHARED = Path(__file__).parents[3] / "shared" / "data" / "mxnet"
TOLERANCE = 1e-4


@attrs.frozen
class Case:
    """A small symbol."""

    symbol: dict[str, Any]
    data: dict[str, np.ndarray]
    params: dict[str, np.ndarray]
    outputs: list[np.ndarray]

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: value.shape for name, value in self.data.items()}


@cache
def cases() -> dict[str, Case]:
    """The symbols that make_cases.py wrote."""
    symbols = json.loads((FOLDER / "cases.json").read_text())
    listed = {name: Case(symbol, {}, {}, []) for name, symbol in symbols.items()}
    with np.load(FOLDER / "cases.npz") as arrays:
        for key in arrays.files:
            name, kind, what = key.split("|")
            if kind == "out":
                listed[name].outputs.append(arrays[key])
            else:
                getattr(listed[name], "data" if kind == "data" else "params")[what] = arrays[key]
    return listed


@cache
def zoo() -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The symbols of MXNet's model zoo, and its outputs for seeded weights and inputs."""
    symbols = json.loads(lzma.decompress((FOLDER / "zoo.json.xz").read_bytes()))
    with np.load(FOLDER / "zoo.npz") as arrays:
        return symbols, dict(arrays)


def seeded(name: str, shape: Sequence[int]) -> np.ndarray:
    """The weights of a network of the model zoo, drawn as make_cases.py draws them."""
    random = np.random.RandomState(zlib.crc32(name.encode()))
    if name.endswith(("gamma", "var")):
        return (random.rand(*shape) + 0.5).astype(np.float32)
    if len(shape) == 1:
        return (random.randn(*shape) * 0.1).astype(np.float32)
    return (random.randn(*shape) * np.sqrt(2 / np.prod(shape[1:]))).astype(np.float32)


SIZES = {"alexnet": 224, "densenet121": 224, "inceptionv3": 299, "squeezenet1.0": 224, "squeezenet1.1": 224}
"""The sizes of pictures for networks of the model zoo; 64 for the others."""


def zoo_model(name: str, is_static: bool = False) -> tuple[Graph, np.ndarray, np.ndarray]:
    """A network of the model zoo with its weights, an input, and MXNet's output for it."""
    symbols, expected = zoo()
    size = SIZES.get(name, 64)
    data = np.random.RandomState(0).randn(2, 3, size, size).astype(np.float32)
    bare = load_mxnet(symbols[name], shapes={"data": data.shape})
    params = {node.name: seeded(node.name, node.output_types[0].shape) for node in bare.inputs if node.name != "data"}
    graph = load_mxnet(symbols[name], params, shapes={"data": data.shape} if is_static else None)
    return graph, data, expected[name]


def run(graph: Graph, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """The graph's outputs, computed by ONNX Runtime."""
    import onnxruntime

    from partita.graph.writers.onnx import to_model

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 2
    model = to_model(graph).SerializeToString()
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return session.run(None, {node.name: feeds[node.name] for node in graph.inputs})


def error(result: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference, measured by the largest value; nan and infinity must be in the same places."""
    assert result.shape == expected.shape
    assert result.dtype == expected.dtype
    a, b = result.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(b)
    np.testing.assert_array_equal(a[~finite], b[~finite])
    return float(np.abs(a - b)[finite].max(initial=0) / max(np.abs(b[finite]).max(initial=0), 1e-30))
