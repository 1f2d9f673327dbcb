"""The public conformance cases, on integers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from partita.partition.growth import largest, seed, walk, waves
from tests.partition.growth.oracles import acyclic
from tests.partition.growth.test_walk import Device

CASES = json.loads((Path(__file__).parents[2] / "data" / "partition_cases.json").read_text("utf-8"))


def groups_of(case, growth):
    """-> (the groups by name, is the partition acyclic)."""
    names = [node["name"] for node in case["nodes"]]
    preds = [[names.index(name) for name in node["inputs"]] for node in case["nodes"]]
    if case["rule"] == "affinity":
        color = [node.get("affinity") for node in case["nodes"]]
    else:
        color = [0 if node["op"] in case["rule"]["ops"] else None for node in case["nodes"]]
    usable = [node["op"] not in {"input", "const"} for node in case["nodes"]]
    groups = {
        "largest": lambda: largest(preds, color),
        "seed": lambda: seed(preds, color)[0],
        "waves": lambda: waves(preds, color),
        "walk": lambda: walk(preds, usable, lambda: Device(color)),
    }[growth]()
    return [[names[v] for v in group] for group in groups], acyclic(preds, groups)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_case(case) -> None:
    growths = [case["growth"]] if "growth" in case else ["largest", "seed", "walk"]
    for growth in growths:
        groups, is_acyclic = groups_of(case, growth)
        assert is_acyclic
        if "expect" in case:
            assert sorted(map(sorted, groups)) == sorted(map(sorted, case["expect"]))
        if "max_groups" in case:
            assert len(groups) <= case["max_groups"]
