"""The types of all values, by ONNX's inference, and what the ops of a graph require of the sizes of its inputs."""

from partita.passes.infer.types import infer, replaced_types, with_missing_types, without_declared

__all__ = ["infer", "replaced_types", "with_missing_types", "without_declared"]
