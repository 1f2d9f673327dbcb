"""A chain of element-wise ops: one pass over memory.

Adjacent dimensions along which every operand is broadcast alike are merged; the innermost is cut into vectors, the others run in
parallel. Cheap ops are inlined into their reader; the result of an expensive one, or of one with several readers, is kept in a
register; inlined everywhere, they would be computed once for each path through the chain. Functions such as exp are polynomials,
so that they are vectorized too."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from contextlib import ExitStack

import attrs
import numpy as np

from partita.accelerators.tvm.bodies.body import Body, element_of, make_body, shape_of
from partita.accelerators.tvm.bodies.quantized import DOMAIN as QUANTIZED
from partita.accelerators.tvm.kernels.language import Buffer, Kernel, Operand, Value, minimum
from partita.accelerators.tvm.kernels.language.values import as_index
from partita.accelerators.tvm.kernels.shared.element_access import HALVES, Shape, computed_element, constants_of, read, write
from partita.accelerators.tvm.kernels.shared.elementwise import ELEMENTWISE, QUANTIZED_FORMULAS, Formula, formula, number_of
from partita.accelerators.tvm.kernels.shared.kernel_io import Draft, Problem
from partita.accelerators.tvm.kernels.shared.loops import is_shared_out, nest, pieces, start
from partita.accelerators.tvm.machine.machine import Machine
from partita.accelerators.tvm.sizes.extent import Extent, is_multiple
from partita.graph.graph import Graph
from partita.graph.node import Node
from partita.graph.ops.traits import ops
from partita.graph.types import TensorType
from partita.partition.property import SubgraphProperty
from partita.partition.selector import ContainOpSelector, SubgraphSelector

DEAR_STEPS = 8
"""The cost of an expensive op in cheap ones."""

UNROLLED = 4
"""Vectors that are processed at a time, so that their latencies overlap."""

PIECE = 4096
"""Elements of a task if their count is dynamic."""

MOST_PIECES = 256
"""Maximum number of tasks of a loop whose size no vector divides."""


def chain(body: Body, machine: Machine) -> Draft | None:
    """The kernel for a body of element-wise ops whose results have one shape."""
    formulas = find_chain(body)
    if formulas is None:
        return None
    problem, shape = Problem.of(body), shape_of(body.ops[0][0])
    flat = _Flat.of([shape_of(entry) for entry in problem.inputs], shape)
    operands = dict(enumerate(flat.operands))
    kernel, inputs, outputs = problem.kernel("chain", operands, [flat.shape] * len(problem.outputs))
    writing = _ChainLoops(problem, kernel, inputs, outputs, flat, formulas)
    writing.write(_ChainCut.of(problem, flat.shape, machine), is_shared_out(_steps(body, shape), machine))
    return problem.draft(kernel, "chain")


def find_chain(body: Body) -> dict[Node, Formula] | None:
    """The formula of each op of a chain; None if the body is not a chain of results of one shape."""
    version = body.graph.opset
    formulas = {node: compute for node in body.ops if (compute := formula(node, version)) is not None}
    arrays = any(node.value is not None and node.value.size != 1 for node in body.graph.nodes)
    if arrays or len(formulas) < len(body.ops):
        return None
    shapes = {shape_of(node[0]) for node in body.ops}
    return formulas if len(shapes) == 1 and math.prod(shapes.pop()) != 0 else None


@attrs.frozen(slots=True)
class _Flat:
    """The shapes with adjacent dimensions merged."""

    shape: Shape
    """The result's shape."""
    operands: tuple[Shape, ...]
    """The inputs' shapes; each dimension is the result's or 1."""

    @classmethod
    def of(cls, shapes: Sequence[Shape], whole: Shape) -> _Flat:
        """Merges the shapes of inputs that are broadcast to `whole`."""
        given = [(1,) * (len(whole) - len(own)) + own for own in shapes]
        groups: list[list[int]] = []
        walk: tuple[bool, ...] | None = None
        for d, size in enumerate(whole):
            new = tuple(operand[d] == size for operand in given) if size != 1 else None
            if groups and (new is None or walk is None or new == walk):
                groups[-1].append(d)
            else:
                groups.append([d])
            walk = walk if new is None else new

        def merged(sizes: Shape) -> Shape:
            return tuple(math.prod(sizes[d] for d in group) for group in groups) or (1,)

        return cls(merged(whole), tuple(map(merged, given)))


