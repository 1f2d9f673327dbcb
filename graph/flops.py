"""Number of operations of a graph.

A multiplication with its addition is one MAC (two FLOPs); every other op that computes counts one FLOP per element of its
results; ops that only move or describe data count nothing."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

import attrs

from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.graph.ops.schemas import ONNX_DOMAINS
from partita.graph.ops.traits import FILTERS, ops, traits
from partita.graph.types import TensorType


@attrs.frozen(slots=True)
class Flops:
    """Number of operations in one run of a graph."""

    macs: int
    """Multiply-accumulates of convolutions, matrix products and recurrences."""
    flops: int
    """Two per MAC, and one per element that another op computes."""
    by_op: Mapping[str, int]
    """FLOPs by op type, including those inside bodies; largest first."""
    by_node: Mapping[str, int] = attrs.field(repr=False)
    """FLOPs by node of the graph, including its bodies."""
    unknown: tuple[str, ...]
    """Nodes that are not counted: a size or the number of iterations is unknown, or the op is."""


def count_flops(graph: Graph) -> Flops:
    """The MACs and FLOPs of one run; the graph needs types. Linear.

    The body of a call counts once per call; of an If the more expensive branch counts; Loop and Scan count per iteration."""
    tally = _Tally({})
    tally.graph(graph)
    by_op = dict(sorted(tally.flops.items(), key=lambda pair: (-pair[1], pair[0])))
    return Flops(tally.macs, tally.total, by_op, tally.by_node, tuple(tally.unknown))


def count_text(count: int) -> str:
    """A large number in readable form, such as 8.206 G; the caller appends the unit."""
    amount, prefix = float(count), ""
    for larger in ("k", "M", "G", "T"):
        if amount < 999.95:
            break
        amount, prefix = amount / 1000, larger
    return f"{amount:.4g} {prefix}"


class _Tally:
    def __init__(self, known: dict[int, _Tally]) -> None:
        self.known = known
        """Tallies of bodies by identity: a shared body is counted once and added once per use."""
        self.macs = 0
        self.total = 0
        self.flops: Counter[str] = Counter()
        self.by_node: dict[str, int] = {}
        self.unknown: list[str] = []

    def graph(self, graph: Graph) -> None:
        for node in graph.nodes:
            if node.is_op:
                before = self.total
                self.node(node)
                self.by_node[node.name] = self.total - before

    def node(self, node: Node) -> None:
        if node.bodies:
            rounds = _rounds(node)
            if rounds is None:
                self.unknown.append(node.name)
            else:
                self.add(max((self.body(body) for _, body in node.bodies), key=lambda tally: tally.total), rounds)
            return
        counted = _counted(node)
        if counted is None:
            self.unknown.append(node.name)
        else:
            macs, other = counted
            self.macs += macs
            self.total += 2 * macs + other
            if macs or other:
                self.flops[str(node.op)] += 2 * macs + other

    def body(self, body: Graph) -> _Tally:
        if id(body) not in self.known:
            tally = self.known[id(body)] = _Tally(self.known)
            tally.graph(body)
        return self.known[id(body)]

    def add(self, inner: _Tally, times: int) -> None:
        self.macs += times * inner.macs
        self.total += times * inner.total
        self.flops.update({op: times * count for op, count in inner.flops.items()})
        self.unknown += inner.unknown


def _counted(node: Node) -> tuple[int, int] | None:
    """The node's MACs and its other FLOPs; None if they depend on an unknown size."""
    has, is_onnx = traits(str(node.op), node.domain), node.domain in ONNX_DOMAINS
    if not is_onnx and has.isdisjoint(("unary", "broadcast", "moving", *_READING)):
        return None
    if "moving" in has:
        return 0, 0
    results = _elements(entry for entry in node.outputs if entry.name)
    if not has.isdisjoint(_READING):
        read = _elements(entry for entry in node.inputs[:1] if entry is not None)
        return None if read is None else (0, read)
    products = _PRODUCTS.get(str(node.op)) if is_onnx else None
    if products is None or results is None:
        return None if results is None else (0, results)
    macs = products(node, results)
    return None if macs is None else (macs, 0)


