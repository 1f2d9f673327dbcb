"""The distance of a model's outputs from those that are expected, and how large it may be."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from numbers import Real
from typing import Any

import attrs
import numpy as np

from partita.accelerators.arrays.distance import scales
from partita.accelerators.errors import BadConfig
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.graph.order import reachable
from partita.graph.types import TensorType
from partita.graph.words import counted

TINY = 1e-30
"""Probabilities below this are taken for this when logarithms are compared."""

TOLERANCES = {"float16": 1e-2, "bfloat16": 5e-2}
"""The largest error of what was computed in an element type, where it is not that of float32."""

TOLERANCE = 1e-3
"""The largest error of float32 and of all wider types."""

SMALLEST = 0.25
"""The largest error of float types of eight bits and less: they keep two or three digits of a number's binary form."""

ROUNDED = 2e-2
"""The largest error of numbers on the way to which values were quantized: now and then one is rounded to the next step."""

PRECISIONS = {
    "f32": TOLERANCE, "f16": TOLERANCES["float16"], "bf16": TOLERANCES["bfloat16"], "fast": TOLERANCES["bfloat16"],
    "tf32": TOLERANCES["float16"],
}
"""The largest error by PRECISION, in which a device computes a float32 model. TF32 has as many digits as float16."""

STEPS = frozenset({"int8", "uint8", "int4", "uint4", "int2", "uint2"})
"""The element types of quantized values, which may be one step apart."""

QUANTIZING = ("QuantizeLinear", "DynamicQuantizeLinear", "QLinear")
"""How the names of ops that round to few steps begin."""


@attrs.frozen(slots=True)
class Difference:
    """The comparison of one output."""

    output: str
    """The output's name."""
    worst: float
    """The largest |a - b|, over the largest |b|; infinite where one has NaN, an infinity or a size that the other has not.
    Of quantized values it is the largest number of steps; other integers, text and booleans are equal (0) or not (1)."""
    where: tuple[int, ...]
    """The position of the largest error in the output."""
    logarithms: bool
    """Were logarithms compared? A final softmax hides what went wrong before it."""
    tolerance: float = TOLERANCE
    """The largest error that is no fault."""
    steps: bool = False
    """Are both of them numbers of steps? So it is with quantized values."""

    @property
    def ok(self) -> bool:
        """Is it near enough?"""
        return self.worst <= self.tolerance

    def as_data(self) -> dict[str, Any]:
        """The comparison as plain data."""
        return {**attrs.asdict(self), "ok": self.ok}

    def __str__(self) -> str:
        how = " of the logarithms" if self.logarithms else ""
        verdict = "ok" if self.ok else f"WRONG, worst at {list(self.where)}"
        if self.steps:
            return f"{self.output}: {counted(int(self.worst), 'step')} apart, at most {self.tolerance:g}: {verdict}"
        return f"{self.output}: error {self.worst:.1e}{how}, at most {self.tolerance:g}: {verdict}"


def check_tolerance(tolerance: float | None, where: str) -> None:
    """BadConfig if it is no error that may be allowed."""
    if tolerance is not None and not (isinstance(tolerance, Real) and 0 <= tolerance < math.inf):
        remedy = "Give max|a - b| over max|b|, 0 or more; None: by types"
        raise BadConfig(f"tolerance is {tolerance!r:.80}", where=where, remedy=remedy)


def compare(
    graph: Graph,
    ours: Sequence[Any],
    expected: Sequence[Any],
    tolerance: float | None = None,
    precision: str = "f32",
    inner: bool = False,
) -> list[Difference]:
    """The outputs of a graph, one by one. Without a `tolerance` each output has that of the element types that it was
    computed in, or of the `precision` that was asked for. `inner` is for values within a model: what a Softmax made is compared
    as anything else, and the numbers of a mask are held against each other alone, since they would hide any other error."""
    differences = []
    for name, entry, a, b in zip(graph.output_names, graph.outputs, ours, expected, strict=True):
        logarithms = entry.node.op == "Softmax" and not inner
        worst, where = _worst(a, b, logarithms, inner)
        allowed = _allowed(entry, b, tolerance, precision, inner)
        steps = isinstance(b, np.ndarray) and b.dtype.name in STEPS and np.isfinite(worst)
        differences.append(Difference(name, worst, where, logarithms, allowed, bool(steps)))
    return differences


