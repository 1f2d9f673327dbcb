"""Selects convolutions and other ops on blocked values with their element-wise epilogue (bias, activation of one op or several,
residual add, in any order), and convolutions of plain values."""

from __future__ import annotations

from partita.accelerators.tvm.bodies.blocked import DOMAIN
from partita.accelerators.tvm.kernels.contraction.convolution.layer import (
    is_cut_off,
    reads_single_pixels,
    scales_channels,
    shifts_channels,
)
from partita.accelerators.tvm.kernels.shared.element_access import real_shape
from partita.accelerators.tvm.kernels.shared.elementwise import LATEST, formula
from partita.accelerators.tvm.kernels.shared.epilogue import folded
from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.partition.pattern import Pattern
from partita.partition.property import PatternProperty, SubgraphProperty
from partita.partition.selector import SubgraphSelector

ROOTS = frozenset("Conv DepthwiseConv MaxPool AveragePool GlobalAveragePool Interleave Concat".split())
"""Ops on blocked values whose kernels have an epilogue."""

LONGEST = 16
"""Maximum number of ops after a convolution in its kernel."""


class BlockedProperty(SubgraphProperty):
    """An op on blocked values, and the element-wise ops after it."""

    name = "conv"

    def create_subgraph_selector(self) -> SubgraphSelector:
        return BlockedSelector()

    def review_subgraph(self, subgraph: Graph, index: int) -> bool:
        """Rejects a subgraph with many results, which is faster as several kernels."""
        return len(subgraph.outputs) <= 2


class BlockedSelector(SubgraphSelector):
    """Selects element-wise readers of the result as long as shapes stay the same, and operands of theirs that depend on it."""

    def __init__(self) -> None:
        self.root: Node | None = None
        self.whole: tuple[int, ...] = ()
        self.taken: set[Node] = set()

    def select(self, node: Node) -> bool:
        self.root, self.whole = node, real_shape(node[0]) or ()
        return node.domain == DOMAIN and node.op in ROOTS

    def select_input(self, cur: Node, new: Node) -> bool:
        inside = any(entry.node in self.taken or entry.node is self.root for entry in new.reads)
        return cur is not self.root and inside and self._fits(new)

    def select_output(self, cur: Node, new: Node) -> bool:
        return self._fits(new)

    def reset(self) -> None:
        self.taken = set()

    def _fits(self, new: Node) -> bool:
        if len(self.taken) == LONGEST or len(new.output_names) != 1 or real_shape(new[0]) != self.whole:
            return False
        shapes = [real_shape(entry) for entry in new.reads]
        groups = [(i, i + 1) for i in range(len(self.whole))]
        if formula(new, LATEST) is None or any(s is None or folded(s, self.whole, groups) is None for s in shapes):
            return False
        self.taken.add(new)
        return True


_ACTIVATIONS = "Relu|Clip|LeakyRelu|Sigmoid|Tanh|HardSigmoid|HardSwish|Elu|Selu|Softplus|Gelu|Mish|Swish|PRelu"
"""The activations that may end the kernel of a convolution of plain values."""


class ConvolutionProperty(PatternProperty):
    """A convolution of plain values with its element-wise epilogue."""

    def __init__(self) -> None:
        super().__init__(Pattern("Conv|ConvTranspose", "Add|Sum?", _ACTIVATIONS + "?"), "conv")


class NormedProperty(PatternProperty):
    """A 1 x 1 convolution with the normalization and the activation before it, and its epilogue, for a GPU kernel."""

    def __init__(self) -> None:
        before = scales_channels, shifts_channels, is_cut_off
        super().__init__(Pattern(*before, reads_single_pixels, "Add|Sum?", _ACTIVATIONS + "?"), "conv")
