"""Engines as devices: the reference, onnxruntime and OpenVINO, and code shared by those that take ONNX models."""
