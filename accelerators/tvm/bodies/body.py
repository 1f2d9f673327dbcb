"""Second-level bodies as kernels see them: large constants become inputs, and bodies of equal structure have equal keys."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from partita.accelerators.errors import CompileError
from partita.accelerators.tvm.bodies.blocked import DOMAIN
from partita.accelerators.tvm.bodies.packed import DOMAIN as PACKED
from partita.accelerators.tvm.bodies.quantized import BESIDE, NOTHING, STORED
from partita.accelerators.tvm.bodies.quantized import DOMAIN as QUANTIZED
from partita.accelerators.tvm.bodies.recurrent import DOMAIN as RECURRENT
from partita.accelerators.tvm.extensions import edition
from partita.accelerators.tvm.sizes.extent import has_extents, sizes_of
from partita.graph.build import variable
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.graph.ops.traits import ops
from partita.graph.rewrite import Rewriter
from partita.graph.types import ELEMENT_TYPES, HALVES, TensorType, dtype_name

KEPT = 16
"""Largest number of elements of a constant that may stay inside, where the compiler sees its values."""

SEEN = frozenset("Resize Upsample Pad Clip Range Pow Dropout Col2Im".split())
"""Ops whose constants always stay inside, because their values decide what is computed."""

LIFTED = {**dict.fromkeys(ops("scattering"), 1), "Div": 2, "Mod": 2}
"""For each op whose kernels read constants at positions, the least number of elements of those that are always inputs."""


@attrs.frozen(slots=True, eq=False)
class Body:
    """The graph that one kernel computes."""

    graph: Graph
    """The ops, under canonical names so that bodies of one structure are equal. Inputs: the values, then the weights."""
    values: int
    """Number of inputs that are values; the remaining inputs are weights."""
    weights: tuple[np.ndarray[Any, Any], ...]
    """The arrays of the weights."""
    key: str
    """Text of the structure: ops, attributes, small constants, types."""
    kind: str
    """Names of the ops, as part of the kernel's name."""

    @property
    def ops(self) -> list[Node]:
        """The op nodes in topological order."""
        return [node for node in self.graph.nodes if node.is_op]

    @property
    def symbol(self) -> str:
        """Name of the kernel: its kind and a digest of the key."""
        return f"{self.kind}_{hashlib.sha1(self.key.encode()).hexdigest()[:10]}"


def make_body(graph: Graph) -> Body:
    """The body of a call or of a graph with one op, with weights lifted and canonical names. Linear."""
    weights: list[Node] = []
    inlined = _read_inside(graph)
    for node in graph.nodes:
        if node.value is not None and node not in inlined:
            weights.append(node)
    plain = _plain(graph, weights)
    key = _key(plain)
    names = "_".join(dict.fromkeys(str(node.op).lower() for node in plain.nodes if node.is_op))
    arrays = tuple(node.value for node in weights if node.value is not None)
    kind = "_".join([names[:48].rstrip("_") or "copy", *_narrow(plain)])
    return Body(plain, len(graph.inputs), arrays, key, kind)


def _narrow(graph: Graph) -> list[str]:
    """Short names of the 16-bit float types among the results, so that profiles show which kernels store them."""
    dtypes = {getattr(entry.type, "dtype", "") for entry in graph.outputs}
    return [ELEMENT_TYPES[dtype].short for dtype in sorted(HALVES & dtypes)]


def _read_inside(graph: Graph) -> set[Node]:
    """Constants that stay inside the body."""
    kept = {node for node in graph.nodes if node.value is not None and _small(node.value)}
    for node in graph.nodes:
        if node.op in SEEN:
            kept.update(entry.node for entry in node.reads if entry.node.value is not None)
    for node in graph.nodes:
        if node.op in LIFTED:
            kept.difference_update(entry.node for entry in node.reads if _is_lifted(node, entry.node.value))
    if any(has_extents(known) for node in graph.nodes for known in node.output_types):
        kept -= _spread_at_any_size(graph)
    in_memory = {entry.node for node in graph.nodes if node.domain in (DOMAIN, PACKED, RECURRENT) for entry in node.reads}
    return kept - in_memory - _read_by_integers(graph)


def _spread_at_any_size(graph: Graph) -> set[Node]:
    """Constants of several elements that are broadcast to dynamic shapes: chains of element-wise ops read them from memory."""
    readers = [node for node in graph.nodes if node.op in ops("unary", "broadcast") and not node.domain and node.op not in SEEN]
    read = {entry.node for node in readers for entry in node.reads}
    return {node for node in read if node.value is not None and node.value.size != 1}


def _read_by_integers(graph: Graph) -> set[Node]:
    """Constants that kernels of quantized values read from memory: arrays, initial values of sums, scales and zero points, so
    that layers that differ only in these share a kernel."""
    ours = [node for node in graph.nodes if node.domain == QUANTIZED]
    if not ours:
        return set()
    arrays = {node for node in graph.nodes if node.value is not None and node.value.size != 1}
    beside = {entry.node for node in ours for entry in node.inputs[BESIDE.get(str(node.op), NOTHING)] if entry is not None}
    return arrays | {node for node in beside if node.value is not None} | _scalings(graph)


