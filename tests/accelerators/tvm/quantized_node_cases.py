"""ONNX's node tests of quantized ops and of casts on `HETERO:cpu,reference`: which of them run on `cpu` itself.

    python -m tests.accelerators.tvm.quantized_node_cases

prints the table of benchmarks/notes/quantized.md, and what is wrong, if anything is."""

from __future__ import annotations

import importlib
import re
import warnings
from collections import Counter
from typing import Any

import attrs
import numpy as np

import partita as pt
from tests.numerics.driver import from_proto

FAMILIES = (
    "quantizelinear", "dequantizelinear", "dynamicquantizelinear", "qlinearconv", "qlinearmatmul", "convinteger", "matmulinteger",
    "cast", "castlike",
)
"""ONNX's files of cases."""

DEVICES = "HETERO:cpu,reference"


@attrs.frozen
class Ran:
    """What became of one case."""

    family: str
    name: str
    refusals: tuple[str, ...]
    """Why ops of it do not run on `cpu`, the names of values left out; none: all of it runs there."""
    is_right: bool


def cases() -> dict[str, list[Any]]:
    """The cases of each family, without making those of other ops."""
    import onnx.backend.test.case.node as node

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for family in FAMILIES:
            importlib.import_module(f"{node.__name__}.{family}")
    by_family: dict[str, list[Any]] = {family: [] for family in FAMILIES}
    for case in node._NodeTestCases:
        fitting = [family for family in FAMILIES if re.fullmatch(rf"test_(basic_)?{family}(_.*)?", case.name)]
        for family in fitting[:1]:
            by_family[family].append(case)
    return by_family


def ran(family: str, case: Any) -> Ran:
    """Run a case, and compare: integers and bits of floats have to be the same, float32 nearly so."""
    graph = pt.load(case.model)
    placed = pt.query(graph, DEVICES)
    refusals = {_reason(placed.why(name)) for name, device in placed.items() if device != "cpu"}
    model = pt.compile(graph, DEVICES)
    is_right = True
    for given, wanted in case.data_sets:
        names = [value.name for value in case.model.graph.input]
        outputs = model({name: from_proto(array) for name, array in zip(names, given, strict=True)})
        pairs = zip(outputs, map(from_proto, wanted), strict=True)
        is_right = is_right and all(a.dtype == b.dtype and _is_same(np.asarray(a), b) for a, b in pairs)
    return Ran(family, case.name, tuple(sorted(refusals)), is_right)


def _is_same(a: Any, b: Any) -> bool:
    if a.dtype == object:
        return np.array_equal(a, b)
    if a.dtype.kind == "f":
        return np.allclose(a, b, rtol=1e-6, equal_nan=True)
    if a.dtype.kind in "iub":
        return np.array_equal(a, b)
    return np.array_equal(a.astype("float32"), b.astype("float32"), equal_nan=True)


def _reason(why: str) -> str:
    """The reason of `cpu`, without the names of values."""
    line = next((line for line in why.splitlines() if "cpu" in line), why)
    return re.sub(r"'[^']*' ", "", line.partition("cpu: ")[2] or line)


def _short(reason: str) -> str:
    """The element type that a reason speaks of; the reason, if it speaks of none."""
    known = re.search(r"element type (\w+), which TVM's kernels do not take", reason)
    return known[1] if known else reason


def all_ran() -> list[Ran]:
    """What became of all cases."""
    return [ran(family, case) for family, listed in cases().items() for case in listed]


def table(outcomes: list[Ran]) -> str:
    """The table of benchmarks/notes/quantized.md."""
    lines = ["| node tests | cases | all on `cpu` | others, with values of these element types |", "|---|---|---|---|"]
    for family in FAMILIES:
        own = [outcome for outcome in outcomes if outcome.family == family]
        reasons = Counter(_short(reason) for outcome in own for reason in outcome.refusals)
        types = ", ".join(f"{reason} ({count})" for reason, count in sorted(reasons.items()))
        lines.append(f"| {family} | {len(own)} | {sum(not outcome.refusals for outcome in own)} | {types} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    listed = all_ran()
    print(table(listed))
    for outcome in listed:
        if outcome.refusals or not outcome.is_right:
            print(outcome.name, "" if outcome.is_right else "WRONG", *outcome.refusals)
