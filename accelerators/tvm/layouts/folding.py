"""Per-channel scales and shifts folded into the convolution before them, or merged into one of each.

Old exports write a batch norm as a Mul and an Add, or follow one by them. If there is no convolution before (networks that
normalise first), a run of such ops becomes one Mul and one Add, which fuse with the ops after them."""

from __future__ import annotations

import attrs
import numpy as np

from partita.accelerators.tvm.kernels.shared.element_access import float32_shape
from partita.graph.build import constant
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.graph.ops.traits import ops
from partita.graph.rewrite import Rewriter, rewrite
from partita.graph.types import Array, TensorType
from partita.passes.constants import Namer
from partita.passes.fold_batch_norm import convolution_factors, is_inference, is_only_reader, scale_and_shift
from partita.passes.registry import REQUESTS, register_pass


@attrs.frozen(slots=True)
class ScaleRun:
    """A run of ops that compute y = x · scale + shift per channel."""

    source: NodeEntry
    """The value that is scaled and shifted."""
    scale: Array
    """The factor of each channel, in float64."""
    shift: Array
    """The summand of each channel, in float64."""
    nodes: tuple[Node, ...]
    """The ops of the run."""


@register_pass("FoldScales", keeps=REQUESTS, family="tvm")
def fold_scales(graph: Graph) -> Graph:
    """Per-channel Mul, Add and BatchNormalization folded into the convolution before them, or into one Mul and Add. Linear."""
    runs: dict[Node, ScaleRun] = {}
    for node in graph.nodes:
        step = _step(node, graph)
        if step is None:
            continue
        before = runs.get(step.source.node)
        if before is not None and is_only_reader(step.source, graph):
            del runs[step.source.node]
            shift = before.shift * step.scale + step.shift
            step = ScaleRun(before.source, before.scale * step.scale, shift, (*before.nodes, node))
        runs[node] = step
    if not runs:
        return graph
    return _Folding(graph, runs).run()


class _Folding:
    def __init__(self, graph: Graph, runs: dict[Node, ScaleRun]) -> None:
        self.graph = graph
        self.namer = Namer(graph)
        self.into: dict[Node, tuple[ScaleRun, Array, Array]] = {}
        """For each convolution, the run that is folded into it, and its new weights and bias."""
        self.alone: dict[Node, ScaleRun] = {}
        """The runs that are not folded, by their last op; each becomes a Mul and an Add."""
        for last, run in runs.items():
            folded = self._folded(run)
            if folded is not None:
                self.into[run.source.node] = (run, *folded)
            elif len(run.nodes) > 1 or run.nodes[0].op == "BatchNormalization":
                self.alone[last] = run
        gone = [*(run for run, _, _ in self.into.values()), *self.alone.values()]
        self.gone = {node for run in gone for node in run.nodes}

    def run(self) -> Graph:
        return rewrite(self.graph, self._visit)

    def _folded(self, run: ScaleRun) -> tuple[Array, Array] | None:
        """The new weights and bias of the convolution before the run, if the run can be folded into it."""
        op = run.source.node
        if op.op not in ops("convolution") or op.domain or not is_only_reader(run.source, self.graph):
            return None
        given = [None if entry is None else entry.node.value for entry in op.inputs[1:]]
        if given[0] is None or (len(op.inputs) > 2 and op.inputs[2] is not None and given[1] is None):
            return None
        factors = convolution_factors(op, given[0], given[1] if len(given) > 1 else None, run.scale, run.shift)
        if factors is None or not factors.are_finite(given[0]):
            return None
        return factors.scaled(given[0]), factors.bias

    def _visit(self, node: Node, rewriter: Rewriter) -> None:
        if node in self.into:
            run, weight, bias = self.into[node]
            last = run.nodes[-1]
            parts = [rewriter.keep(constant(part, self.namer(f"{last.name}_{what}")))
                     for part, what in ((weight, "weight"), (bias, "bias"))]
            inputs = (rewriter.rebuilt(node).inputs[0], *(part[0] for part in parts))
            folded = node.evolve(inputs=inputs, output_names=last.output_names[:1], output_types=last.output_types[:1])
            rewriter.keep(node, folded)
            rewriter.replace(last[0], folded[0])
        elif node in self.alone:
            self._pair(node, self.alone[node], rewriter)
        elif node not in self.gone:
            rewriter.keep(node)

    def _pair(self, node: Node, run: ScaleRun, rewriter: Rewriter) -> None:
        """Replaces the run by a Mul and an Add."""
        value_type = run.source.type
        assert isinstance(value_type, TensorType) and value_type.rank is not None
        value = rewriter.value(run.source)
        pair = ("Mul", run.scale, 1.0), ("Add", run.shift, 0.0)
        steps = [(op, array) for op, array, nothing in pair if (array != nothing).any()] or [pair[0][:2]]
        for i, (op, array) in enumerate(steps):
            shaped = array.astype(np.float32).reshape(-1, *(1,) * (value_type.rank - 2))
            operand = rewriter.keep(constant(shaped, self.namer(f"{node.name}_{op.lower()}ed")))
            is_last = i == len(steps) - 1
            name = node.name if is_last else self.namer(f"{node.name}_scaled")
            output = node.output_names[0] if is_last else name
            step = Node(name, op, (value, operand[0]), output_names=(output,), output_types=(value_type,), metadata=node.metadata)
            value = rewriter.keep(step)[0]
        rewriter.replace(node[0], value)


def _step(node: Node, graph: Graph) -> ScaleRun | None:
    """The op as a run of one, if it scales and shifts channels."""
    if not node.is_op or node.domain or node.bodies or not node.inputs or node.inputs[0] is None:
        return None
    if node.op == "BatchNormalization":
        factors = scale_and_shift(node) if is_inference(node, graph) and _channels(node.inputs[0]) else None
        return None if factors is None else ScaleRun(node.inputs[0], *factors, (node,))
    if node.op not in ("Mul", "Add", "Sub", "Div") or len(node.inputs) != 2:
        return None
    for x, other in (node.inputs, node.inputs[::-1]):
        channels = None if x is None else _channels(x)
        array = None if other is None else other.node.value
        if x is None or channels is None or array is None or not _is_by_channel(array, x):
            continue
        if node.op in ("Sub", "Div") and x is not node.inputs[0]:
            return None
        wide = np.broadcast_to(array.astype(np.float64).reshape(-1), (channels,))
        one, none = np.ones(channels), np.zeros(channels)
        with np.errstate(divide="ignore"):  # Div by zero yields infinity, and operands of the other ops may be zero.
            factors = {"Mul": (wide, none), "Add": (one, wide), "Sub": (one, -wide), "Div": (1 / wide, none)}[node.op]
        return ScaleRun(x, *factors, (node,))
    return None


def _channels(entry: NodeEntry) -> int | None:
    """The static number of channels of a float32 image, else None."""
    shape = float32_shape(entry)
    return shape[1] if shape is not None and len(shape) > 2 and isinstance(shape[1], int) else None


def _is_by_channel(array: Array, x: NodeEntry) -> bool:
    value_type = x.type
    assert isinstance(value_type, TensorType) and value_type.shape is not None
    rank = len(value_type.shape)
    if array.size == 1:
        return array.ndim <= rank
    return array.ndim in (rank - 1, rank) and array.shape[array.ndim - rank + 1] == value_type.shape[1] == array.size
