"""Activations and weights stored in 16 bits, as PRECISION requests, after every layout is chosen.

A product reads its image and its weights in the narrow type. The ops after it keep that type: element-wise ops, norms, pools
and moves, whose kernels compute in float32 and round when they store. Ops before the first product, and ops that would lose too
much precision, stay in float32. Casts connect the two types; kernels fuse the casts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np

from partita.accelerators.tvm.bodies.blocked import DOMAIN, origin_metadata, origins_of
from partita.accelerators.tvm.bodies.stored_types import LATER, WIDE, as_stored
from partita.accelerators.tvm.kernels.shared.element_access import HALVES, float32_shape
from partita.accelerators.tvm.kernels.shared.strides import VIEWS
from partita.accelerators.tvm.machine.instructions import Used
from partita.accelerators.tvm.machine.machine import Machine
from partita.graph.build import constant
from partita.graph.formatting import counted
from partita.graph.gc_pause import collector_paused
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry, frozen_attrs
from partita.graph.ops.traits import ops
from partita.graph.rewrite import Rewriter
from partita.graph.types import ELEMENT_TYPES, Array, TensorType, numpy_dtype
from partita.passes.constants import Namer
from partita.passes.registry import LAYOUT_NOTES, REQUESTS, register_pass

PRODUCTS = ops("convolution", "matmul") | {"DepthwiseConv"}
"""Ops that become narrow even if none of their inputs is."""

STAYING = ops("circular", "shuffle") | frozenset(
    """BatchNormalization GlobalLpPool GroupNormalization Hardmax InstanceNormalization Log LpPool MeanVarianceNormalization
    ReduceL1 ReduceLogSum ReduceLogSumExp ReduceProd Shrink Sign Tile""".split()
)
"""Ops whose results need float32, or whose kernels support no narrower type."""

FOLLOWING = (
    ops("unary", "broadcast", "copying", "reduction", "pool", "global_pool", "softmax", "norm") | {"Pad", "Resize"}
) - (ops("stepped") | STAYING)
"""Ops that store their results in the narrow type if one of their inputs is narrow."""

OVERFLOWING = frozenset("Exp Pow Reciprocal ReduceL2 ReduceSum ReduceSumSquare Softplus".split())
"""Ops whose results may overflow float16 although their inputs do not."""

REORDERING = VIEWS | {"Transpose"}
"""Ops that reorder a constant matrix for a product."""

SHOWN = 8
"""Maximum number of ops that the report names for one reason."""

TABLE = 4096
"""Minimum number of elements of a Gather's table that is stored in the narrow type."""

KEPT = ops("row_norm") | frozenset("Add Clip Div Gemm Max Min Mul PRelu Sub Sum".split())
"""Ops whose constants, unless they are matrices, stay in float32 next to a narrow first input: their kernels take both types."""

Supports = Callable[[Node], bool]
"""True if a kernel supports an op with the types that it has."""


@register_pass("NarrowTypes", keeps=REQUESTS, family="tvm")
def narrow_types(
    graph: Graph,
    machine: Machine,
    *,
    dtype: str,
    takes: Callable[[Graph, Machine], Supports],
    halves_by: Used | None = None,
    why_wide: str = "",
) -> Graph:
    """Puts products and stored values into the 16-bit type that PRECISION requests, and notes the ops that stay in float32.
    Linear, apart from the queries of the kernels."""
    notes: tuple[str, ...] = (why_wide,) if why_wide else ()
    if dtype != "float32":
        result = narrow(graph, dtype, takes(graph, machine))
        graph, notes = result.graph, result.notes(halves_by)
    return graph.evolve(attrs={**graph.attrs, LAYOUT_NOTES: (*graph.attrs.get(LAYOUT_NOTES, ()), *notes)}) if notes else graph


@attrs.frozen(slots=True)
class Narrowed:
    """A graph with narrow values, and the ops that are narrow or stay in float32."""

    graph: Graph
    dtype: str
    narrow: tuple[str, ...]
    """The user's ops with narrow results."""
    wide: tuple[tuple[str, str], ...]
    """The user's ops that compute in float32, each with the reason."""

    def notes(self, used: Used | None) -> tuple[str, ...]:
        """The lines of the report: the number of narrow ops and their instruction, and the ops in float32, by reason."""
        narrow = set(self.narrow)
        by_reason: dict[str, list[str]] = {}
        for name, reason in self.wide:
            if name not in narrow:
                by_reason.setdefault(reason, []).append(name)
        by = f", products by {used}" if used is not None and used.name != "fma" else ", products by float32 instructions"
        first = f"{counted(len(narrow), 'op')} in {self.dtype}{by}"
        return (first, *(f"in float32, since {reason}: {listed(names)}" for reason, names in by_reason.items()))


def listed(names: Sequence[str]) -> str:
    """The first few of these names, and the number of the others."""
    distinct = list(dict.fromkeys(names))
    more = f" and {len(distinct) - SHOWN} more" if len(distinct) > SHOWN else ""
    return ", ".join(distinct[:SHOWN]) + more


