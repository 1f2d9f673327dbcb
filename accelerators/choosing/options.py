"""Checks the arguments of `choose_precision`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np

from partita.accelerators.errors import AcceleratorError
from partita.accelerators.precision.calibration import METHODS
from partita.accelerators.precision.lowered_ops import PRECISIONS, lowerable
from partita.accelerators.precision.precision_plan import check_precision
from partita.graph.errors import did_you_mean
from partita.graph.graph import Graph
from partita.graph.types import Array

Given = Mapping[str, Array]
"""Arrays by the names of the graph's inputs."""

UNITS = {"time": "µs", "memory": "bytes"}
"""The kinds of gain, and their units."""


def check_options(tolerance: float, precisions: Sequence[str], calibration: str, win: str, most: int) -> None:
    """Raises an error that names the option if one is invalid."""
    if not isinstance(most, Integral) or most < 1:
        raise AcceleratorError(f"most is {most!r}", where="choose_precision", remedy="Give a whole number from 1 on")
    if isinstance(precisions, str) or not isinstance(precisions, Sequence):
        cause = f"precisions are a list of names, not {precisions!r:.80}"
        raise AcceleratorError(cause, where="choose_precision", remedy='Write ["int8"]')
    if not isinstance(tolerance, Real) or not 0 <= tolerance < math.inf:
        raise AcceleratorError(f"tolerance is {tolerance!r}", where="choose_precision", remedy="Give a finite number from 0 on")
    offered = {"precisions": (precisions, PRECISIONS), "calibration": ([calibration], METHODS), "win": ([win], tuple(UNITS))}
    for option, (given, known) in offered.items():
        for value in given:
            if value not in known:
                remedy = did_you_mean(str(value), known) or f"There are {', '.join(known)}"
                raise AcceleratorError(f"there is no {value!r}", where=f"choose_precision, option {option}", remedy=remedy)


def batches_of(graph: Graph, inputs: Any) -> list[Given]:
    """Each call's arrays by name."""
    names = [node.name for node in graph.inputs]
    calls = inputs if isinstance(inputs, list) else [inputs]

    def by_name(call: Any) -> Given:
        arrays = call if isinstance(call, (Mapping, tuple)) else (call,)
        too_many = [f"input {i}" for i in range(len(names), len(arrays))]
        given = dict(arrays) if isinstance(arrays, Mapping) else dict(zip((*names, *too_many), arrays))
        return {name: np.asarray(array) for name, array in given.items()}

    batches = [by_name(call) for call in calls]
    for batch in batches:
        if batch.keys() != set(names):
            missing = sorted(set(names) - batch.keys()) or sorted(batch.keys() - set(names))
            raise AcceleratorError(
                f"the inputs given are not those of the graph: {missing[0]!r}", where=f"graph {graph.name!r}",
                remedy=f"Give arrays for {', '.join(names)}, or a list of such",
            )
    if not batches:
        raise AcceleratorError("no inputs are given", where="choose_precision", remedy="Give those of one call at least")
    for number, batch in enumerate(batches):
        for name, array in batch.items():
            first = batches[0][name].shape
            if array.shape != first:
                cause = f"{name!r} is of shape {array.shape} in call {number}, and of {first} in call 0"
                remedy = "Give calls of the same sizes; the plan applies to the graph with its symbols"
                raise AcceleratorError(cause, where=f"graph {graph.name!r}", remedy=remedy)
    return batches


def locked_of(graph: Graph, lock: Mapping[str, str]) -> dict[str, str]:
    """The precision of each op that a name or a pattern in `lock` matches."""
    if not isinstance(lock, Mapping):
        cause = f"it gives precisions by the names of ops, not {lock!r:.80}"
        raise AcceleratorError(cause, where="choose_precision, option lock", remedy='Write {"conv1": "float32"}')
    locked: dict[str, str] = {}
    names = [node.name for node in lowerable(graph)]
    for pattern, precision in lock.items():
        if not isinstance(pattern, str):
            cause = f"{pattern!r} is no name of an op"
            raise AcceleratorError(cause, where="choose_precision, option lock", remedy="Give a name, or a pattern of names")
        check_precision(precision, f"lock[{pattern!r}]")
        fitting = [name for name in names if name == pattern] or _matching(pattern, names)
        if not fitting:
            raise AcceleratorError(
                f"no op that may be lowered is called {pattern!r}", where="choose_precision, option lock",
                remedy=did_you_mean(pattern, names) or "Products with constant float32 weights may be lowered",
            )
        locked.update(dict.fromkeys(fitting, precision))
    return locked


def _matching(pattern: str, names: Sequence[str]) -> list[str]:
    try:
        return [name for name in names if re.fullmatch(pattern, name)]
    except re.error as error:
        where, remedy = "choose_precision, option lock", "Give a name, or a pattern of names"
        raise AcceleratorError(f"{pattern!r} is no pattern: {error}", where=where, remedy=remedy) from error
