"""Small models as bytes, and sessions with Partita's provider in front."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

import partita as pt

ROOT = Path(__file__).resolve().parents[2]

CPU = "CPUExecutionProvider"


def model(
    nodes: Sequence[onnx.NodeProto], inputs: dict[str, Any], outputs: Sequence[str],
    constants: dict[str, np.ndarray] | None = None, opset: int = 21, dtype: int = TensorProto.FLOAT,
) -> bytes:
    """A model; the inputs' shapes may hold names. Outputs have no declared type."""
    graph = helper.make_graph(
        list(nodes), "net",
        [helper.make_tensor_value_info(name, dtype, shape) for name, shape in inputs.items()],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [onnx.numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10).SerializeToString()


def chain(*ops: str, shape: Sequence[Any] = ("n", 8)) -> bytes:
    """x -> op -> op -> ... -> y."""
    names = ["x", *(f"v{i}" for i in range(1, len(ops))), "y"]
    nodes = [helper.make_node(op, [names[i]], [names[i + 1]], name=f"{op}_{i}") for i, op in enumerate(ops)]
    return model(nodes, {"x": shape}, ["y"])


@contextmanager
def provider(devices: str = "reference", name: str = "Tested", **options: Any) -> Iterator[str]:
    """A registered provider's name."""
    registered = pt.register_with_onnxruntime(name, devices, **options)
    try:
        yield registered
    finally:
        onnxruntime.unregister_execution_provider_library(registered)


def session(content: bytes, name: str, given: dict[str, str] | None = None, settings: Any = None) -> onnxruntime.InferenceSession:
    """A session with this provider in front, whose assignment is recorded and whose graph stays as it is."""
    settings = settings or onnxruntime.SessionOptions()
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    settings.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    settings.log_severity_level = 4
    settings.add_provider_for_devices(devices_of(name), given or {})
    return onnxruntime.InferenceSession(content, settings, enable_fallback=0)


def devices_of(name: str) -> list[onnxruntime.OrtEpDevice]:
    """onnxruntime's devices of a provider."""
    return [device for device in onnxruntime.get_ep_devices() if device.ep_name == name]


def assigned(running: onnxruntime.InferenceSession, name: str) -> list[list[str]]:
    """The ops of each subgraph that this provider has."""
    info = running.get_provider_graph_assignment_info()
    return [[node.op_type for node in one.get_nodes()] for one in info if one.ep_name == name]