def narrow(graph: Graph, dtype: str, supports: Supports) -> Narrowed:
    """The graph with values of this 16-bit type. Linear, apart from the queries of `supports`."""
    with collector_paused():
        narrowing = _Narrowing(graph, dtype, supports)
        narrowed = narrowing.run()
        names = dict.fromkeys(name for entry in narrowing.made for name in origins_of(entry.node))
        return Narrowed(narrowed, dtype, tuple(names), tuple(narrowing.wide))


class _Narrowing:
    """One walk in topological order. A value has the type that its op produces, and the other one too if a reader needs it."""

    def __init__(self, graph: Graph, dtype: str, supports: Supports) -> None:
        self.graph = graph
        self.dtype = dtype
        self.supports = supports
        self.rewriter = Rewriter(graph)
        self.namer = Namer(graph)
        self.narrow: dict[NodeEntry, NodeEntry] = {}
        """The narrow form of values of the original graph."""
        self.float32: dict[NodeEntry, NodeEntry] = {}
        """The float32 form of values of the original graph that became narrow."""
        self.constants: dict[NodeEntry, NodeEntry] = {}
        self.made: set[NodeEntry] = set()
        """The values of the original graph whose ops produce the narrow form."""
        self.wide: list[tuple[str, str]] = []

    def run(self) -> Graph:
        products = {entry for node in self.graph.nodes if _is_product(node) for entry in node.reads}
        read = {entry for node in self.graph.nodes for entry in (*node.reads, *node.captures)}
        for node in self.graph.nodes:
            if not node.is_op:
                self.rewriter.keep(node)
                continue
            if node.op == "FromBlocked" and node[0] not in read and node.inputs[0] in self.made:
                self.rewriter.keep(node, node.evolve(inputs=(self.narrow[node.inputs[0]],)))
                continue
            reason = self._why_wide(node, products)
            if reason is None and not self._keep_narrow(node):
                reason = f"no kernel supports them in {self.dtype}"
            if reason is not None:
                self._keep_wide(node, reason)
        for entry in self.graph.outputs:
            if entry in self.made:
                self.rewriter.replace(entry, self._float32(entry))
        return self.rewriter.finish(nodes=()) if self.narrow else self.graph

    # -- which ops -----------------------------------------------------------------------------------------

    def _why_wide(self, node: Node, products: set[NodeEntry]) -> str | None:
        """The reason why the op has to stay in float32, or None."""
        if node.op in ops("classifying") and not node.domain and any(entry in self.made for entry in node.reads):
            return None
        floats = [entry for entry in node.outputs if float32_shape(entry) is not None]
        if not floats or node.bodies or len(floats) < sum(map(bool, node.output_names)):
            return "their results are not float32"
        if _is_product(node) or (node.domain == DOMAIN and node.op == "ToBlocked" and node[0] in products):
            return None
        if node.op == "Gather" and not node.domain and _is_table(node.inputs[0]):
            return None
        if _is_reordered_constant(node) and node[0] in products:
            return None
        if not any(entry in self.made for entry in node.reads):
            return "none of their inputs is narrow"
        if node.domain == DOMAIN:
            return None
        if node.domain or node.op not in FOLLOWING:
            return f"{node.op} would lose precision"
        if self.dtype == "float16" and node.op in OVERFLOWING:
            return f"results of {node.op} may overflow float16"
        return None

    # -- narrow ops ----------------------------------------------------------------------------------------

    def _keep_narrow(self, node: Node) -> bool:
        """Rebuilds the op on narrow values; returns False if no kernel supports that."""
        inputs = [None if entry is None else self._read(node, i, entry) for i, entry in enumerate(node.inputs)]
        if node.op in ops("commutative") and not node.domain:
            inputs.sort(key=lambda entry: entry is not None and not _is_narrow(entry))
        types = tuple(_retyped(value_type, self.dtype) for value_type in node.output_types)
        changes: dict[str, Any] = {"inputs": tuple(inputs), "output_types": types}
        rebuilt = self.rewriter.rebuilt(node).evolve(**changes)
        if node.domain != DOMAIN and not self.supports(rebuilt):
            return False
        self.rewriter.keep(node, rebuilt)
        for entry in node.outputs:
            if float32_shape(entry) is not None:
                self.narrow[entry] = NodeEntry(rebuilt, entry.index)
                self.made.add(entry)
        return True

    def _read(self, node: Node, slot: int, entry: NodeEntry) -> NodeEntry:
        """The form of a value that a narrow op reads."""
        array = entry.node.value
        if float32_shape(entry) is None or (node.op == "Resize" and slot > 0):
            return self.rewriter.value(entry)
        if array is not None:
            return self.rewriter.value(entry) if self._stays(node, slot, array) else self._constant(entry, array)
        image = node.domain == DOMAIN and slot == 0 and (node.op == "ToBlocked" or bool(node.attrs.get("plain")))
        return self.rewriter.value(entry) if image and entry not in self.made else self._narrow(entry, node)

    def _stays(self, node: Node, slot: int, array: Array) -> bool:
        """True for a constant that stays in float32: a bias, or a scalar that the narrow type cannot represent."""
        if node.domain == DOMAIN:
            return slot > 1 or node.op not in PRODUCTS
        if array.size == 1 and _is_exact(array, self.dtype):
            return False
        if node.op == "Pow":
            return False
        return node.op in KEPT and array.ndim <= max(1, _rank(node[0]) - 1) and not (node.op == "Gemm" and slot == 1)

    def _constant(self, entry: NodeEntry, array: Array) -> NodeEntry:
        """A constant in the narrow type, shared by all readers."""
        if entry not in self.constants:
            declared = TensorType(self.dtype, array.shape)
            held = array if array.nbytes >= LATER else as_stored(array, self.dtype)
            node = constant(held, self.namer(f"{entry.name}_{self.dtype}")).evolve(output_types=(declared,))
            self.constants[entry] = self.rewriter.keep(node)[0]
        return self.constants[entry]

    def _narrow(self, entry: NodeEntry, reader: Node) -> NodeEntry:
        """The value's narrow form."""
        if entry not in self.narrow:
            value = self.rewriter.value(entry)
            self.narrow[entry] = self._cast(value, self.dtype, reader)
        return self.narrow[entry]

    # -- float32 -------------------------------------------------------------------------------------------

    def _keep_wide(self, node: Node, reason: str) -> None:
        """Keeps the op in float32."""
        narrow = [entry for entry in node.reads if entry in self.made]
        is_reported = bool(narrow) or any(float32_shape(entry) is not None for entry in node.outputs)
        if is_reported:
            self.wide += [(name, reason) for name in origins_of(node)]
        swapped = {entry: self._float32(entry) for entry in (*narrow, *(e for e in node.captures if e in self.made))}
        inputs = tuple(None if entry is None else swapped.get(entry) or self.rewriter.value(entry) for entry in node.inputs)
        captures = tuple(swapped.get(entry) or self.rewriter.value(entry) for entry in node.captures)
        changes: dict[str, Any] = {"metadata": {**node.metadata, WIDE: reason}} if is_reported else {}
        if inputs != node.inputs or captures != node.captures:
            changes |= {"inputs": inputs, "captures": captures}
        rebuilt = self.rewriter.rebuilt(node)
        self.rewriter.keep(node, rebuilt.evolve(**changes) if changes else rebuilt)

    def _float32(self, entry: NodeEntry) -> NodeEntry:
        """The value in float32."""
        if entry not in self.float32:
            self.float32[entry] = self._cast(self.narrow[entry], "float32", entry.node)
        return self.float32[entry]

    def _cast(self, value: NodeEntry, dtype: str, origin: Node) -> NodeEntry:
        name = self.namer(f"{value.name}_{dtype}")
        types = (_retyped(value.type, dtype),)
        metadata = origin_metadata(origin)
        if dtype == "float16":
            value = self._within(value, name, origin)
        node = Node(name, "Cast", (value,), frozen_attrs({"to": ELEMENT_TYPES[dtype].number}), (name,), types, metadata=metadata)
        return self.rewriter.keep(node)[0]

    def _within(self, value: NodeEntry, name: str, origin: Node) -> NodeEntry:
        """The value clipped to float16's range, so that masks of very large negative numbers stay finite."""
        limit = float(np.finfo(np.float16).max)
        bounds = [self.rewriter.keep(constant(np.float32(x), self.namer(f"{name}_bound")))[0] for x in (-limit, limit)]
        name = self.namer(f"{name}_within")
        types = (value.type,)
        metadata = origin_metadata(origin)
        node = Node(name, "Clip", (value, *bounds), output_names=(name,), output_types=types, metadata=metadata)
        return self.rewriter.keep(node)[0]


