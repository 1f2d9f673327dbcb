"""Small ONNX models for the tests, in ONNX's own text form."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser

HEAD = '<ir_version: 10, opset_import: ["" : 21, "my" : 1]>\n'


def model(text: str, head: str = HEAD) -> Any:
    """The ModelProto of this text."""
    return onnx.parser.parse_model(head + text)


LINE = "net (float[2,3] x) => (float[2,3] y) { t = Relu(x)  y = Neg(t) }"

NESTED = """
net (bool c, float[3] x) => (float[3] y) {
  s = Neg(x)
  y = If (c) <
    then_branch = outer () => (float[3] a) {
      a = If (c) <
        then_branch = inner () => (float[3] b) { b = Add(s, x) },
        else_branch = other () => (float[3] d) { d = Identity(s) }
      >
    },
    else_branch = right () => (float[3] e) { e = Mul(x, x) }
  >
}"""

FUNCTIONS = """
net (float[3] x) => (float[3] y, float[3] z) {
  y = my.twice <alpha: float = 0.5> (x)
  z = my.twice (y)
}
<domain: "my", opset_import: ["" : 21]>
leak <alpha> (a) => (b) { b = LeakyRelu <alpha: float = @alpha> (a) }
<domain: "my", opset_import: ["" : 21, "my" : 1]>
twice <alpha: float = 0.25> (a) => (b) { m = my.leak <alpha: float = @alpha> (a)  b = my.leak <alpha: float = @alpha> (m) }
"""


def run_reference(proto: Any, *inputs: Any) -> list[Any]:
    """The model's results in ONNX's reference evaluator."""
    from onnx.reference import ReferenceEvaluator

    names = [item.name for item in proto.graph.input]
    return list(ReferenceEvaluator(proto).run(None, dict(zip(names, inputs, strict=True))))


def run_engine(proto: Any, *inputs: Any) -> list[Any]:
    """The model's results in onnxruntime."""
    import onnxruntime

    session = onnxruntime.InferenceSession(proto.SerializeToString())
    names = [item.name for item in session.get_inputs()]
    return list(session.run(None, dict(zip(names, inputs, strict=True))))


def same(a: list[Any], b: list[Any]) -> bool:
    """Bit for bit?"""
    return len(a) == len(b) and all(x.dtype == y.dtype and x.tobytes() == y.tobytes() for x, y in zip(a, b, strict=True))


X = np.array([-1.0, 0.5, 2.0], np.float32)