def _scalings(graph: Graph) -> set[Node]:
    """Single scales and zero points that only rounding ops read. A scale of 1 and a zero point of 0 stay inside, because they
    need no arithmetic."""
    rounding: set[NodeEntry] = set()
    others: set[NodeEntry] = set(graph.outputs)
    for node in graph.nodes:
        rounds = node.domain == QUANTIZED and node.op in ops("quantizing")
        rounding.update(node.reads[1:] if rounds else ())
        others.update(node.reads[:1] if rounds else node.reads, node.captures)
    return {entry.node for entry in rounding - others if _is_computed_with(entry.node.value)}


def _is_computed_with(array: np.ndarray[Any, Any] | None) -> bool:
    """True for a scale other than 1, or a zero point other than 0."""
    if array is None or array.size != 1:
        return False
    name = dtype_name(array.dtype)
    return bool(array.item() != 1) if name == "float32" else name in STORED and bool(array.item() != 0)


def _is_lifted(node: Node, array: np.ndarray[Any, Any] | None) -> bool:
    return array is not None and array.size >= LIFTED[str(node.op)]


def _small(array: np.ndarray[Any, Any]) -> bool:
    return array.size == 1 or (array.dtype.kind in "iub" and array.size <= KEPT)


def _plain(graph: Graph, weights: Sequence[Node]) -> Graph:
    """The graph with canonical names and its weights as inputs."""
    count = {"x": 0, "w": 0, "n": 0, "v": 0}
    lifted: dict[Node, Node] = {}

    def fresh(letter: str) -> str:
        count[letter] += 1
        return f"{letter}{count[letter] - 1}"

    inputs = [_renamed(node, fresh("x")) for node in graph.inputs]
    for node in weights:
        assert node.value is not None
        lifted[node] = variable(fresh("w"), type=node.output_types[0] or TensorType(node.value.dtype, node.value.shape))
    stands = {**dict(zip(graph.inputs, inputs, strict=True)), **lifted}

    rewriter = Rewriter(graph)
    for node in graph.nodes:
        stand_in = stands.get(node)
        if stand_in is None:
            names = tuple(name and fresh("v") for name in node.output_names)
            stand_in = rewriter.rebuilt(node, name=fresh("n"), output_names=names, metadata={}, affinity=None, after=())
        rewriter.keep(node, stand_in)
    return rewriter.finish(
        inputs=[*inputs, *lifted.values()],
        name="body",
        output_names=[f"y{i}" for i in range(len(graph.outputs))],
        nodes=(),
        attrs={},
        metadata={},
    )


def _renamed(node: Node, name: str) -> Node:
    return node.evolve(name=name, output_names=(name,), metadata={}, affinity=None)


def _key(graph: Graph) -> str:
    """Text of the body's structure, used as its key. Inputs appear in their order, independent of the order of creation."""
    lines = [f"opset {graph.opset}"]
    for node in [*graph.inputs, *(node for node in graph.nodes if not node.is_variable)]:
        values = ", ".join("-" if e is None else value_name(e) for e in (*node.inputs, *node.captures))
        types = ", ".join(map(str, node.output_types))
        constant = "" if node.value is None else array_digest(node.value)
        op = f"{node.domain}.{node.op}{edition(node) or ''}"
        lines.append(f"{', '.join(node.output_names)}: {types} = {op}({values}){constant}{attributes_text(node.attrs)}")
    lines.append(", ".join(map(value_name, [n[0] for n in graph.inputs])))
    lines.append(", ".join(map(value_name, graph.outputs)))
    return "\n".join(lines)


def value_name(entry: NodeEntry) -> str:
    """Canonical name of the value."""
    return entry.name


def shape_of(entry: NodeEntry) -> tuple[int, ...]:
    """Sizes of the value, integers or extents; CompileError for others.

    Extents are typed as integers; operations that they do not support raise errors of their own."""
    sizes = sizes_of(entry.type)
    if sizes is None:
        raise CompileError(f"a kernel needs sizes, and {entry.name!r} is {entry.type}")
    return sizes  # type: ignore[return-value]


def element_of(entry: NodeEntry) -> str:
    """Element type of the value."""
    value_type = entry.type
    if not isinstance(value_type, TensorType):
        raise CompileError(f"a kernel takes tensors, and {entry.name!r} is {value_type}")
    return value_type.dtype


def attributes_text(attributes: Mapping[str, Any]) -> str:
    """Text of attributes; equal for equal attributes."""
    if not attributes:
        return ""
    return " {" + ", ".join(f"{key}={_attribute_text(attributes[key])}" for key in sorted(attributes)) + "}"


def _attribute_text(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return array_digest(value)
    if isinstance(value, Graph):
        return f"({_key(value)})"
    return repr(value)


def array_digest(array: np.ndarray[Any, Any]) -> str:
    """Short text that identifies an array."""
    if array.dtype == object:
        return f"{array.shape}{array.tolist()!r}"
    digest = hashlib.sha1(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]
    return f"[{array.dtype}{list(array.shape)} {digest}]"
