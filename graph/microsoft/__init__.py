"""onnxruntime's own ops (`com.microsoft`), as its quantizer and optimizer write them, each expressed as a graph of ONNX's ops."""

from partita.graph.body_builder import NoBody, types_of
from partita.graph.microsoft import attention, fused, grouped, quantized
from partita.graph.microsoft.table import DOMAIN, body_of, is_known, needed_opset, result_types, why_none, why_unknown

__all__ = [
    "DOMAIN", "NoBody", "attention", "body_of", "fused", "grouped", "is_known", "needed_opset", "quantized", "result_types",
    "types_of", "why_none", "why_unknown",
]
