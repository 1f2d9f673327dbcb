"""The public conformance cases, on real graphs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from partita.graph import Graph, Node, constant, op, variable
from partita.partition import Plan, plan
from partita.passes import apply_pass

from .making import check_partition_of, groups_of, ops

CASES = json.loads((Path(__file__).parents[1] / "data" / "partition_cases.json").read_text("utf-8"))


def build(case: dict[str, Any]) -> Graph:
    """The case as a graph whose values are all of one shape (a convolution of four by four keeps its size)."""
    shape = (4, 4, 1, 1)
    listed: dict[str, Node] = {}
    for row in case["nodes"]:
        name = row["name"]
        if row["op"] == "input":
            listed[name] = variable(name, "float32", shape)
        elif row["op"] == "const":
            listed[name] = constant(np.full(shape, 0.25, np.float32), name)
        else:
            listed[name] = op(row["op"], *(listed[i] for i in row["inputs"]), name=name)
            listed[name].affinity = row.get("affinity")
    return Graph([listed[name] for name in case["outputs"]])


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_case(case: dict[str, Any]) -> None:
    g = build(case)
    options = {"growth": case["growth"]} if "growth" in case else {}
    if case["rule"] != "affinity":
        options["subgraph_property"] = ops(*case["rule"]["ops"])
    result = apply_pass(g, "PartitionGraph", **options)
    check_partition_of(g, result)
    groups = groups_of(result)
    if "expect" in case:
        assert sorted(map(sorted, groups)) == sorted(map(sorted, case["expect"]))
    assert len(groups) <= case.get("max_groups", len(groups))
    planned = plan(g, **options)
    assert str(planned.apply(g)) == str(result)
    assert Plan.from_json(planned.to_json()).to_json() == planned.to_json()