def _allowed(entry: NodeEntry, value: Any, tolerance: float | None, precision: str, inner: bool) -> float:
    """The error that is no fault. Within a model a rounding to the next step is none, whatever tolerance is given."""
    if tolerance is None:
        return tolerance_of(entry, value, precision)
    if isinstance(value, np.ndarray) and value.dtype.name in STEPS:
        steps = tolerance * float(np.abs(value.astype(np.int16)).max(initial=0))
        return max(1.0, steps) if inner else steps
    return max(tolerance, ROUNDED) if inner and is_rounded(reachable([entry.node])) else tolerance


def tolerance_of(entry: NodeEntry, value: Any, precision: str = "f32", rounded: bool = True) -> float:
    """How far an output may be from the expected value: by the coarsest type on the way to it, and by the steps to which
    values are `rounded` there."""
    if isinstance(value, np.ndarray) and not _is_float(value):
        return 1.0 if rounded and value.dtype.name in STEPS else 0.0
    own = _of_type(value.dtype.name) if isinstance(value, np.ndarray) else TOLERANCE
    way = reachable([entry.node])
    steps = ROUNDED if rounded and is_rounded(way) else 0.0
    return max(own, PRECISIONS.get(precision, TOLERANCE), _on_the_way(way), steps)


def is_rounded(nodes: Iterable[Node]) -> bool:
    """True if one of the ops, or of the ops of their bodies, rounds to few steps."""
    return any(
        (node.op or "").startswith(QUANTIZING) or any(is_rounded(body.nodes) for _, body in node.bodies) for node in nodes
    )


def _on_the_way(nodes: Iterable[Node]) -> float:
    coarsest = TOLERANCE
    for node in nodes:
        for value in node.outputs if node.is_op else ():
            if isinstance(value.type, TensorType):
                coarsest = max(coarsest, _of_type(value.type.dtype))
        for _, body in node.bodies:
            coarsest = max(coarsest, _on_the_way(body.nodes))
    return coarsest


def _of_type(dtype: str) -> float:
    return SMALLEST if dtype.startswith(("float8", "float4")) else TOLERANCES.get(dtype, TOLERANCE)


def _is_float(value: np.ndarray[Any, Any]) -> bool:
    return value.dtype.kind in "fc" or "float" in value.dtype.name


def _worst(a: Any, b: Any, logarithms: bool, inner: bool = False) -> tuple[float, tuple[int, ...]]:
    if not isinstance(b, np.ndarray) or not isinstance(a, np.ndarray):
        return (0.0 if _equal(a, b) else np.inf), ()
    if a.shape != b.shape or a.dtype != b.dtype:
        return np.inf, ()
    if not b.size:
        return 0.0, ()
    if not _is_float(b):
        steps = np.abs(a.astype(np.int16) - b.astype(np.int16)) if b.dtype.name in STEPS else a != b
        position = np.unravel_index(int(steps.argmax()), steps.shape)
        return float(steps[position]), tuple(map(int, position)) if steps[position] else ()
    wide = np.complex128 if b.dtype.kind == "c" else np.float64
    a, b = a.astype(wide), b.astype(wide)
    if logarithms:
        a, b = np.log(np.maximum(a, TINY)), np.log(np.maximum(b, TINY))
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):
        apart = np.where(same, 0, np.abs(a - b))
    apart = np.where(np.isnan(apart), np.inf, apart)
    if inner and b.dtype.kind == "f":
        apart = apart / scales(b)
        position = np.unravel_index(int(apart.argmax()), apart.shape)
        return float(apart[position]), tuple(map(int, position))
    finite = np.abs(b[np.isfinite(b)])
    scale = float(finite.max()) if finite.size else 0.0
    position = np.unravel_index(int(apart.argmax()), apart.shape)
    return float(apart[position]) / (scale or 1.0), tuple(map(int, position))


def _equal(a: Any, b: Any) -> bool:
    """Sequences, optionals and maps: element by element."""
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return _worst(a, b, False)[0] < 1e-3
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(_equal, a, b))
    return bool(a == b)
