"""Models that other programs keep, and how each becomes one that Partita reads: the remedies of errors."""

from __future__ import annotations

import os
from typing import Any

TORCH = (
    "Load the module with torch, then pt.from_torch(module, example_inputs) makes a graph of it (pip install 'partita[torch]'), "
    "or torch.onnx.export(module, example_inputs, 'model.onnx', dynamo=True) an ONNX file"
)
"""Remedy: ways to import a torch module."""

TENSORFLOW = "Convert it to ONNX: python -m tf2onnx.convert (pip install tf2onnx)"
OPENVINO = "OpenVINO writes no ONNX: give the ONNX file or the torch module that this was converted from"

FILES: dict[str, tuple[str, str]] = {
    ".tflite": ("a file of LiteRT's", TENSORFLOW + " --tflite model.tflite --output model.onnx"),
    ".pb": ("a file of TensorFlow's", TENSORFLOW + " --graphdef model.pb --output model.onnx"),
    ".h5": ("a file of Keras'", "Load it with keras, then model.export('model.onnx', format='onnx') writes an ONNX file"),
    ".keras": ("a file of Keras'", "Load it with keras, then model.export('model.onnx', format='onnx') writes an ONNX file"),
    ".safetensors": ("a file of weights alone", "Load them into their module. " + TORCH),
    ".gguf": ("a file of llama.cpp's", "Export the original model: optimum-cli export onnx (pip install optimum-onnx)"),
    ".xml": ("a file of OpenVINO's", OPENVINO),
    ".engine": ("a file of TensorRT's", "Give the ONNX file that it was built from"),
    ".mlmodel": ("a file of Core ML's", "Give the ONNX file or the torch module that it was converted from"),
    ".partita": ("a compiled model", "pt.import_model reads it"),
}
"""Formats by the ending of a file: a name, and the remedy."""

OBJECTS: dict[str, str] = {
    "openvino": OPENVINO,
    "tvm": "Partita compiles models, and calls TVM itself: give the ONNX file or the torch module that this was imported from",
    "onnxruntime": "Give the ONNX file of the session: pt.compile(path, 'onnxruntime')",
    "tensorflow": TENSORFLOW,
    "keras": FILES[".keras"][1],
    "jax": "Export it to ONNX with jax2onnx (pip install jax2onnx)",
}
"""Remedies by the package of an object's class."""


def format_of(path: str) -> tuple[str, str] | tuple[None, None]:
    """The name of the format that a file has by its ending, and the remedy."""
    return FILES.get(os.path.splitext(path)[1].lower(), (None, None))


def remedy_for(given: Any) -> str | None:
    """The remedy for an object that is not a model to Partita; None if nothing is known of its class."""
    packages = (cls.__module__.partition(".")[0] for cls in type(given).__mro__)
    return next((OBJECTS[package] for package in packages if package in OBJECTS), None)


def holds_torch(path: str) -> bool:
    """True for a file written by torch.save or torch.export.save, by its name and first bytes (a zip archive or a pickle)."""
    if not path.lower().endswith((".pt", ".pth", ".pt2")):
        return False
    try:
        with open(path, "rb") as file:
            return file.read(2) in (b"PK", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
    except OSError:
        return False
