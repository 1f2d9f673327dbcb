"""Reading MXNet: symbols in JSON, parameters in MXNet's binary form, and the table from MXNet's ops to ONNX's."""

from partita.graph.readers.mxnet.conversion import Conversion
from partita.graph.readers.mxnet.load import load_mxnet
from partita.graph.readers.mxnet.ops import converter, meant_by, onnx_ops
from partita.graph.readers.mxnet.params import read_params

__all__ = ["Conversion", "converter", "load_mxnet", "meant_by", "onnx_ops", "read_params"]
