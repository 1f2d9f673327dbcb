"""Types of all values by ONNX's inference, and the requirements of a graph's ops on the sizes of its inputs."""

from partita.passes.infer.types import infer, replaced_types, with_missing_types, without_declared

__all__ = ["infer", "replaced_types", "with_missing_types", "without_declared"]
