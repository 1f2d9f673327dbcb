"""Small variations of single ops on `cpu`, against the reference: attributes, versions, inputs left out, cut or of one more axis.

What `cpu` takes it computes as the reference does. Where the reference refuses a node, it may answer, but it has to live."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import partita as pt
from partita.graph.numerics import evaluate
from tests.numerics.case import Case
from tests.numerics.kept_variations import CASES, kept, variations

FEW = 9
"""Integer inputs of fewer elements than this are constants: axes, sizes and the like."""

FREE = {"QuantizeLinear": "NaN has no integer", "DynamicQuantizeLinear": "NaN has no integer", "Dropout": "drawn numbers"}
"""Ops whose results are free, for the inputs here, and why."""

UNSIGNED = ("to=2", "to=4", "to=12", "to=13")
"""Variations of Cast whose results are free: the inputs are negative too."""

COARSE = {"float16": 4e-3, "bfloat16": 2e-2}


def graph_of(case: Case, inputs: Any, attributes: Any, version: int) -> tuple[pt.Graph, dict[str, Any]]:
    """The op alone, and what to call it with."""
    read: list[Any] = []
    given: dict[str, Any] = {}
    for i, x in enumerate(inputs):
        if x is None:
            read.append(None)
        elif i and x.dtype.kind in "iub" and x.size < FEW:
            read.append(pt.constant(x))
        else:
            given[f"x{i}"] = x
            read.append(pt.variable(f"x{i}", "string" if x.dtype.kind in "OU" else x.dtype.name, x.shape))
    node = pt.op(case.op, *read, name="y", n_outputs=case.outputs, opset=version, **attributes)
    return pt.Graph([node[k] for k in range(case.outputs)], opsets={"": version}), given


def difference(got: Any, wanted: Any) -> str:
    """The difference of a result from the reference's; "" if it does not. Rounded bytes may differ by one."""
    a, b = np.asarray(got), np.asarray(wanted)
    if (a.shape, a.dtype) != (b.shape, b.dtype):
        return f"{a.dtype}{list(a.shape)} for {b.dtype}{list(b.shape)}"
    if b.dtype.kind in "OUS":
        return "" if (a.astype(str) == b.astype(str)).all() else "texts"
    x, y = a.astype(np.float64), b.astype(np.float64)
    finite = np.isfinite(y)
    if (np.isfinite(x) != finite).any():
        return "numbers that are not finite"
    off, top = np.abs(x - y)[finite].max(initial=0), np.abs(y[finite]).max(initial=0)
    if b.dtype.kind in "iub":
        return "" if off <= (b.dtype.kind != "b" and b.dtype.itemsize == 1) else f"off by {off:g}"
    return "" if off <= COARSE.get(b.dtype.name, 2e-5) * max(top, 1e-6) else f"off by {off:g} of {top:g}"


def wrong(case: Case, inputs: Any, attributes: Any, version: int) -> str:
    """The fault of one variation, or ""."""
    try:
        with np.errstate(all="ignore"):
            wanted = evaluate(case.op, inputs, attributes, version=version, n_outputs=case.outputs)
    except Exception:  # noqa: BLE001  (each is a refusal)
        wanted = None
    try:
        graph, given = graph_of(case, inputs, attributes, version)
        model = pt.compile(graph, "cpu")
    except pt.PartitaError:
        return ""
    try:
        got = list(model(given))
    except pt.PartitaError as error:
        return "" if wanted is None else f"refused: {error.cause}"
    pairs = zip(got, wanted or (None,) * len(got), strict=True)
    return "; ".join(filter(None, (difference(a, b) for a, b in pairs if b is not None)))


def faults(subject: str) -> Iterator[str]:
    """The faults of the variations of one case."""
    known, case = kept().get(subject, {}), CASES[subject]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, inputs, attributes, version in variations(case):
            is_free = case.op == "Cast" and name in UNSIGNED
            if name in known and not is_free and (fault := wrong(case, inputs, attributes, version)):
                yield f"{name}: {fault}"


@pytest.mark.slow
@pytest.mark.parametrize("subject", [subject for subject, case in CASES.items() if case.op not in FREE])
def test_variations_on_cpu(subject: str) -> None:
    assert not list(faults(subject))


def test_a_region_that_is_not_given_is_all_of_the_data() -> None:
    case = CASES["Resize 47"]
    _, inputs, attributes, version = next(v for v in variations(case) if v[0] == "without input 1")
    graph, given = graph_of(case, inputs, attributes, version)
    with pytest.raises(pt.NotSupported, match="a region that is not given"):
        pt.compile(graph, "cpu")
    wanted = evaluate(case.op, inputs, attributes, version=version, n_outputs=1)
    np.testing.assert_array_equal(pt.compile(graph, "HETERO:cpu,reference")(given)[0], wanted[0])


@pytest.mark.parametrize("equation", ["ii,jj->ijk", "ij,jk->...ik", "ij,jk->ikk", "ij,jk,kl->il"])
def test_an_equation_that_means_nothing_never_reaches_tvm(equation: str) -> None:
    x, y = (pt.variable(name, "float32", (3, 3)) for name in "xy")
    with pytest.raises(pt.PartitaError, match=r"Einsum.*the equation"):
        pt.compile(pt.Graph([pt.op("Einsum", x, y, name="z", equation=equation)]), "cpu")
