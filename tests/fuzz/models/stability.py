"""How far two right answers may lie apart: the model is run again with each rounding made a little wrong.

Numbers that a model makes of rounding errors (a comparison of two numbers that are nearly equal, the difference of large ones,
the rounding of a half) say nothing of a kernel. What such runs change, a device may change as far; what they leave alone, as
integers and moves do, has to be exact."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import attrs
import ml_dtypes
import numpy as np

from partita.graph.errors import GraphError
from partita.graph.graph import Graph
from partita.graph.interpret import evaluate_node
from partita.graph.node import Node, NodeEntry
from partita.graph.types import Array
from tests.fuzz.models.cancelling import largest_term

EXACT = frozenset(
    "Abs Neg Relu Max Min Clip Where Identity Transpose Reshape Flatten Squeeze Unsqueeze Concat Split Slice Pad Expand Tile"
    " Gather GatherElements GatherND ScatterND TensorScatter Compress Unique TopK OneHot ReverseSequence Trilu EyeLike"
    " ConstantOfShape DepthToSpace SpaceToDepth CenterCropPad SequenceConstruct SequenceAt SequenceInsert SequenceErase"
    " ConcatFromSequence SplitToSequence MaxPool GlobalMaxPool MaxUnpool ReduceMax ReduceMin Ceil Floor Round Sign Hardmax"
    " Cast CastLike BitCast Dropout".split()
)
"""Ops that round nothing, so that there is nothing to make wrong."""

KEEPS_ZEROS = frozenset(
    "Add Sub Mul Div Sqrt Sin Sinh Asin Asinh Tan Tanh Atan Atanh Erf Softsign Elu Celu Selu LeakyRelu PRelu Gelu Mish Swish"
    " SwiGLU HardSwish Shrink ThresholdedRelu DequantizeLinear Pow Mod Sum Mean Sigmoid Exp".split()
)
"""Other ops whose zeros are exact, because they are not sums that happen to cancel."""

SIGN_LEFT_OPEN = frozenset("Elu Selu Celu Gelu Mish Swish SwiGLU HardSwish Shrink".split())
"""Those of these ops whose formulas may be written so that a zero comes out with either sign."""

PART_OF_ONE = frozenset(
    "Sigmoid Tanh Erf Gelu Mish Swish SwiGLU HardSigmoid HardSwish Softmax Exp Log Sin Cos Attention RNN GRU LSTM If Loop Scan"
    " Call LogSoftmax SoftmaxCrossEntropyLoss"
    " CausalConvWithState LinearAttention Elu Selu Celu HannWindow HammingWindow BlackmanWindow".split()
)
"""Ops made of functions that libraries approximate to a part of one, not of the result."""

PERIODIC = frozenset("Sin Cos Tan".split())
"""Ops that see of a large number what its rounding leaves."""

STEPS = 4
"""How many units in the last place of a result's largest number count as rounding."""

RUNS = ((0, 1.0, False), (0, -1.0, False), (1, 1.0, False), (2, 1.0, False), (3, -1.0, False), (1, 1.0, True))
"""How the model is run with wrong roundings: their seed, their direction, and whether what they may make zero is zero."""

SLACK = 8
"""A device may differ by so many times what these runs differ by."""


@attrs.frozen
class Expected:
    """A value, and how far another one may be from it."""

    value: Any
    spread: Any
    """How far each number may be off; infinite where nothing can be said."""


def expected(graph: Graph, feeds: Sequence[Any]) -> list[Expected]:
    """The graph's outputs by the reference, with what its roundings may do to them."""
    exact = run(graph, feeds, None)
    noisy = [run(graph, feeds, Noise(np.random.default_rng(seed), way, zeros)) for seed, way, zeros in RUNS]
    return [
        Expected(exact[entry], _spread(exact[entry], [other[entry] for other in noisy]))
        for entry in graph.outputs
    ]


