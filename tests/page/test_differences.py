"""Two reports compared: what moved, what was regrouped, what took longer; and pages read back, whoever wrote them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

import partita as pt
from partita.page import reading
from partita.page.collect import collect
from partita.page.differences import compared
from partita.page.reading import BEGIN, _check_nesting, read_page
from partita.page.scene import Item, Scene
from tests.graphs.pages import HOSTILE, long, small

Opened = Callable[..., Any]


def cut(*ops: str) -> pt.Graph:
    graph = pt.apply_pass(small(), "InlineSubgraphs")
    return pt.apply_pass(graph, "PartitionGraph", subgraph_property=pt.PatternProperty(pt.ContainOpSelector(set(ops)), "cut"))


def placed(pool: str) -> pt.Placement:
    placement = pt.query(pt.apply_pass(small(), "InlineSubgraphs"), "HETERO:onnxruntime,reference")
    placement["pool"] = pool
    return placement


def lines(scene: Scene) -> list[str]:
    return [f"{change.what}: {change.name}: {change.text}" for change in scene.changes]


def test_what_was_cut_otherwise() -> None:
    scene = compared(collect(cut("Conv", "Relu")), collect(cut("Conv", "Relu", "MaxPool")))
    assert lines(scene) == [
        "moved: pool: no device or subgraph → cut",
        "regrouped: cut_0: 5 ops: 2 of cut_0, 2 of cut_1, 1 of no subgraph",
    ]
    assert scene.before == "small, a partitioned graph"
    assert [row for row in scene.compared if row[1] != row[2]] == [
        ("subgraphs", "2", "1"),
        ("borders", "2", "0"),
        ("refusals", "1", "0"),
        ("values in transfers", "2", "0"),
        ("bytes in transfers", "960", "0"),
    ]
    assert lines(compared(collect(cut("Conv")), collect(cut("Conv")))) == []


def test_what_moved_to_another_device() -> None:
    scene = compared(collect(placed("reference")), collect(placed("onnxruntime")))
    assert lines(scene)[0] == "moved: pool: reference → onnxruntime"
    assert lines(scene)[1].startswith("regrouped: onnxruntime_0: 5 ops: ")
    assert scene.items[scene.changes[0].item].name == "pool"


def test_ops_that_came_and_went() -> None:
    x = pt.variable("x", "float32", (2,))
    first = pt.Graph([pt.op("Sin", pt.op("Exp", x, name="a"), name="b")], name="g")
    second = pt.Graph([pt.op("Cos", pt.op("Exp", x, name="a"), name="c")], name="g")
    assert lines(compared(collect(first), collect(second))) == ["new: c: Cos", "gone: b: Sin"]


def test_times_of_what_has_the_same_ops() -> None:
    before = collect(cut("Conv", "Relu"))
    now = collect(cut("Conv", "Relu"))
    for scene, times in ((before, (1000.0, 50.0, 2000.0)), (now, (4000.0, 51.0, 1000.0))):
        for item in scene.items:
            if item.name in ("cut_0", "cut_1", "pool"):
                item.us = times[("cut_0", "pool", "cut_1").index(item.name)]
    before, now = (attrs.evolve(scene, run="inputs", total_us=total) for scene, total in ((before, 3050.0), (now, 5051.0)))
    scene = compared(before, now)
    assert lines(scene) == ["time: cut_0: 1.00 ms → 4.00 ms", "time: cut_1: 2.00 ms → 1.00 ms"]
    assert scene.compared[-1] == ("run", "3.05 ms", "5.05 ms")


@pytest.mark.parametrize("subject", [small, lambda: small(hostile=True), lambda: long(600), lambda: placed("reference")])
def test_a_page_is_read_back_whole(subject: Callable[[], Any], tmp_path: Path) -> None:
    graph = subject()
    assert read_page(pt.report_page(graph, tmp_path / "page.html")).to_json() == collect(graph).to_json()
    changed = pt.report_page(graph, tmp_path / "changed.html", before=tmp_path / "page.html")
    assert read_page(changed).to_json() == compared(collect(graph), collect(graph)).to_json()


def damaged(change: Callable[[Any], Any]) -> Callable[[str], str]:
    def write(page: str) -> str:
        start = page.index(BEGIN) + len(BEGIN)
        end = page.index("</script>", start)
        data = json.loads(page[start:end])
        return page[:start] + json.dumps(change(data) or data) + page[end:]

    return write


@pytest.mark.parametrize(
    "damage, why",
    [
        (lambda page: "<!doctype html>", "there is no report in it"),
        (lambda page: page[: page.index(BEGIN) + 200], "its data is not what this version of Partita writes"),
        (damaged(lambda data: [data]), "its data is not what"),
        (damaged(lambda data: data.pop("owners") and None), "KeyError"),
        (damaged(lambda data: data["items"].pop("us") and None), "KeyError"),
        (damaged(lambda data: data["items"]["us"].pop() and None), "its data is not what"),
        (damaged(lambda data: data["items"]["name"].__setitem__(0, 10**9)), "IndexError"),
        (damaged(lambda data: data["items"]["name"].__setitem__(0, -1)), "-1 is not a number of a text"),
        (damaged(lambda data: data["items"]["parent"].__setitem__(1, 1)), "boxes that lie in each other"),
        (damaged(lambda data: data["items"]["parent"].__setitem__(0, 0)), "boxes that lie in each other"),
        (damaged(lambda data: data["items"]["parent"].__setitem__(0, -2)), "a number of a box that is not there"),
        (damaged(lambda data: data["items"]["parent"].__setitem__(1, 99)), "a number of a box that is not there"),
        (damaged(lambda data: data["edges"][0].__setitem__(0, 99)), "a number of a value that is not there"),
        (damaged(lambda data: data["values"]["source"].__setitem__(0, -1)), "a number of a box that is not there"),
        (damaged(lambda data: data["items"].__setitem__("us", {})), "its data is not what"),
        (damaged(lambda data: data["items"]["us"].__setitem__(0, float("nan"))), "nan is not a time"),
        (lambda page: page.replace('"total_us":0.0', '"total_us":1e999'), "inf is not a time"),
        (lambda page: page.replace('"nbytes":[768', '"nbytes":[1e999'), "OverflowError"),
    ],
)
def test_what_is_no_report_is_an_error(damage: Callable[[str], str], why: str, tmp_path: Path) -> None:
    path = pt.report_page(small(), tmp_path / "page.html")
    path.write_text(damage(path.read_text("utf-8")), "utf-8")
    with pytest.raises(pt.GraphError, match=re.escape(why)) as caught:
        read_page(path)
    assert "Give a file that report_page or --report wrote" in str(caught.value)


def test_boxes_deep_in_each_other_are_none_that_lie_in_each_other() -> None:
    items = [Item("call", f"a{i}", "", i + 1 if i < 99 else -1) for i in range(100)]
    _check_nesting(items)
    items[99].parent = 40
    with pytest.raises(ValueError, match="boxes that lie in each other"):
        _check_nesting(items)


def test_a_page_as_large_as_one_may_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = pt.report_page(small(), tmp_path / "page.html")
    size = path.stat().st_size
    monkeypatch.setattr(reading, "LARGEST", size)
    assert read_page(path).to_json() == collect(small()).to_json()
    monkeypatch.setattr(reading, "LARGEST", size - 1)
    with pytest.raises(pt.GraphError, match="it is too large"):
        read_page(path)


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    for name, why in (("none.html", "No such file"), ("", "it is not a file"), ("binary", "it is not text")):
        path = tmp_path / name
        with pytest.raises(pt.GraphError, match=why):
            pt.report_page(small(), tmp_path / "page.html", before=path)
    assert not (tmp_path / "page.html").exists()


def test_what_changed_is_marked_in_the_page(opened: Opened) -> None:
    page = opened(cut("Conv", "Relu", "MaxPool"), before=cut("Conv", "Relu"))
    page.get_by_role("tab", name="Changes 2").click()
    said = page.locator(".panel-body").inner_text()
    for part in ("since small, a partitioned graph", "moved (1)", "MaxPool pool", "2 of cut_0, 2 of cut_1"):
        assert part in said
    assert "no device or subgraph → cut" in said
    assert page.locator(".picture .box[data-box] .changed").count() == 1
    page.get_by_role("button", name="MaxPool pool").click()
    assert "moved: no device or subgraph → cut" in page.locator(".changed-note").inner_text()
    page.get_by_role("button", name="Close all").click()
    page.wait_for_selector(".stage[aria-busy=false]")
    assert page.locator(".picture .box.call[data-box] .changed").count() == 1, "a closed box bears the mark of what is inside"


def test_a_hostile_earlier_report_is_text(opened: Opened) -> None:
    page = opened(small(), before=small(hostile=True))
    page.get_by_role("tab", name=re.compile("Changes")).click()
    assert HOSTILE.split("\u2028", maxsplit=1)[0].strip() in page.locator(".panel-body").text_content()
    assert page.evaluate("window.hacked") is None
