"""The second level: which ops of a subgraph become one kernel, said with our own properties."""

from __future__ import annotations

from functools import partial

from partita.accelerators.tvm.kernels.attention.selector import AttentionProperty
from partita.accelerators.tvm.kernels.convolution.selector import (
    BlockedProperty,
    ConvolutionProperty,
    NormedProperty,
)
from partita.accelerators.tvm.kernels.elementwise.selector import ChainProperty
from partita.accelerators.tvm.kernels.matmul.selector import MatrixProperty, PackedProperty, ProductProperty
from partita.accelerators.tvm.kernels.quantized.selector import PairProperty, QuantizedProperty
from partita.accelerators.tvm.kernels.rows.selector import RowProperty
from partita.accelerators.tvm.kernels.shared.strides import VIEWS
from partita.accelerators.tvm.machine.machine import Machine
from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.partition.partition_graph import partition_graph
from partita.partition.pattern import Pattern
from partita.partition.property import PatternProperty
from partita.passes.registry import REPORT, REQUESTS, register_pass


class SingleProperty(PatternProperty):
    """Makes a kernel of every other op by itself."""

    def __init__(self) -> None:
        super().__init__(Pattern(_moves_numbers), "op")


@register_pass("FuseKernels", provides=(REPORT,), keeps=REQUESTS, family="tvm", essential=True)
def fuse_kernels(graph: Graph, machine: Machine | None = None) -> Graph:
    """The graph with a call for each kernel; ops that move nothing stay as they are.

    Each kind takes what the kinds before it left; a new one gets its place in this order. On a GPU the largest
    and smallest numbers of rows are kernels by themselves: those that TVM makes of several ops know no infinities and no NaN.
    Threads of a GPU that read the image of a convolution compute what is before it."""
    is_gpu = machine is not None and machine.is_gpu
    normed = (NormedProperty,) if is_gpu else ()
    quantized = partial(QuantizedProperty, computes_operands=is_gpu), PairProperty
    products = BlockedProperty, *normed, ConvolutionProperty, MatrixProperty, PackedProperty, ProductProperty
    before, behind = (AttentionProperty, *quantized, *products), (ChainProperty, SingleProperty)
    properties = [*(kind() for kind in before), RowProperty(extremes=not is_gpu), *(kind() for kind in behind)]
    return partition_graph(graph, subgraph_property=properties)


def _moves_numbers(node: Node) -> bool:
    return not (node.op in VIEWS and not node.domain)
