"""Selects products, convolutions and pools, each with the ops around it that share its kernel: the element-wise ops after it
(bias, activations, residual add, rounding, in any order), and for products of two values those that only reorder or scale."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ClassVar

from partita.accelerators.tvm.bodies.blocked import DOMAIN as BLOCKED
from partita.accelerators.tvm.bodies.body import Body, make_body
from partita.accelerators.tvm.bodies.packed import DOMAIN as PACKED
from partita.accelerators.tvm.bodies.packed import PRODUCT
from partita.accelerators.tvm.bodies.quantized import DOMAIN as QUANTIZED
from partita.accelerators.tvm.bodies.quantized import is_dequantize, is_pair_product
from partita.accelerators.tvm.kernels.contraction.convolution.layer import (
    is_cut_off,
    reads_single_pixels,
    scales_channels,
    shifts_channels,
)
from partita.accelerators.tvm.kernels.contraction.matmul.gemm import before_turn, find_product
from partita.accelerators.tvm.kernels.contraction.matmul.packed_product import packed_root
from partita.accelerators.tvm.kernels.contraction.matmul.product import find_value_product
from partita.accelerators.tvm.kernels.contraction.operands import NARROWEST, FoundProperty, Readers, TwoSided, is_value_product
from partita.accelerators.tvm.kernels.contraction.quantized.matmul import find_pair_product
from partita.accelerators.tvm.kernels.shared.element_access import any_shape, number_shape, real_shape
from partita.accelerators.tvm.kernels.shared.elementwise import LATEST, formula
from partita.accelerators.tvm.kernels.shared.epilogue import folded, is_matrix_of, read_size
from partita.accelerators.tvm.kernels.shared.strides import VIEWS
from partita.accelerators.tvm.sizes.extent import Extent
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.graph.ops.traits import ops
from partita.partition.pattern import Pattern
from partita.partition.property import PatternProperty, SubgraphProperty
from partita.partition.selector import SubgraphSelector

MOST_RESULTS = 2
"""Maximum number of results of a subgraph; with more it is faster as several kernels."""


class EpilogueProperty(SubgraphProperty):
    """A root, and the element-wise ops after it."""

    def __init__(
        self, name: str, selector: Callable[[], SubgraphSelector], find: Callable[[Body], object | None] | None = None
    ) -> None:
        """`find` returns None for a body that the kernel does not support; then the root stays by itself."""
        self.name, self._selector, self._find = name, selector, find

    def create_subgraph_selector(self) -> SubgraphSelector:
        return self._selector()

    def review_subgraph(self, subgraph: Graph, index: int) -> bool:
        """Accepts subgraphs of few results that the kernel supports."""
        is_found = self._find is None or self._find(make_body(subgraph)) is not None
        return is_found and len(subgraph.outputs) <= MOST_RESULTS


class _EpilogueSelector(SubgraphSelector):
    """Grows from a root along the data flow, and against it where that leads back to the root."""

    longest: ClassVar[int] = 24
    """Maximum number of ops after the root."""

    def __init__(self) -> None:
        self.root: Node | None = None
        self.whole: tuple[int, ...] = ()
        """The shape of the root's result."""
        self.taken: list[Node] = []

    def reset(self) -> None:
        self.taken = []

    def select_output(self, cur: Node, new: Node) -> bool:
        return self._fits(new)

    def _fits(self, new: Node) -> bool:
        """True if the op may be in the epilogue, of which it then counts as a part."""
        raise NotImplementedError

    def _is_inside(self, new: Node) -> bool:
        """True if the op reads the root's result or that of an op of the epilogue."""
        return any(entry.node in self.taken or entry.node is self.root for entry in new.reads)

    def _take(self, new: Node, reads: Callable[[NodeEntry], bool] | None) -> bool:
        """Takes an element-wise op all of whose inputs the kernel `reads`, unless it is one too many; None: it only reshapes."""
        if len(self.taken) == self.longest or len(new.output_names) != 1:
            return False
        if reads is not None and (formula(new, LATEST) is None or not all(map(reads, new.reads))):
            return False
        self.taken.append(new)
        return True


BLOCKED_ROOTS = frozenset("Conv DepthwiseConv MaxPool AveragePool GlobalAveragePool Interleave Concat".split())
"""Ops on blocked values whose kernels have an epilogue."""


