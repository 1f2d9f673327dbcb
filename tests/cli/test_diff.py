"""The verb that compares two report pages."""

from __future__ import annotations

from pathlib import Path

import pytest

import partita as pt
from partita.page.reading import read_page
from tests.cli.conftest import Command
from tests.page.test_differences import cut


def test_the_command_compares_and_writes_a_page(partita: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pt.report_page(cut("Conv", "Relu"), "before.html")
    pt.report_page(cut("Conv", "Relu", "MaxPool"), "after.html")
    done = partita("diff before.html after.html -o changes.html")
    assert "pool" in done.out and "no device or subgraph → cut" in done.out and "wrote changes.html" in done.out
    assert len(read_page("changes.html").changes) == 2
    data = partita("diff before.html after.html --json").json
    assert data["changes"][0] == {"kind": "moved", "name": "pool", "text": "no device or subgraph → cut"}
    assert data["counts"]["subgraphs"] == {"before": "2", "after": "1"}
    assert "nothing moved, and no time changed" in partita("diff after.html after.html").out
    for conditions, status in (("moved", 1), ("new,gone", 0), ("never", 0), ("regrouped", 1), ("slower", 2), ("faster", 2)):
        assert partita(f"diff before.html after.html --fail-on {conditions}").status == status, conditions
    assert partita("diff before.html after.html --json --fail-on moved,gone").json["failed"] == ["moved"]
    done = partita("diff before.html after.html -o after.html")
    assert done.status == 1 and len(read_page("after.html").changes) == 0
