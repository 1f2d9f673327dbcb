"""All kernels: the kinds in the order in which each takes ops of a subgraph, and the kernels in the order in which they are
tried. The first that accepts a body drafts its kernel, the others decline it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

import attrs

from partita.accelerators.interface.cached_attention import DOMAIN as CACHE
from partita.accelerators.interface.cached_attention import OP as CACHED
from partita.accelerators.tvm.bodies.blocked import DOMAIN
from partita.accelerators.tvm.bodies.body import Body
from partita.accelerators.tvm.bodies.indices import INDICES, OUTSIDE
from partita.accelerators.tvm.bodies.packed import DOMAIN as PACKED
from partita.accelerators.tvm.bodies.packed import PANEL_ROWS, PRODUCT, ROWS
from partita.accelerators.tvm.bodies.quantized import DOMAIN as QUANTIZED
from partita.accelerators.tvm.bodies.recurrent import DOMAIN as RECURRENT
from partita.accelerators.tvm.bodies.recurrent import GATES
from partita.accelerators.tvm.kernels.attention.attention import attention
from partita.accelerators.tvm.kernels.attention.gpu import gpu_attention
from partita.accelerators.tvm.kernels.attention.in_place import cached_attention
from partita.accelerators.tvm.kernels.attention.pattern import AttentionProperty
from partita.accelerators.tvm.kernels.chain import ChainProperty, chain
from partita.accelerators.tvm.kernels.contraction.convolution.blocked_conv import blocked_convolution
from partita.accelerators.tvm.kernels.contraction.convolution.gpu_conv import gpu_convolution, gpu_depthwise
from partita.accelerators.tvm.kernels.contraction.convolution.gpu_transposed import gpu_transposed_convolution
from partita.accelerators.tvm.kernels.contraction.convolution.plain import convolution
from partita.accelerators.tvm.kernels.contraction.instruction_meanings import narrowing_of
from partita.accelerators.tvm.kernels.contraction.matmul.gemm import gemm, thin
from partita.accelerators.tvm.kernels.contraction.matmul.gpu_gemm import gpu_gemm, gpu_value_product
from partita.accelerators.tvm.kernels.contraction.matmul.packed_product import packed_product
from partita.accelerators.tvm.kernels.contraction.matmul.product import product
from partita.accelerators.tvm.kernels.contraction.quantized.byte_depthwise import depthwise as quantized_depthwise
from partita.accelerators.tvm.kernels.contraction.quantized.byte_product import product as quantized_product
from partita.accelerators.tvm.kernels.contraction.quantized.dynamic_bytes import dynamic_bytes, gpu_dynamic_bytes
from partita.accelerators.tvm.kernels.contraction.quantized.gpu_product import gpu_quantized_depthwise, gpu_quantized_product
from partita.accelerators.tvm.kernels.contraction.quantized.matmul import gpu_pair_product, pair_product
from partita.accelerators.tvm.kernels.contraction.quantized.moves import (
    gpu_interleaved_bytes,
    gpu_joined,
    gpu_mix,
    gpu_resized_bytes,
    joined,
    lookup,
    mix,
)
from partita.accelerators.tvm.kernels.contraction.quantized.moves import interleave as interleave_bytes
from partita.accelerators.tvm.kernels.contraction.quantized.moves import resize as resize_bytes
from partita.accelerators.tvm.kernels.contraction.quantized.pools import largest, mean
from partita.accelerators.tvm.kernels.contraction.recurrent.recurrence import recurrence
from partita.accelerators.tvm.kernels.contraction.selectors import (
    BlockedProperty,
    ConvolutionProperty,
    MatrixProperty,
    NormedProperty,
    PackedProperty,
    PairProperty,
    ProductProperty,
    QuantizedProperty,
)
from partita.accelerators.tvm.kernels.language import given_sizes, narrowing
from partita.accelerators.tvm.kernels.moves.copies import COPIES, concat, copies, from_blocked, shuffle, to_blocked
from partita.accelerators.tvm.kernels.moves.enlarging import enlarge, gpu_enlarge, interleave, resize
from partita.accelerators.tvm.kernels.moves.indexed import gather, gpu_outside, indices, packed_rows, panel_rows, scatter
from partita.accelerators.tvm.kernels.rows.any_axes import gpu_extreme, reduction
from partita.accelerators.tvm.kernels.rows.gpu_lines import gpu_one_at_the_largest, gpu_position, gpu_running_sums
from partita.accelerators.tvm.kernels.rows.gpu_rows import gpu_rows
from partita.accelerators.tvm.kernels.rows.lines import one_at_the_largest, position_of_extreme, running_sums
from partita.accelerators.tvm.kernels.rows.program import RowProperty, row_program
from partita.accelerators.tvm.kernels.rows.row_steps import ALONE, OF_CHANNELS, SOFTMAXES
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft
from partita.accelerators.tvm.kernels.shared.reducers import REDUCERS
from partita.accelerators.tvm.kernels.shared.strides import VIEWS
from partita.accelerators.tvm.kernels.window.blocked import blocked_pool, depthwise
from partita.accelerators.tvm.kernels.window.lrn import gpu_lrn, lrn
from partita.accelerators.tvm.kernels.window.pool import columns_to_image, gpu_pool, plain_pool
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.schedules.gpu_rule import bind_loops, in_items
from partita.accelerators.tvm.sizes.sizing import is_for_any_size
from partita.graph.build import CALL_DOMAIN
from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.graph.ops.traits import ops
from partita.partition.partition_graph import partition_graph
from partita.partition.pattern import Pattern
from partita.partition.property import PatternProperty, SubgraphProperty
from partita.passes.registry import REPORT, REQUESTS, register_pass

Machines = Literal["cpu", "gpu", "any", "loops", "open loops"]


@attrs.frozen(slots=True)
class Entry:
    """A kernel, with the bodies and machines that it is tried for."""

    draft: Callable[[Body, Machine], Draft | None]
    ops: frozenset[str] = frozenset()
    """The body contains one of these; empty: any body."""
    is_alone: bool = False
    """True if the body has this op only."""
    machines: Machines = "cpu"
    """The machines that it is tried for. "loops" are kernels for processors that GPUs run too, with a work item for each
    iteration of the parallel loops; GPUs run "open loops" only for bodies of dynamic size."""

    def suits(self, body: Body, machine: Machine) -> bool:
        """True if the kernel is tried for this body and machine."""
        if self.is_alone and len(body.ops) != 1:
            return False
        if self.machines == "open loops":
            return not machine.is_gpu or is_for_any_size(body.graph)
        return self.machines in ("any", "loops", "gpu" if machine.is_gpu else "cpu")

    def drafted(self, body: Body, machine: Machine) -> Draft | None:
        """The kernel for the machine; None if it declines the body."""
        if not (machine.is_gpu and self.machines in ("loops", "open loops")):
            return self.draft(body, machine)
        draft = self.draft(body, in_items(machine))
        return None if draft is None else attrs.evolve(draft, function=bind_loops(draft.function))


def _entry(
    draft: Callable[[Body, Machine], Draft | None], ops: str = "", domain: str = "", machines: Machines = "cpu",
    is_alone: bool = False,
) -> Entry:
    named = frozenset(f"{domain}.{op}" if domain else op for op in ops.split())
    return Entry(draft, named, is_alone, machines)


_alone = partial(_entry, is_alone=True)


ROW_OPS = sorted((*ops("row_norm"), OF_CHANNELS, *SOFTMAXES, *ALONE))
"""The ops that row programs are built around."""

CATALOGUE = (
    _entry(attention, "Softmax"),
    _alone(cached_attention, CACHED, CACHE),
    _entry(chain, machines="loops"),
    _entry(convolution, "Conv"),
    _entry(gemm, "MatMul Gemm"),
    _entry(product, "MatMul"),
    _entry(row_program, " ".join(ROW_OPS)),
    _alone(reduction, " ".join(REDUCERS)),
    _entry(thin, "MatMul Gemm"),
    _alone(dynamic_bytes, "DynamicQuantizeLinear"),
    _entry(packed_product, PRODUCT, PACKED),
    _alone(packed_rows, ROWS, PACKED),
    _alone(panel_rows, PANEL_ROWS, PACKED),
    _entry(quantized_product, "Product", QUANTIZED),
    _entry(quantized_depthwise, "Depthwise", QUANTIZED),
    _entry(pair_product, "MatMul", QUANTIZED),
    _alone(largest, "MaxPool", QUANTIZED, machines="loops"),
    _entry(mean, "Mean", QUANTIZED, machines="loops"),
    _alone(joined, "Concat", QUANTIZED),
    _alone(lookup, "Table", QUANTIZED),
    _alone(interleave_bytes, "Interleave", QUANTIZED),
    _alone(resize_bytes, "Resize", QUANTIZED),
    _entry(mix, "Mix", QUANTIZED),
    _alone(recurrence, " ".join(GATES), RECURRENT),
    _entry(blocked_convolution, "Conv", DOMAIN),
    _entry(blocked_pool, "MaxPool AveragePool GlobalAveragePool", DOMAIN),
    _entry(depthwise, "DepthwiseConv", DOMAIN),
    _alone(lrn, "LRN", DOMAIN),
    _alone(to_blocked, "ToBlocked", DOMAIN),
    _alone(from_blocked, "FromBlocked", DOMAIN),
    _entry(concat, "Concat", DOMAIN),
    _alone(shuffle, "Shuffle", DOMAIN),
    _entry(interleave, "Interleave", DOMAIN),
    _alone(resize, "Resize", DOMAIN),
    _alone(enlarge, "Enlarge", DOMAIN),
    _entry(gpu_attention, "Softmax", machines="gpu"),
    _entry(gpu_convolution, "Conv", machines="gpu"),
    _entry(gpu_depthwise, "Conv", machines="gpu"),
    _entry(gpu_transposed_convolution, "ConvTranspose", machines="gpu"),
    _entry(gpu_gemm, "MatMul Gemm", machines="gpu"),
    _entry(gpu_value_product, "MatMul", machines="gpu"),
    _entry(gpu_quantized_product, "Product", QUANTIZED, machines="gpu"),
    _entry(gpu_quantized_depthwise, "Depthwise", QUANTIZED, machines="gpu"),
    _entry(gpu_pair_product, "MatMul", QUANTIZED, machines="gpu"),
    _alone(gpu_joined, "Concat", QUANTIZED, machines="gpu"),
    _alone(gpu_resized_bytes, "Resize", QUANTIZED, machines="gpu"),
    _alone(gpu_interleaved_bytes, "Interleave", QUANTIZED, machines="gpu"),
    _entry(gpu_mix, "Mix", QUANTIZED, machines="gpu"),
    _alone(gpu_dynamic_bytes, "DynamicQuantizeLinear", machines="gpu"),
    _alone(gpu_extreme, "ReduceMax ReduceMin", machines="gpu"),
    _entry(gpu_rows, " ".join(ROW_OPS), machines="gpu"),
    _alone(gpu_pool, "MaxPool AveragePool LpPool", machines="gpu"),
    _alone(gpu_lrn, "LRN", machines="gpu"),
    _alone(gpu_enlarge, "Resize", machines="gpu"),
    _alone(gpu_position, "ArgMax ArgMin", machines="gpu"),
    _alone(gpu_one_at_the_largest, "Hardmax", machines="gpu"),
    _alone(gpu_running_sums, "CumSum", machines="gpu"),
    _alone(indices, INDICES, CALL_DOMAIN, machines="any"),
    _alone(gpu_outside, OUTSIDE, CALL_DOMAIN, machines="gpu"),
    _alone(plain_pool, "MaxPool AveragePool LpPool"),
    _alone(columns_to_image, "Col2Im"),
    _alone(position_of_extreme, "ArgMax ArgMin"),
    _alone(one_at_the_largest, "Hardmax"),
    _alone(running_sums, "CumSum"),
    _alone(copies, " ".join(sorted(COPIES)), machines="open loops"),
    _alone(gather, "Gather GatherElements GatherND", machines="loops"),
    _alone(scatter, "ScatterElements Scatter ScatterND", machines="loops"),
)
"""One entry per kernel, in the order in which they are tried."""


def draft_kernel(body: Body, machine: Machine) -> Draft | None:
    """The kernel of the first entry that accepts the body."""
    held = {f"{node.domain}.{node.op}" if node.domain else str(node.op) for node in body.ops}
    for entry in CATALOGUE:
        if entry.suits(body, machine) and (not entry.ops or entry.ops & held):
            with narrowing(narrowing_of(machine)), given_sizes(machine.is_gpu):
                draft = entry.drafted(body, machine)
            if draft is not None:
                return draft
    return None


class SingleProperty(PatternProperty):
    """Makes a kernel of every other op by itself."""

    def __init__(self) -> None:
        super().__init__(Pattern(_moves_numbers), "op")


@register_pass("FuseKernels", provides=(REPORT,), keeps=REQUESTS, family="tvm", essential=True)
def fuse_kernels(graph: Graph, machine: Machine | None = None) -> Graph:
    """The graph with a call for each kernel; views, which move no elements, stay as they are.

    Each kind takes ops that the kinds before it left, so the order matters. On a GPU, maxima and minima of rows are
    kernels of their own, since fused kernels by TVM mishandle infinities and NaN. A convolution on a GPU computes a normalization
    before it while it reads the image."""
    is_gpu = machine is not None and machine.is_gpu
    kinds: list[Callable[[], SubgraphProperty]] = [
        AttentionProperty, partial(QuantizedProperty, is_gpu), PairProperty, BlockedProperty, NormedProperty, ConvolutionProperty,
        MatrixProperty, PackedProperty, ProductProperty, partial(RowProperty, not is_gpu), ChainProperty, SingleProperty,
    ]
    properties = [kind() for kind in kinds if is_gpu or kind is not NormedProperty]
    return partition_graph(graph, subgraph_property=properties)


def _moves_numbers(node: Node) -> bool:
    return not (node.op in VIEWS and not node.domain)
