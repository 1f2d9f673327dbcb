"""The light models inside the `onnx` package, with realistic weights.

In the package all elements of a weight are equal, so that all activations are equal and hide wrong kernels. Here each
generated weight is drawn with a seed from its name: He-scaled where it multiplies, near one or zero where it scales or
shifts; each batch norm gets the mean and variance of its input, node by node, as training would have left them; and the
last layer is scaled so that a final softmax is not saturated."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from partita.graph.errors import ReadError, did_you_mean
from partita.graph.graph import Graph
from partita.graph.interpret import evaluate_node
from partita.graph.node import CONSTANT, Node, NodeEntry
from partita.graph.readers.onnx import load_onnx
from partita.graph.rewrite import Rewriter
from partita.graph.types import Dim, TensorType
from partita.graph.writers.onnx import to_model

Weights = dict[str, np.ndarray]
"""Arrays by the name of the value."""


def zoo_names() -> list[str]:
    """The names of models for `zoo:NAME`."""
    return sorted(path.stem.removeprefix("light_") for path in _folder().glob("light_*.onnx"))


def load_zoo(name: str, shapes: Mapping[str, Sequence[Dim]] | None = None, inline: bool = False) -> Graph:
    """The model of that name. The weights of a name are the same everywhere; nodes are new at each call.
    With `shapes` of inputs it is read again with these, and with `inline` its functions are expanded then."""
    if name not in zoo_names():
        known = zoo_names()
        raise ReadError(
            f"there is no model {name!r} in the zoo",
            where=f"zoo:{name}",
            remedy=did_you_mean(name, known) or f"It has {', '.join(known)}",
        )
    graph = _with_weights(_light(name), _weights(name)).evolve(name=name)
    return load_onnx(to_model(graph), shapes=shapes, inline=inline) if shapes else graph


def _folder() -> Path:
    import onnx

    return Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


def _light(name: str) -> Graph:
    return load_onnx(_folder() / f"light_{name}.onnx")


@lru_cache(maxsize=4)
def _weights(name: str) -> Weights:
    graph = _light(name)
    drawn = {value.name: _draw(value, readers) for value, readers in _generated(graph).items()}
    drawn.update(_calibrated(_with_weights(graph, drawn)))
    for array in drawn.values():
        array.flags.writeable = False
    return drawn


def _generated(graph: Graph) -> dict[NodeEntry, list[tuple[Node, int]]]:
    """The constant-filled values, each with its final readers (through reshapes) and their input positions."""
    constants: dict[NodeEntry, list[tuple[Node, int]]] = {}
    origin: dict[NodeEntry, NodeEntry] = {}
    for node in graph.nodes:
        if node.op == "ConstantOfShape" or _is_uniform(node):
            constants[node[0]] = []
            origin[node[0]] = node[0]
        for i, entry in enumerate(node.inputs):
            if entry in origin and node.op in ("Unsqueeze", "Reshape"):
                origin[node[0]] = origin[entry]
            elif entry in origin:
                constants[origin[entry]].append((node, i))
    return constants


def _is_uniform(node: Node) -> bool:
    value = node.value
    return value is not None and value.dtype == np.float32 and value.size > 1 and bool((value == value.flat[0]).all())


def _shape(node: Node) -> tuple[int, ...]:
    if node.value is not None:
        return node.value.shape
    source = node.inputs[0]
    assert source is not None and source.node.value is not None
    return tuple(source.node.value.tolist())


def _draw(value: NodeEntry, readers: list[tuple[Node, int]]) -> np.ndarray:
    """New values of the weight, depending on its readers."""
    shape = _shape(value.node)
    random = np.random.default_rng(zlib.crc32(value.name.encode()))
    noise = random.standard_normal(shape, np.float32)
    for node, position in readers:
        if node.op in ("Conv", "Gemm", "MatMul") and position == 1:
            return noise * np.float32(np.sqrt(2 / _fan_in(node, shape)))
        if position in _SCALES.get(str(node.op), ()):
            return 1 + np.float32(0.1) * noise
        if (node.op, position) == ("BatchNormalization", 4):
            return np.float32(1) + noise * noise
    return np.float32(0.1) * noise


_SCALES = {"BatchNormalization": (1,), "Mul": (0, 1)}
"""For each op, its inputs that scale."""


def _fan_in(node: Node, shape: tuple[int, ...]) -> int:
    """Number of products per result."""
    if node.op == "Conv":
        return int(np.prod(shape[1:]))
    return shape[1] if node.attrs.get("transB") else shape[0]


def _with_weights(graph: Graph, weights: Mapping[str, np.ndarray]) -> Graph:
    """The graph with these arrays in place of the values of these names, and without the nodes that only made them."""
    rewriter = Rewriter(graph)
    dead = _shapes_alone(graph)
    for node in graph.nodes:
        if node in dead:
            continue
        if node.is_op or node.is_constant:
            array = weights.get(node.output_names[0])
            if array is not None:
                kind = (TensorType(array.dtype, array.shape),)
                rewriter.keep(node, node.evolve(op=CONSTANT, inputs=(), attrs={}, value=array, output_types=kind, metadata={}))
                continue
        rewriter.keep(node, node.evolve(metadata={}) if node.is_constant else None)
    return rewriter.finish()


def _shapes_alone(graph: Graph) -> set[Node]:
    """Constants that are only the shape of a generated weight, or that nothing reads."""
    index = graph.index
    kept = {entry.node for entry in graph.outputs}
    return {
        node
        for node, readers in zip(index.nodes, index.consumers, strict=True)
        if node.is_constant and node not in kept and all(index.nodes[i].op == "ConstantOfShape" for i in readers)
    }


def _calibrated(graph: Graph) -> Weights:
    """Weights from running the graph once on noise, in order: later ones depend on earlier ones."""
    weights: Weights = {}
    random = np.random.default_rng(0)
    values: dict[NodeEntry, np.ndarray] = {}
    for node in graph.nodes:
        if node.is_variable:
            kind = node.output_types[0]
            assert isinstance(kind, TensorType) and kind.shape is not None
            values[node[0]] = random.standard_normal(tuple(int(d or 1) for d in kind.shape), np.float32)
            continue
        read = [None if entry is None else values[entry] for entry in node.inputs]
        if node.op == "BatchNormalization":
            seen = read[0]
            assert seen is not None
            statistics = _statistics(seen)
            weights.update(zip((entry.name for entry in node.inputs[3:5] if entry), statistics, strict=True))
            read[3:5] = statistics
        values.update(zip(node.outputs, evaluate_node(node, read, graph.opsets), strict=True))
    weights.update(_tempered(graph, values))
    return weights


def _statistics(seen: np.ndarray) -> list[np.ndarray]:
    """Mean and variance of each channel."""
    return [seen.mean((0, 2, 3), dtype=np.float32), np.maximum(seen.var((0, 2, 3), dtype=np.float32), _FLOOR)]


def _tempered(graph: Graph, values: Mapping[NodeEntry, np.ndarray]) -> Weights:
    """Weights of the last layer, scaled to give a final softmax inputs with a deviation of one: a saturated one hides errors."""
    last = graph.outputs[0].node
    if last.op != "Softmax":
        return {}
    logits = last.inputs[0]
    layer = last
    while layer.op not in ("Conv", "Gemm"):
        source = layer.inputs[0]
        assert source is not None
        layer = source.node
    assert logits is not None
    scale = 1 / values[logits].std()
    return {entry.name: values[entry] * scale for entry in layer.inputs[1:] if entry is not None}


_FLOOR = np.float32(1e-3)
"""Minimum variance of a batch norm: a channel that is dead on the calibration input must not blow up on another."""
