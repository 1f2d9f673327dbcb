"""PyTorch modules: `from_torch` exports one through `torch.onnx.export` and reads the resulting ONNX model.

The exporter works in memory and writes no file. torch itself is loaded on the first call only."""

from __future__ import annotations

import logging
import math
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from importlib.util import find_spec
from io import StringIO
from typing import TYPE_CHECKING, Any, Never, TypeAlias

import numpy as np

from partita.graph.build import constant, op
from partita.graph.errors import MissingDependency, ReadError, unexpected
from partita.graph.graph import Graph
from partita.graph.readers.onnx import load_onnx
from partita.graph.readers.torch_ops import translations
from partita.graph.rewrite import Rewriter, map_bodies, rewrite
from partita.graph.types import TensorType, numpy_dtype

if TYPE_CHECKING:
    import torch
    from onnx import ModelProto

    from partita.graph.node import Node

    TorchSource: TypeAlias = torch.nn.Module | torch.export.ExportedProgram

__all__ = ["from_torch"]


_DYNAMIC = "Name the sizes that vary: dynamic_shapes={'x': {0: 'batch'}}"
_NAMES = "The graph has the names of forward's arguments and results; output_names of pt.Graph(...) gives others"

EXPORT_OPTIONS: dict[str, str] = {
    "dynamic_axes": _DYNAMIC, "dynamic": _DYNAMIC, "opset_version": "It is opset", "args": "It is example_inputs",
    "inputs": "It is example_inputs", "input_names": _NAMES, "output_names": _NAMES,
}
"""Hints by the names of options that torch's exporters have."""


def from_torch(
    module: TorchSource,
    example_inputs: Any = None,
    *,
    name: str | None = None,
    opset: int | None = None,
    dynamic_shapes: Any = None,
    **foreign: Never,
) -> Graph:
    """The graph of a PyTorch module in evaluation mode; the module itself is not changed.

    `example_inputs` are the module's arguments: one tensor, a sequence of positional arguments, or a
    mapping of keyword arguments; NumPy arrays are converted to tensors. Their sizes become the graph's, except those in
    `dynamic_shapes`, in torch's notation: `{"x": {0: "batch"}}`. Without `opset` torch chooses one. A
    `torch.export.ExportedProgram` contains all of that, and needs no inputs.

        g = pt.from_torch(torchvision.models.resnet18(), torch.randn(1, 3, 224, 224))"""
    if foreign:
        raise unexpected("from_torch", foreign, EXPORT_OPTIONS)
    model = export(module, example_inputs, opset=opset, dynamic_shapes=dynamic_shapes)
    # Deferred: the ONNX reader loads onnx, and importing the front door must not.

    model.graph.name = name or type(module).__name__
    return _as_torch_computes(load_onnx(model))


def export(
    module: TorchSource,
    example_inputs: Any = None,
    *,
    opset: int | None = None,
    dynamic_shapes: Any = None,
) -> ModelProto:
    """The ONNX model of the module, by torch's exporter."""
    for package in ("torch", "onnxscript"):
        if find_spec(package) is None:
            raise MissingDependency(package, "torch", "reading a PyTorch module")
    import torch

    where = type(module).__name__
    if not isinstance(module, torch.nn.Module | torch.export.ExportedProgram):
        raise ReadError(
            f"{where!r} object is not a torch.nn.Module",
            where="from_torch",
            remedy="Pass the module itself, not its class, its state_dict or its output",
        )
    if example_inputs is None and isinstance(module, torch.nn.Module):
        raise ReadError(
            "a module is exported by calling it, and there are no example_inputs",
            where=where,
            remedy="Pass what the module is called with: a tensor, a sequence of arguments, or a mapping of them by name",
        )
    args, kwargs = ((), {}) if example_inputs is None else call_arguments(example_inputs)
    try:
        with evaluation_mode(module), quiet_exporter():
            program = torch.onnx.export(
                module,
                args,
                kwargs=kwargs,
                dynamo=True,
                verbose=False,
                opset_version=opset,
                dynamic_shapes=dynamic_shapes,
                custom_translation_table=translations(opset),
            )
    except Exception as error:
        raise ReadError(
            f"torch could not export the module: {first_lines(error)}",
            where=where,
            remedy="Check that the module runs on example_inputs; torch's whole message is chained to this error",
        ) from error
    assert program is not None  # only the older, file-writing exporter returns nothing
    cause = lost(program.exported_program)
    if cause is not None:
        raise ReadError(cause, where=where, remedy="Write the module without it")
    return program.model_proto