@attrs.frozen
class Noise:
    """What makes roundings wrong."""

    random: np.random.Generator
    way: float
    """1, or -1 for the same errors with the other sign: what a hair decides falls to both sides."""
    zeros: bool = False
    """Is a number that its own error may make zero zero?"""

    def drawn(self, options: Sequence[float], shape: tuple[int, ...]) -> Array:
        """One of these numbers for each place."""
        return self.way * self.random.choice(options, shape)


UNSURE = object()
"""A value that does not exist where roundings go wrong: the sizes before it depend on them."""


def run(graph: Graph, feeds: Sequence[Any], noise: Noise | None) -> dict[NodeEntry, Any]:
    """Every value of the graph, with each rounding a little wrong if there is noise."""
    values: dict[NodeEntry, Any] = {node[0]: value for node, value in zip(graph.inputs, feeds, strict=True)}
    for node in graph.nodes:
        if node.is_variable:
            continue
        read = [None if entry is None else values[entry] for entry in node.inputs]
        rounds = noise is not None and node.is_op and node.op not in EXACT
        if noise is not None and rounds:
            read = [_moved(value, noise) for value in read]
        captured = [values[entry] for entry in node.captures]
        result = evaluate_node(node, read, graph.opsets, captured) if noise is None else _tried(node, read, graph, captured)
        if noise is not None and rounds:
            terms = largest_term(node, read)
            result = tuple(_noisy(value, noise, str(node.op), terms) for value in result)
            if node.op in PERIODIC and result[0] is not UNSURE:
                result = (_without_lost_angles(read[0], result[0]),)
        values.update(zip(node.outputs, result, strict=True))
    return values


def _tried(node: Node, read: Sequence[Any], graph: Graph, captured: Sequence[Any]) -> tuple[Any, ...]:
    """The node's outputs; unsure where its inputs are, or do not fit any more."""
    if not any(value is UNSURE for value in (*read, *captured)):
        try:
            return evaluate_node(node, read, graph.opsets, captured)
        except GraphError:
            pass
    return (UNSURE,) * len(node.output_names)


def _without_lost_angles(given: Array, result: Array) -> Array:
    """NaN, of which nothing can be said, where the next number is another angle."""
    with np.errstate(all="ignore"):
        lost = np.abs(given.astype(np.float64)) * step_of(given.dtype) > 1e-2
    return np.where(lost, np.nan, result.astype(np.float64)).astype(result.dtype)


def step_of(dtype: np.dtype[Any]) -> float:
    """The distance from one to the next number; 0 where values are exact, as those of eight bits and fewer are."""
    if dtype.name == "bfloat16":
        return 2.0**-7
    return float(np.finfo(dtype).eps) if dtype.kind == "f" and dtype.isbuiltin == 1 else 0.0


def _moved(value: Any, noise: Noise) -> Any:
    """The array with each number a little larger or smaller, as if what is computed on the way to it were rounded."""
    if not isinstance(value, np.ndarray) or not step_of(value.dtype) or not value.size:
        return value
    with np.errstate(all="ignore"):
        wide = value.astype(np.float64)
        limits = ml_dtypes.finfo(value.dtype)
        errors = noise.drawn((-1.0, 1.0), wide.shape)
        # What is computed of denormal numbers has few digits on its way.
        denormal = (wide != 0) & (np.abs(wide) < float(limits.smallest_normal))
        lost = np.where(denormal, STEPS * float(limits.smallest_subnormal), 0.0)
        return (wide * (1 + step_of(value.dtype) * errors) + lost * errors).astype(value.dtype)


