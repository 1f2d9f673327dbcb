"""Partita's devices as an execution provider in an unmodified onnxruntime."""
