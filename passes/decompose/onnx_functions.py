"""The functions by which ONNX defines ops, if they mean the same at the graph's opset.

Two of them are corrected. Negative labels of a loss name no class, while other negative indices count from the end. Attention
returns zeros for a query that sees no key: its body clears that row of weights before the product. A fused attention kernel
computes softmax and product together; therefore the row is cleared after the product, where it is as long as a head and not as
all keys. So it is zero even if a value is not finite. If nothing hides a key, no row is cleared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from partita.graph.body_builder import BodyBuilder
from partita.graph.build import variable
from partita.graph.errors import PartitaError
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.graph.numerics.evaluate import defaults
from partita.graph.ops.traits import ops
from partita.graph.protos import write_type
from partita.graph.readers.onnx import load_onnx
from partita.graph.rewrite import Rewriter, rewrite
from partita.graph.single_node import graph_of_node
from partita.graph.types import TensorType, numpy_dtype
from partita.graph.writers.onnx.model import to_model

NO_CLASS = np.iinfo(np.int32).max
"""Replaces negative labels: an index that is out of range for every number of classes, and an error at run time."""

VISIBLE = frozenset((0, 1, 2, 4, 5))
"""The inputs of Attention that hide no key: queries, keys and values, and those of the past."""

PLAIN = frozenset("scale softcap q_num_heads kv_num_heads qk_matmul_output_mode softmax_precision".split())
"""The attributes of Attention that hide no key."""


def has_function_of_onnx(node: Node, opsets: Mapping[str, int]) -> bool:
    """True for an op that ONNX defines by a function."""
    schema = _schema(str(node.op), node.domain, opsets.get(node.domain, 1))
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


def onnx_function(node: Node, opsets: Mapping[str, int]) -> tuple[Graph | None, list[str]]:
    """The body of ONNX's function, and the names (x0, x1, …) of the node's inputs that it reads."""
    function = _function(node, opsets)
    if function is None:
        return None, []
    try:
        loaded = load_onnx(_model(node, opsets, function))
    except PartitaError:
        return None, []
    call = next(inner for inner in loaded.nodes if inner.is_op)
    if call.subgraph is None or any(entry is None for entry in call.inputs):
        return None, []
    read = [entry.name for entry in call.inputs if entry is not None]
    if node.op in ops("loss") and not node.domain:
        return with_classes_alone(call.subgraph, call.subgraph.inputs[read.index("x1")], node), read
    if node.op == "Attention" and not node.domain:
        return with_rows_cleared_last(call.subgraph, node), read
    return call.subgraph, read


# -- corrections -------------------------------------------------------------------------------------------


def with_classes_alone(body: Graph, labels: Node, loss: Node) -> Graph:
    """The body of a loss with negative labels replaced by `NO_CLASS`, except for the ignored label."""
    data_type = loss.inputs[1].type if loss.inputs[1] is not None else None
    dtype = numpy_dtype(data_type.dtype) if isinstance(data_type, TensorType) else np.dtype(np.int64)
    ignored, b = loss.attrs.get("ignore_index"), BodyBuilder(loss, body.opsets)

    def visit(node: Node, rewriter: Rewriter) -> None:
        rewriter.keep(node)
        if node is not labels:
            return
        zero, outside = b.constant(0, dtype), b.constant(NO_CLASS, dtype)
        wrong = b.Less(labels[0], zero)
        if ignored is not None and ignored < 0:
            wrong = b.And(wrong, b.Not(b.Equal(labels[0], b.constant(ignored, dtype))))
        rewriter.replace(labels[0], b.Where(wrong, outside, labels[0]))

    return rewrite(body, visit)


def sees_all_keys(attention: Node) -> bool:
    """True if each query sees all keys."""
    hides = {name for name, value in attention.attrs.items() if name not in PLAIN and value != 0}
    return not hides and all(entry is None or i in VISIBLE for i, entry in enumerate(attention.inputs))


def with_rows_cleared_last(body: Graph, attention: Node) -> Graph:
    """The op's body, with rows of weights that a condition clears cleared after their product, or not at all. Linear."""
    readers = Counter(entry for node in body.nodes for entry in node.inputs if entry is not None)
    readers.update(body.outputs)
    is_never_cleared = sees_all_keys(attention)

    def visit(node: Node, rewriter: Rewriter) -> None:
        clearing = _clearing(node)
        if clearing is not None and is_never_cleared:
            rewriter.keep(node, rewriter.rebuilt(node.evolve(inputs=(clearing.inputs[2], *node.inputs[1:]))))
            return
        if clearing is None or readers[clearing[0]] != 1:
            rewriter.keep(node)
            return
        condition, zero, weights = rewriter.rebuilt(clearing).inputs
        name, inputs = f"{node.name}_of_all_rows", (weights, rewriter.rebuilt(node).inputs[1])
        product = node.evolve(name=name, output_names=(name,), inputs=inputs)
        cleared = clearing.evolve(name=node.name, output_names=node.output_names, inputs=(condition, zero, product[0]))
        rewriter.keep(product)
        rewriter.keep(node, cleared)

    return rewrite(body, visit)


def _clearing(product: Node) -> Node | None:
    """The Where that clears rows of a product's left operand, if there is one."""
    read = product.inputs[0] if product.op == "MatMul" else None
    if read is None or read.node.op != "Where" or read.node.inputs[0] is None:
        return None
    test = read.node.inputs[0].node
    largest = test.inputs[0].node if test.op == "Equal" and test.inputs[0] is not None else None
    is_of_rows = largest is not None and largest.op == "ReduceMax" and largest.attrs.get("keepdims", 1) == 1
    return read.node if is_of_rows else None


