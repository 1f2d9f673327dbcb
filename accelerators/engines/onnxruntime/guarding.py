"""Changes an engine's model where onnxruntime would return a partial result or uninitialized memory, or end the process.

onnxruntime keeps only 32 bits of TopK's count, and its Compress ignores a condition beyond the end of the
data. A count out of range becomes one that TopK refuses, and a Compress a Gather, whose indices are checked.
Some kernels write to omitted outputs, or read from them: these outputs get names, which nobody reads."""

from __future__ import annotations

from typing import Any

_INT32, _INT64 = 6, 7
_TOO_MANY = 2**31 - 1


def guard(model: Any) -> None:
    """Changes the ModelProto, including bodies. An added op is named after the one that it precedes."""
    _guard(model.graph)


def _guard(graph: Any) -> None:
    constant = {tensor.name for tensor in graph.initializer}
    constant |= {name for node in graph.node if node.op_type == "Constant" for name in node.output}
    nodes: list[Any] = []
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _guard(attribute.g)
        _name_outputs(node)
        if node.op_type == "TopK" and not node.domain and len(node.input) > 1 and node.input[1] not in constant:
            nodes += _top_k(node)
        elif node.op_type == "Compress" and not node.domain:
            nodes += _compress(node)
        else:
            nodes.append(node)
    if len(nodes) > len(graph.node):
        copied = [type(node).FromString(node.SerializeToString()) for node in nodes]
        del graph.node[:]
        graph.node.extend(copied)


def _name_outputs(node: Any) -> None:
    is_training = any(attribute.name == "training_mode" and attribute.i for attribute in node.attribute)
    has_past = len(node.input) > 3 and bool(node.input[3])
    if (node.op_type == "BatchNormalization" and is_training) or (node.op_type == "GroupQueryAttention" and has_past):
        node.output.extend([""] * (3 - len(node.output)))
    parts = [attribute.i for attribute in node.attribute if attribute.name == "num_outputs" and node.op_type == "Split"]
    node.output.extend([""] * (max(parts, default=0) - len(node.output)))
    first = next(filter(None, node.output), node.name)
    for i, name in enumerate(node.output):
        node.output[i] = name or f"{first}_unread{i}"


class _Before:
    """Ops to insert before a node."""

    def __init__(self, node: Any) -> None:
        self.nodes: list[Any] = []
        self._prefix = node.name or node.output[0]

    def op(self, name: str, *inputs: str, **attributes: Any) -> str:
        """Adds an op, and returns the name of its value."""
        from onnx.helper import make_node

        value = f"{self._prefix}_guard{len(self.nodes)}"
        self.nodes.append(make_node(name, inputs, [value], value, **attributes))
        return value

    def numbers(self, *values: int) -> str:
        """Adds a constant of integers."""
        from onnx.helper import make_tensor

        return self.op("Constant", value=make_tensor("", _INT64, [len(values)], values))


def _top_k(node: Any) -> list[Any]:
    before = _Before(node)
    count = node.input[1]
    kept = before.op("Cast", before.op("Cast", count, to=_INT32), to=_INT64)
    fits = before.op("Equal", kept, count)
    node.input[1] = before.op("Where", fits, count, before.numbers(_TOO_MANY))
    return [*before.nodes, node]


def _compress(node: Any) -> list[Any]:
    before = _Before(node)
    data, condition = node.input
    chosen = before.op("Reshape", before.op("NonZero", condition), before.numbers(-1))
    if not node.attribute:  # without an axis it selects among all elements
        data = before.op("Reshape", data, before.numbers(-1))
    node.op_type = "Gather"
    del node.input[:]
    node.input.extend([data, chosen])
    return [*before.nodes, node]