LOST: Mapping[tuple[str, str], Callable[[Mapping[str, Any]], bool]] = {
    ("aten::avg_pool2d", "divisor_override"): lambda given: given.get("divisor_override") is not None,
    ("aten::avg_pool3d", "divisor_override"): lambda given: given.get("divisor_override") is not None,
    ("aten::scatter_reduce", "reduce"): lambda given: bool(given["reduce"] == "mean"),
    ("aten::_upsample_bilinear2d_aa", "align_corners"): lambda given: bool(given["align_corners"]),
    ("aten::_upsample_bicubic2d_aa", "align_corners"): lambda given: bool(given["align_corners"]),
    ("aten::cross_entropy_loss", "label_smoothing"): lambda given: bool(given.get("label_smoothing")),
    ("aten::cross_entropy_loss", "target"): lambda given: bool(given["target"].meta["val"].is_floating_point()),
    ("aten::instance_norm", "running_mean"): lambda given: given["running_mean"] is not None and bool(given["use_input_stats"]),
}
"""Tests, by argument that torch's exporter drops, misreads or does not write to, whether it does so for these arguments."""


def lost(program: torch.export.ExportedProgram | None) -> str | None:
    """Describes the first argument that torch's exporter dropped or changed, or None."""
    for node in program.graph.nodes if program is not None else ():
        schema = getattr(node.target, "_schema", None)
        if schema is None:
            continue
        given = dict(zip((argument.name for argument in schema.arguments), node.args)) | dict(node.kwargs)
        for name, value in given.items():
            if (schema.name, name) in LOST and LOST[schema.name, name](given):
                return f"torch's exporter drops {name} of {schema.name}"
            if isinstance(value, float) and value == 0 and math.copysign(1, value) < 0:
                return f"torch's exporter may write 0.0 for the -0.0 that {schema.name} is given as {name}"
    return None


def _as_torch_computes(graph: Graph) -> Graph:
    """The graph with ops replaced that torch's exporter writes although ONNX defines them differently.

    torch aligns corners by the sizes of the image and the result, ONNX's reference by the scale, which may not give an integer
    size. The sign of NaN is 0 in torch, and NaN in ONNX. torch ignores updates that lie beyond the indices, ONNX has none."""
    def visit(node: Node, rewriter: Rewriter) -> None:
        rebuilt = map_bodies(rewriter.rebuilt(node), _as_torch_computes)
        result = node[0].type if node.is_op else None
        if node.op == "Resize" and not node.domain and _aligns_corners_by_scales(node):
            image, scales = rebuilt.inputs[0], rebuilt.inputs[2]
            assert image is not None and scales is not None
            if isinstance(result, TensorType) and result.shape is not None and result.is_static:
                sizes = rewriter.keep(constant(np.asarray(result.shape, np.int64)))
            else:
                shape = rewriter.keep(op("Cast", rewriter.keep(op("Shape", image)), to="float32"))
                sizes = rewriter.keep(op("Floor", rewriter.keep(op("Mul", shape, scales))))
                sizes = rewriter.keep(op("Cast", sizes, to="int64"))
            rebuilt = rebuilt.evolve(inputs=(image, None, None, sizes[0]))
        elif node.op == "Sign" and not node.domain and isinstance(result, TensorType) and "float" in result.dtype:
            value = rebuilt.inputs[0]
            assert value is not None
            zero = rewriter.keep(constant(np.zeros((), numpy_dtype(result.dtype))))
            is_nan, sign = rewriter.keep(op("IsNaN", value)), rewriter.keep(op("Sign", value))
            rebuilt = rebuilt.evolve(op="Where", inputs=(is_nan[0], zero[0], sign[0]))
        elif node.op == "ScatterElements" and not node.domain:
            data, indices, updates = rebuilt.inputs
            known, given = (entry.type.shape if isinstance(entry.type, TensorType) else None for entry in node.reads[1:])
            if known and known != given:
                start = rewriter.keep(constant(np.zeros(len(known), np.int64)))
                updates = rewriter.keep(op("Slice", updates, start, rewriter.keep(op("Shape", indices))))[0]
                rebuilt = rebuilt.evolve(inputs=(data, indices, updates))
        rewriter.keep(node, rebuilt)

    return rewrite(graph, visit)


