"""The device `onnxruntime`: Microsoft's engine, with any of its execution providers."""

from typing import TYPE_CHECKING

from partita.graph.cached_property import lazily

if TYPE_CHECKING:
    from partita.accelerators.engines.onnxruntime.device import OnnxRuntimeAccelerator

__all__ = ["OnnxRuntimeAccelerator"]

__getattr__ = lazily(__name__, {"partita.accelerators.engines.onnxruntime.device": "OnnxRuntimeAccelerator"})
