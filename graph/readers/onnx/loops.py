"""Loop bodies that declare the iteration number as a vector of one element, which onnxruntime accepts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from partita.graph.readers.onnx.level import Level


def with_scalar(level: Level, node: Any, body: Any) -> Any:
    """The GraphProto with a scalar iteration number, which is reshaped to the declared vector."""
    if not body.input or len(body.input[0].type.tensor_type.shape.dim) != 1:
        return body
    from onnx.helper import make_node
    from onnx.numpy_helper import from_array

    changed = type(body)()
    changed.CopyFrom(body)
    turn = changed.input[0]
    cause = f"the body declares {turn.name!r} as a vector, and a Loop gives a scalar; the scalar is reshaped"
    level.reading.note(cause, level.reading.where(node), "Declare a scalar, with no dimension")
    name, shape = level.free_name(turn.name), level.free_name(f"{turn.name}_shape")
    nodes = [
        make_node("Constant", [], [shape], value=from_array(np.ones(1, np.int64))),
        make_node("Reshape", [name, shape], [turn.name]),
        *changed.node,
    ]
    turn.name = name
    del turn.type.tensor_type.shape.dim[:], changed.node[:]
    changed.node.extend(nodes)
    return changed
