"""Writes tests/data/torch/: each sample of tests/torch_modules.py as torch exports it, with inputs and torch's outputs.

    python -m tests.make_torch_exports        (in the environment that `make check-all` builds)

NAME.onnx comes from torch's present exporter, NAME.script.onnx from the older one that traces TorchScript, with an older
opset, so that LayerNormalization and Gelu arrive in pieces. NAME.npz holds both ends of the truth.
"""

from __future__ import annotations

import io
import logging
import warnings
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch

from tests.torch_modules import SAMPLES, Sample, sample

FOLDER = Path(__file__).parent / "data" / "torch"
TOLERANCE = 1e-5
TRACED = ("bert", "vit")  # of the transformers, those that the older exporter can still take


def main() -> None:
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in SAMPLES:
        result = sample(name)
        outputs = [value.numpy() for value in result.expected()]
        inputs = {key: value.numpy() for key, value in result.inputs.items()}
        write(f"{name}.onnx", exported(result), inputs, outputs)
        if name in TRACED:
            write(f"{name}.script.onnx", traced(result), inputs, outputs)
        arrays = {f"in:{key}": value for key, value in inputs.items()}
        arrays |= {f"out:{index}": value for index, value in enumerate(outputs)}
        np.savez_compressed(FOLDER / f"{name}.npz", **arrays)


def exported(sample: Sample) -> onnx.ModelProto:
    program = torch.onnx.export(
        sample.module, (), kwargs=sample.inputs, dynamo=True, verbose=False, dynamic_shapes=sample.dynamic
    )
    return program.model_proto


def traced(sample: Sample) -> onnx.ModelProto:
    written = io.BytesIO()
    torch.onnx.export(
        Positional(sample),
        tuple(sample.inputs.values()),
        written,
        dynamo=False,
        opset_version=14,
        input_names=list(sample.inputs),
    )
    return onnx.load_model_from_string(written.getvalue())


class Positional(torch.nn.Module):
    """The sample's module taking its inputs by position, which is all that the older exporter can pass."""

    def __init__(self, sample: Sample) -> None:
        super().__init__()
        self.module = sample.module
        self.names = list(sample.inputs)

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        outputs = self.module(**dict(zip(self.names, inputs, strict=True)))
        return tuple(outputs.to_tuple())


def write(name: str, model: onnx.ModelProto, inputs: dict[str, np.ndarray], outputs: list[np.ndarray]) -> None:
    forget_origins(model)
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    result = session.run(None, inputs)
    worst = max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in zip(result, outputs, strict=True))
    if worst > TOLERANCE:
        raise SystemExit(f"{name}: onnxruntime and torch differ by {worst:.2e}")
    (FOLDER / name).write_bytes(model.SerializeToString(deterministic=True))
    ops = sorted({node.op_type for node in model.graph.node})
    print(f"{name}: {model.ByteSize() // 1000} kB, opset {model.opset_import[0].version}, off by {worst:.1e}, {ops}")


def forget_origins(model: onnx.ModelProto) -> None:
    """Drops the exporter's notes, which hold stack traces with paths of the machine at hand."""
    holders = [model, model.graph, *model.functions]
    while holders:
        holder = holders.pop()
        holder.doc_string = ""
        if hasattr(holder, "metadata_props"):
            del holder.metadata_props[:]
        if isinstance(holder, onnx.GraphProto):
            holders += [*holder.input, *holder.output, *holder.value_info, *holder.initializer]
        if isinstance(holder, onnx.GraphProto | onnx.FunctionProto):
            holders += holder.node
        if isinstance(holder, onnx.NodeProto):
            holders += [attribute.g for attribute in holder.attribute if attribute.HasField("g")]


if __name__ == "__main__":
    main()
