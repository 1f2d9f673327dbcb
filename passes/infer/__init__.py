"""The types of all values, by ONNX's inference, and what the ops of a graph require of the sizes of its inputs."""

from passes.infer.types import infer, with_missing_types, without_declared

__all__ = ["infer", "with_missing_types", "without_declared"]
