"""One op, or a few, as a case to measure, and the words that cases are written in."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np

import partita as pt

Shape = tuple[int, ...]


@attrs.frozen
class Case:
    """One graph to measure; it is made when it is asked for."""

    name: str
    """The op, and what is special."""
    _build: Callable[..., Any]
    _given: tuple[Any, ...]
    _opset: int
    _low: float | None

    @property
    def size(self) -> int:
        """How many numbers the op reads."""
        return sum(spec.size if isinstance(spec, np.ndarray) else math.prod(_spec(spec)[1]) for spec in self._given)

    def arrays(self) -> list[np.ndarray]:
        """Random values for the op's inputs."""
        random = np.random.default_rng(0)
        return [s if isinstance(s, np.ndarray) else _array(*_spec(s), random, self._low) for s in self._given]

    def graph(self) -> pt.Graph:
        """The graph of the op between its inputs and outputs."""
        inputs = []
        for i, spec in enumerate(self._given):
            dtype, shape = (str(spec.dtype), spec.shape) if isinstance(spec, np.ndarray) else _spec(spec)
            inputs.append(pt.variable(f"x{i}", dtype, shape))
        result = self._build(*inputs)
        outputs = list(result) if isinstance(result, Sequence) else [result]
        return pt.apply_pass(pt.Graph(outputs, inputs=inputs, opsets={"": self._opset}), "InferShape")


def single(name: str, **attributes: Any) -> Callable[..., pt.Node]:
    """A builder of this one op with these attributes."""
    return lambda *x: pt.op(name, *x, opset=22, **attributes)


def case(name: str, build: Callable[..., Any], *given: Any, opset: int = 22, low: float | None = None) -> Case:
    """Inputs are shapes (of float32), pairs of element type and shape, or arrays."""
    return Case(name, build, given, opset, low)


def _spec(spec: Any) -> tuple[str, Shape]:
    return spec if len(spec) == 2 and isinstance(spec[0], str) else ("float32", spec)


def _array(dtype: str, shape: Shape, random: np.random.Generator, low: float | None) -> np.ndarray:
    if "float" in dtype:
        return np.asarray(random.standard_normal(shape) if low is None else random.uniform(low, 2, shape)).astype(dtype)
    return random.integers(int(low or 0), 2 if dtype == "bool" else 50, shape).astype(dtype)


def weight(*shape: int) -> pt.Node:
    """A constant of random numbers."""
    return pt.constant(np.random.default_rng(2).standard_normal(shape).astype("float32"))


def floats(value: Any) -> pt.Node:
    """A number, or several, as float32."""
    return pt.constant(np.array(value, "float32"))


def integers(*values: int) -> pt.Node:
    """A vector of int64."""
    return pt.constant(np.array(values, "int64"))


def integer(value: int) -> pt.Node:
    """An int64 of no dimensions."""
    return pt.constant(np.array(value, "int64"))


def shown(shape: Sequence[int]) -> str:
    """Sizes, or axes, in a word."""
    return "x".join(map(str, shape)) or "scalar"