class _BlockedSelector(_EpilogueSelector):
    """Selects element-wise readers of the result as long as shapes stay the same, and operands of theirs that depend on it."""

    longest = 16

    def select(self, node: Node) -> bool:
        self.root, self.whole = node, real_shape(node[0]) or ()
        return node.domain == BLOCKED and node.op in BLOCKED_ROOTS

    def select_input(self, cur: Node, new: Node) -> bool:
        return cur is not self.root and self._is_inside(new) and self._fits(new)

    def _fits(self, new: Node) -> bool:
        return real_shape(new[0]) == self.whole and self._take(new, self._is_spread)

    def _is_spread(self, entry: NodeEntry) -> bool:
        shape = real_shape(entry)
        return shape is not None and folded(shape, self.whole, [(i, i + 1) for i in range(len(self.whole))]) is not None


BlockedProperty = partial(EpilogueProperty, "conv", _BlockedSelector)
"""An op on blocked values with its epilogue."""

ACTIVATIONS = "Relu|Clip|LeakyRelu|Sigmoid|Tanh|HardSigmoid|HardSwish|Elu|Selu|Softplus|Gelu|Mish|Swish|PRelu"
"""The activations that may end the kernel of a convolution of plain values."""

ConvolutionProperty = partial(PatternProperty, Pattern("Conv|ConvTranspose", "Add|Sum?", ACTIVATIONS + "?"), "conv")
"""A convolution of plain values with its element-wise epilogue."""

_NORM = scales_channels, shifts_channels, is_cut_off

NormedProperty = partial(PatternProperty, Pattern(*_NORM, reads_single_pixels, "Add|Sum?", ACTIVATIONS + "?"), "conv")
"""A 1 x 1 convolution with the normalization and the activation before it, and its epilogue, for a GPU kernel."""


class _MatrixSelector(_EpilogueSelector):
    """Follows the data flow from the product as long as each op has the product's rows and columns, and goes against it where
    that leads back to the product. A transpose of the constant is included."""

    def select(self, node: Node) -> bool:
        right = node.inputs[1] if len(node.inputs) > 1 else None
        if node.op not in ops("matmul") or node.domain or right is None:
            return False
        if right.node.value is None and not _is_turned_constant(right.node):
            return False
        self.root, self.whole = node, real_shape(node[0]) or ()
        return bool(self.whole)

    def select_input(self, cur: Node, new: Node) -> bool:
        if cur is self.root:
            return cur.inputs[1] == new[0] and _is_turned_constant(new)
        return self._fits(new) and (is_dequantize(new) or self._descends(new))

    def select_output(self, cur: Node, new: Node) -> bool:
        return not _is_turned_constant(cur) and self._fits(new)

    def filter(self, graph: Graph, candidates: list[Node]) -> list[Node]:  # type: ignore[override]
        """Drops dequantizations that are also read outside: each reader dequantizes for itself."""
        kept = dict.fromkeys(candidates)
        for node in reversed(candidates):
            readers = list(graph.consumers(node)) if is_dequantize(node) else []
            if is_dequantize(node) and not (readers and all(reader in kept for reader in readers)):
                del kept[node]
        return list(kept)

    def _fits(self, new: Node) -> bool:
        output = number_shape(new[0]) if new.domain in ("", QUANTIZED) else None
        if output is None or not is_matrix_of(output, self.whole):
            return False
        return self._take(new, None if new.op in VIEWS else lambda entry: read_size(number_shape(entry), output) is not None)

    def _descends(self, node: Node) -> bool:
        """True if the node depends on the product, over few ops of the same matrix shape."""
        waiting, seen = [node], {node}
        while waiting and len(seen) <= self.longest:
            for entry in waiting.pop().reads:
                if entry.node is self.root:
                    return True
                known = number_shape(entry) if entry.node.is_op else None
                if entry.node not in seen and known is not None and is_matrix_of(known, self.whole):
                    seen.add(entry.node)
                    waiting.append(entry.node)
        return False


def _is_turned_constant(node: Node) -> bool:
    before = before_turn(node)
    return before is not None and before.node.value is not None


class _PackedSelector(_MatrixSelector):
    """As for other constant matrices, but no op comes before the matrix."""

    def select(self, node: Node) -> bool:
        self.root, self.whole = node, real_shape(node[0]) or ()
        return node.domain == PACKED and node.op == PRODUCT and bool(self.whole)

    def select_input(self, cur: Node, new: Node) -> bool:
        return cur is not self.root and super().select_input(cur, new)


