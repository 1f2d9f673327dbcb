"""How close quantized models come to ONNX's reference, beside onnxruntime.

    python -m benchmarks.closeness [--models NAME ...] [--seeds N ...]

The light models of the zoo in QDQ form, up to the logits before a last Softmax, and each answer against what ONNX's reference
makes of the same file: the largest and the mean difference over all inputs, in steps of the last quantization. The last column is
how far the reference's own answer moves if the input is multiplied by 1.000001, which lets some roundings fall the other way."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

import attrs
import numpy as np

import partita as pt
from benchmarks.models.files import model
from benchmarks.models.quantized import quantized_model
from benchmarks.progress import Progress, run
from partita.graph.interpret import interpret

ZOO = "bvlc_alexnet densenet121 inception_v1 inception_v2 resnet50 shufflenet squeezenet vgg19 zfnet512".split()

NEAR = np.float32(1 + 1e-6)
"""What an input is multiplied by to see how far the reference moves."""


@attrs.frozen
class Distance:
    """How far answers are from the reference's, in steps."""

    largest: float
    mean: float

    def __str__(self) -> str:
        return f"{self.largest:.0f}, {self.mean:.3f}"


def main() -> None:
    """A table of the models."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=ZOO, choices=ZOO, metavar="NAME", help=", ".join(ZOO))
    parser.add_argument("--seeds", nargs="+", type=int, default=[5, 6], help="of the inputs")
    args = parser.parse_args()
    progress = Progress(len(args.models), "model")
    print("| model | Partita | onnxruntime | the reference, of inputs times 1.000001 |\n|---|---|---|---|")
    for name in args.models:
        progress.step(name)
        print(f"| {name} | {' | '.join(map(str, distances(name, args.seeds)))} |", flush=True)


def distances(name: str, seeds: Sequence[int]) -> list[Distance]:
    """How far Partita, onnxruntime and the reference itself are from the reference."""
    import onnxruntime

    graph = _logits(pt.load(quantized_model(name).path))
    calls = [model(name).inputs(seed) for seed in seeds]
    ours = pt.compile(graph, "cpu")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "logits.onnx"
        pt.save(graph, path)
        theirs = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    ways = (
        lambda inputs: ours(inputs)[0],
        lambda inputs: theirs.run(None, inputs)[0],
        lambda inputs: _reference(graph, {key: array * NEAR for key, array in inputs.items()}),
    )
    wanted = [_reference(graph, inputs) for inputs in calls]
    step = min(float(np.diff(np.unique(answer)).min()) for answer in wanted)
    apart = [np.concatenate([np.abs(way(x) - y).ravel() for x, y in zip(calls, wanted)]) / step for way in ways]
    return [Distance(float(difference.max()), float(difference.mean())) for difference in apart]


def _reference(graph: pt.Graph, inputs: dict[str, np.ndarray]) -> np.ndarray:
    return np.asarray(interpret(graph, [inputs[node.name] for node in graph.inputs])[0])


def _logits(graph: pt.Graph) -> pt.Graph:
    """The model up to its last Softmax."""
    typed = pt.apply_pass(graph, "InferShape")
    ends = [node for node in typed.nodes if node.op == "Softmax"]
    output = ends[-1].inputs[0] if ends else typed.outputs[0]
    assert output is not None
    return pt.Graph([output], typed.inputs, typed.name, typed.opsets)


if __name__ == "__main__":
    run(main)