@attrs.frozen(slots=True)
class _ChainCut:
    """The loops over the innermost dimension: pieces of `vectors` vectors of `lanes` lanes."""

    pieces: Operand
    vectors: int
    lanes: int
    """Elements of a vector; 1 leaves vectorization to LLVM."""
    inner: int
    """Elements of a piece if vectorization is left to LLVM."""

    @classmethod
    def of(cls, problem: Problem, shape: Shape, machine: Machine) -> _ChainCut:
        """Full vectors if they divide the dimension; for quantized elements the last one overlaps otherwise. All else is left
        to LLVM, which vectorizes narrow elements better than TVM."""
        extent, ops = shape[-1], problem.body.ops
        if machine.lanes == 1:
            return cls(extent, 1, 1, 1)
        is_quantized = any(node.domain == QUANTIZED for node in ops)
        inside = [node[0] for node in ops] if is_quantized else []
        sizes = [computed_element(entry).bits // 8 for entry in (*problem.inputs, *problem.outputs, *inside)]
        if isinstance(extent, Extent) and not is_multiple(extent, machine.lanes):
            return cls(pieces(extent, PIECE), 1, 1, PIECE) if len(shape) == 1 else cls(1, 1, 1, extent)
        if is_quantized and max(sizes) > 2 and isinstance(extent, int) and extent >= machine.lanes:
            vectors = next(k for k in (UNROLLED, 2, 1) if k == 1 or (extent >= 2 * k * machine.lanes))
            return cls(math.ceil(extent / (machine.lanes * vectors)), vectors, machine.lanes, 1)
        narrow = machine.lanes * 4 // min(sizes)
        lanes = narrow if narrow > machine.lanes and is_multiple(extent, narrow) else machine.lanes
        if is_multiple(extent, lanes) and max(sizes) > 2:
            room = machine.lanes * 4 * UNROLLED
            fits = [k for k in (UNROLLED, 2) if lanes * k * max(sizes) <= room and is_multiple(extent, lanes * k)]
            vectors = (fits or [1])[0]
            return cls(extent // (lanes * vectors), vectors, lanes, 1)
        parts = 1 if len(shape) > 1 else max((d for d in range(1, MOST_PIECES + 1) if is_multiple(extent, d)), default=1)
        return cls(parts, 1, 1, extent // parts)


@attrs.frozen(slots=True, eq=False)
class _ChainLoops:
    problem: Problem
    kernel: Kernel
    inputs: Sequence[Buffer]
    outputs: Sequence[Buffer]
    flat: _Flat
    formulas: dict[Node, Formula]

    def write(self, cut: _ChainCut, is_work: bool | Value) -> None:
        """Writes the loops: outer dimensions, pieces of the innermost, vectors, lanes."""
        kernel = self.kernel
        with nest(kernel, (*self.flat.shape[:-1], cut.pieces), is_work) as indices:
            *outer, piece = indices
            kept = {}
            for i, node in enumerate(self._kept()):
                kept[node] = kernel.stack(f"t{i}", computed_element(node[0]), (cut.lanes,))
            with ExitStack() as loops:
                if cut.lanes > 1:
                    vector = loops.enter_context(kernel.unroll(cut.vectors, "v"))
                    lane = loops.enter_context(kernel.lanes(cut.lanes))
                    first = (piece * cut.vectors + vector) * cut.lanes
                    if not is_multiple(self.flat.shape[-1], cut.vectors * cut.lanes):
                        first = start(as_index(piece), cut.vectors * cut.lanes, self.flat.shape[-1]) + vector * cut.lanes
                    self._numbers((*outer, first + lane), lane, kept)
                else:
                    step = loops.enter_context(kernel.loop(self._numbers_of(cut, piece), "e"))
                    self._numbers((*outer, piece * cut.inner + step), 0, kept)

    def _numbers_of(self, cut: _ChainCut, piece: Operand) -> Operand:
        """Number of elements of a piece; the last one has fewer if their count is dynamic."""
        if isinstance(cut.pieces, int):
            return cut.inner
        return minimum(cut.inner, as_index(self.flat.shape[-1]) - piece * cut.inner)

    def _kept(self) -> list[Node]:
        """The ops whose results are kept in a register: expensive ones, those with several readers, and all of a chain with
        several results. (Booleans cannot be kept: TVM reads vectors of them as integers.)"""
        reads = Counter(entry.node for node in self.problem.body.ops for entry in node.reads)
        is_split = len(self.problem.outputs) > 1
        numbers = [node for node in self.problem.body.ops if element_of(node[0]) != "bool"]
        return [node for node in numbers if is_split or reads[node] > 1 or (node.op in ops("costly") and reads[node])]

    def _numbers(self, indices: tuple[Operand, ...], lane: Operand, kept: dict[Node, Buffer]) -> None:
        """Writes the ops at one position, in order, and stores the results."""
        values = {**constants_of(self.problem.body)}
        for position, (entry, sizes) in enumerate(zip(self.problem.inputs, self.flat.operands, strict=True)):
            at = tuple([0 if size == 1 else index for size, index in zip(sizes, indices, strict=True)])
            values[entry] = read(self.inputs[position], at)
        for node in self.problem.body.ops:
            value = number_of(node, self.formulas[node], values)
            if node in kept:
                kept[node][lane] = value
                value = kept[node][lane]
            values[node[0]] = value
        for output, entry in zip(self.outputs, self.problem.outputs, strict=True):
            write(output, indices, values[entry])


def _steps(body: Body, shape: Shape) -> int:
    """Estimated cost of all elements together, in steps."""
    return math.prod(shape) * max(1, sum(DEAR_STEPS if node.op in ops("costly") else 1 for node in body.ops) // 4)


LONGEST_CHAIN = 32
"""Maximum number of ops of a chain: a longer one has more live values than there are registers."""


class ChainProperty(SubgraphProperty):
    """Connected element-wise ops of one shape."""

    name = "chain"
    growth = "largest"
    min_subgraph_size = 2

    def create_subgraph_selector(self) -> SubgraphSelector:
        return ChainSelector()

    def review_subgraph(self, subgraph: Graph, index: int) -> bool:
        """Rejects chains that would spill registers, and those of 16-bit or quantized elements that our kernel does not support:
        TVM's own kernel rounds 16-bit elements after every op, and supports no quantized ones."""
        ops = [node for node in subgraph.nodes if node.is_op]
        dtypes = {getattr(entry.type, "dtype", "") for node in ops for entry in (*node.reads, *node.outputs)}
        is_ours = bool(dtypes & HALVES) or any(node.domain == QUANTIZED for node in ops)
        return len(ops) <= LONGEST_CHAIN and (not is_ours or find_chain(make_body(subgraph)) is not None)


class ChainSelector(ContainOpSelector):
    """Element-wise ops, each labelled with the shape of its result."""

    stateless = True

    def __init__(self) -> None:
        super().__init__({*ELEMENTWISE, *(f"{QUANTIZED}::{op}" for op in QUANTIZED_FORMULAS)})

    def label(self, node: Node) -> Hashable | None:
        value_type = node.output_types[0]
        if super().label(node) is None or not isinstance(value_type, TensorType) or _alone(node):
            return None
        return value_type.shape, node.op in RING and "int" in value_type.dtype


RING = ops("ring")
"""Ops that compute integers modulo the type's size. They share no chain with other ops of integers: TVM, and LLVM on its word,
simplify comparisons, casts, minima and maxima of their results as if integers never overflowed, but not of elements in memory."""


def _alone(node: Node) -> bool:
    """True if the op gets a kernel of its own: a power of two element types, or an op from integers to integers whose result
    TVM would simplify wrongly (division, power, absolute value, or a cast to a type that does not hold all values)."""
    stored, first = (str(getattr(entry.type, "dtype", "")) for entry in (node[0], node.reads[0]))
    if node.op == "Pow" and len({getattr(entry.type, "dtype", "") for entry in node.reads}) > 1:
        return True
    if "int" not in stored or "int" not in first:
        return False
    return node.op in ("Div", "Mod", "Pow", "Abs") or (node.op == "Cast" and not np.can_cast(first, stored))
