"""Error of a model's outputs relative to the expected ones, and the allowed error."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from numbers import Real
from typing import Any

import attrs
import numpy as np

from partita.accelerators.arrays.distance import scales
from partita.accelerators.errors import BadConfig
from partita.graph.formatting import counted
from partita.graph.graph import Graph
from partita.graph.node import Node, NodeEntry
from partita.graph.ops.traits import ops
from partita.graph.order import reachable
from partita.graph.types import ELEMENT_TYPES, TensorType

TINY = 1e-30
"""Smaller probabilities are raised to this value before logarithms are compared."""

TOLERANCES = {"float16": 1e-2, "bfloat16": 5e-2}
"""Maximum error by element type, if it differs from that of float32."""

TOLERANCE = 1e-3
"""Maximum error of float32 and of all wider types."""

SMALLEST = 0.25
"""Maximum error of float types of eight bits and less, which have two or three significant bits."""

ROUNDED = 2e-2
"""Maximum error of values that depend on quantized values: occasionally one is rounded to the next step."""

PRECISIONS = {
    "f32": TOLERANCE, "f16": TOLERANCES["float16"], "bf16": TOLERANCES["bfloat16"], "fast": TOLERANCES["bfloat16"],
    "tf32": TOLERANCES["float16"],
}
"""Maximum error by PRECISION, in which a device computes a float32 model. TF32 has as many significant bits as float16."""

STEPS = frozenset(row.name for row in ELEMENT_TYPES.values() if row.kind in ("int", "uint") and row.bits <= 8)
"""Element types of quantized values, which may differ by one step."""


@attrs.frozen(slots=True)
class Difference:
    """Comparison of one output."""

    output: str
    """Name of the output."""
    worst: float
    """Largest |a - b| relative to the largest |b|; infinite if one has a NaN, an infinity or a size that the other lacks. For
    quantized values: largest number of steps. For other integers, text and booleans: 0 if equal, else 1."""
    where: tuple[int, ...]
    """Position of the largest error in the output."""
    logarithms: bool
    """True if logarithms were compared, because a final softmax hides errors before it."""
    tolerance: float = TOLERANCE
    """Largest error that is allowed."""
    steps: bool = False
    """True if `worst` and `tolerance` are numbers of steps, as for quantized values."""

    @property
    def ok(self) -> bool:
        """True if the error is allowed."""
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
    """Raises BadConfig unless the tolerance is None or a valid error."""
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
    """Compares the outputs of a graph one by one. The allowed error is the `tolerance`; by default it follows from the element
    types of all values that the output depends on and from `precision`. `inner` is for values inside a model: the result of a
    Softmax is compared like any other, and errors of elements that are not masked are not relative to the huge ones of a mask."""
    differences = []
    for name, entry, a, b in zip(graph.output_names, graph.outputs, ours, expected, strict=True):
        logarithms = entry.node.op == "Softmax" and not inner
        worst, where = _worst(a, b, logarithms, inner)
        allowed = _allowed(entry, b, tolerance, precision, inner)
        steps = isinstance(b, np.ndarray) and b.dtype.name in STEPS and np.isfinite(worst)
        differences.append(Difference(name, worst, where, logarithms, allowed, bool(steps)))
    return differences


def _allowed(entry: NodeEntry, value: Any, tolerance: float | None, precision: str, inner: bool) -> float:
    """The allowed error. Inside a model a rounding to the next step is allowed whatever the tolerance."""
    if tolerance is None:
        return tolerance_of(entry, value, precision)
    if isinstance(value, np.ndarray) and value.dtype.name in STEPS:
        steps = tolerance * float(np.abs(value.astype(np.int16)).max(initial=0))
        return max(1.0, steps) if inner else steps
    return max(tolerance, ROUNDED) if inner and is_rounded(reachable([entry.node])) else tolerance


def tolerance_of(entry: NodeEntry, value: Any, precision: str, rounded: bool = True) -> float:
    """The allowed error of an output, by the least precise type among the values that it depends on, and with `rounded` by their
    quantization."""
    if isinstance(value, np.ndarray) and not _is_float(value):
        return 1.0 if rounded and value.dtype.name in STEPS else 0.0
    own = _of_type(value.dtype.name) if isinstance(value, np.ndarray) else TOLERANCE
    way = reachable([entry.node])
    steps = ROUNDED if rounded and is_rounded(way) else 0.0
    return max(own, PRECISIONS.get(precision, TOLERANCE), _on_the_way(way), steps)


def is_rounded(nodes: Iterable[Node]) -> bool:
    """True if one of the ops, or of the ops in their bodies, quantizes."""
    return any(node.op in ops("quantized") or any(is_rounded(body.nodes) for _, body in node.bodies) for node in nodes)


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
    row = ELEMENT_TYPES.get(dtype)
    is_small = row is not None and row.kind == "float" and row.bits <= 8
    return SMALLEST if is_small else TOLERANCES.get(dtype, TOLERANCE)


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
    """Equality of sequences, optionals and maps, element by element."""
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return _worst(a, b, False)[0] < 1e-3
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(_equal, a, b))
    return bool(a == b)
