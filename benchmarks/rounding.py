"""Where quantized convolutions differ from ONNX's reference, layer by layer, each given the reference's own inputs.

    python -m benchmarks.rounding [--models NAME ...] [--layers N]

How many of the bytes that a layer makes are not those of the reference, in three ways to compute it. `one step` multiplies the
exact sum once, by the scales of image and weights over that of the result, as Partita and onnxruntime do; `two steps` multiplies
by the one and divides by the other in float32, as the graph says; `exact` is the graph's answer without any rounding before the
last. What differs there is what the reference itself has rounded on the way."""

from __future__ import annotations

import argparse

import attrs
import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

import partita as pt
from benchmarks.closeness import ZOO
from benchmarks.models.files import model
from benchmarks.models.quantized import quantized_model
from benchmarks.progress import Progress, run
from partita.graph.graph import Graph
from partita.graph.interpret import interpret
from partita.graph.node import Node, NodeEntry
from partita.graph.types import Array

TWO = ["squeezenet", "resnet50"]
"""The models that are measured unless others are asked for."""

SEED = 5
"""Of the inputs."""


@attrs.frozen(slots=True)
class Layer:
    """A convolution between DequantizeLinear and QuantizeLinear."""

    conv: Node
    rounding: Node
    """The QuantizeLinear that reads it, perhaps by way of Relu."""
    has_relu: bool

    @property
    def image(self) -> Node:
        """The DequantizeLinear of the image."""
        assert self.conv.inputs[0] is not None
        return self.conv.inputs[0].node


def main() -> None:
    """A table of the models."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=TWO, choices=ZOO, metavar="NAME", help=", ".join(ZOO))
    parser.add_argument("--layers", type=int, default=12, help="how many of each model, from the first on")
    args = parser.parse_args()
    progress = Progress(len(args.models), "model")
    print("| model | bytes | one step | two steps | exact |\n|---|---|---|---|---|")
    for name in args.models:
        progress.step(name)
        print(f"| {name} | {' | '.join(f'{count:,}' for count in differences(name, args.layers))} |", flush=True)


def differences(name: str, most: int) -> list[int]:
    """How many bytes the first layers make, and how many are not the reference's in each way."""
    graph = pt.apply_pass(pt.load(quantized_model(name).path), "InferShape")
    layers = layers_of(graph)[:most]
    wanted = list(dict.fromkeys(e for layer in layers for e in (layer.image.reads[0], layer.rounding[0])))
    inputs = model(name).inputs(SEED)
    seen = Graph(wanted, graph.inputs, graph.name, graph.opsets)
    values = dict(zip(wanted, map(np.asarray, interpret(seen, [inputs[node.name] for node in graph.inputs])), strict=True))
    total = np.zeros(4, np.int64)
    for layer in layers:
        total += _differing(layer, values[layer.image.reads[0]], values[layer.rounding[0]])
    return total.tolist()


def layers_of(graph: Graph) -> list[Layer]:
    """The convolutions without groups between DequantizeLinear and QuantizeLinear, in order."""
    readers: dict[NodeEntry, list[Node]] = {}
    for node in graph.nodes:
        for entry in node.reads:
            readers.setdefault(entry, []).append(node)
    layers = []
    for node in graph.nodes:
        if node.op != "Conv" or node.attrs.get("group", 1) != 1 or any(e.node.op != "DequantizeLinear" for e in node.reads):
            continue
        after = readers.get(node[0], [])
        relu = after[0] if len(after) == 1 and after[0].op == "Relu" else None
        last = [one for one in (readers.get(relu[0], []) if relu else after) if one.op == "QuantizeLinear"]
        if last and node.attrs.get("auto_pad", "NOTSET") == "NOTSET":
            layers.append(Layer(node, last[0], relu is not None))
    return layers


def _differing(layer: Layer, image: Array, wanted: Array) -> list[int]:
    """The number of bytes, and how many differ in each way."""
    scale, into = (_scaling(node)[0] for node in (layer.image, layer.rounding))
    weights = layer.conv.reads[1].node
    by_channel = _scaling(weights)[0].reshape(-1, 1, 1)
    sums, point = _sums(layer, image), float(_scaling(layer.rounding)[1])
    narrow, product = sums.astype(np.float32), scale * by_channel
    least = -np.inf if not layer.has_relu else 0.0
    range_ = np.iinfo(wanted.dtype)
    numbers = (
        np.maximum(narrow * (product / into), least),
        np.maximum(narrow * product, least) / into,
        np.maximum(sums * (scale.astype(np.float64) * by_channel / into), least),
    )
    bytes_ = [np.clip(np.rint(number) + point, range_.min, range_.max) for number in numbers]
    return [wanted.size, *(int((one != wanted).sum()) for one in bytes_)]


def _sums(layer: Layer, image: Array) -> Array:
    """The exact sums of products, with the bias."""
    conv, point = layer.conv, float(_scaling(layer.image)[1])
    down, across = conv.attrs.get("strides", (1, 1))
    top, left, bottom, right = conv.attrs.get("pads", (0, 0, 0, 0))
    weights = _constant(conv.reads[1].node.reads[0]).astype(np.float64)
    padded = np.pad(image.astype(np.float64) - point, ((0, 0), (0, 0), (top, bottom), (left, right)))
    windows = sliding_window_view(padded, weights.shape[2:], axis=(2, 3))[:, :, ::down, ::across]
    sums = np.einsum("nchwij,ocij->nohw", windows, weights, optimize=True)
    return sums + _constant(conv.reads[2].node.reads[0]).reshape(-1, 1, 1) if len(conv.reads) > 2 else sums


def _scaling(node: Node) -> tuple[Array, Array]:
    """The scale and the zero point of a QuantizeLinear or DequantizeLinear."""
    scale, *point = [_constant(entry) for entry in node.reads[1:]]
    return scale, point[0] if point else np.zeros((), np.uint8)


def _constant(entry: NodeEntry) -> Array:
    assert entry.node.value is not None
    return entry.node.value


if __name__ == "__main__":
    run(main)