def _aligns_corners_by_scales(node: Node) -> bool:
    scales = node.inputs[2] if len(node.inputs) == 3 else None
    if node.attrs.get("coordinate_transformation_mode") != "align_corners" or scales is None or scales.node.value is None:
        return False
    return bool((scales.node.value % 1).any())


def is_torchs(value: object) -> bool:
    """True for a module of torch's, or a program that torch exported. Does not load torch."""
    module = getattr(getattr(sys.modules.get("torch"), "nn", None), "Module", None)  # Another thread may be importing torch.
    return module is not None and (isinstance(value, module) or type(value).__name__ == "ExportedProgram")


def call_arguments(example_inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The positional and keyword arguments in the caller's example."""
    if isinstance(example_inputs, Mapping):
        return (), {name: as_tensor(value) for name, value in example_inputs.items()}
    if isinstance(example_inputs, Sequence):
        return tuple(as_tensor(value) for value in example_inputs), {}
    return (as_tensor(example_inputs),), {}


def as_tensor(value: Any) -> Any:
    """NumPy arrays as tensors; anything else unchanged."""
    import torch

    return torch.from_numpy(value.copy()) if isinstance(value, np.ndarray) else value


@contextmanager
def evaluation_mode(module: Any) -> Iterator[None]:
    """Puts dropout and batch norm into evaluation mode, and restores each submodule's training flag."""
    import torch

    submodules = list(module.modules()) if isinstance(module, torch.nn.Module) else []
    flags = [submodule.training for submodule in submodules]
    try:
        # Set one by one: a module may override train() and do more than change the flag.
        for submodule in submodules:
            submodule.training = False
        yield
    finally:
        for submodule, flag in zip(submodules, flags, strict=True):
            submodule.training = flag


@contextmanager
def quiet_exporter() -> Iterator[None]:
    """Suppresses the exporter's own log messages; failures are raised as errors.

    All logging is off meanwhile: the exporter puts new handlers on torch's loggers each time it runs. One thread exports
    at a time, and torch.compile captures no graph meanwhile: torch keeps its tracing state in variables of the process."""
    from torch._dynamo.convert_frame import compile_lock

    with compile_lock:
        disabled = logging.root.manager.disable
        logging.disable(logging.CRITICAL)
        try:
            with warnings.catch_warnings(), redirect_stderr(StringIO()):
                for category in (DeprecationWarning, FutureWarning):
                    warnings.simplefilter("ignore", category)
                warnings.filterwarnings("ignore", module=r"torch\.(onnx|export)\b")
                yield
        finally:
            logging.disable(disabled)


SHOWN = 300
"""The most characters of a message of torch that are shown."""


def first_lines(error: Exception) -> str:
    """torch's message, truncated; the exporter adds pages of advice to its errors."""
    cause = error.__cause__ or error
    text = " ".join(str(cause).split())
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"