def _is_exact(array: Array, dtype: str) -> bool:
    """True if the type represents these numbers exactly; numbers that are too large become infinite."""
    with np.errstate(over="ignore"):
        return np.array_equal(array, array.astype(numpy_dtype(dtype)).astype(np.float32))


def _is_product(node: Node) -> bool:
    return node.is_op and node.op in PRODUCTS and node.domain in ("", DOMAIN)


def _is_reordered_constant(node: Node) -> bool:
    """True for an op that reorders a constant, such as the matrix of a product."""
    return node.op in REORDERING and not node.domain and node.reads[0].node.value is not None


def _is_table(entry: NodeEntry | None) -> bool:
    array = None if entry is None else entry.node.value
    return array is not None and array.dtype == np.float32 and array.ndim > 1 and array.size >= TABLE


def _is_narrow(entry: NodeEntry) -> bool:
    return isinstance(entry.type, TensorType) and entry.type.dtype in HALVES


def _rank(entry: NodeEntry) -> int:
    return len(float32_shape(entry) or ())


def _retyped(value_type: Any, dtype: str) -> Any:
    """The type with this element type if its own is a float that kernels compute in float32; any other type unchanged."""
    is_real = isinstance(value_type, TensorType) and value_type.dtype in HALVES | {"float32"}
    return TensorType(dtype, value_type.shape) if is_real else value_type
