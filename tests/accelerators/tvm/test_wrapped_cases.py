"""ONNX's node tests with each model wrapped in one call: nothing is wrong, and nothing is elsewhere than in the flat model."""

from __future__ import annotations

from typing import Any

import pytest

import partita as pt
from partita.accelerators import onnx_backend
from tests.accelerators.devices.node_tests import case_names, exceptions, run_cases

pytest.importorskip("tvm")

DEVICE = "HETERO:cpu,reference"
FILE = "exceptions_cpu.txt"


def wrapped(g: pt.Graph) -> pt.Graph:
    """The graph with all its ops in one call."""
    ops = {node.op for node in g.nodes if node.is_op}
    whole = pt.PatternProperty(pt.ContainOpSelector(ops), "whole")
    result = pt.apply_pass(g, "PartitionGraph", subgraph_property=whole, growth="waves")
    return result if len(result.attrs["partition_report"].groups) == 1 else g


def is_as_flat(flat: dict[str, str], called: dict[str, str]) -> bool:
    """The call is where all of the flat model is; where that is in several places, the call's ops are where the flat ones are."""
    if called.keys() != flat.keys():
        return len(called) == 1 and set(called.values()) == set(flat.values())
    return called == flat


def sweep(names: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """These cases, wrapped, by ONNX's own runner, which compares the numbers."""
    load, moved, count = onnx_backend.load, {}, 0

    def load_wrapped(model: Any) -> pt.Graph:
        nonlocal count
        g = load(model)
        called = wrapped(g)
        if called is not g:
            count += 1
            flat, mine = dict(pt.query(g, DEVICE)), dict(pt.query(called, DEVICE))
            if not is_as_flat(flat, mine):
                moved[g.name] = (flat, mine)
        return called

    monkeypatch.setattr(onnx_backend, "load", load_wrapped)
    known = exceptions(FILE)
    failed = {name: why for name, why in run_cases(DEVICE, names).failed.items() if name not in known}
    monkeypatch.setattr(onnx_backend, "load", load)
    wrong_flat = run_cases(DEVICE, sorted(failed)).failed
    assert not moved
    assert failed == wrong_flat, "these are wrong in a call, and not as the flat model is"
    assert count > 0.9 * len(names)


@pytest.mark.slow  # ONNX takes half a minute to make its cases
def test_a_sample_of_wrapped_node_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    sweep(case_names(DEVICE)[::60], monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(12))
def test_all_wrapped_node_tests(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep(case_names(DEVICE)[part::12], monkeypatch)