def _rounds(node: Node) -> int | None:
    """Number of times that the node's bodies run; None if it is not static."""
    if node.op == "Loop":
        trips = node.inputs[0]
        value = None if trips is None else trips.node.value
        return None if value is None else int(value.reshape(()))
    if node.op == "Scan":
        states = len(node.inputs) - int(node.attrs["num_scan_inputs"])
        axes = node.attrs.get("scan_input_axes") or [0]
        shape = _shape(node, states)
        return None if shape is None else shape[int(axes[0])]
    return 1


def _shape(node: Node, position: int) -> tuple[int, ...] | None:
    """The shape of an input, or None if it is absent or not static."""
    entry = node.inputs[position] if position < len(node.inputs) else None
    kind = None if entry is None else entry.type
    return kind.shape if isinstance(kind, TensorType) and kind.is_static else None  # type: ignore[return-value]


def _elements(entries: Iterable[NodeEntry]) -> int | None:
    """Number of elements of these values; None if a shape is not static."""
    total = 0
    for entry in entries:
        kind = entry.type
        if not isinstance(kind, TensorType) or not kind.is_static:
            return None
        total += math.prod(kind.shape or ())  # type: ignore[arg-type]
    return total


def _convolution(node: Node, results: int) -> int | None:
    """Each result sums over a window of the channels of its group: the weights without their first dimension."""
    kernel = _shape(node, FILTERS[str(node.op)])
    return None if kernel is None else results * math.prod(kernel[1:])


def _transposed(node: Node, results: int) -> int | None:
    """Each input element is multiplied by a window of the channels of its group."""
    read, kernel = _shape(node, 0), _shape(node, 1)
    return None if read is None or kernel is None else math.prod(read) * math.prod(kernel[1:])


def _product(node: Node, results: int) -> int | None:
    """Each result sums over a row of the left matrix."""
    left = _shape(node, 0)
    if left is None:
        return None
    return results * (left[0] if node.op == "Gemm" and node.attrs.get("transA") else left[-1] if left else 1)


def _recurrence(node: Node, results: int) -> int | None:
    """Both weight matrices once per step, sequence and direction."""
    read, inner, hidden = _shape(node, 0), _shape(node, 1), _shape(node, 2)
    if read is None or inner is None or hidden is None:
        return None
    return read[0] * read[1] * (math.prod(inner) + math.prod(hidden))


def einsum_products(node: Node) -> int | None:
    """One MAC per combination of indices for two operands; for more it is the cost of a direct evaluation."""
    left = str(node.attrs["equation"]).replace(" ", "").partition("->")[0].split(",")
    if any("." in labels for labels in left):
        return None
    sizes: dict[str, int] = {}
    for position, labels in enumerate(left):
        shape = _shape(node, position)
        if shape is None:
            return None
        sizes.update(zip(labels, shape))
    return math.prod(sizes.values()) * max(1, len(left) - 1)


def _attention(node: Node, results: int) -> int | None:
    """Each query times each key, and each row of weights times each value."""
    query, key, value = _shape(node, 0), _shape(node, 1), _shape(node, 2)
    if query is None or key is None or value is None or node.inputs[4:6] not in ((), (None,), (None, None)):
        return None
    length = key[-2]
    if len(query) == 4:
        batch, heads, queries, width = query
        return batch * heads * queries * length * (width + value[-1])
    share = int(node.attrs["q_num_heads"]) // int(node.attrs["kv_num_heads"])
    return query[0] * query[1] * length * (query[2] + value[2] * share)


_PRODUCTS: Mapping[str, Callable[[Node, int], int | None]] = {
    **dict.fromkeys(FILTERS, _convolution),
    **dict.fromkeys(ops("matrix_product"), _product),
    **dict.fromkeys(ops("recurrent"), _recurrence),
    "Attention": _attention,
    "ConvTranspose": _transposed,
    "Einsum": lambda node, results: einsum_products(node),
}
"""MACs of the ops that consist mostly of products."""

_READING = ("reduction", "arg_reduction", "pool", "global_pool", "reading")
"""The traits of ops that cost as much as they read."""