MatrixProperty = partial(EpilogueProperty, "matmul", _MatrixSelector, find_product)
"""A product by a constant matrix with its epilogue."""

PackedProperty = partial(EpilogueProperty, "packed", _PackedSelector, packed_root)
"""A product by a packed matrix with its epilogue."""


def _find_wide_product(root: Node, readers: Readers, version: int) -> TwoSided | None:
    return find_value_product(root, readers, version) if _is_wide(root) else None


def _is_wide(root: Node) -> bool:
    """True if the product is as wide as any processor's vector, or has a dynamic size: then there is code for few columns too."""
    sizes = [size for entry in (root[0], *root.reads) for size in real_shape(entry) or ()]
    return any(isinstance(size, Extent) for size in sizes) or (real_shape(root[0]) or (0,))[-1] >= NARROWEST


ProductProperty = partial(FoundProperty, "product", is_value_product, _find_wide_product)
"""Each remaining MatMul, whose second matrix is a value or a batch of matrices, with the ops around it that only move or scale,
and its epilogue."""

QUANTIZED_ROOTS = frozenset("Product Depthwise Mean Mix".split())
"""Ops whose kernels have an epilogue."""

OF_OPERANDS = ops("ring") | {"Cast"}
"""Ops on per-channel values that a kernel recomputes for each result: scales and zero points, multiplied and added."""


class _QuantizedSelector(_EpilogueSelector):
    """Grows from the root along the data flow, as long as shapes stay; against it if that leads back to the root, or to
    per-channel operands if the kernel computes these too."""

    def __init__(self, computes_operands: bool) -> None:
        super().__init__()
        self.computes_operands = computes_operands

    def select(self, node: Node) -> bool:
        self.root, self.whole = node, any_shape(node[0]) or ()
        return node.domain == QUANTIZED and node.op in QUANTIZED_ROOTS

    def select_input(self, cur: Node, new: Node) -> bool:
        if cur is self.root:
            return False
        is_inside = self._is_inside(new) or self._is_dequantize(new)
        return (is_inside and self._fits(new)) or (self.computes_operands and self._is_operand(new))

    def select_output(self, cur: Node, new: Node) -> bool:
        return self._has_shape(cur) and self._fits(new)

    def filter(self, graph: Graph, candidates: list[Node]) -> list[Node]:  # type: ignore[override]
        """Drops a dequantization whose value others read: the value stays integers, which each reader dequantizes itself. An
        operand that others read is computed once, for all of them."""
        kept, returned = dict.fromkeys(candidates), {entry.node for entry in graph.outputs}
        for node in reversed(candidates):
            readers = [reader in kept for reader in graph.consumers(node)]
            is_shared = not self._has_shape(node) and (node in returned or not all(readers))
            if is_shared or (is_dequantize(node) and not any(readers)):
                del kept[node]
        return list(kept)

    def _is_dequantize(self, new: Node) -> bool:
        """True for a dequantization of another value than the root's own input, which is read in one way only."""
        return is_dequantize(new) and self.root is not None and new.inputs[0] != self.root.inputs[0]

    def _has_shape(self, node: Node) -> bool:
        """True if the node's result has the root's shape."""
        return any_shape(node[0]) == self.whole

    def _is_operand(self, new: Node) -> bool:
        """True for a per-channel or scalar operand that is computed from such."""
        return new.op in OF_OPERANDS and not self._has_shape(new) and self._is_spread(new[0]) and self._take(new, self._is_spread)

    def _fits(self, new: Node) -> bool:
        return self._has_shape(new) and self._take(new, self._is_spread)

    def _is_spread(self, entry: NodeEntry) -> bool:
        """True if the value has an element per result, per channel or per pixel, or a single one."""
        groups = [(0, len(self.whole) - 1), (len(self.whole) - 1, len(self.whole))]
        shape = any_shape(entry)
        return shape is not None and folded(shape, self.whole, groups) is not None


def QuantizedProperty(computes_operands: bool) -> EpilogueProperty:
    """A product or a pool of quantized values with its epilogue. On a GPU its kernel computes the epilogue's operands too
    (`computes_operands`), which costs less than a launch."""
    return EpilogueProperty("quantized", lambda: _QuantizedSelector(computes_operands))


PairProperty = partial(FoundProperty, "quantized_pair", is_pair_product, find_pair_product)
"""Each MatMul of two quantized values."""
