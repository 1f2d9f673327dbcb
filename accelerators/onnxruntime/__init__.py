"""The device `onnxruntime`: Microsoft's engine, with any of its execution providers."""

from accelerators.onnxruntime.device import OnnxRuntimeAccelerator

__all__ = ["OnnxRuntimeAccelerator"]
