"""Making nodes by hand: inputs, constants, ops, calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from partita.graph.attributes import checked_attributes
from partita.graph.errors import GraphError, TypeMismatch, check_flag
from partita.graph.node import CONSTANT, NOTHING, Node, NodeEntry, as_entry, frozen_attrs
from partita.graph.types import Dim, TensorType, Type, dtype_name

if TYPE_CHECKING:
    from partita.graph.graph import Graph

CALL = "Call"
"""The op of a subgraph call."""

CALL_DOMAIN = "partita"
"""The domain of subgraph calls that Partita makes."""


FUSED = "partita.fused"
"""The metadata key of a fused node for the names of the original nodes that it replaces, one per line. A call needs no such list:
the nodes in its body keep their names."""

INLINE = "partita.inline"
"""The metadata key of a call that must not be inlined by `compile`; the value is then "no"."""

NOT_INLINED: Mapping[str, str] = MappingProxyType({INLINE: "no"})
"""The metadata of a call that must not be inlined."""


def variable(
    name: str | None = None, dtype: Any = "float32", shape: Sequence[Dim] | None = None, *, type: Type | None = None
) -> Node:
    """A graph input. A dimension may be a string (symbolic) or None (unknown); without a shape the rank is unknown.

    `type` is for values other than dense tensors."""
    value_type = type if type is not None else TensorType(dtype, shape)
    return Node(name or "", None, output_names=(name or "",), output_types=(value_type,))


def constant(value: Any, name: str | None = None) -> Node:
    """A constant. Python numbers become numpy's default types; an array is not copied and must not be changed afterwards."""
    array = value if isinstance(value, np.ndarray) else _as_array(value)
    if array.dtype.kind in "USO":
        array = array.astype(object)
        _require_strings(array)
    value_type = TensorType(dtype_name(array.dtype), array.shape)
    return Node(name or "", CONSTANT, output_names=(name or "",), output_types=(value_type,), value=array)


def _as_array(value: Any) -> np.ndarray[Any, Any]:
    try:
        return np.asarray(value)
    except ValueError as error:
        raise TypeMismatch(f"{value!r:.60} cannot be converted to an array: {error}") from None


def _require_strings(array: np.ndarray[Any, Any]) -> None:
    for item in array.flat:
        if not isinstance(item, (str, bytes)):
            raise TypeMismatch(f"a constant holds numbers or strings, not {type(item).__name__}: {item!r:.60}")


def op(
    op_type: str,
    *inputs: Node | NodeEntry | None,
    name: str | None = None,
    domain: str = "",
    n_outputs: int | None = None,
    output_names: Sequence[str] | None = None,
    captures: Sequence[Node | NodeEntry] = (),
    opset: int | None = None,
    **attributes: Any,
) -> Node:
    """An op of ONNX or of another domain. A Node as an input means its output 0; None is an absent input.

    Attributes are checked and converted by the op's schema at `opset` (21 for ONNX's own ops). Graphs among them are
    bodies: closed, with `captures` bound to their last inputs."""
    if not (isinstance(op_type, str) and isinstance(domain, str)):
        raise GraphError(f"an op is named by a string, not by {op_type!r:.80} of domain {domain!r:.80}")
    values, count = checked_attributes(op_type, domain, opset, len(inputs), attributes, where=f"node {name or op_type!r}")
    names = tuple(output_names) if output_names is not None else _output_names(name, n_outputs or count)
    return Node(
        name or "",
        op_type,
        tuple(None if value is None else as_entry(value) for value in inputs),
        frozen_attrs(values),
        names,
        (None,) * len(names),
        domain,
        tuple(as_entry(value) for value in captures),
    )


def call(
    subgraph: Graph,
    *inputs: Node | NodeEntry,
    name: str | None = None,
    attrs: Mapping[str, Any] | None = None,
    inline: bool = True,
) -> Node:
    """A call of a subgraph. Without inputs it is unconnected, and the partitioner (or `connect`) connects it.

    `compile` inlines a call that no device except the last resort takes as a whole; with `inline=False` it is never inlined."""
    if not hasattr(subgraph, "opsets"):  # Graph imports this module
        raise GraphError(f"a call takes a Graph, not {type(subgraph).__name__}", where=f"call {name!r}")
    if inline is not True:
        check_flag(inline, f"call {name or subgraph.name!r}: inline", GraphError)
    if inputs and len(inputs) != len(subgraph.inputs):
        raise GraphError(
            f"the call has {len(inputs)} inputs and its body {len(subgraph.inputs)}", where=f"call {name or subgraph.name!r}"
        )
    title = name or ""
    return Node(
        title,
        CALL,
        tuple(map(as_entry, inputs)),
        frozen_attrs(attrs or {}),
        _output_names(title, len(subgraph.outputs)),
        tuple([entry.type for entry in subgraph.outputs]),
        CALL_DOMAIN,
        subgraph=subgraph,
        metadata=NOTHING if inline else NOT_INLINED,
    )


def is_made_call(node: Node) -> bool:
    """True for a call made by a partition, False for a function of the model's own."""
    return node.subgraph is not None and node.op == CALL and node.domain == CALL_DOMAIN


def may_inline(call: Node) -> bool:
    """True if `compile` may inline the call."""
    return call.metadata.get(INLINE) != "no"


def _output_names(name: str | None, count: int) -> tuple[str, ...]:
    if not name or count == 1:
        return (name or "",) * count
    return tuple([f"{name}_{i}" for i in range(count)])