def _noisy(value: Any, noise: Noise, op: str, terms: float) -> Any:
    if not isinstance(value, np.ndarray) or not step_of(value.dtype) or not value.size:
        return value
    wide = value.astype(np.float64)
    finite = np.abs(wide[np.isfinite(wide)])
    scale = max(float(finite.max()) if finite.size else 0.0, 4.0 if op in PART_OF_ONE else 0.0, terms)
    step = max(step_of(value.dtype), 2.0**-23) * STEPS
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        least = float(ml_dtypes.finfo(value.dtype).smallest_subnormal)  # no rounding is smaller, whatever the scale
        most = step * (np.abs(wide) + scale / 4)
        # Errors of several sizes: those of two ops that follow each other must not make up for each other.
        errors = noise.drawn((-1.0, -0.7, -0.4, 0.4, 0.7, 1.0), wide.shape)
        errors = errors * most + np.sign(errors) * least
        moved = np.where(noise.zeros & (np.abs(wide) <= most + least), 0.0, wide + errors)
        zeros = noise.way * wide if op in SIGN_LEFT_OPEN else wide
        return np.where((op in KEEPS_ZEROS) & (wide == 0), zeros, moved).astype(value.dtype)


def _spread(exact: Any, noisy: Sequence[Any]) -> Any:
    if not isinstance(exact, np.ndarray):
        return None
    if any(other is UNSURE or other.shape != exact.shape for other in noisy):
        return np.inf
    wide = exact.astype(np.float64)
    far = np.zeros(wide.shape)
    with np.errstate(all="ignore"):
        for other in noisy:
            other = other.astype(np.float64)
            same = (other == wide) | (np.isnan(other) & np.isnan(wide))
            distance = np.abs(other - wide)
            far = np.maximum(far, np.where(same, 0.0, np.where(np.isfinite(distance), distance, np.inf)))
    if step_of(exact.dtype):
        return far
    return np.where(far > 0, np.inf, 0.0)


def difference(result: Any, wanted: Expected) -> str | None:
    """How the value differs from what is expected beyond what roundings may do; None if it does not."""
    value = wanted.value
    if not isinstance(value, np.ndarray):
        return None
    if not isinstance(result, np.ndarray):
        return f"{type(result).__name__} instead of an array"
    if result.dtype != value.dtype:
        return f"{result.dtype} instead of {value.dtype}"
    if np.isscalar(wanted.spread) and np.isinf(wanted.spread):
        return None
    if result.shape != value.shape:
        return f"sizes {list(result.shape)} instead of {list(value.shape)}"
    if not value.size:
        return None
    allowed = _allowed(value, wanted.spread)
    if not allowed.any():
        wrong = ~((result == value) | ((result != result) & (value != value)))
        return _described(result, value, wrong)
    a, b = result.astype(np.float64), value.astype(np.float64)
    with np.errstate(all="ignore"):
        right = (a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= allowed) | np.isinf(allowed)
    return _described(result, value, ~right)


def _allowed(value: Array, spread: Array) -> Array:
    """What its rounding and those before it may come to."""
    step = step_of(value.dtype)
    if not step:
        return np.asarray(spread)
    wide = np.abs(value.astype(np.float64))
    finite = wide[np.isfinite(wide)]
    scale = float(finite.max()) if finite.size else 0.0
    if not np.any(spread):
        return np.zeros(wide.shape)
    return np.where(np.isinf(spread), np.inf, SLACK * np.asarray(spread) + 2 * step * (wide + scale))


SPECIAL = "where one of both is NaN or infinite"
"""Said of a difference none of whose numbers is finite on both sides."""


def _described(result: Array, value: Array, wrong: Any) -> str | None:
    count = int(np.count_nonzero(wrong))
    if not count:
        return None
    with np.errstate(all="ignore"):
        finite = np.isfinite(result.astype(np.float64)) & np.isfinite(value.astype(np.float64))
    special = "" if (wrong & finite).any() else f", {SPECIAL}"
    position = np.unravel_index(int(np.argmax(wrong)), value.shape) if value.ndim else ()
    where = f"at {[int(i) for i in position]} " if position else ""
    return f"{count} of {value.size} numbers differ: {where}{result[position]} instead of {value[position]}{special}"
