"""JSON for people: a line per entry, so that versions can be compared, and names as they are."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import partita as pt
from partita.accelerators.runtime.profile import Profile, Row, Span


def graph() -> pt.Graph:
    x = pt.variable("größe", "float32", (2, 3))
    return pt.Graph([pt.op("Relu", x, name="höher")], [x], "netz für größen")


class Grouping(pt.SubgraphProperty):
    name = "made"

    def create_subgraph_selector(self) -> pt.SubgraphSelector:
        return pt.ContainOpSelector({"Relu"})


def plan(folder: Path) -> str:
    return pt.plan(graph(), subgraph_property=Grouping()).to_json()


def placement(folder: Path) -> str:
    pt.query(graph(), "reference").lock(folder / "plan.json")
    return (folder / "plan.json").read_text("utf-8")


def costs(folder: Path) -> str:
    return pt.Costs({"reference": {"höher": 2.5}}).to_json()


def profile(folder: Path) -> str:
    row = Row("reference_0", 1, "höher", "EXECUTED", "Relu", 2.0, 1.0, "reference", "", "float32")
    return Profile("größen", "given", 2.0, (Span("reference_0", "reference", 0.0, 2.0, (row,)),), (), 3.0, 1, None).to_json()


def stages(folder: Path) -> str:
    pt.compile(graph(), "reference").stages(pt.Costs({})).save(folder, "onnx")
    return (folder / "stages.json").read_text("utf-8")


@pytest.mark.parametrize("write", [plan, placement, costs, profile, stages])
def test_json_has_a_line_per_entry_and_names_as_they_are(write: Callable[[Path], str], tmp_path: Path) -> None:
    text = write(tmp_path)
    lines = text.split("\n")
    assert lines[0] == "{" and lines[-2:] == ["}", ""] and not text.isascii() and "\\u" not in text
    assert list(json.loads(text)) == [line[2:].partition('"')[0] for line in lines if line.startswith(' "')]