# -- ONNX's functions ------------------------------------------------------------------------------------


@cache
def _schema(op: str, domain: str, version: int) -> Any:
    import onnx.defs

    try:
        return onnx.defs.get_schema(op, version, domain)
    except onnx.defs.SchemaError:
        return None


def _function(node: Node, opsets: Mapping[str, int]) -> Any:
    """ONNX's function for the node, as a FunctionProto."""
    import onnx

    version = opsets.get(node.domain, 1)
    schema = _schema(str(node.op), node.domain, version)
    function = onnx.FunctionProto()
    if schema.has_function:
        known = [v for v in schema.function_opset_versions if v <= version]
        text = schema.get_function_with_opset_version(max(known)) if known else b""
    else:
        known = [v for v in schema.context_dependent_function_opset_versions if v <= version]
        types = [_type(entry).SerializeToString() for entry in node.inputs]
        proto = _node(node, opsets).SerializeToString()
        text = schema.get_context_dependent_function_with_opset_version(max(known), proto, types) if known else b""
    if not text:
        return None
    function.ParseFromString(text)
    return function if _same_meaning(function, opsets) else None


def _same_meaning(function: Any, opsets: Mapping[str, int]) -> bool:
    """True if the ops of the function mean the same at the graph's opset."""
    version = opsets.get("", 1)
    for opset in function.opset_import:
        for inner in function.node:
            if inner.domain != opset.domain:
                continue
            if opset.domain not in opsets and opset.domain:
                return False
            then, now = _schema(inner.op_type, inner.domain, opset.version), _schema(inner.op_type, inner.domain, version)
            if then is None or now is None:
                return False
            if then.since_version != now.since_version and then.since_version < _STABLE.get(inner.op_type, _SINCE):
                return False
    return True


_SINCE = 7
"""The version since which ops of function bodies have only gained element types, apart from those in `_STABLE`."""

_STABLE = {
    "Clip": 11, "Pad": 11, "Softmax": 13, "LogSoftmax": 13, "Squeeze": 13, "Unsqueeze": 13, "ReduceSum": 13, "ReduceMean": 18,
    "ReduceMax": 18, "ReduceMin": 18, "ReduceSumSquare": 18, "ReduceL1": 18, "ReduceL2": 18, "ReduceLogSum": 18,
    "ReduceLogSumExp": 18, "ReduceProd": 18, "Split": 18, "Slice": 10, "Resize": 19, "BatchNormalization": 15, "Scan": 9,
    "Upsample": 99, "Dropout": 12,
}
"""The version since which an op means the same."""


def _model(node: Node, opsets: Mapping[str, int], function: Any) -> Any:
    """A model that calls the function once."""
    import onnx
    import onnx.helper as h

    domain = "partita.expanded"
    version = opsets.get("", 1)
    own = [*(o for o in function.opset_import if o.domain), h.make_opsetid("", version)]
    del function.opset_import[:]
    function.opset_import.extend(own)
    function.domain, function.name = domain, str(node.op)
    proto = _node(node, opsets)
    proto.domain = domain
    _drop_unused(function, proto)
    inputs = [h.make_value_info(f"x{i}", _type(e)) for i, e in enumerate(node.inputs) if e is not None]
    outputs = [h.make_value_info(f"y{i}", onnx.TypeProto()) for i in range(len(node.output_names))]
    model_graph = h.make_graph([proto], "expanded", inputs, outputs)
    imports = [h.make_opsetid("", version), h.make_opsetid(domain, 1)]
    return h.make_model(model_graph, functions=[function], opset_imports=imports)


def _drop_unused(function: Any, proto: Any) -> None:
    """Removes absent unread inputs, and outputs that the node lacks, from the function and its call."""
    read = {name for inner in function.node for name in inner.input}
    given = [*proto.input, *[""] * (len(function.input) - len(proto.input))]
    kept = [(formal, actual) for formal, actual in zip(function.input, given, strict=True) if actual or formal in read]
    outputs = list(function.output)[: len(proto.output)]
    del function.input[:], function.output[:], proto.input[:]
    function.input.extend(formal for formal, _ in kept)
    function.output.extend(outputs)
    proto.input.extend(actual for _, actual in kept)


def _node(node: Node, opsets: Mapping[str, int]) -> Any:
    """The node as a NodeProto with the schema's defaults; its inputs are named x0, x1, …"""
    import onnx.helper as h

    def stand_in(entry: NodeEntry, number: int) -> NodeEntry:
        return variable(f"x{number}", type=entry.type)[0]

    proto = to_model(graph_of_node(node, opsets, stand_in)).graph.node[-1]
    given = {attribute.name for attribute in proto.attribute}
    for key, value in defaults(str(node.op), node.domain, opsets.get(node.domain, 1)).items():
        if key not in given and isinstance(value, (int, float, str, list)):
            proto.attribute.append(h.make_attribute(key, value))
    del proto.input[:], proto.output[:]
    proto.input.extend("" if e is None else f"x{i}" for i, e in enumerate(node.inputs))
    proto.output.extend(f"y{i}" for i in range(len(node.output_names)))
    return proto


def _type(entry: Any) -> Any:
    import onnx

    proto = onnx.TypeProto()
    if entry is not None:
        write_type(proto, entry.type)
    return proto
